"""Directions, one-dimensional transport, and the frozen private sketch."""

from skdpot.slicing.debiased_distance import DebiasedDistance, debiased_squared_distance
from skdpot.slicing.plan import (
    SquareRootStrategy,
    make_directions,
    orthogonal_directions,
    recommended_bins,
    recommended_distance_n_projections,
    recommended_n_projections,
    square_root_strategy,
    uniform_directions,
)
from skdpot.slicing.rows import ProjectedRows, SmoothedProjections
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.table import CDFTable
from skdpot.slicing.transport import sliced_wasserstein_distance, wasserstein_1d

__all__ = [
    "CDFTable",
    "DebiasedDistance",
    "ProjectedRows",
    "SlicedSketch",
    "SmoothedProjections",
    "SquareRootStrategy",
    "debiased_squared_distance",
    "make_directions",
    "orthogonal_directions",
    "recommended_bins",
    "recommended_distance_n_projections",
    "recommended_n_projections",
    "sliced_wasserstein_distance",
    "square_root_strategy",
    "uniform_directions",
    "wasserstein_1d",
]
