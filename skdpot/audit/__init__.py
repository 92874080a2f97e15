"""Attacks on what the package releases and sends: what an observer can really learn."""

from skdpot.audit.attacks import default_score
from skdpot.audit.audit_result import AuditResult
from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, antipodal_pairs, default_canaries
from skdpot.audit.gaussian import GaussianAuditResult, gaussian_audit
from skdpot.audit.matched_filter import EvidenceSum, linear_evidence
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
from skdpot.audit.noise import NoiseCheck, NoiseEvidence
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.reconstruction.sketch import log_likelihood_ratio
from skdpot.audit.report.privacy_report import PrivacyReport, privacy_report

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
    "linear_evidence",
    "log_likelihood_ratio",
    "nearest_neighbour_distance_ratio",
    "one_run_audit",
    "privacy_report",
    "synthetic_membership",
]
