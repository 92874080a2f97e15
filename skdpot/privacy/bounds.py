"""The bounds of the data: public ones, and private ones found by a mechanism."""

from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.private_bounds import (
    BoundsPlan,
    FeatureScales,
    ball_radius,
    plan_private_bounds,
    release_feature_scales,
    release_private_bounds,
)

__all__ = [
    "BoundsPlan",
    "DataBounds",
    "FeatureScales",
    "ball_radius",
    "plan_private_bounds",
    "release_feature_scales",
    "release_private_bounds",
]
