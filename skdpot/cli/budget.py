"""``skdpot budget``: what a ledger holds."""

import math
from argparse import Namespace

from skdpot.cli.console import Console
from skdpot.cli.failures import OK
from skdpot.cli.ledgers import budget_facts, summary
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.display import rounded_up

__all__ = ["run"]

_BAR = 30


def run(args: Namespace, console: Console) -> int:
    """Show the cap of a ledger, what is spent and left, and the history.

    Parameters
    ----------
    args : Namespace
        The arguments.
    console : Console
        Where to write.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    LedgerError
        If there is no intact ledger at the path.
    """
    budget = PrivacyBudget.from_ledger(args.ledger)
    facts = budget_facts(args.ledger, budget)
    charges = facts["charges"]
    finite = math.isfinite(budget.epsilon) and budget.epsilon > 0
    share = min(facts["spent"] / budget.epsilon, 1.0) if finite else 0.0
    filled = math.ceil(share * _BAR)
    relation = str(budget.relation).replace("_", " ")
    counted = "1 charge" if len(charges) == 1 else f"{len(charges)} charges"
    lines = [
        summary(args.ledger, budget),
        f"[{'#' * filled}{'-' * (_BAR - filled)}] {counted}, {relation}",
    ]
    if charges:
        lines.append("")
        lines.append(f"{'time (UTC)':<21}{'epsilon alone':<15}what")
    for charge in charges:
        time = charge["time"][:19].replace("T", " ")
        lines.append(f"{time:<21}{rounded_up(charge['epsilon']):<15}{charge['label'] or '-'}")
    console.result(lines, facts, wanted=True)
    return OK
