"""Attacks on what the package releases and sends: what an observer can really learn."""

from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditedFit, CanaryPairs, antipodal_pairs, default_canaries
from skdpot.audit.gaussian import GaussianAuditResult, gaussian_audit
from skdpot.audit.matched_filter import EvidenceSum, NoiseCheck, NoiseEvidence
from skdpot.audit.membership import MembershipResult
from skdpot.audit.message_attacks import log_likelihood_ratio
from skdpot.audit.one_run import AuditResult, one_run_audit
from skdpot.audit.report import PrivacyReport, privacy_report
from skdpot.audit.synthetic import (
    ClosestRecordShare,
    SyntheticMembership,
    SyntheticMembershipResult,
    closest_record_share,
    density_ratio_membership,
    distance_to_closest_record,
    nearest_neighbour_distance_ratio,
    synthetic_membership,
)

__all__ = [
    "AuditResult",
    "AuditedFit",
    "CanaryPairs",
    "ClosestRecordShare",
    "EvidenceSum",
    "GaussianAuditResult",
    "MembershipResult",
    "NoiseCheck",
    "NoiseEvidence",
    "PrivacyReport",
    "SyntheticMembership",
    "SyntheticMembershipResult",
    "antipodal_pairs",
    "closest_record_share",
    "default_canaries",
    "default_score",
    "density_ratio_membership",
    "distance_to_closest_record",
    "gaussian_audit",
    "log_likelihood_ratio",
    "nearest_neighbour_distance_ratio",
    "one_run_audit",
    "privacy_report",
    "synthetic_membership",
]
