"""Who was in the data? Attacks on synthetic rows, and what their scores show."""

from skdpot.audit.membership.attacks import (
    ClosestRecordShare,
    SyntheticMembershipResult,
    closest_record_share,
    density_ratio_membership,
    distance_to_closest_record,
    nearest_neighbour_distance_ratio,
)
from skdpot.audit.membership.result import MembershipResult
from skdpot.audit.membership.synthetic import SyntheticMembership, synthetic_membership

__all__ = [
    "ClosestRecordShare",
    "MembershipResult",
    "SyntheticMembership",
    "SyntheticMembershipResult",
    "closest_record_share",
    "density_ratio_membership",
    "distance_to_closest_record",
    "nearest_neighbour_distance_ratio",
    "synthetic_membership",
]
