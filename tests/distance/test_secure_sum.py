"""One sketch of the rows of several parties, with the noise of one."""

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import mpmath
import numpy as np
import pandas as pd
import pytest

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot.distance.messages import SketchMessage
from skdpot.exceptions import BudgetExceededError, CalibrationError, MessageError
from skdpot.federated import SecureSum
from skdpot.ot.directions import uniform_directions
from skdpot.privacy.noise import check_shares
from skdpot.release.sketch_record import SketchRecord

RNG = np.random.default_rng(2241)
DIRECTIONS = uniform_directions(64, 3, RNG)
X = RNG.uniform(-1, 1, (400, 3)) ** 3
Y = np.arange(400) * 7 % 3
SHARES = np.split(np.arange(400), [90, 150, 290])  # the rows of four parties
N_ROUNDS = 3  # numbers of rows, plans, tables


def sketch(**changes):
    given = {"epsilon": 1.0, "bounds": (-1, 1), "projections": DIRECTIONS, "n_bins": 64}
    return SlicedSketch(**given | changes)


class Together:
    """Parties in threads, each with its sketch and rows; sums are exact, and nobody hides them."""

    def __init__(self, sketches, rows=None, *, n_tolerated=1, altered=None, n_parties=None):
        self.messages = [[] for _ in sketches]
        self.bounds = []
        self._meeting = Barrier(len(sketches), timeout=60)
        self._sketches, self._altered = sketches, altered or (lambda number, total: total)
        self._rows = rows or [(X[some], Y[some]) for some in SHARES]
        self._sums = [
            SecureSum(
                self._adds(own), n_parties=n_parties or len(sketches), n_tolerated=n_tolerated
            )
            for own in range(len(sketches))
        ]
        with ThreadPoolExecutor(len(sketches)) as pool:
            self.outcomes = list(pool.map(self._fit, range(len(sketches))))

    def _adds(self, own):
        def add(values, largest):
            self.messages[own].append(values)
            self.bounds.append(largest)
            self._meeting.wait()
            total = sum(messages[-1] for messages in self.messages)
            self._meeting.wait()
            return self._altered(len(self.messages[own]), total)

        return add

    def _fit(self, own):
        try:
            return self._sums[own].fit(self._sketches[own], *self._rows[own])
        except Exception as error:
            if len(self.messages[own]) < N_ROUNDS:
                self._meeting.abort()  # nobody need wait for it
            return error


@pytest.fixture(scope="module")
def joint():
    return Together([sketch() for _ in SHARES], n_tolerated=2)


@pytest.mark.parametrize("classes", [None, [0, 1, 2]])
def test_the_sum_is_the_sketch_of_all_rows_for_every_party(classes):
    options = {"epsilon": np.inf, "conditional": classes is not None, "classes": classes}
    found = Together([sketch(**options) for _ in SHARES]).outcomes
    due = sketch(**options).fit(X, Y)
    for one in found:
        assert one.n_samples_ == 400
        np.testing.assert_array_equal(one.statistic_, due.statistic_)
        np.testing.assert_array_equal(one.cdf_, due.cdf_)


def test_a_party_may_have_a_source_of_rows(tmp_path):
    frames = [pd.DataFrame(X[some], columns=list("abc")) for some in SHARES]
    frames[1].to_parquet(tmp_path / "rows.parquet")
    rows = [(frame,) for frame in frames]
    rows[1] = (tmp_path / "rows.parquet",)
    found = Together([sketch(epsilon=np.inf) for _ in SHARES], rows).outcomes
    due = sketch(epsilon=np.inf).fit(X)
    np.testing.assert_array_equal(found[1].statistic_, due.statistic_)


def test_those_who_follow_the_protocol_add_the_noise_that_is_charged(joint):
    alone, exact = sketch().fit(X), sketch(epsilon=np.inf)
    spent = [one.privacy_spent_ for one in joint.outcomes]
    assert {one.epsilon for one in spent} == {alone.privacy_spent_.epsilon}
    (sigma,) = {one.sigma for one in spent}
    assert sigma == pytest.approx(alone.noise_scale_, rel=1e-3)
    lattice = joint.outcomes[0].release_.lattice
    noises = []
    for some, messages in zip(SHARES, joint.messages, strict=True):
        counted = exact.fit(X[some]).statistic_
        noises.append(messages[-1][:-1].reshape(counted.shape) * lattice - counted)
    # 4,096 entries: five standard errors of a standard deviation are 5.5 %.
    for pair in (noises[:2], noises[1:3], noises[2:]):
        assert np.std(sum(pair)) == pytest.approx(sigma, rel=0.055)
    total = joint.outcomes[0].statistic_ - exact.fit(X).statistic_
    np.testing.assert_allclose(total, sum(noises), atol=1e-6)
    assert joint.outcomes[0].noise_scale_ == pytest.approx(sigma * math.sqrt(2), rel=1e-12)
    correlations = np.corrcoef([noise.ravel() for noise in noises])
    assert np.abs(correlations - np.eye(4)).max() < 5 / 64


def test_a_row_of_one_party_moves_the_sum_no_further_than_its_sensitivity():
    far = X.copy()
    far[SHARES[2][0]] = [1, -1, 1]
    one, other = (
        Together([sketch(epsilon=np.inf) for _ in SHARES], [(rows[s],) for s in SHARES])
        for rows in (X, far)
    )
    moved = one.outcomes[0].statistic_ - other.outcomes[0].statistic_
    assert 0 < np.linalg.norm(moved) <= one.outcomes[0].release_.sensitivity


def _law(s, reach):
    weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * s * s)) for k in range(-reach, reach + 1)]
    return [weight / mpmath.fsum(weights) for weight in weights]


@pytest.mark.parametrize("s", [0.8, 1.0, 1.6])
def test_a_sum_of_shares_is_discrete_gaussian_up_to_the_factors_that_are_proved(s):
    with mpmath.workdps(60):
        s, reach, bound = mpmath.mpf(s), 24, 0
        one = total = _law(s, reach)
        for n_shares in (2, 3):
            total = [
                mpmath.fsum(
                    total[i] * one[k - i]
                    for i in range(max(0, k - 2 * reach), min(len(total), k + 1))
                )
                for k in range(len(total) + 2 * reach)
            ]
            bound += mpmath.mpf("4.1") * mpmath.exp(
                -2 * mpmath.pi**2 * s * s * (n_shares - 1) / n_shares
            )
            due = _law(s * mpmath.sqrt(n_shares), n_shares * reach)
            middle = slice(n_shares * reach - 8, n_shares * reach + 9)
            ratios = [a / b for a, b in zip(total[middle], due[middle], strict=True)]
            worst = max(abs(ratio - 1) for ratio in ratios)
            assert worst < bound
            if n_shares == 2:
                assert worst > bound / 3  # the exponent is the right one


def test_shares_are_refused_that_no_proof_covers():
    check_shares(48.0, 1.0, 9, 2**20)
    check_shares(2.0, 1.0, 1, 2**31)
    with pytest.raises(CalibrationError, match="sum of 9 shares"):
        check_shares(6.0, 1.0, 9, 2**20)
    with pytest.raises(CalibrationError, match="more than 2\\^32 draws"):
        check_shares(48.0, 1.0, 9, 2**31)


def test_the_statement_says_what_it_rests_on(joint):
    stated = joint.outcomes[0].privacy_spent_.assumptions
    assert "at most 2 of 4 parties tell others what they know" in stated
    assert "the protocol that adds their messages shows the sum alone" in stated


def test_the_result_is_a_sketch_like_others(joint, tmp_path):
    one = joint.outcomes[0]
    one.save(tmp_path / "joint.safetensors")
    read = SlicedSketch.load(tmp_path / "joint.safetensors")
    np.testing.assert_array_equal(read.cdf_, one.cdf_)
    assert read.privacy_spent_.assumptions == one.privacy_spent_.assumptions
    message = SketchMessage(SketchRecord.of(one)).to_bytes()
    assert SketchMessage.from_bytes(message).record.n_samples == 400
    merged = one.merge(sketch().fit(X[:50]))
    assert merged.n_samples_ == 450
    assert merged.noise_scale_ == pytest.approx(one.noise_scale_ * math.sqrt(1.5), rel=1e-3)
    with pytest.raises(ValueError, match="one sketch twice"):
        one.merge(joint.outcomes[1])


# What is refused.


def budgets():
    return [PrivacyBudget(2.0, 1e-5) for _ in SHARES]


def assert_nothing_happened(together, funds, kind, match):
    for outcome, fund in zip(together.outcomes, funds, strict=True):
        assert isinstance(outcome, MessageError | kind), outcome
        assert fund.epsilon_spent() == 0
    assert any(isinstance(outcome, kind) and match in str(outcome) for outcome in together.outcomes)
    assert all(len(messages) < N_ROUNDS for messages in together.messages)
    assert not any(hasattr(one, "privacy_spent_") for one in together._sketches)


PUBLIC = {"conditional": True, "classes": [0, 1, 2], "public_labels": True}
UNFIT = {
    "private bounds": ({"bounds": "private"}, ValueError, "same public directions and bounds"),
    "drawn": ({"projections": "orthogonal"}, ValueError, "same public directions and bounds"),
    "labels": ({"conditional": True}, ValueError, "Labels of several parties are private"),
    "public labels": (PUBLIC, ValueError, "Labels of several parties are private"),
    "seed": ({"random_state": 0}, ValueError, "random_state must be None"),
    "device": ({"device": "nowhere"}, ValueError, "device"),
    "bins": ({"n_bins": 32}, MessageError, "their plans differ"),
    "epsilon": ({"epsilon": 1.5}, MessageError, "their plans differ"),
    "bounds": ({"bounds": (-2, 1)}, MessageError, "their plans differ"),
    "directions": ({"projections": DIRECTIONS[::-1]}, MessageError, "their plans differ"),
    "classes": ({"conditional": True, "classes": [0, 1, 2]}, MessageError, "their classes differ"),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_what_does_not_fit_together_is_refused_before_any_charge(unfit):
    changes, kind, match = UNFIT[unfit]
    funds = budgets()
    sketches = [sketch(budget=fund) for fund in funds]
    sketches[0].set_params(**changes)
    assert_nothing_happened(Together(sketches), funds, kind, match)


def test_sums_that_no_integer_holds_are_refused_before_any_charge():
    funds = budgets()
    many = Together(
        [sketch(budget=fund) for fund in funds],
        altered=lambda number, total: np.array([total[0], 2**61, 4]) if number == 1 else total,
    )
    assert_nothing_happened(many, funds, ValueError, "exceed 2^62")


SECRET = "0.123456789"


def broken(number, total):
    if number == N_ROUNDS:
        raise RuntimeError(f"cannot send {SECRET}")
    return total


FAULTS = {
    "raises": (broken, "it raised"),
    "floats": (lambda number, total: total if number < 3 else total * 1.0, "no array of integers"),
    "shape": (lambda number, total: total if number < 3 else total[1:], "no array of integers"),
    "wrapped": (lambda number, total: total if number < 3 else total + 2**40, "within the bound"),
    "missing": (
        lambda number, total: total if number < 3 else np.append(total[:-1], 3),
        "not made by 4 parties",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sum_that_fails_releases_nothing_and_quotes_nothing(fault):
    altered, match = FAULTS[fault]
    funds = budgets()
    failed = Together([sketch(budget=fund) for fund in funds], altered=altered)
    for outcome, fund, one in zip(failed.outcomes, funds, failed._sketches, strict=True):
        assert isinstance(outcome, MessageError)
        assert match in str(outcome)
        assert SECRET not in str(outcome)
        assert outcome.__cause__ is None
        assert outcome.__context__ is None
        assert fund.epsilon_spent() > 0
        assert not any(name.endswith("_") for name in vars(one))


def test_fewer_parties_than_declared_release_nothing():
    funds = budgets()
    few = Together([sketch(budget=fund) for fund in funds], n_parties=5)
    assert_nothing_happened(few, funds, MessageError, "not made by 5 parties")


def test_who_cannot_pay_sends_no_table():
    funds = budgets()
    funds[2].spend(sketch().fit(X).privacy_spent_.event)
    before = funds[2].epsilon_spent()
    poor = Together([sketch(epsilon=1.9, budget=fund) for fund in funds])
    assert isinstance(poor.outcomes[2], BudgetExceededError)
    assert len(poor.messages[2]) == N_ROUNDS - 1
    assert funds[2].epsilon_spent() == before
    assert not any(isinstance(outcome, SlicedSketch) for outcome in poor.outcomes)


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        ({"n_parties": 1}, ValueError, "n_parties"),
        ({"n_parties": 3, "n_tolerated": 0}, ValueError, "n_tolerated"),
        ({"n_parties": 3, "n_tolerated": 3}, ValueError, "n_tolerated"),
        ({"n_parties": 3.0}, TypeError, "n_parties"),
        ({"add": "sum", "n_parties": 3}, TypeError, "add"),
    ],
    ids=str,
)
def test_parameters_are_checked(given, kind, match):
    with pytest.raises(kind, match=match):
        SecureSum(**{"add": max} | given)


def test_only_sketches_are_fitted():
    with pytest.raises(TypeError, match="must be a SlicedSketch, got DPSlicedFlowSampler"):
        SecureSum(max, n_parties=3).fit(DPSlicedFlowSampler(bounds=(-1, 1)), X)


@pytest.mark.slow
def test_the_example_adds_up_under_mpyc():
    pytest.importorskip("mpyc")
    script = Path(__file__).parents[2] / "examples" / "federated" / "secure_sum.py"
    run = subprocess.run(
        [sys.executable, str(script), "-M3"], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "6000 rows" in run.stdout
    assert "1.22 times the noise of one" in run.stdout
