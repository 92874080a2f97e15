"""Who of many clients has data like the server's."""

import numpy as np
import pytest

from skdpot import ClientContribution, PrivacyBudget
from skdpot.distance.party import Party
from skdpot.exceptions import BudgetExceededError, NotPrivateWarning
from tests.flat_options import private_distance

RNG = np.random.default_rng(12)
SERVER = RNG.normal(0.0, 0.2, size=(1000, 3))
CLIENTS = {f"client {k}": RNG.normal(0.1 * k, 0.2, size=(1000, 3)) for k in range(4)}
DISTANCE = {"epsilon": 9.0, "bounds": (-1, 1), "n_projections": 6}


def judge(**changes):
    return ClientContribution(private_distance(**(DISTANCE | changes)))


def test_nearer_clients_contribute_more():
    """Shifts of 0, .1, .2 and .3 against standard errors of a hundredth."""
    table = judge().fit(SERVER).contributions(CLIENTS)
    assert table.index.tolist() == list(CLIENTS)
    assert table.index.name == "client"
    assert table["distance"].is_monotonic_increasing
    assert table["contribution"].is_monotonic_decreasing
    assert table["contribution"].sum() == pytest.approx(1.0)
    assert table["relative"].max() == 1.0
    assert (table["low"] <= table["distance"]).all()
    assert (table["distance"] <= table["high"]).all()
    assert (table["least"] <= table["contribution"]).all()
    assert (table["contribution"] <= table["most"]).all()
    due = (0.09 - table["distance"] ** 2) / (4 * 0.09 - (table["distance"] ** 2).sum())
    np.testing.assert_allclose(table["contribution"], due, atol=0.05)  # of .43, .38, .24 and 0
    assert table["contribution"].max() > 0.3
    assert table["contribution"].min() < 0.05


@pytest.mark.slow
def test_clients_that_noise_does_not_tell_apart_share_about_equally():
    """By chance one in a hundred sets has a share above .45; the mean of 8 hardly."""
    found = []
    for _ in range(8):
        equal = {name: RNG.normal(0.0, 0.2, size=(500, 3)) for name in "abcd"}
        shares = judge(epsilon=1.0).fit(SERVER[:500]).contributions(equal)["contribution"]
        found.append(shares.sort_values().to_numpy())
    assert 0.12 < np.mean(found, axis=0)[0]
    assert np.mean(found, axis=0)[-1] < 0.42


def test_parties_answer_with_their_own_privacy():
    parties = [Party(name, rows, epsilon=2.0) for name, rows in CLIENTS.items()]
    fitted = judge(budget=PrivacyBudget(9.0)).fit(SERVER)
    fitted.contributions(parties)
    assert [party.privacy_spent[0].epsilon for party in parties] == [2.0] * 4
    assert len(fitted.estimator_.budget.history()) == 1
    assert fitted.privacy_spent_.epsilon == 9.0


def test_equal_clients_share_equally():
    fitted = judge().fit(SERVER)
    shares = fitted.contributions(dict.fromkeys("abc", CLIENTS["client 2"]))["contribution"]
    np.testing.assert_allclose(shares, 1 / 3)
    assert fitted.contributions({"one": SERVER})["contribution"].tolist() == [1.0]


def test_without_privacy():
    given = private_distance("triangle", gamma_scale=0.0)
    with pytest.warns(NotPrivateWarning):
        fitted = ClientContribution(given).fit(SERVER[:100])
    rows = {name: x[:100] for name, x in CLIENTS.items()}
    table = fitted.contributions(rows)
    assert table.index.tolist() == list(CLIENTS)
    assert (table["standard_error"] == 0).all()


def test_errors_name_the_client_and_nothing_changes():
    fitted = judge().fit(SERVER)
    for clients, text in (
        ({"good": SERVER, "bad": SERVER[:, :2]}, "Client 'bad'"),
        ({}, "one client or more"),
        ([SERVER], "sequence of Party"),
        ([Party("same", SERVER), Party("same", SERVER)], "name of its own"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            fitted.contributions(clients)
    before = fitted.estimator_
    fitted.set_params(estimator__budget=PrivacyBudget(1.0))
    with pytest.raises(BudgetExceededError):
        fitted.fit(SERVER)
    assert fitted.estimator_ is before
    with pytest.raises(AttributeError, match="not fitted"):
        ClientContribution().contributions(CLIENTS)
