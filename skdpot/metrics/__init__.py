"""How far two samples are apart, how useful and how fair one is, and pictures of all of it."""

from skdpot.metrics.debiased_distance import debiased_squared_distance
from skdpot.metrics.distances import (
    GaussianStatistics,
    frechet_distance,
    marginal_wasserstein_distances,
    path_sliced_wasserstein_distance,
    resample_paths,
    sliced_wasserstein_distance,
    train_synthetic_test_real,
    wasserstein_distance,
)
from skdpot.metrics.fairness import (
    demographic_parity_difference,
    disparate_impact,
    equalized_odds_difference,
    equalized_odds_ratio,
    equalized_odds_ratios,
    make_parity_scorer,
    selection_rates,
    wasserstein_parity,
)
from skdpot.metrics.fairness_display import FairnessDisplay, FairnessFrontierDisplay
from skdpot.metrics.marginals import (
    marginal_total_variation,
    marginal_total_variations,
    normalized_wasserstein_distance,
)
from skdpot.metrics.marginals_display import MarginalsDisplay
from skdpot.metrics.privacy_displays import BudgetDisplay, PrivacyUtilityDisplay
from skdpot.metrics.sketch_displays import FlowDisplay, SketchDisplay
from skdpot.metrics.trajectory_display import TrajectoryDisplay

__all__ = [
    "BudgetDisplay",
    "FairnessDisplay",
    "FairnessFrontierDisplay",
    "FlowDisplay",
    "GaussianStatistics",
    "MarginalsDisplay",
    "PrivacyUtilityDisplay",
    "SketchDisplay",
    "TrajectoryDisplay",
    "debiased_squared_distance",
    "demographic_parity_difference",
    "disparate_impact",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "equalized_odds_ratios",
    "frechet_distance",
    "make_parity_scorer",
    "marginal_total_variation",
    "marginal_total_variations",
    "marginal_wasserstein_distances",
    "normalized_wasserstein_distance",
    "path_sliced_wasserstein_distance",
    "resample_paths",
    "selection_rates",
    "sliced_wasserstein_distance",
    "train_synthetic_test_real",
    "wasserstein_distance",
    "wasserstein_parity",
]
