"""Audits: attacks on what the package releases and sends, and the report for an officer.

The task: test whether a fit keeps its claim, and say what it means. An audit plants pairs of
made-up records, one of which is in the data by the flip of a coin. It reads every release of the
fit, guesses the coins, and tests the stated noise once the coins are open. Correct guesses or
missing noise refute a false claim; nothing can prove a true one.

Papers: T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS
2023; S. Mahloujifar, L. Melis, K. Chaudhuri, "Auditing f-differential privacy in one run", 2024.

Read in this order:

- `one_run` is the audit by a single fit. `guessing` has its bounds with their proofs, and `claims`
  compares them with what was claimed.
- `canaries` makes the pairs, and `audited_fit` fits and records the releases.
- `attacks` scores the pairs: by `matched_filter`, which also calls the tests of `noise_evidence`,
  and by `row_attack` where numbers have lost their order.
- `many_runs` compares hundreds of fits, and `synthetic_rows` attacks drawn rows; their results are
  those of `membership`.
- `report` makes the privacy report from `report_words`, `part_audits`, `report_membership`
  and `report_utility`.

`reconstruct` attacks the messages of distances (`skdpot.distance.reconstruction`). From the core
the audits take the gate, where all releases pass and can be recorded and replayed, and the account
of an event. They use the wings `distance`, `sampling`, `search` and `tables`.
"""

from skdpot.audit.many_runs import gaussian_audit
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.report import privacy_report
from skdpot.audit.synthetic_rows import synthetic_membership
from skdpot.distance.reconstruction import reconstruct

__all__ = [
    "gaussian_audit",
    "one_run_audit",
    "privacy_report",
    "reconstruct",
    "synthetic_membership",
]
