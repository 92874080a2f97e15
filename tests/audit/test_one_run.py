"""The one-run audit: true mechanisms pass, false ones are caught, and misuse is refused."""

import dataclasses
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skdpot import ClientContribution, PrivacyBudget, PrivateScaler, SlicedSketch
from skdpot.audit import one_run_audit
from skdpot.audit.canaries import CanaryPairs, antipodal_pairs
from skdpot.audit.claims import claimed, lower_text
from skdpot.audit.one_run import AuditResult
from tests.flat_options import flow_sampler, private_distance, sliced_generator

X = np.random.default_rng(0).uniform(-1, 1, size=(50, 3))
M = 600
PAIRS = CanaryPairs(first=np.full((M, 3), 1.0), second=np.full((M, 3), -1.0))
CLAIM = {"epsilon": 1.0, "delta": 0.0}
BOX = {"bounds": (-1, 1)}


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
    assert result.verdict.startswith("Not refuted: ")
    # The same mechanism with more than is claimed, and enough guesses to see that.
    louder = randomized_response(epsilon + 2.5)
    false = one_run_audit(louder, X, epsilon=epsilon, n_guesses=M, **options)
    assert false.refuted
    assert false.verdict.startswith("REFUTED: ")
    assert (false.n_canaries, false.n_guesses) == (M, M)
    assert false.n_correct == false.right.sum()


def test_surest_are_guessed():
    def score(audited):
        # The last hundred are known, all others are nonsense.
        scores = np.full(M, -1e-3)
        scores[-100:] = told(audited)[-100:]
        return scores

    options = {"canaries": PAIRS, "score": score, "n_guesses": 100}
    result = one_run_audit(lambda rows, labels: rows[:, 0], X, **options, **CLAIM)
    assert result.n_correct == 100
    assert result.epsilon_lower == pytest.approx(-math.log(0.05 ** (-1 / 100) - 1), abs=1e-5)


def test_coins_are_fair_and_no_seed_fixes_them():
    seen = []

    def fit(rows, labels):
        seen.append(rows[50:, 0] > 0)
        return rows[:, 0]

    for _ in range(20):
        one_run_audit(fit, X, canaries=PAIRS, score=told, random_state=0, **CLAIM)
    assert not np.array_equal(seen[0], seen[1])
    assert abs(np.mean(seen) - 0.5) < 5.5 / math.sqrt(4 * 20 * M)


def test_facts_of_rows_travel_with_them():
    groups = np.arange(50) % 3
    pairs = dataclasses.replace(PAIRS, fit_params={"sensitive_features": np.full(M, 7)})

    def fit(rows, labels, sensitive_features):
        np.testing.assert_array_equal(sensitive_features, [*groups, *[7] * M])
        return rows[:, 0]

    options = {"score": told, "fit_params": {"sensitive_features": groups}} | CLAIM
    assert one_run_audit(fit, X, canaries=pairs, **options).n_correct == M // 2
    with pytest.raises(ValueError, match="must have the same names"):
        one_run_audit(fit, X, canaries=PAIRS, **options)


def test_claim_comes_from_the_fit_and_progress_is_shown_where_asked(capsys):
    sketch = SlicedSketch(epsilon=0.7, delta=1e-6, **BOX)
    result = one_run_audit(sketch, X, canaries=40)
    assert (result.epsilon, result.delta, result.n_guesses) == (0.7, 1e-6, 20)
    assert capsys.readouterr().err == ""
    one_run_audit(sketch, X, canaries=40, verbose=1)
    assert "releases" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fit", "claim", "gaussian"),
    [
        (SlicedSketch(**BOX), {}, True),
        (SlicedSketch(**BOX), {"epsilon": 1.0}, False),
        (SlicedSketch(**BOX), {"epsilon": 1.0, "delta": 1e-5}, False),
        (SlicedSketch(math.inf, **BOX), {}, False),
        (sliced_generator("gradient", n_steps=1, batch_size=9, **BOX), {}, False),
    ],
)
def test_the_stronger_bound_is_for_gaussian_noise_that_all_records_see(fit, claim, gaussian):
    audited = fit.fit(X)
    assert claimed(audited, claim.get("epsilon"), claim.get("delta"))[2] is gaussian
    if gaussian:
        assert one_run_audit(fit, X, canaries=20).gaussian


def test_few_features_do_not_blunt_the_attack():
    sketch = SlicedSketch(epsilon=math.inf, n_projections=32, n_bins=64, **BOX)
    assert one_run_audit(sketch, X, canaries=200).epsilon_lower > 3


# What is refused.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence": 1.0}, "confidence=1.0 must be"),
        ({"confidence": "a"}, "confidence must be a number, not str"),
        ({"n_guesses": 0}, "n_guesses == 0, must be"),
        ({"n_guesses": M + 1}, f"must be <= {M}"),
        ({"y": np.zeros(50)}, "y must be given if and only if"),
        ({"y": np.zeros(3)}, "y must have one entry"),
        ({"delta": -1.0}, "delta=-1.0 must be"),
        ({"epsilon": math.nan}, "epsilon=nan must be"),
        ({"epsilon": None}, "epsilon and delta"),
        ({"canaries": 10.5}, "must be an instance of int"),
        ({"canaries": 5}, "No attack on function is known"),
        ({"score": "gues"}, "score must be a function or .auto."),
        ({"score": lambda audited: np.zeros(3)}, r"score must return .* shape \(3,\)"),
        ({"score": lambda audited: np.full(M, np.nan)}, "none of them NaN"),
        # Of the pairs.
        ({"second": np.zeros((M, 2))}, "one shape"),
        ({"first_labels": np.zeros(M)}, "both or neither"),
        ({"fit_params": {"groups": np.zeros(2)}}, "groups must have one entry"),
        ({"first": np.zeros((M, 2)), "second": np.zeros((M, 2))}, "2 features, and X has 3"),
    ],
)
def test_refusals(changes, message):
    of_pairs = {name: value for name, value in changes.items() if hasattr(PAIRS, name)}
    options = {"score": told} | CLAIM | {k: v for k, v in changes.items() if k not in of_pairs}
    fit, y = randomized_response(1.0), options.pop("y", None)
    with pytest.raises((ValueError, TypeError), match=message):
        one_run_audit(fit, X, y, **{"canaries": dataclasses.replace(PAIRS, **of_pairs)} | options)


@pytest.mark.parametrize(
    ("fit", "rows", "message"),
    [
        (SlicedSketch, X, "an object, not a class"),
        (SlicedSketch(), X[:, 0], "two dimensions, not 1"),
        (SlicedSketch(), csr_array(X), "must be dense"),
        (SlicedSketch(), np.empty((0, 3)), "edge of the rows"),
        (make_pipeline(PrivateScaler(), SlicedSketch()), X, "private steps"),
        (flow_sampler(budget=PrivacyBudget(1.0)), X, "budget=None"),
        (LogisticRegression(), X, "No attack on LogisticRegression"),
        (private_distance("triangle"), X, "(?i)triangle.*claims no privacy"),
        (ClientContribution(private_distance("fedwad")), X, "(?i)fedwad.*claims no privacy"),
    ],
)
def test_what_cannot_be_audited(fit, rows, message):
    with pytest.raises(ValueError, match=message) as caught:
        one_run_audit(fit, rows, canaries=10)
    assert str(X[0, 0])[:6] not in str(caught.value)


def test_antipodal_pairs_lie_on_the_edge():
    low, high = np.array([0.0, -2.0]), np.array([4.0, 2.0])
    options = {"rng": np.random.default_rng(0), "corners": True}
    ball = antipodal_pairs(30, low, high, rng=options["rng"])
    np.testing.assert_allclose(ball.first + ball.second, [[4.0, 0.0]] * 30)
    np.testing.assert_allclose(np.linalg.norm(ball.first - [2, 0], axis=1), 2.0)
    corners = antipodal_pairs(30, np.zeros(12), np.ones(12), **options)
    assert set(corners.first.ravel()) == {0.0, 1.0}
    np.testing.assert_array_equal(corners.second, 1 - corners.first)
    # Four corners are too few: points of the faces, further out than the ellipsoid.
    faces = antipodal_pairs(30, low, high, labels=[0, 1, 2], **options)
    assert len(np.unique(faces.first, axis=0)) == 30
    np.testing.assert_allclose(np.abs(faces.first - [2, 0]).max(axis=1), 2.0)
    assert (faces.first_labels != faces.second_labels).all()
    with pytest.raises(ValueError, match="two classes"):
        antipodal_pairs(3, low, high, labels=[1, 1], **options)


# What a result says.


def result_of(epsilon=1.0):
    counts = {"n_canaries": 100, "n_guesses": 50, "n_correct": 50, "right": np.arange(100) < 70}
    return AuditResult(confidence=0.95, epsilon=epsilon, delta=1e-5, **counts)


def test_verdicts():
    for epsilon, start in ((1.0, "REFUTED: ε ≥ 2.78 "), (math.inf, "ε ≥ 2.78 ")):
        assert result_of(epsilon).verdict.startswith(start)
    normal = dataclasses.replace(result_of(10.0), gaussian=True)
    assert normal.verdict.startswith("Not refuted: ε ≥ 5.83 of Gaussian noise")
    assert normal.ceiling == normal.epsilon_lower > 2 * result_of().ceiling
    assert [lower_text(*given) for given in ((5.0877,), (1.0004, 1.0), (1.0004, 2.0))] == [
        "5.08", "1.0004", "1.00",
    ]  # fmt: skip


def test_picture():
    ax = result_of().plot(color="red")
    assert ax.lines[0].get_color() == "red"
    np.testing.assert_allclose(ax.lines[0].get_ydata()[[49, 99]], [1.0, 0.7])
    ax = result_of(math.inf).plot(ax=plt.subplots()[1], legend=False)
    assert ax.get_legend() is None
    assert len(ax.lines) == 3
