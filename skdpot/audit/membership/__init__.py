"""Who was in the data? Attacks on synthetic rows, and what their scores show."""

from skdpot.audit.membership.closest_record import (
    ClosestRecordShare,
    closest_record_share,
    distance_to_closest_record,
    nearest_neighbour_distance_ratio,
)
from skdpot.audit.membership.density_ratio import density_ratio_membership
from skdpot.audit.membership.result import MembershipResult
from skdpot.audit.membership.synthetic import SyntheticMembership, synthetic_membership
from skdpot.audit.membership.synthetic_rows import SyntheticMembershipResult

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
