"""Membership: what scores show, and attacks on synthetic rows against their definitions.

Fits draw secret noise: margins around them hold for false alarms of less than 1e-6.
"""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import binom, binomtest, norm
from sklearn.metrics import roc_auc_score

from skdpot import SlicedSketch
from skdpot.audit import synthetic_membership
from skdpot.audit.membership import MembershipResult, binomial_limits
from skdpot.audit.synthetic_rows import closest_record_share
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(0)
N, D = 300, 4
CENTERS = 2.0 * RNG.normal(size=(5, D))
PEOPLE = CENTERS[RNG.integers(5, size=4 * N)] + RNG.normal(size=(4 * N, D))
MEMBERS, OTHERS, REFERENCE, FRESH = np.split(PEOPLE, 4)
COPIES = MEMBERS[RNG.integers(N, size=N)]
ATTACKS = (
    "distance to closest record",
    "distance to closest record, calibrated",
    "nearest-neighbour distance ratio",
    "density ratio, kernel",
    "density ratio, classifier",
)


def result_of(members, others, epsilon=1.0, delta=1e-5):
    return MembershipResult(np.asarray(members, float), np.asarray(others, float), epsilon, delta)


# What a result says about scores.


def test_roc_and_area():
    result = result_of([3, 2, 0], [1, 0])
    fpr, tpr, thresholds = result.roc()
    np.testing.assert_allclose(thresholds, [np.inf, 3, 2, 1, 0])
    np.testing.assert_allclose(tpr, [0, 1 / 3, 2 / 3, 2 / 3, 1])
    np.testing.assert_allclose(fpr, [0, 0, 0, 0.5, 1])
    assert result.advantage == pytest.approx(2 / 3)
    rng = np.random.default_rng(1)
    members, others = rng.integers(6, size=40) + 1.0, rng.integers(6, size=70) * 1.0
    area = roc_auc_score(np.repeat([1, 0], [40, 70]), np.concatenate([members, others]))
    assert result_of(members, others).auc == pytest.approx(area)
    assert result_of([np.inf, 0], [-np.inf, 0]).auc == pytest.approx(7 / 8)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, np.inf])
def test_bounds_of_a_claim_agree(epsilon):
    result = result_of([1], [0], epsilon)
    fpr = np.linspace(0, 1, 100_001)
    bound = result.tpr_bound(fpr)
    assert np.max(bound - fpr) == pytest.approx(result.advantage_bound, abs=1e-4)
    assert np.all(np.diff(bound) >= 0)
    if np.isfinite(epsilon):
        # The region is its own mirror image: the complement of an attack is an attack.
        np.testing.assert_allclose(result.tpr_bound(1 - bound), 1 - fpr, atol=2e-5)


@pytest.mark.parametrize(
    ("auc", "sizes", "confidence", "least", "most"),
    [
        (0.76025, (60, 40), 0.9, 20, 66),  # 40 of 400 expected; so few scores are a bit too narrow
        (0.97, (25, 25), 0.95, 0, 36),  # 20 expected; limits without log odds miss one in five
    ],
)
def test_interval_of_the_area_covers(auc, sizes, confidence, least, most):
    rng, shift = np.random.default_rng(2), norm.ppf(auc) * np.sqrt(2)
    missed = 0
    for _ in range(400):
        scores = rng.normal(shift, 1.0, sizes[0]), rng.normal(0.0, 1.0, sizes[1])
        low, high = result_of(*scores).auc_interval(confidence)
        missed += not low <= auc <= high
    assert least <= missed <= most


def test_true_positives_at_few_false_ones():
    others = np.arange(100.0)
    result = result_of([99.0, 99.5, 98.5, 50.0, 200.0], others)
    for fpr, found in ((0.0, 2), (0.01, 4), (0.001, 2), (1.0, 5)):
        assert result.tpr_at(fpr).value == found / 5
    # 0.29 times 100 is less than 29 in floating point.
    edge = result_of([70.5], others)
    assert (edge.tpr_at(0.29).value, edge.tpr_at(0.28).value) == (1.0, 0.0)
    for hits, n in ((0, 10), (2, 5), (10, 10)):
        limits = binomtest(hits, n).proportion_ci(0.9, method="exact")
        assert binomial_limits(hits, n, 0.9)[1:] == pytest.approx((limits.low, limits.high))
    assert result.tpr_at(0.0, 0.9) == binomial_limits(2, 5, 0.9)
    # A perfect area of three is as sure as three right answers of three.
    assert result_of([1] * 3, [0] * 3).auc_interval() == (pytest.approx(0.025 ** (1 / 3)), 1.0)
    rng = np.random.default_rng(3)
    for _ in range(50):
        result = result_of(rng.integers(8, size=20), rng.integers(8, size=rng.integers(2, 30)))
        fpr, tpr, _ = result.roc()
        allowed = float(rng.random())
        assert result.tpr_at(allowed).value == pytest.approx(tpr[fpr <= allowed].max())


def test_lower_bound_by_hand():
    # The first half (even positions) chooses the complement, where low scores speak for the
    # other data set: 40 of 50 against 2 of 50. The second half is counted.
    members, others = np.zeros(100), np.zeros(100)
    members[0:96:2], others[0:20:2] = 1, 1
    members[1:91:2], others[1:25:2] = 1, 1  # low: 5 and 38 of 50
    least = binomtest(38, 50).proportion_ci(0.9, method="exact").low
    most = binomtest(5, 50).proportion_ci(0.9, method="exact").high
    found = result_of(members, others, delta=1e-3).epsilon_lower_bound(0.9)
    assert found == pytest.approx(np.log((least - 1e-3) / most))


def test_lower_bound_of_normal_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(2.0, 1.0, 20_000), rng.normal(0.0, 1.0, 20_000)
    assert 3.0 < result_of(*scores).epsilon_lower_bound() < 9
    # Backwards it is as good an attack for the other side, but not for this one.
    assert result_of(*scores[::-1]).epsilon_lower_bound() == 0
    # Choosing among thresholds costs no confidence.
    trials = [result_of(*rng.normal(size=(2, 200)), delta=0.0) for _ in range(60)]
    assert sum(trial.epsilon_lower_bound(0.5) > 0 for trial in trials) <= 30


def test_pictures(found):
    result = result_of([3, 2, 0], [1, 0])
    ax = result.plot(color="red")
    assert ax.lines[0].get_color() == "red"
    np.testing.assert_allclose(ax.lines[0].get_xydata().T, result.roc()[:2])
    other = found.plot(log=True, ax=plt.subplots()[1], legend=False)
    assert other.get_legend() is None
    # Below one alarm among the others there is nothing to see.
    assert other.get_xlim() == other.get_ylim() == pytest.approx((1 / N, 1.0))
    assert {line.get_label() for line in other.lines} == {*ATTACKS, "random guessing"}


# The attacks on synthetic rows, each against its definition.


@pytest.fixture(scope="module")
def found():
    return synthetic_membership(COPIES, MEMBERS, OTHERS, X_reference=REFERENCE, random_state=0)


def test_distances_to_the_closest_records(found):
    made, others, crowd = (X / COPIES.std(axis=0) for X in (COPIES, OTHERS, REFERENCE))
    near, usual = cdist(others, made).min(axis=1), cdist(others, crowd).min(axis=1)
    closest = np.sort(cdist(others, np.unique(made, axis=0)), axis=1)
    for name, expected in zip(
        ATTACKS, (-near, np.log(usual / near), np.log(closest[:, 1] / closest[:, 0])), strict=False
    ):
        np.testing.assert_allclose(found.results[name].other_scores, expected)
        assert np.isfinite(found.results[name].member_scores).all()  # at distance zero too
    single = synthetic_membership(np.ones((3, D)), MEMBERS, OTHERS)
    assert set(ATTACKS) - set(single.results) == {"nearest-neighbour distance ratio"}


@pytest.mark.slow
def test_kernel_densities(found):
    name = "density ratio, kernel"
    # By hand: whiten both samples together, put a normal of variance h² on each row.
    both = np.concatenate([COPIES, REFERENCE])
    _, _, axes = np.linalg.svd((both - both.mean(0)) / both.std(0), full_matrices=False)
    turned = [(X - both.mean(0)) / both.std(0) @ axes.T for X in (COPIES, REFERENCE, OTHERS)]
    unit = np.concatenate(turned[:2]).std(axis=0, ddof=1)
    made, crowd, asked = (X / unit for X in turned)
    logs = []
    for rows in (made, crowd):
        h = len(rows) ** (-1 / (D + 4))
        kernels = -cdist(asked, rows, "sqeuclidean") / (2 * h**2)
        logs.append(logsumexp(kernels, axis=1) - np.log(len(rows)) - D * np.log(h))
    scores = found.results[name].other_scores
    np.testing.assert_allclose(scores, logs[0] - logs[1], atol=2e-4)
    # Where there is no density, and of more rows than densities are made of.
    many, far = np.random.default_rng(5).normal(size=(5200, 2)), np.full((2, 2), 1e6)
    wide = synthetic_membership(many, many[:3], far, X_reference=many[:100])
    assert np.isfinite(wide.results[name].other_scores).all()


def test_share_of_the_closest():
    made = np.array([[0.0], [0.2], [0.9], [5.0]])
    result = closest_record_share(made, [[0.0], [5.0]], [[1.0]])
    assert result.share.value == 0.75
    assert result.expected == pytest.approx(2 / 3)
    assert result.share[1:] == binomial_limits(3, 4)[1:]
    # A row of two owners counts a half for each, in whichever order they come.
    for own in ([[0.0], [9.0]], [[9.0], [0.0]]):
        assert closest_record_share([[0.1]], own, [[0.0]]).share.value == 0.5


@pytest.mark.slow
def test_deviation_of_the_share_is_that_of_chance():
    rng = np.random.default_rng(6)
    real, made = (rng.standard_t(3, size=(n, 2)) for n in (60, 1000))
    shares = []
    for _ in range(400):
        rng.shuffle(real)
        result = closest_record_share(made, real[:40], real[40:])
        shares.append(result.share.value)
    assert np.mean(shares) == pytest.approx(2 / 3, abs=5 * result.deviation / np.sqrt(400))
    assert np.std(shares) == pytest.approx(result.deviation, rel=0.1)
    # The usual binomial limits are far too narrow for so many synthetic rows.
    assert result.deviation > 2 * (result.share.high - result.share.low) / 4
    assert closest_record_share(real[:40], real[:40], real[40:]).p_value == 1 / 5000
    assert closest_record_share(real[40:], real[:40], real[40:]).p_value > 0.999


def test_the_p_value_of_the_share_has_its_level_where_members_are_few():
    """3 members among 600 rows: 200 cases; more alarms than asserted in fewer than 1 in 10^4."""
    rng, p_values = np.random.default_rng(12), []
    for _ in range(200):
        real, made = (rng.standard_normal((n, 2)) for n in (600, 40))
        p_values.append(closest_record_share(made, real[:3], real[3:]).p_value)
    for level in (0.01, 0.05, 0.3):
        alarms = np.count_nonzero(np.array(p_values) <= level)
        assert alarms <= binom.isf(1e-4 / 3, len(p_values), level)
    assert 0.1 < np.mean(np.array(p_values) <= 0.3)  # no smaller than counts allow


# Generators: one that copies, one that overfits, one that is private.


def test_copies_are_found_by_all(found):
    assert tuple(found.results) == ATTACKS
    table = found.to_frame()
    assert (table["auc_low"] > 0.55).all()
    # Three in five rows occur in a bootstrap, and are found without a single false alarm.
    assert table["tpr_at_0.001"][:3].tolist() == pytest.approx([1 - np.exp(-1)] * 3, abs=0.05)
    assert found.share.share.value == 1.0
    assert found.share.p_value == 1 / 5000
    assert found.best.auc == table["auc"].max()
    assert (found.best.epsilon, found.best.delta) == (np.inf, 0.0)


@pytest.mark.slow
def test_a_flow_without_noise_overfits_and_a_private_one_does_not():
    exposed, private = (
        synthetic_membership(
            flow_sampler(epsilon=epsilon, bounds=(-8, 8)).fit(MEMBERS),
            MEMBERS,
            np.concatenate([OTHERS, FRESH]),
            random_state=0,
        )
        for epsilon in (np.inf, 1.0)
    )
    assert exposed.results[ATTACKS[0]].auc > 0.85
    assert exposed.share.p_value == 1 / 5000
    # Over 12 fits the areas had a mean of at most 0.525 and a standard deviation of 0.022.
    assert (private.to_frame()["auc"] < 0.525 + 6 * 0.022).all()
    # A false alarm is a share of six standard deviations too many.
    assert private.share.share.value < private.share.expected + 6 * private.share.deviation
    assert {(one.epsilon, one.delta) for one in private.results.values()} == {(1.0, 1e-5)}
    assert private.n_synthetic == 1000


@pytest.mark.slow
def test_unrelated_rows_tell_nothing():
    # The attacker's reference must not hold any of the others: at distance zero from it, they
    # would look like others whatever the synthetic rows are.
    for seed in range(3):
        found = synthetic_membership(FRESH, MEMBERS, OTHERS, random_state=seed)
        table = found.to_frame(0.9999)
        assert ((table["auc_low"] < 0.5) & (0.5 < table["auc_high"])).all()
        assert {len(one.other_scores) for one in found.results.values()} == {N // 2}


# What is refused.

FEW = result_of([1], [0, 1])


def attacked(sampler=COPIES, members=MEMBERS, others=OTHERS, **options):
    return lambda: synthetic_membership(sampler, members, others, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FEW.tpr_at(2), "fpr=2"),
        (lambda: FEW.tpr_at(0.1, 1), "confidence=1"),
        (lambda: FEW.epsilon_lower_bound(), "(?i)two scores"),
        (lambda: FEW.auc_interval(), "(?i)two scores"),
        (lambda: closest_record_share(COPIES, MEMBERS[:, :2], OTHERS), "members has 2 features"),
        (attacked(others=OTHERS[:, :2]), "X_holdout has 2"),
        (attacked(SlicedSketch()), "no method sample"),
        (attacked(SimpleNamespace(sample=lambda *_, **__: np.zeros((9, 3, D)))), "3 dimensions"),
        (attacked(others=OTHERS[:3]), "at least 4"),
        *((attacked(n_samples=n), "n_samples") for n in (1, 2.5, True)),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("role", range(3))
@pytest.mark.parametrize(
    "bad",
    [
        lambda rows: rows[:, 0],
        lambda rows: rows[None],
        lambda rows: rows[:0],
        lambda rows: np.where(rows == rows[1], np.nan, rows),
        lambda rows: rows.astype(str),
        lambda rows: [*rows[:3], rows[0, :2]],
        lambda rows: rows + 1j,
    ],
)
def test_no_wrong_shape_or_type_quotes_a_value(role, bad):
    given = [COPIES, MEMBERS, OTHERS]
    given[role] = bad(given[role])
    shown = np.concatenate([rows.ravel()[:40] for rows in (COPIES, MEMBERS, OTHERS)])
    digits = {f"{value:.3f}".lstrip("-") for value in shown}
    for attack in (closest_record_share, synthetic_membership):
        with pytest.raises(ValueError, match="must be a table|finite numbers") as caught:
            attack(*given)
        assert not any(value in str(caught.value) for value in digits)
        assert "array(" not in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None
