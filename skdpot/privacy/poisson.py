"""Gaussian steps on secret Poisson samples, by dp-accounting's loss distributions.

dp-accounting measures the noise in units of the *clipping norm* C under both relations. Under
add/remove that is the sensitivity; under replace-one its pair of distributions is centred at
-C and +C, so that the sensitivity is 2C. The steps below carry mu = sensitivity / sigma and
convert in one place each.
"""

from dataclasses import dataclass

from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation

from skdpot.privacy.loss_distribution import LossDistribution, LossPair

__all__ = ["PoissonAddRemoveStep", "PoissonClippedSumStep"]


@dataclass(frozen=True)
class PoissonAddRemoveStep:
    """One Gaussian step on a Poisson sample, under add/remove.

    Parameters
    ----------
    mu : float
        Privacy of the step on all records, ``sensitivity / sigma``.
    rate : float
        Probability in (0, 1) that a given record is in the sample.
    """

    mu: float
    rate: float

    def losses(self, interval: float) -> LossPair:
        """Discretise the mixture (1 - p) N(0, 1) + p N(mu, 1) against N(0, 1), in both orders."""
        distribution = privacy_loss_distribution.from_gaussian_mechanism(
            1.0 / self.mu,
            value_discretization_interval=interval,
            sampling_prob=self.rate,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
        return LossPair(
            LossDistribution.from_pmf(distribution._pmf_remove),
            LossDistribution.from_pmf(distribution._pmf_add),
        )


@dataclass(frozen=True)
class PoissonClippedSumStep:
    """One noisy sum of clipped vectors over a Poisson sample, under replace-one.

    Parameters
    ----------
    mu : float
        Privacy of the step on all records, ``2 * clipping_norm / sigma``.
    rate : float
        Probability in (0, 1) that a given record is in the sample.
    """

    mu: float
    rate: float

    def losses(self, interval: float) -> LossPair:
        """Discretise (1 - p) N(0, 1) + p N(-mu/2, 1) against its mirror image."""
        distribution = privacy_loss_distribution.from_gaussian_mechanism(
            2.0 / self.mu,
            value_discretization_interval=interval,
            sampling_prob=self.rate,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
        return LossPair(LossDistribution.from_pmf(distribution._pmf_remove))
