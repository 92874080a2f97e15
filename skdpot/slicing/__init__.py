"""Directions, one-dimensional transport, and the frozen private sketch."""

from skdpot.slicing.debiased_distance import DebiasedDistance, debiased_squared_distance
from skdpot.slicing.directions import (
    make_directions,
    orthogonal_directions,
    sparse_directions,
    uniform_directions,
)
from skdpot.slicing.rules import (
    recommended_bins,
    recommended_distance_slices,
    recommended_slices,
)
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.smoothed import ProjectedRows, SmoothedProjections
from skdpot.slicing.strategy import SquareRootStrategy, square_root_strategy
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
    "recommended_distance_slices",
    "recommended_slices",
    "sliced_wasserstein_distance",
    "sparse_directions",
    "square_root_strategy",
    "uniform_directions",
    "wasserstein_1d",
]
