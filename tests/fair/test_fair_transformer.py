"""Rows moved to one distribution for all groups: how alike they become, levels, and refusals."""

import math

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from skdpot import FairPrivateTransformer, PrivacyBudget
from skdpot.exceptions import FairnessWarning, ReliabilityWarning
from skdpot.metrics import sliced_wasserstein_distance, wasserstein_parity

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*makes the privacy noise reproducible:skdpot.exceptions.PrivacyWarning"
)


def codes(n, seed):
    """Two groups of the same means and spreads along both axes, correlated the other way round."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    first, second = rng.standard_normal((2, n))
    sign = np.where(group == 1, 0.8, -0.6)
    rows = 0.25 * np.column_stack([first, sign * first + np.sqrt(1 - sign**2) * second])
    return rows.clip(-1, 1), np.array(["a", "b"])[group]


@pytest.fixture(scope="module")
def fitted():
    rows, group = codes(20_000, 0)
    budget = PrivacyBudget(2.0)
    fair = FairPrivateTransformer(epsilon=1.0, bounds=(-1, 1), budget=budget, random_state=0)
    return fair.fit(rows, sensitive_features=group), budget


@pytest.mark.slow
def test_groups_cannot_be_told_apart(fitted):
    rows, group = codes(20_000, 1)
    moved = fitted[0].transform(rows, sensitive_features=group)
    before = wasserstein_parity(rows, sensitive_features=group)
    assert wasserstein_parity(moved, sensitive_features=group) < 0.25 * before

    def told(found):
        model = HistGradientBoostingClassifier(max_iter=50).fit(found[:10_000], group[:10_000])
        return model.score(found[10_000:], group[10_000:])

    assert told(rows) > 0.7
    assert told(moved) < 0.58
    # A barycentre is near: rows of one group keep their places among each other.
    own = group == "a"
    assert np.corrcoef(rows[own, 0], moved[own, 0])[0, 1] > 0.9


def test_a_level_is_a_share_of_the_way_and_costs_nothing(fitted):
    fair, budget = fitted
    rows, group = codes(500, 2)
    ends = [fair.with_level(k).transform(rows, sensitive_features=group) for k in (0.0, 1.0)]
    np.testing.assert_allclose(ends[0], rows, atol=1e-12)
    part = fair.with_level(0.3).transform(rows, sensitive_features=group)
    np.testing.assert_allclose(part, 0.7 * ends[0] + 0.3 * ends[1], atol=1e-12)
    assert len(budget.history()) == 1
    assert fair.with_level(0.3).privacy_spent_ is fair.privacy_spent_
    with pytest.raises(ValueError, match="level"):
        fair.with_level(1.5)


def test_what_transform_refuses(fitted):
    rows, _ = codes(4, 3)
    with pytest.raises(ValueError, match="requires sensitive_features"):
        fitted[0].transform(rows)
    with pytest.raises(ValueError, match="not among the 2 declared"):
        fitted[0].transform(rows, sensitive_features=["a", "b", "c", "a"])


def test_groups_whose_moves_the_noise_hides_stay_where_they_are():
    rows, group = codes(300, 4)
    fair = FairPrivateTransformer(epsilon=0.3, bounds=(-1, 1), random_state=0)
    with pytest.warns(ReliabilityWarning, match=r"noise hides moves of group a and moves of group"):
        fair.fit(rows, sensitive_features=group)
    distance = {
        name: sliced_wasserstein_distance(*(part[group == g] for g in np.unique(group)))
        for name, part in (
            ("before", rows),
            ("after", fair.transform(rows, sensitive_features=group)),
        )
    }
    assert distance["after"] < distance["before"] + 0.05


def test_one_group_is_not_moved_and_said():
    rows, _ = codes(300, 4)
    with pytest.warns(FairnessWarning, match="one group, so that none is moved"):
        alone = FairPrivateTransformer(epsilon=math.inf, bounds=(-1, 1)).fit(rows)
    np.testing.assert_allclose(alone.transform(rows), rows, atol=1e-12)
