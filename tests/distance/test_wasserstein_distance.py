"""The distance between parties: each protocol behind one estimator."""

import pickle
import re
import warnings

import numpy as np
import ot
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import PrivacyBudget, PrivateWassersteinDistance, SlicedSketch
from skdpot.distance.estimates import common_scale
from skdpot.distance.messages import InterpolatingMeasure, SketchMessage
from skdpot.distance.party import Party, data_of
from skdpot.exceptions import (
    BudgetExceededError,
    MessageError,
    NotPrivateWarning,
    PrivacyWarning,
    ProtocolRefusedError,
    ReliabilityWarning,
)
from skdpot.metrics import wasserstein_distance
from skdpot.ot.measures import gaussian_reference, labelled_measure
from skdpot.ot.plans import cost_of_plan
from skdpot.release.bounds import DataBounds
from tests.flat_options import private_distance

RNG = np.random.default_rng(5)
N = 1500
HERE = RNG.normal(0.0, 0.2, size=(N, 3))
THERE = HERE[::-1] + 0.25
FEW, OTHERS = HERE[:60], RNG.normal(0.2, 0.25, size=(60, 3))
LABELS = np.repeat(["a", "b"], 30)
PUBLIC = {"bounds": (-1, 1), "n_projections": 6}
plainly = pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
seeded = pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")


def sliced(**changes):
    return private_distance(**(PUBLIC | changes))


def plain(protocol, **changes):
    return private_distance(protocol, **changes)


@pytest.fixture(scope="module")
def exact():
    return sliced(epsilon=np.inf).fit(HERE)


@pytest.fixture(scope="module")
def other():
    return sliced(epsilon=np.inf).fit(THERE)


@pytest.mark.slow
def test_a_shift_is_found_from_everything_that_a_party_can_give(exact, other):
    """A shift of .25 along every axis; without noise, bins and samples alone are in the way."""
    party = Party("elsewhere", THERE, epsilon=np.inf)
    for side in (THERE, other, other.sketch_, other.publish(), party):
        estimate = exact.compare(side)
        assert estimate.distance == pytest.approx(0.25, abs=0.004)
        assert estimate.unit == "features"
        low, high = estimate.interval()
        assert low < estimate.distance < high
        assert exact.distance(side) == estimate.distance
    assert exact.score(THERE) == -exact.distance(THERE)


@seeded
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_the_barycenter_of_sketches_of_gaussians_is_the_gaussian_of_the_mean_spread(epsilon):
    rng, weights = np.random.default_rng(0), [0.75, 0.25]
    rows = rng.normal(-0.3, 0.1, (20_000, 3)), rng.normal(0.3, 0.2, (20_000, 3))
    first, second = (sliced(epsilon=epsilon, random_state=s).fit(x) for s, x in enumerate(rows))
    for other in (second, second.publish(), second.sketch_):
        found = first.barycenter([other], weights=weights, n_points=2000)
        assert found.mean(axis=0) == pytest.approx([-0.15] * 3, abs=0.005)
        assert found.std(axis=0) == pytest.approx([0.125] * 3, rel=0.06)
    expected = rng.normal(-0.15, 0.125, (500, 3))
    assert wasserstein_distance(found[:500], expected) < 0.08  # two samples: .05
    with pytest.raises(ValueError, match="of sketches, not of public rows"):
        first.barycenter([rows[1]])
    with pytest.raises(ValueError, match="one party or more"):
        first.barycenter([])


@seeded
def test_a_refused_barycenter_asks_no_party():
    budget, fitted = PrivacyBudget(1.0), sliced(random_state=0, epsilon=9.0).fit(HERE)
    party = Party("other", THERE, epsilon=0.5, budget=budget)
    elsewhere = sliced(random_state=1, epsilon=9.0, bounds=(-2, 2)).fit(THERE)
    for others, weights, message in (
        ([party], [1.0, -1.0], "weights"),
        ([party], [1.0], "weights"),
        ([party, THERE], None, "not of public rows"),
        ([party, elsewhere], None, "bounds"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.barycenter(others, weights=weights)
    assert len(budget.history()) == 0
    fitted.barycenter([party], n_points=10)
    assert len(budget.history()) == 1


@plainly
@pytest.mark.parametrize(("protocol", "n_rounds"), [("fedwad", 4), ("triangle", 1)])
def test_the_barycenter_of_the_other_protocols_is_that_of_pot(protocol, n_rounds):
    """Though the server sees moved rows alone, and also where plans split rows."""
    rows, weights = [FEW[:40], OTHERS, THERE[:25]], np.array([0.5, 0.3, 0.2])
    options = {"n_rounds": n_rounds} if protocol == "fedwad" else {}
    fitted = plain(protocol, **options).fit(rows[0])
    parties = [Party("second", rows[1], allows=(protocol,)), rows[2]]
    found = fitted.barycenter(parties, weights=weights, n_points=30)
    start = gaussian_reference(30, 3, rng=np.random.default_rng(0)).points
    expected = ot.lp.free_support_barycenter(
        rows,
        [ot.unif(len(x)) for x in rows],
        start,
        weights=weights,
        numItermax=n_rounds,
        stopThr=0,
    )
    np.testing.assert_allclose(found, expected, atol=1e-10)
    refusing = Party("third", rows[1])
    with pytest.raises(ProtocolRefusedError, match="does not take part"):
        fitted.barycenter([refusing])


@seeded
def test_equal_parties_are_not_told_apart():
    """Seeded; how often in general is measured in the user guide."""
    halves = [sliced(random_state=s).fit(HERE[s::2]) for s in (0, 1)]
    estimate = halves[0].compare(halves[1])
    assert abs(estimate.squared_distance) < 2.5 * estimate.squared_standard_error
    assert estimate.noise_floor > 0
    assert "95 %" in repr(estimate)
    assert ("not told apart from 0" in repr(estimate)) == (estimate.interval()[0] == 0)
    assert "Noise floor" in estimate._repr_html_()


def test_the_unit_is_that_of_the_features_where_all_are_scaled_alike(exact):
    """Ten times the numbers are ten times as far apart."""
    tens = sliced(epsilon=np.inf, bounds=(-10, 10)).fit(10 * HERE)
    assert tens.distance(10 * THERE) == pytest.approx(2.5, abs=0.04)
    norms = sliced(epsilon=np.inf, bounds="private", norm_bound=2.0).fit(HERE)
    assert norms.distance(THERE) == pytest.approx(0.25, abs=0.01)
    ones = exact.score_samples(THERE)
    np.testing.assert_allclose(tens.score_samples(10 * THERE), 100 * ones, rtol=1e-6, atol=1e-6)
    apart = sliced(epsilon=np.inf, bounds=([-1, -1, -2], [1, 1, 2])).fit(HERE)
    estimate = apart.compare(THERE)
    assert estimate.unit == "scaled features"
    assert estimate.distance == pytest.approx(0.25 * np.sqrt((1 + 1 + 0.25) / 3), abs=0.01)
    # Equal scales may come out of a private release, or not: the unit must not depend on it.
    equal = DataBounds(np.zeros(2), np.full(2, 3.0), 1.0)
    assert common_scale(equal, declared=True) == 3.0
    assert common_scale(equal, declared=False) is None


def test_fit_and_publishing_charge_and_comparing_is_free():
    budget = PrivacyBudget(3.0)
    fitted = sliced(budget=budget, epsilon=1.0).fit(HERE)
    assert fitted.privacy_spent_.epsilon == 1.0
    for _ in range(2):
        fitted.distance(THERE)
        fitted.score_samples(THERE[:50])
        fitted.publish()
    assert budget.history()["label"].tolist() == ["PrivateWassersteinDistance"]
    message = fitted.publish(THERE)
    assert isinstance(message, SketchMessage)
    low, high = fitted.compare(message).interval(0.999999)
    assert low < 0.25 < high
    assert fitted.transform(HERE).shape == (len(fitted.sketch_.directions_), 65)
    assert len(budget.history()) == 3
    again = SketchMessage.from_bytes(message.to_bytes())
    assert fitted.distance(again) == fitted.distance(message)


def test_a_fitted_estimator_holds_no_row():
    fitted = sliced(budget=PrivacyBudget(1.0), epsilon=1.0).fit(HERE)
    before = pickle.dumps(vars(fitted))
    assert all(value.tobytes() not in before for value in HERE[:200].ravel())
    with pytest.raises(BudgetExceededError):
        fitted.transform(THERE)
    assert pickle.dumps(vars(fitted)) == before
    assert pickle.loads(pickle.dumps(fitted)).distance(THERE) == fitted.distance(THERE)


@pytest.mark.parametrize(
    ("changes", "columns", "text"),
    [
        ({"shared_seed": 1}, "abc", "directions"),
        ({"n_bins": 32}, "abc", "bins|shape of the table"),
        ({"bounds": (-2, 2)}, "abc", "bounds"),
        ({}, "cba", "different names of features"),
    ],
)
def test_what_measures_something_else_is_refused(changes, columns, text):
    here, there = (pd.DataFrame(rows[:300], columns=list("abc")) for rows in (HERE, THERE))
    fitted = sliced(epsilon=np.inf).fit(here)
    assert fitted.distance(there) == pytest.approx(0.25, abs=0.02)  # and without a warning
    assert fitted.score_samples(there).shape == (300,)
    foreign = sliced(epsilon=np.inf, **changes).fit(there[list(columns)])
    for refused in (foreign, foreign.publish()):
        with pytest.raises(ValueError, match=text):
            fitted.compare(refused)


def test_a_union_of_parties(exact, other):
    """Half of the rows each of two parties: the union is one party with all of them."""
    halves = [sliced(epsilon=np.inf).fit(THERE[s::2]) for s in (0, 1)]
    both = exact.compare(halves)
    assert both.squared_distance == pytest.approx(exact.compare(other).squared_distance, rel=1e-3)
    mixed = exact.distance([exact.publish(HERE), other])
    assert 0 < mixed < exact.distance(other)
    with pytest.raises(AttributeError, match="not fitted"):
        exact.compare([other, clone(other)])


@pytest.mark.slow
def test_pairwise_distances_of_rows_and_of_parties(exact):
    rows = {"here": HERE, "there": THERE, "again": HERE[::-1]}
    frame, errors = sliced(epsilon=20.0).pairwise_distances(rows, return_std=True)
    assert frame.index.tolist() == frame.columns.tolist() == list(rows)
    np.testing.assert_array_equal(frame, frame.T)
    assert np.all(np.diag(frame) == 0)
    assert frame.loc["here", "there"] == pytest.approx(0.25, abs=0.03)
    assert frame.loc["here", "again"] < 0.1
    assert (errors.to_numpy()[np.triu_indices(3, 1)] > 0).all()
    with pytest.warns(NotPrivateWarning):
        unnamed = plain("fedwad").pairwise_distances([FEW, FEW[:20]])
    assert unnamed.index.tolist() == unnamed.columns.tolist() == ["0", "1"]
    parties = [Party(name, x[:300], epsilon=20.0) for name, x in rows.items()]
    assert isinstance(exact.pairwise_distances(parties), pd.DataFrame)
    assert all(party.privacy_spent[0].epsilon == 20.0 for party in parties)


def test_few_rows_are_measured_along_the_first_of_the_directions():
    """So that a table of few rows is not drowned, and is still compared with that of many."""
    rows = RNG.normal(0.0, 0.2, size=(8000, 5))
    many, few = (
        PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1)).fit(x) for x in (rows, rows[:600])
    )
    assert [len(each.sketch_.directions_) for each in (many, few)] == [65, 25]
    np.testing.assert_array_equal(many.sketch_.directions_[:25], few.sketch_.directions_)
    message = few.publish()
    assert many.compare(message).distance == many.distance(few) == few.distance(many)
    low, high = many.compare(message).interval(of="space")
    assert low == 0 < high
    table = PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1)).pairwise_distances
    parties = [Party(str(n), rows[:n], allows=("sliced",)) for n in (600, 8000)]
    assert table(parties).shape == (2, 2)
    (answer,) = data_of(parties[1]).releases.values()
    assert len(answer.record.directions) == 25  # as the smallest of the parties


@pytest.mark.filterwarnings("ignore:Noise moves:skdpot.exceptions.PrivacyWarning")
def test_the_number_of_directions_depends_on_persons_and_not_on_their_rows():
    """With `groups` the number of rows is private."""
    persons = np.arange(300)
    shown = []
    for times in (1, 8):
        groups = np.repeat(persons, times)
        rows = np.tile(HERE[: len(persons)], (8, 1))[: len(groups)]
        fitted = PrivateWassersteinDistance(epsilon=1.0, bounds=(-1, 1)).fit(rows, groups=groups)
        shown.append(len(fitted.sketch_.directions_))
    assert shown[0] == shown[1] < 64


def test_rows_that_are_published_after_persons_are_told_of():
    fitted = sliced(epsilon=9.0).fit(HERE, groups=np.arange(len(HERE)) // 2)
    with pytest.warns(PrivacyWarning, match="one for each row"):
        fitted.publish(HERE)
    fitted.publish()


GIVEN = {
    "mapping": dict,
    "list": lambda rows: [*rows.values()],
    "tuple": lambda rows: (*rows.values(),),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_parties_with_different_people_share_one_charge(monkeypatch, given):
    """Charged one after the other, three parties took sqrt(3) times the mu."""
    budget, alone, seen = PrivacyBudget(1.0), PrivacyBudget(1.0), []
    rows = given({f"party {i}": HERE[:300] + i / 10 for i in range(3)})
    release = SlicedSketch._release

    def watched(self, *args, **options):
        seen.append(len(budget.history()))
        return release(self, *args, **options)

    monkeypatch.setattr(SlicedSketch, "_release", watched)
    estimator = sliced(budget=budget, epsilon=1.0)
    with pytest.raises(MessageError, match="Nobody was asked"):
        estimator.pairwise_distances(given({"a": HERE, "b": HERE[:, :2]}))
    assert len(budget.history()) == 0
    assert estimator.pairwise_distances(rows).shape == (3, 3)
    with pytest.raises(BudgetExceededError, match="left"):
        estimator.pairwise_distances(rows)
    assert seen == [1] * 3  # charged before the first of them
    sliced(budget=alone, epsilon=1.0).fit(HERE[:300])
    np.testing.assert_array_equal(budget.history()["mu"], alone.history()["mu"])


# Protocols that are not private


@plainly
@pytest.mark.parametrize("protocol", ["triangle", "fedwad"])
def test_what_is_not_private_says_so_once_keeps_its_rows_and_needs_a_budget_without_cap(protocol):
    with pytest.warns(
        NotPrivateWarning, match="every row .*skdpot.distance.reconstruction"
    ) as shown:
        fitted = plain(protocol).fit(FEW)
    assert [warning.filename for warning in shown] == [__file__]
    assert np.isinf(fitted.privacy_spent_.epsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.distance(OTHERS)
    rows, budget = {"a": FEW, "b": OTHERS}, PrivacyBudget(1.0)
    with pytest.warns(NotPrivateWarning):
        plain(protocol).pairwise_distances(rows)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(fitted)
    assert not hasattr(clone(fitted), "protocol_")
    shown = repr(vars(fitted))
    assert all(f"{value:.6g}" not in shown for value in FEW.ravel())
    poor = plain(protocol, budget=budget)
    for call, given in ((poor.fit, FEW), (poor.pairwise_distances, rows)):
        with pytest.raises(BudgetExceededError):
            call(given)
    assert not hasattr(poor, "reference_")
    assert len(budget.history()) == 0
    assert plain(protocol, budget=PrivacyBudget(np.inf)).fit(FEW).n_samples_ == 60


@plainly
def test_triangle():
    here, there = plain("triangle", t=0.3).fit(FEW), plain("triangle", t=0.3).fit(OTHERS)
    message = there.publish()
    assert isinstance(message, InterpolatingMeasure)
    assert here.distance(message) == pytest.approx(here.distance(OTHERS), rel=1e-9)
    assert "an upper bound" in repr(here.compare(message))
    np.testing.assert_allclose(here.transform(OTHERS), message.points, rtol=1e-12)
    secret = plain("triangle", t=0.3, disclose_t=False).fit(FEW)
    assert secret.distance(OTHERS) == pytest.approx(here.distance(OTHERS), rel=0.05)
    assert secret.reference_.t is None
    parts = [Party(name, OTHERS[s::2], allows="triangle") for s, name in enumerate("ab")]
    assert 1 < here.compare(parts).distance / wasserstein_distance(FEW, OTHERS) < 1.3


@plainly
def test_classes_and_weights():
    truth = wasserstein_distance(
        labelled_measure(FEW, LABELS).points, labelled_measure(OTHERS, LABELS).points
    )
    fitted = plain("triangle", labeled=True, gamma_scale=0.0).fit(FEW, LABELS)
    assert fitted.distance(OTHERS, LABELS) == pytest.approx(truth, rel=1e-9)
    masses = np.arange(1.0, 61.0)
    weighted = plain("triangle", gamma_scale=0.0).fit(FEW, masses=masses)
    truth = wasserstein_distance(FEW, OTHERS, X_weights=masses, Y_weights=masses)
    assert weighted.distance(OTHERS, masses=masses) == pytest.approx(truth, rel=1e-9)


@plainly
@pytest.mark.parametrize("protocol", ["sliced", "triangle", "fedwad"])
def test_noisy_rows_have_large_values(protocol, exact):
    rows = FEW.copy()
    rows[:6] += 3.0
    fitted = exact if protocol == "sliced" else plain(protocol).fit(OTHERS)
    values = fitted.score_samples(rows)
    assert set(np.argsort(-values)[:6]) == set(range(6))
    if protocol != "sliced":
        frame = fitted.pairwise_distances({"a": FEW, "b": OTHERS, "c": rows})
        assert frame.loc["a", "b"] < frame.loc["b", "c"]


def test_in_a_pipeline_and_a_grid_search():
    pipeline = make_pipeline(FunctionTransformer(), sliced(epsilon=50.0))
    bins = {"privatewassersteindistance__protocol__n_bins": [16, 64]}
    search = GridSearchCV(pipeline, bins, cv=2).fit(HERE[:400])
    assert search.score(THERE[:400]) == pytest.approx(-0.25, abs=0.1)


# What is refused


@plainly
def test_what_cannot_be_compared_is_named(exact):
    fitted, rows = plain("triangle").fit(FEW), {"a": FEW, "b": OTHERS}
    somebody = Party("somebody", FEW)
    parties = [Party(name, HERE) for name in "ab"]
    secret, labeled = plain("triangle", disclose_t=False), plain("triangle", labeled=True)
    for error, text, call, *arguments in (
        (ValueError, "features", exact.distance, THERE[:, :2]),
        (ValueError, "NaN", exact.score, np.full((5, 3), np.nan)),
        (AttributeError, "not fitted", private_distance().distance, HERE),
        (TypeError, "Message.from_bytes", exact.compare, exact.publish().to_bytes()),
        (TypeError, "must be rows", exact.compare, None),
        (ValueError, "both must be the same", exact.compare, fitted),
        (TypeError, "InterpolatingMeasure cannot be", exact.compare, fitted.publish()),
        (TypeError, "SketchMessage cannot be compared", fitted.compare, exact.publish()),
        (TypeError, "table of rows, got Party", exact.score_samples, somebody),
        (TypeError, "table of rows, got Party", exact.publish, somebody),
        (ProtocolRefusedError, "does not take part", fitted.compare, somebody),
        (ValueError, "takes two parties", plain("fedwad").fit(FEW).compare, parties),
        (ValueError, "counts every row once", lambda: sliced().fit(FEW, masses=np.ones(60))),
        (ValueError, "counts every row", lambda: exact.compare(FEW, masses=np.ones(60))),
        (ValueError, "two parties or more", exact.pairwise_distances, parties[:1]),
        (TypeError, "list of Party", exact.pairwise_distances, [HERE, parties[0]]),
        (ValueError, "requires public bounds", private_distance().pairwise_distances, rows),
        (ValueError, "disclose_t=True", secret.pairwise_distances, rows),
        (ValueError, "requires y", labeled.fit, FEW),
        (ValueError, "Party objects with classes", labeled.pairwise_distances, rows),
    ):
        with pytest.raises(error, match=text):
            call(*arguments)
    # A sketch is one table for all rows: before fit there is nothing to compare it with.
    assert not hasattr(private_distance(), "transform")
    assert hasattr(exact, "transform")
    assert hasattr(private_distance("triangle"), "transform")


@pytest.mark.filterwarnings("error::skdpot.exceptions.ReliabilityWarning")
def test_a_drowned_table_warns_and_its_interval_is_honest():
    """30 rows: the noise of a distribution function is above .4, and nothing can be told."""
    rng, drowned = np.random.default_rng(1), [sliced(budget=PrivacyBudget(1.0)) for _ in range(2)]
    for estimator in drowned:
        # A warning that is made an error loses no release.
        with pytest.raises(ReliabilityWarning, match="noise hides distances to other parties"):
            estimator.fit(rng.normal(0, 0.15, size=(30, 4)))
        assert len(estimator.budget.history()) == 1
    estimate = drowned[0].compare(drowned[1])
    assert estimate.details.standard_error >= estimate.details.raw_squared > 0
    assert estimate.interval()[0] == 0


@seeded
def test_one_seed_gives_fit_and_publish_different_noise():
    """Equal noise would cancel in the difference and leave exact counts: here all of them 0."""
    fitted = sliced(random_state=4).fit(HERE)
    with pytest.warns(PrivacyWarning, match="reproducible"):
        again = fitted.publish(HERE).sketch
    assert not np.array_equal(again.statistic_, fitted.sketch_.statistic_)
    low, high = fitted.compare(fitted.publish(HERE[::-1])).interval(0.999999)
    assert low == 0 <= high


def test_a_long_protocol_says_first_what_it_takes_and_shows_progress(monkeypatch, capsys):
    monkeypatch.setattr("skdpot.distance.not_private._LONG", 60 * 60)
    with pytest.warns(NotPrivateWarning, match=r"between 60 x 60 points: about 1 s and 0\.0 GB"):
        fitted = plain("TriangleWad", verbose=1).fit(FEW)
    fitted.distance(OTHERS)
    assert re.search(r"exact plans: 3 plans .*60 x 60 points", capsys.readouterr().err)
    with pytest.warns(NotPrivateWarning, match="verbose=1 shows progress"):
        plain("FedWad").pairwise_distances({"a": FEW, "b": OTHERS})
    assert capsys.readouterr().err == ""
    assert cost_of_plan(10_000, 10_000) == "10,000 x 10,000 points: about 80 s and 2.4 GB each"
