"""An estimate with the error that simulated fits show."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.stats import t as student_t

from skdpot._utils.arguments import check_confidence


@dataclass(frozen=True, eq=False)
class SimulatedEstimate:
    """A statistic of the population, and its error in simulated fits.

    A fit that smooths is biased. Simulations of the smooth fit show part of this bias: it is
    subtracted from the value, and it is also counted as an error.
    """

    value: np.ndarray  # bias subtracted
    standard_error: np.ndarray
    bias: np.ndarray  # mean of the simulated fits less the fit
    n_simulations: int

    @classmethod
    def of(cls, fitted: np.ndarray, simulated: np.ndarray) -> Self:
        """Estimate a statistic from its value (...) and simulated values (n_simulations, ...)."""
        bias = simulated.mean(axis=0) - fitted
        error = np.hypot(simulated.std(axis=0, ddof=1), bias)
        return cls(fitted - bias, error, bias, len(simulated))

    def interval(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of a confidence interval for each number."""
        check_confidence(confidence)
        quantile = student_t.ppf(0.5 + confidence / 2, self.n_simulations - 1)
        reach = quantile * self.standard_error
        return self.value - reach, self.value + reach
