"""Notions of fairness: what one object says of rates, cells and metrics."""

import numpy as np
import pytest

from skdpot.fair.notions import EQUAL_OPPORTUNITY, EQUALIZED_ODDS, NOTIONS
from skdpot.fair.rates import compared_rates, largest_rate_difference
from skdpot.nets.cells import read_groups, within_classes

GROUPS = np.array(["a", "b"] * 6)
CLASSES = np.repeat([0, 1, 2], 4)
COMPARED = {
    "demographic_parity": [[0, 1], [0, 1, 2]],
    "equalized_odds": [[0, 1], [0, 1, 2]],
    "equal_opportunity": [[1], [0, 1, 2]],
    "predictive_equality": [[0], [0, 1, 2]],
}


@pytest.mark.parametrize("name", NOTIONS)
def test_classes_that_are_compared(name):
    notion = NOTIONS[name]
    assert notion.name == name
    assert [notion.compared_classes(n).tolist() for n in (2, 3)] == COMPARED[name]
    assert notion.given_class == (name != "demographic_parity")
    decisions = [decision for decision, _ in notion.rates(3)]
    assert set(decisions) == {0, 1, 2}
    assert {decision for decision, _ in notion.rates(2)} == {1}


def test_cells_of_the_classes_that_are_compared_form_strata():
    groups, _ = read_groups(GROUPS[:8], 8)
    cells = within_classes(groups, CLASSES[:8], np.arange(2))
    assert EQUALIZED_ODDS.compared_cells(cells).strata == cells.strata == ((0, 1), (2, 3))
    of_positives = EQUAL_OPPORTUNITY.compared_cells(cells)
    assert of_positives.strata == ((2, 3),)
    assert of_positives.sizes == cells.sizes


@pytest.mark.parametrize(
    ("name", "columns", "gap"),
    [
        ("demographic_parity", [0.0], 0.25),
        ("equalized_odds", [0, 1], 0.5),
        ("equal_opportunity", [1], 0.5),
        ("predictive_equality", [0], 0.0),
    ],
)
def test_rates_that_are_compared(name, columns, gap):
    y_true = np.repeat([0, 1], 4)
    y_pred = np.array([0, 0, 1, 1, 1, 0, 1, 1])
    options = {"sensitive_features": GROUPS[:8]}
    rates = compared_rates(NOTIONS[name], y_true, y_pred, **options)
    assert rates.columns.tolist() == columns
    assert largest_rate_difference(NOTIONS[name], y_true, y_pred, **options) == gap
