"""A budget as a privacy report shows it: at one moment, and whatever happens to the file."""

from dataclasses import dataclass

import pandas as pd

from skdpot.exceptions import LedgerError
from skdpot.privacy.budget import PrivacyBudget

__all__ = ["BudgetState", "read_budget"]


@dataclass(frozen=True, eq=False, kw_only=True)
class BudgetState:
    """What a ledger held when the report was made.

    Parameters
    ----------
    epsilon, delta : float
        The cap.
    spent, remaining : float or None
        Of ε; None if the ledger could not be read.
    history : DataFrame or None
        All charges, as `PrivacyBudget.history` returns them.
    problem : str, default=""
        Why the ledger could not be read.
    """

    epsilon: float
    delta: float
    spent: float | None
    remaining: float | None
    history: pd.DataFrame | None
    problem: str = ""


def read_budget(budget: PrivacyBudget) -> BudgetState:
    """Read a budget once.

    Parameters
    ----------
    budget : PrivacyBudget
        Nothing is charged to it.

    Returns
    -------
    BudgetState
    """
    try:
        return BudgetState(
            epsilon=budget.epsilon,
            delta=budget.delta,
            spent=budget.epsilon_spent(),
            remaining=budget.remaining(),
            history=budget.history(),
        )
    except LedgerError as error:
        return BudgetState(
            epsilon=budget.epsilon,
            delta=budget.delta,
            spent=None,
            remaining=None,
            history=None,
            problem=str(error),
        )
