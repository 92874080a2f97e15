"""How far two samples are apart, how useful and how fair one is, and pictures of all of it."""

from skdpot.metrics.budget_display import BudgetDisplay
from skdpot.metrics.fairness import (
    demographic_parity_difference,
    disparate_impact,
    equalized_odds_difference,
    equalized_odds_ratio,
    equalized_odds_ratios,
    selection_rates,
    wasserstein_parity,
)
from skdpot.metrics.fairness_display import FairnessDisplay
from skdpot.metrics.flow_display import FlowDisplay
from skdpot.metrics.frechet import GaussianStatistics, frechet_distance
from skdpot.metrics.frontier_display import FairnessFrontierDisplay
from skdpot.metrics.marginals_display import MarginalsDisplay
from skdpot.metrics.parity_scorer import make_parity_scorer
from skdpot.metrics.paths import (
    marginal_wasserstein_distances,
    path_sliced_wasserstein_distance,
    resample_paths,
)
from skdpot.metrics.privacy_utility_display import PrivacyUtilityDisplay
from skdpot.metrics.sketch_display import SketchDisplay
from skdpot.metrics.tables import (
    marginal_total_variation,
    marginal_total_variations,
    normalized_wasserstein_distance,
)
from skdpot.metrics.trajectory_display import TrajectoryDisplay
from skdpot.metrics.utility import train_synthetic_test_real
from skdpot.metrics.wasserstein import sliced_wasserstein_distance, wasserstein_distance

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
