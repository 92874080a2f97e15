"""FedWad against its parties: each reads the other's rows."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from skdpot.audit.reconstruction import (
    rows_along_geodesic,
    rows_from_one_round,
)
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference, interpolate, optimal_plan

DIGITS = load_digits().data[np.random.default_rng(0).permutation(1797)] / 8 - 1


def play(X, Y, fractions, n_support, kind="barycentric"):
    """Return the ξ before and after each round and the messages of both parties."""
    mu, nu = DiscreteMeasure(X), DiscreteMeasure(Y)
    xi = gaussian_reference(n_support, X.shape[1], rng=np.random.default_rng(1))
    path, sent = [xi], []
    for t in fractions:
        etas = [interpolate(optimal_plan(party, path[-1]), t, kind=kind) for party in (mu, nu)]
        sent.append(etas)
        path.append(interpolate(optimal_plan(*etas), t, kind=kind))
    return path, sent


@pytest.mark.parametrize("t", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("is_first", [True, False])
def test_one_round_is_enough(t, is_first):
    X, Y = DIGITS[:60], DIGITS[60:120]
    path, sent = play(X, Y, [t], 60)
    own, other = (X, Y) if is_first else (Y, X)
    found = rows_from_one_round(path[0], sent[0][1 - is_first], path[1], t, is_first=is_first)
    assert found.n_exact(other) == 60
    assert found.rmse(own) > 0.1


def test_a_true_geodesic_gives_everything():
    mu, nu = DiscreteMeasure(DIGITS[:40]), DiscreteMeasure(DIGITS[40:100])
    plan = optimal_plan(mu, nu)
    xi = interpolate(plan, 0.3, kind="exact")
    place = optimal_plan(mu, xi).distance / plan.distance
    assert place == pytest.approx(0.3, abs=1e-12)
    assert rows_along_geodesic(mu, xi, place).n_exact(nu.points) == 60


def test_wrong_fractions():
    measure = DiscreteMeasure(np.eye(3))
    with pytest.raises(ValueError, match="fraction=0 must be"):
        rows_along_geodesic(measure, measure, 0)
    with pytest.raises(ValueError, match="t=1 must be"):
        rows_from_one_round(measure, measure, measure, 1)
