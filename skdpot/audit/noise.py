r"""Is the noise there? The residuals of releases whose exact values the auditor knows.

The auditor chose the rows, and opens the coins after the guesses are made. So he can compute what
each release would be without noise, at the public facts (parameters, bins) that it was made with.
What is left is the noise, and for n numbers with normal noise of the stated σ

.. math:: \sum_k r_k^2 / σ^2 \sim χ^2_n.

If the exact value is not known exactly (secret batches, numbers whose order is lost, rounding),
r is the noise plus something that does not depend on it, and the sum has a noncentral
:math:`χ^2_n` distribution, which is stochastically larger. So the lower tail of :math:`χ^2_n`
bounds the p-value in every case: what the auditor does not know costs power, never a false alarm.
Discrete Gaussian noise on a lattice of at least one σ has the same tail for sixteen or more
numbers, up to a factor of 1.5 at a p-value of 10⁻⁴; smaller releases are tested together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import chi2, norm

from skdpot.privacy.gdp import gdp_epsilon

__all__ = ["NoiseCheck", "NoiseEvidence"]

_FEWEST = 16  # numbers that are tested by themselves
_SHARE = 0.01  # of the chance of an error of the whole audit, that the tests of the noise may have
_EVERY = "all together"
_POWER = 0.95  # with which probability noise below `seen_below` is found


@dataclass(frozen=True, eq=False, kw_only=True)
class NoiseCheck:
    """The residual of one release, beside the noise that it states.

    Parameters
    ----------
    name : str
        Which release.
    n_numbers : int
        How many numbers it has.
    energy : float
        Sum of squares of the residual, in units of the stated variance.
    hidden : float, default=0.0
        What of it is expected to be no noise, in the same units: unknown batches and orders.
        NaN if that is not known.
    signals : ndarray of shape (n_pairs,), optional
        Squared distance between the exact values with the first and the second record of each
        pair, in the same units; None where that is not known exactly.
    """

    name: str
    n_numbers: int
    energy: float
    hidden: float = 0.0
    signals: np.ndarray | None = None

    @property
    def factor(self) -> float:
        """Standard deviation that was found, as a multiple of the stated one, or more."""
        return math.sqrt(self.energy / self.n_numbers)

    @property
    def p_value(self) -> float:
        """Bound of the probability of so little, if the stated noise is there."""
        return float(chi2.cdf(self.energy, self.n_numbers))

    def at_most(self, level: float) -> float:
        """Bound the multiple of the stated noise from above, with an error of at most `level`."""
        return math.sqrt(self.energy / float(chi2.ppf(level, self.n_numbers)))

    def seen_below(self, level: float) -> float | None:
        """Return the multiple of the stated noise below which a test at `level` would see it.

        With a probability of 95 %; None if the test could not even see that there is no noise,
        or if what hides the noise is not known.
        """
        room = float(chi2.ppf(level, self.n_numbers)) - self.hidden
        if not room > 0.0:
            return None
        # (c z + √hidden)², of which the mixed term is normal and c² χ² independent of its sign.
        square = float(chi2.ppf(_POWER, self.n_numbers))
        mixed = float(norm.ppf(_POWER)) * math.sqrt(self.hidden)
        return (math.sqrt(mixed**2 + square * room) - mixed) / square


@dataclass(frozen=True, eq=False, repr=False)
class NoiseEvidence:
    """Whether the stated noise is in every release of an audited fit.

    Parameters
    ----------
    checks : tuple of NoiseCheck
        One per release, small ones of a kind together, and one of all together.
    confidence : float
        Of the audit. The chance that correct noise is refuted is at most a hundredth of
        ``1 - confidence``, for all checks together.
    unseen : tuple of str
        Noisy releases that no check covers.
    """

    checks: tuple[NoiseCheck, ...]
    confidence: float
    unseen: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, checks: Sequence[NoiseCheck], confidence: float, unseen: Sequence[str] = ()
    ) -> "NoiseEvidence":
        """Join the checks of small releases, and add one of all together."""
        large = [check for check in checks if check.n_numbers >= _FEWEST]
        small: dict[str, list[NoiseCheck]] = {}
        for check in checks:
            if check.n_numbers < _FEWEST:
                small.setdefault(check.name.rstrip("0123456789 "), []).append(check)
        groups = [_joined(f"all {kind}", of_kind) for kind, of_kind in small.items()]
        tested = [*large, *(group for group in groups if group.n_numbers >= _FEWEST)]
        missed = [group.name for group in groups if group.n_numbers < _FEWEST]
        if len(checks) > 1:
            every = _joined(_EVERY, checks)
            tested += [every] if every.n_numbers >= _FEWEST and len(tested) != 1 else []
        return cls(tuple(tested), confidence, (*unseen, *missed))

    @property
    def level(self) -> float:
        """The p-value below which a single check refutes."""
        return _SHARE * (1.0 - self.confidence) / max(len(self.checks), 1)

    @property
    def refuting(self) -> tuple[NoiseCheck, ...]:
        """The checks that refute the stated noise, those with the least noise first."""
        found = (check for check in self.checks if check.p_value < self.level)
        return tuple(sorted(found, key=lambda check: check.factor))

    @property
    def seen_below(self) -> float | None:
        """The power: a smaller share of the stated noise in one release is found.

        With a probability of 95 %, in any but those in `blind`. None if that is all of them.
        """
        factors = (c.seen_below(self.level) for c in self.checks if c.name != _EVERY)
        return min((factor for factor in factors if factor is not None), default=None)

    @property
    def blind(self) -> tuple[str, ...]:
        """Releases of which this audit could not even see that they have no noise."""
        checks = (c for c in self.checks if c.name != _EVERY)
        found = (c.name for c in checks if c.seen_below(self.level) is None)
        return tuple(dict.fromkeys((*self.unseen, *found)))

    def gaussian_epsilon_lower(self, delta: float) -> float | None:
        r"""Bound ε from below by how far the surest pair moves the releases, in found noise.

        :math:`μ^2 = \sum_t \lVert s_t - s_t' \rVert^2 / \hat σ_t^2` with upper limits of the noise
        in the place of σ. It holds if the noise is normal. A release depends on those before it,
        so that the sum is that of the run that took place: a correct account, which bounds every
        term whatever came before, is refuted with no larger probability than stated.

        Parameters
        ----------
        delta : float
            At which δ.

        Returns
        -------
        float or None
            None if no release shows single pairs exactly, or δ is 0.
        """
        shown = [check for check in self.checks if check.signals is not None]
        if not shown or delta <= 0.0:
            return None
        if any(check.energy <= 0.0 and np.any(check.signals) for check in shown):
            return math.inf
        squares = sum(
            check.signals / check.at_most(self.level) ** 2
            for check in shown
            if check.signals is not None and check.energy > 0.0
        )
        mu = math.sqrt(float(np.max(squares)))
        return gdp_epsilon(mu, delta) if mu > 0.0 else 0.0

    @property
    def power(self) -> str:
        """What these checks can refute, in a sentence."""
        if self.seen_below is None:
            return "Missing noise could only have been seen by the guesses."
        seen = (
            f"Less than {_down(self.seen_below)} of the stated noise in one release would be seen"
        )
        return f"{seen}, but not in: {', '.join(self.blind)}." if self.blind else f"{seen}."

    @property
    def verdict(self) -> str:
        """What follows, in a sentence or two."""
        if not self.refuting:
            return self.power
        worst = self.refuting[0]
        return (
            f"REFUTED: {worst.name} has {worst.factor:.2g} of the noise that it states "
            f"(p = {worst.p_value:.1g})."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row per check.

        Returns
        -------
        DataFrame
        """
        return pd.DataFrame(
            [
                {
                    "release": check.name,
                    "numbers": check.n_numbers,
                    "found / stated": check.factor,
                    "p-value": check.p_value,
                    "seen below": check.seen_below(self.level),
                }
                for check in self.checks
            ]
        )

    def __repr__(self) -> str:
        return f"NoiseEvidence({len(self.checks)} checks. {self.verdict})"


def _joined(name: str, checks: Sequence[NoiseCheck]) -> NoiseCheck:
    """Test several releases by the sum of their energies."""
    return NoiseCheck(
        name=name,
        n_numbers=sum(check.n_numbers for check in checks),
        energy=sum(check.energy for check in checks),
        hidden=sum(check.hidden for check in checks),
    )


def _down(factor: float) -> str:
    return f"{math.floor(100 * factor) / 100:.2f}"
