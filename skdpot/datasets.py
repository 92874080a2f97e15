"""Synthetic data sets with known bias, and trajectories with one point per person."""

from skdpot.fair.biased import make_biased_classification, make_biased_regression
from skdpot.trajectories.commuters import make_commuting_trajectories
from skdpot.trajectories.lineage import make_lineage_trajectories
from skdpot.trajectories.moving_clusters import (
    make_branching_trajectories,
    make_forking_trajectories,
    make_spiral_trajectories,
)
from skdpot.trajectories.observed_once import one_point_per_person
from skdpot.trajectories.ornstein_uhlenbeck import make_ornstein_uhlenbeck_trajectories

__all__ = [
    "make_biased_classification",
    "make_biased_regression",
    "make_branching_trajectories",
    "make_commuting_trajectories",
    "make_forking_trajectories",
    "make_lineage_trajectories",
    "make_ornstein_uhlenbeck_trajectories",
    "make_spiral_trajectories",
    "one_point_per_person",
]
