"""How far two samples are apart, how useful and how fair one is, and pictures of all of it."""

from skdpot.distance.debiased import debiased_squared_distance
from skdpot.fair.fairness_display import FairnessDisplay
from skdpot.fair.frontier_display import FairnessFrontierDisplay
from skdpot.fair.rates import (
    demographic_parity_difference,
    disparate_impact,
    equalized_odds_difference,
    make_parity_scorer,
    wasserstein_parity,
)
from skdpot.ot.distances import frechet_distance, sliced_wasserstein_distance, wasserstein_distance
from skdpot.privacy.displays import BudgetDisplay, PrivacyUtilityDisplay
from skdpot.release.sketch_display import SketchDisplay
from skdpot.sampling.flow_display import FlowDisplay
from skdpot.sampling.train_on_synthetic import train_synthetic_test_real
from skdpot.tables.marginals import marginal_total_variation
from skdpot.tables.marginals_display import MarginalsDisplay
from skdpot.trajectories.display import TrajectoryDisplay
from skdpot.trajectories.path_metrics import (
    marginal_wasserstein_distances,
    path_sliced_wasserstein_distance,
)

__all__ = [
    "BudgetDisplay",
    "FairnessDisplay",
    "FairnessFrontierDisplay",
    "FlowDisplay",
    "MarginalsDisplay",
    "PrivacyUtilityDisplay",
    "SketchDisplay",
    "TrajectoryDisplay",
    "debiased_squared_distance",
    "demographic_parity_difference",
    "disparate_impact",
    "equalized_odds_difference",
    "frechet_distance",
    "make_parity_scorer",
    "marginal_total_variation",
    "marginal_wasserstein_distances",
    "path_sliced_wasserstein_distance",
    "sliced_wasserstein_distance",
    "train_synthetic_test_real",
    "wasserstein_distance",
    "wasserstein_parity",
]
