"""The one-run audit: true mechanisms pass, false ones are caught, and misuse is refused."""

import dataclasses
import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skdpot import (
    PrivacyBudget,
    PrivateScaler,
    SlicedSketch,
)
from skdpot.audit import one_run_audit
from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import CanaryPairs, antipodal_pairs
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.audit.one_run import AuditResult, claimed, lower_text
from tests.flat_options import flow_sampler, private_distance, sliced_generator

X = np.random.default_rng(0).uniform(-1, 1, size=(50, 3))
M = 600
PAIRS = CanaryPairs(first=np.full((M, 3), 1.0), second=np.full((M, 3), -1.0))


def randomized_response(epsilon, seed=0):
    """Release the sign of each row's first number, each true with e^ε / (1 + e^ε)."""

    def fit(rows, labels):
        assert labels is None
        rng = np.random.default_rng(seed)
        lies = rng.random(len(rows)) > 1 / (1 + math.exp(-epsilon))
        return np.sign(rows[:, 0]) * np.where(lies, -1, 1)

    return fit


def told(audited):
    return audited.fitted[len(audited.X) :]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomized_response(epsilon):
    options = {"canaries": PAIRS, "score": told, "delta": 0.0, "confidence": 0.999999}
    result = one_run_audit(randomized_response(epsilon), X, epsilon=epsilon, **options)
    assert 0.9 * (epsilon > 1) <= result.epsilon_lower <= epsilon
    assert not result.refuted
    assert result.verdict.startswith("Not refuted: ε ≥ ")
    # The same mechanism with a claim of half of it, and enough guesses to see that.
    false = one_run_audit(
        randomized_response(epsilon + 2.5), X, epsilon=epsilon, n_guesses=M, **options
    )
    assert false.refuted
    assert false.verdict.startswith("REFUTED: ")
    assert (false.n_canaries, false.n_guesses) == (M, M)
    assert false.n_correct == false.right.sum()


def test_surest_are_guessed():
    def fit(rows, labels):
        return rows[:, 0]

    def score(audited):
        # The last hundred are known, all others are nonsense.
        scores = np.full(M, -1e-3)
        scores[-100:] = told(audited)[-100:]
        return scores

    claim = {"epsilon": 1.0, "delta": 0.0}
    result = one_run_audit(fit, X, canaries=PAIRS, score=score, n_guesses=100, **claim)
    assert result.n_correct == 100
    assert result.epsilon_lower == pytest.approx(-math.log(0.05 ** (-1 / 100) - 1), abs=1e-5)


def test_coins_are_fair_and_no_seed_fixes_them():
    seen = []

    def fit(rows, labels):
        seen.append(rows[50:, 0] > 0)
        return rows[:, 0]

    for _ in range(20):
        one_run_audit(fit, X, canaries=PAIRS, score=told, epsilon=1.0, delta=0.0, random_state=0)
    assert not np.array_equal(seen[0], seen[1])
    assert abs(np.mean(seen) - 0.5) < 5.5 / math.sqrt(4 * 20 * M)


def test_claim_comes_from_the_fit():
    result = one_run_audit(SlicedSketch(epsilon=0.7, delta=1e-6, bounds=(-1, 1)), X, canaries=40)
    assert (result.epsilon, result.delta, result.n_guesses) == (0.7, 1e-6, 20)
    with pytest.raises(ValueError, match="Give epsilon and delta"):
        one_run_audit(randomized_response(1.0), X, canaries=PAIRS, score=told)


@pytest.mark.parametrize("conditional", [False, True])
def test_a_sketch_without_noise_tells_all_and_one_with_little_is_caught(conditional):
    y = np.arange(50) % 2 if conditional else None
    wide = np.random.default_rng(1).uniform(-1, 1, size=(50, 24))
    sketch = SlicedSketch(epsilon=math.inf, bounds=(-1, 1), conditional=conditional)
    result = one_run_audit(sketch, wide, y, canaries=320, confidence=0.999)
    assert result.n_correct == 160
    assert result.epsilon_lower > 3
    assert not result.refuted
    loud = sketch.set_params(epsilon=30.0)
    assert one_run_audit(loud, wide, y, canaries=200, epsilon=1.0, delta=1e-5).refuted


def test_few_features_do_not_blunt_the_attack():
    sketch = SlicedSketch(epsilon=math.inf, bounds=(-1, 1), n_projections=32, n_bins=64)
    result = one_run_audit(sketch, X, canaries=200, confidence=0.95)
    assert result.epsilon_lower > 3


def test_facts_of_rows_travel_with_them():
    groups = np.arange(50) % 3
    pairs = dataclasses.replace(PAIRS, fit_params={"sensitive_features": np.full(M, 7)})

    def fit(rows, labels, sensitive_features):
        assert len(sensitive_features) == len(rows)
        np.testing.assert_array_equal(sensitive_features[:50], groups)
        assert set(sensitive_features[50:]) == {7}
        return rows[:, 0]

    options = {"score": told, "epsilon": 1.0, "delta": 0.0}
    facts = {"sensitive_features": groups}
    assert one_run_audit(fit, X, canaries=pairs, fit_params=facts, **options).n_correct == M // 2
    with pytest.raises(ValueError, match="must have the same names"):
        one_run_audit(fit, X, canaries=PAIRS, fit_params=facts, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence": 1.0}, "confidence=1.0 must be"),
        ({"n_guesses": 0}, "n_guesses == 0, must be"),
        ({"n_guesses": M + 1}, f"must be <= {M}"),
        ({"y": np.zeros(50)}, "y must be given if the canaries have labels"),
        ({"score": "gues"}, "score must be a function or .auto."),
        ({"n_guesses": 20.5}, "must be an instance of int"),
        ({"confidence": "a"}, "confidence must be a number, not str"),
        ({"delta": -1.0}, "delta=-1.0 must be"),
        ({"delta": math.nan}, "delta=nan must be"),
        ({"epsilon": math.nan}, "epsilon=nan must be"),
        ({"canaries": -3}, "canaries == -3, must be"),
        ({"canaries": 10.5}, "must be an instance of int"),
        ({"y": np.zeros(3)}, "y must have one entry"),
        ({"score": lambda audited: np.zeros(3)}, r"score must return .* shape \(3,\)"),
        ({"score": lambda audited: np.full(M, np.nan)}, "none of them NaN"),
        ({"canaries": 5}, "No attack on function is known"),
    ],
)
def test_refusals(changes, message):
    options = {"canaries": PAIRS, "score": told, "epsilon": 1.0, "delta": 0.0} | changes
    with pytest.raises((ValueError, TypeError), match=message):
        one_run_audit(randomized_response(1.0), X, options.pop("y", None), **options)


@pytest.mark.parametrize(
    ("fit", "rows", "message"),
    [
        (SlicedSketch, X, "an object, not a class"),
        (SlicedSketch(), X[:, 0], "two dimensions, not 1"),
        (SlicedSketch(), None, "two dimensions, not 0"),
        (SlicedSketch(), csr_array(X), "must be dense"),
        (SlicedSketch(), np.empty((0, 3)), "edge of the rows"),
        (make_pipeline(PrivateScaler(), SlicedSketch()), X, "private steps one by one"),
    ],
)
def test_what_cannot_be_audited(fit, rows, message):
    with pytest.raises(ValueError, match=message) as caught:
        one_run_audit(fit, rows, canaries=10)
    assert str(X[0, 0])[:6] not in str(caught.value)


def test_canaries_are_as_wide_as_the_rows():
    with pytest.raises(ValueError, match="The canaries have 3 features, and X has 2"):
        one_run_audit(randomized_response(1.0), X[:, :2], canaries=PAIRS)


def test_progress_is_shown_where_asked(capsys):
    one_run_audit(SlicedSketch(bounds=(-1, 1)), X, canaries=20, verbose=1)
    assert "releases" in capsys.readouterr().err
    one_run_audit(SlicedSketch(bounds=(-1, 1)), X, canaries=20)
    assert capsys.readouterr().err == ""


def test_tables_in_parts_give_the_same_scores(monkeypatch):
    wide = np.random.default_rng(1).uniform(-1, 1, size=(50, 24))
    sketch = SlicedSketch(epsilon=5.0, bounds=(-1, 1), conditional=True)
    seen = []

    def score(audited):
        whole = default_score(audited.fitted)(audited)
        monkeypatch.setattr("skdpot.release.histogram._FORMED", 20_000)
        seen.append((whole, default_score(audited.fitted)(audited)))
        return whole

    one_run_audit(sketch, wide, np.arange(50) % 3, canaries=40, score=score)
    np.testing.assert_allclose(*seen[0], rtol=1e-7)


def test_generators_of_classes():
    generator = sliced_generator(bounds=(-1, 1), conditional=True, n_steps=2, latent_dim=2)
    y = np.arange(50) % 2
    assert not one_run_audit(generator, X, y, canaries=20, confidence=0.999).refuted


@pytest.mark.parametrize(
    ("fit", "claim", "gaussian"),
    [
        (SlicedSketch(bounds=(-1, 1)), {}, True),
        (SlicedSketch(bounds=(-1, 1)), {"epsilon": 1.0}, False),
        (SlicedSketch(bounds=(-1, 1)), {"epsilon": 1.0, "delta": 1e-5}, False),
        (SlicedSketch(math.inf, bounds=(-1, 1)), {}, False),
        (sliced_generator("gradient", n_steps=1, batch_size=9, bounds=(-1, 1)), {}, False),
    ],
)
def test_the_stronger_bound_is_for_gaussian_noise_that_all_records_see(fit, claim, gaussian):
    audited = fit.fit(np.random.default_rng(0).uniform(-1, 1, size=(50, 3)))
    assert claimed(audited, claim.get("epsilon"), claim.get("delta"))[2] is gaussian
    if gaussian:
        assert one_run_audit(fit, X, canaries=20).gaussian


def test_a_budget_is_not_spent_on_audits():
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match="budget=None"):
        one_run_audit(flow_sampler(budget=budget), X)
    assert len(budget.history()) == 0


def test_what_promises_nothing_has_no_attack():
    with pytest.raises(ValueError, match="No attack on PrivateWassersteinDistance.*Triangle"):
        one_run_audit(private_distance("triangle"), X)
    with pytest.raises(ValueError, match="No attack on LogisticRegression"):
        one_run_audit(LogisticRegression(), X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"second": np.zeros((M, 2))}, "one shape"),
        ({"first": np.zeros(3), "second": np.zeros(3)}, "one shape"),
        ({"first_labels": np.zeros(M)}, "both or neither"),
        ({"fit_params": {"groups": np.zeros(2)}}, "groups must have one entry"),
    ],
)
def test_pairs_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PAIRS, **changes)


def test_antipodal_pairs_lie_on_the_edge():
    rng = np.random.default_rng(0)
    low, high = np.array([0.0, -2.0]), np.array([4.0, 2.0])
    round_ = antipodal_pairs(30, low, high, rng=rng)
    np.testing.assert_allclose(round_.first + round_.second, [[4.0, 0.0]] * 30)
    np.testing.assert_allclose(np.linalg.norm(round_.first - [2, 0], axis=1), 2.0)
    corners = antipodal_pairs(30, np.zeros(12), np.ones(12), rng=rng, corners=True)
    assert set(corners.first.ravel()) == {0.0, 1.0}
    np.testing.assert_array_equal(corners.second, 1 - corners.first)
    # Four corners are too few: different points of the faces, which are further out than the
    # ellipsoid.
    corners = antipodal_pairs(30, low, high, rng=rng, corners=True, labels=[0, 1, 2])
    assert len(np.unique(corners.first, axis=0)) == 30
    np.testing.assert_allclose(np.abs(corners.first - [2, 0]).max(axis=1), 2.0)
    assert (corners.first_labels != corners.second_labels).all()
    with pytest.raises(ValueError, match="two classes"):
        antipodal_pairs(3, low, high, rng=rng, labels=[1, 1])


def linear_evidence(residual, differences, noise_scale):
    evidence = EvidenceSum(len(differences))
    evidence.add(residual, differences, noise_scale)
    return evidence.scores()


def test_linear_evidence_solves_what_has_no_noise():
    rng = np.random.default_rng(0)
    differences = rng.normal(size=(40, 60))
    coins = np.where(rng.random(40) < 0.5, 1, -1)
    scores = linear_evidence(coins @ differences / 2, differences, 0.0)
    np.testing.assert_allclose(scores, coins, atol=1e-4)
    # One canary: the matched filter, scaled.
    residual = rng.normal(size=60)
    one = linear_evidence(residual, differences[:1], 3.0)
    half = differences[0] / 2
    assert one[0] == pytest.approx(residual @ half / (half @ half + 9.0))
    # Canaries that cannot be told apart do not spoil the others.
    twins = np.vstack([differences[:1], differences[:1], differences[5:6]])
    assert np.sign(linear_evidence(differences[5] / 2, twins, 0.0)[2]) == 1


def result_of(epsilon=1.0):
    right = np.arange(100) < 70
    return AuditResult(
        confidence=0.95,
        n_canaries=100,
        n_guesses=50,
        n_correct=50,
        epsilon=epsilon,
        delta=1e-5,
        right=right,
    )


def test_texts():
    assert repr(result_of()) == (
        "AuditResult(50 of 50 guesses right, 100 canaries. "
        "REFUTED: ε ≥ 2.78 at 95 % confidence, but ε = 1 was claimed.)"
    )
    assert result_of().verdict == "REFUTED: ε ≥ 2.78 at 95 % confidence, but ε = 1 was claimed."
    assert result_of(math.inf).verdict == "ε ≥ 2.78 at 95 % confidence; nothing was claimed."
    normal = dataclasses.replace(result_of(10.0), gaussian=True)
    assert normal.verdict.startswith("Not refuted: ε ≥ 5.83 of Gaussian noise at 95 % confidence")
    assert normal.ceiling == normal.epsilon_lower > 2 * result_of().ceiling


def test_lower_bounds_are_rounded_down():
    assert lower_text(5.0877) == "5.08"
    assert lower_text(1.0004, 1.0) == "1.0004"
    assert lower_text(1.0004, 2.0) == "1.00"
    assert lower_text(math.inf) == "∞"


def test_picture():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    try:
        ax = result_of().plot(color="red")
        assert ax.lines[0].get_color() == "red"
        np.testing.assert_allclose(ax.lines[0].get_ydata()[[49, 99]], [1.0, 0.7])
        assert ax.lines[1].get_ydata()[-1] == pytest.approx(0.8)
        ax = result_of(math.inf).plot(ax=plt.subplots()[1], legend=False)
        assert ax.get_legend() is None
        assert len(ax.lines) == 3
    finally:
        plt.close("all")
        plt.switch_backend(before)
