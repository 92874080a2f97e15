"""Made-up data with known unfairness."""

from skdpot.datasets.biased import make_biased_classification, make_biased_regression

__all__ = ["make_biased_classification", "make_biased_regression"]
