"""``skdpot budget``, and the ledgers that other commands name."""

import math
import os
from argparse import Namespace
from typing import Any

from skdpot.cli.console import OK, CommandError, Console
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.display import rounded_down, rounded_up

__all__ = [
    "DEFAULT_DELTA",
    "budget_facts",
    "check_cap",
    "delta_for",
    "open_budget",
    "run",
    "summary",
]

DEFAULT_DELTA = 1e-5


def check_cap(path: str | None, cap: float | None, epsilon: float) -> None:
    """Refuse a cap that is not the one of the ledger; nothing is made.

    Parameters
    ----------
    path : str or None
        The ledger, which may not exist yet.
    cap : float or None
        What --epsilon-cap says.
    epsilon : float
        What the command is going to spend.

    Raises
    ------
    CommandError
        If a new ledger would have no cap without anybody having asked for that, or an existing
        one has another cap.
    LedgerError
        If the file is no intact ledger.
    """
    if path is None:
        if cap is not None:
            raise CommandError("--epsilon-cap is the cap of a new ledger: name it by --ledger.", 2)
    elif _exists(path):
        kept = PrivacyBudget.from_ledger(path).epsilon
        if cap is not None and cap != kept:
            raise CommandError(
                f"{path} was made with the cap epsilon = {kept:g} and keeps it. Leave "
                "--epsilon-cap out."
            )
    elif cap is None and math.isinf(epsilon):
        raise CommandError(f"{path} does not exist yet: say its cap, by --epsilon-cap.")


def delta_for(path: str | None, delta: float | None) -> float:
    """Return the delta of a fit: what was asked for, else that of its ledger, else 1e-5."""
    if delta is not None:
        return delta
    if path is not None and _exists(path):
        return PrivacyBudget.from_ledger(path).delta
    return DEFAULT_DELTA


def open_budget(
    path: str | None, cap: float | None, epsilon: float, delta: float
) -> PrivacyBudget | None:
    """Return the budget of a ledger, which is made if it does not exist.

    Parameters
    ----------
    path : str or None
        The ledger.
    cap : float or None
        Epsilon of a new ledger; None takes `epsilon`.
    epsilon, delta : float
        Of the fit; `delta` is that of a new ledger too.

    Returns
    -------
    PrivacyBudget or None
        None without a path.
    """
    if path is None:
        return None
    if _exists(path):
        return PrivacyBudget.from_ledger(path)
    return PrivacyBudget(epsilon if cap is None else cap, delta, ledger=path)


def budget_facts(path: str, budget: PrivacyBudget) -> dict[str, Any]:
    """Return what a ledger holds, for programs."""
    history = budget.history()
    columns = ("label", "event", "mu", "leak", "epsilon")
    charges = [
        {"time": when.isoformat()} | dict(zip(columns, values, strict=True))
        for when, *values in history[["time", *columns]].itertuples(index=False)
    ]
    return {
        "ledger": path,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "relation": str(budget.relation),
        "spent": budget.epsilon_spent(),
        "remaining": budget.remaining(),
        "charges": charges,
    }


def summary(path: str, budget: PrivacyBudget) -> str:
    """Return the state of a ledger in a line."""
    left = budget.remaining()
    spent, cap = rounded_up(budget.epsilon_spent()), rounded_down(budget.epsilon)
    return f"{path} has spent epsilon = {spent} of {cap} at delta = {budget.delta:g}; " + (
        f"one more fit may have {rounded_down(left)}" if left > 0.0 else "nothing is left"
    )


def _exists(path: str) -> bool:
    return os.path.lexists(os.path.expanduser(path))


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
