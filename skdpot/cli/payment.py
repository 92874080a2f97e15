"""The ledger that pays for a fit: its cap and its state."""

import math
import os
from argparse import Namespace
from typing import Any

from skdpot.cli.console import CommandError, Console
from skdpot.privacy.budget import PrivacyBudget, history_rows
from skdpot.privacy.rounding import rounded_down, rounded_up

DEFAULT_DELTA = 1e-5  # largest default


def fitting_delta(n_rows: int | None) -> float:
    """Return a power of ten below a tenth of 1/n: publishing a random row must not be private."""
    if n_rows is None:
        return DEFAULT_DELTA
    return min(DEFAULT_DELTA, 10.0 ** -math.floor(math.log10(10 * n_rows) + 1))


class Payment:
    """The ledger that pays for a fit, or none; a new ledger is created by `open`."""

    def __init__(self, path: str | None, args: Namespace, n_rows: int | None) -> None:
        epsilon, cap = args.epsilon, args.epsilon_cap
        if path is None and cap is not None:
            raise CommandError("--epsilon-cap needs --ledger: it is the cap of a new ledger.", 2)
        self.path, self._cap = path, epsilon if cap is None else cap
        exists = path is not None and os.path.lexists(os.path.expanduser(path))
        self._kept = kept = PrivacyBudget.from_ledger(path) if path and exists else None
        if kept is not None and cap not in (None, kept.epsilon):
            raise CommandError(
                f"{path} was created with the cap epsilon = {kept.epsilon:g}, which cannot be "
                "changed. Omit --epsilon-cap."
            )
        if path is not None and kept is None and cap is None and math.isinf(epsilon):
            raise CommandError(f"{path} does not exist yet: state its cap with --epsilon-cap.")
        default = fitting_delta(n_rows) if kept is None else kept.delta
        self.delta = default if args.delta is None else args.delta

    def open(self) -> PrivacyBudget | None:
        """Return the budget; create its ledger if it does not exist."""
        if self.path is None:
            return None
        return self._kept or PrivacyBudget(self._cap, self.delta, ledger=self.path)


def budget_facts(path: str, budget: PrivacyBudget) -> dict[str, Any]:
    """Return the contents of a ledger for JSON."""
    stated = ("label", "event", "mu", "leak", "epsilon", "open")
    charges = [
        {"time": row["time"].isoformat()} | {name: row[name] for name in stated}
        for row in history_rows(budget)
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
    """Return the state of a ledger in one line."""
    left = budget.remaining()
    spent, cap = rounded_up(budget.epsilon_spent()), rounded_down(budget.epsilon)
    return f"{path} has spent epsilon = {spent} of {cap} at delta = {budget.delta:g}; " + (
        f"one more fit may have {rounded_down(left)}" if left > 0.0 else "nothing is left"
    )


def warn_of_epsilon(args: Namespace, console: Console) -> None:
    """Warn that an infinite epsilon protects no one."""
    if math.isinf(args.epsilon):
        console.warn("epsilon is infinite: no noise is added, and no one is protected.")
