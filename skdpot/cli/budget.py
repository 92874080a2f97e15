"""``skdpot budget``: the cap and the charges of a ledger."""

import math
from argparse import Namespace

from skdpot._utils.pages import html_card, render
from skdpot.cli.console import Console, OutputFile
from skdpot.cli.payment import budget_facts, summary
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.rounding import epsilon_text, rounded_up

_BAR = 30


def run_budget(args: Namespace, console: Console) -> None:
    """Show the cap of a ledger, what is spent and left, and the history."""
    outputs = OutputFile.of(args, ["output"], [args.ledger])
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
        lines += ["", f"{'time (UTC)':<21}{'epsilon alone':<15}what"]
    for number, charge in enumerate(charges, start=1):
        time = charge["time"][:19].replace("T", " ")
        ended = f" (not ended; --resume {number} goes on)" if charge["open"] else ""
        label = f"{charge['label'] or '-'}{ended}"
        lines.append(f"{time:<21}{rounded_up(charge['epsilon']):<15}{label}")
    if outputs:
        named = ((f"{c['time'][:10]} {c['label'] or 'no label'}", c["epsilon"]) for c in charges)
        costs = [(name, epsilon_text(epsilon)) for name, epsilon in named]
        card = html_card(
            f"Privacy budget: {epsilon_text(budget.epsilon)}",
            f"δ = {budget.delta:g} · {relation}",
            [("Ledger", args.ledger), ("State", summary("The ledger", budget))],
            meter=(share, f"{epsilon_text(facts['spent'])} spent", counted),
            rankings=[("All charges, and what each would cost alone", costs)],
        )
        page = render("page.html", title="Privacy budget", fragment=card)
        outputs["output"].write(lambda path: path.write_text(page, encoding="utf-8"))
        lines.append(f"wrote {args.output}")
    console.result(lines, facts, wanted=True)
