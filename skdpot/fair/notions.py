"""Notions of fairness of decisions: one object each, registered in `NOTIONS`.

A notion compares rates of groups: the rate at which members of a group are decided for a class,
among those of some true classes. From these classes follow the constraint of a rule
(`skdpot.fair.fair_rule`), the cells of a penalty, the metrics (`skdpot.fair.rates`) and the panel
of `FairnessDisplay`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # importing it at run time would load torch for metrics
    from skdpot.nets.cells import Cells


@dataclass(frozen=True)
class FairnessNotion:
    """A notion of fairness of decisions.

    Parameters
    ----------
    name : str
        Value of the parameter ``fairness``.
    among : callable
        Given a decision and the number of classes, returns masks of the true classes, each of shape
        (n_classes,). Groups are compared by their rate of this decision within each mask.
    shown_by : str
        Column of `frontier_` that says how fair a rule is.
    ratio_name : str
        Name of the ratio of rates within a true class of two.
    has_penalty : bool, default=False
        Whether mechanisms with a penalty train for it.
    """

    name: str
    among: Callable[[int, int], list[np.ndarray]]
    shown_by: str
    ratio_name: str
    has_penalty: bool = False

    def rates(self, n_classes: int, favorable: int = 1) -> list[tuple[int, np.ndarray]]:
        """Return the decision and the mask of true classes of each rate.

        Of two classes, only decisions for the `favorable` one are compared.
        """
        decisions = range(n_classes) if n_classes > 2 else (favorable,)
        return [(c, mask) for c in decisions for mask in self.among(c, n_classes)]

    @property
    def given_class(self) -> bool:
        """Whether records are compared within true classes, so that a penalty needs their cells."""
        return not all(mask.all() for _, mask in self.rates(2))

    def compared_classes(self, n_classes: int = 2) -> np.ndarray:
        """Return the true classes within which groups are compared."""
        return np.flatnonzero(np.any([mask for _, mask in self.rates(n_classes)], axis=0))

    def compared_cells(self, within: "Cells") -> "Cells":
        """Return the cells of groups within classes, compared in the classes of the notion only."""
        classes = self.compared_classes(len(within.strata))
        return replace(within, strata=tuple(within.strata[c] for c in classes))


def _everyone(decision: int, n_classes: int) -> list[np.ndarray]:
    return [np.ones(n_classes, dtype=bool)]


def _each_class(decision: int, n_classes: int) -> list[np.ndarray]:
    return list(np.eye(n_classes, dtype=bool))


def _same_class(decision: int, n_classes: int) -> list[np.ndarray]:
    return [np.arange(n_classes) == decision]


def _other_classes(decision: int, n_classes: int) -> list[np.ndarray]:
    return [np.arange(n_classes) != decision]


DEMOGRAPHIC_PARITY = FairnessNotion(
    name="demographic_parity",
    among=_everyone,
    shown_by="disparate_impact",
    ratio_name="disparate impact",
    has_penalty=True,
)
EQUALIZED_ODDS = FairnessNotion(
    name="equalized_odds",
    among=_each_class,
    shown_by="equalized_odds_difference",
    ratio_name="EO ratio",
    has_penalty=True,
)
EQUAL_OPPORTUNITY = FairnessNotion(
    name="equal_opportunity",
    among=_same_class,
    shown_by="equalized_odds_difference",
    ratio_name="TPR ratio",
)
PREDICTIVE_EQUALITY = FairnessNotion(
    name="predictive_equality",
    among=_other_classes,
    shown_by="equalized_odds_difference",
    ratio_name="FPR ratio",
)

NOTIONS = {
    notion.name: notion
    for notion in (DEMOGRAPHIC_PARITY, EQUALIZED_ODDS, EQUAL_OPPORTUNITY, PREDICTIVE_EQUALITY)
}
