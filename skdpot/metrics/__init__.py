"""How far two samples are apart, and how useful one is in the place of the other."""

from skdpot.metrics.frechet import GaussianStatistics, frechet_distance
from skdpot.metrics.utility import train_synthetic_test_real
from skdpot.metrics.wasserstein import sliced_wasserstein_distance, wasserstein_distance

__all__ = [
    "GaussianStatistics",
    "frechet_distance",
    "sliced_wasserstein_distance",
    "train_synthetic_test_real",
    "wasserstein_distance",
]
