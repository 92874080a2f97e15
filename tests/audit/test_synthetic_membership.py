"""Membership from synthetic rows: copies are found, private rows are not, figures are exact.

Fits draw secret noise: margins around them hold for false alarms of less than 1e-6.
"""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import binomtest, norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from skdpot import SlicedSketch
from skdpot.audit import synthetic_membership
from skdpot.audit.membership import MembershipResult, binomial_limits
from skdpot.audit.synthetic import (
    closest_record_share,
    density_ratio_membership,
    distance_to_closest_record,
    nearest_neighbour_distance_ratio,
)
from tests.flat_options import flow_sampler, trajectory_sampler

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


@pytest.fixture
def agg():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


# What a result says about scores.


def test_area_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    members, others = rng.integers(6, size=40) + 1.0, rng.integers(6, size=70) * 1.0
    labels = np.repeat([1, 0], [40, 70])
    area = MembershipResult(members, others, 1.0, 0.0).auc
    assert area == pytest.approx(roc_auc_score(labels, np.concatenate([members, others])))
    endless = MembershipResult(np.array([np.inf, 0.0]), np.array([-np.inf, 0.0]), 1.0, 0.0)
    assert endless.auc == pytest.approx(7 / 8)


def test_interval_of_the_area_covers():
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(400):
        members, others = rng.normal(1.0, 1.0, 60), rng.normal(0.0, 1.0, 40)
        low, high = MembershipResult(members, others, 1.0, 0.0).auc_interval(0.9)
        missed += not low <= 0.76025 <= high  # Phi(1 / sqrt(2))
    # Near the edge too, where limits on the scale of the area itself miss one in five.
    edge = norm.ppf(0.97) * np.sqrt(2)
    missed_there = 0
    for _ in range(400):
        members, others = rng.normal(edge, 1.0, 25), rng.normal(0.0, 1.0, 25)
        low, high = MembershipResult(members, others, 1.0, 0.0).auc_interval()
        missed_there += not low <= 0.97 <= high
    assert missed_there <= 36  # 20 expected
    assert 20 <= missed <= 66  # 40 expected, normal limits with so few scores are a bit too narrow
    perfect = MembershipResult(np.ones(3), np.zeros(3), 1.0, 0.0)
    # As sure as three right answers of three.
    assert perfect.auc_interval() == (pytest.approx(0.025 ** (1 / 3)), 1.0)
    with pytest.raises(ValueError, match="Two scores"):
        MembershipResult(np.ones(1), np.zeros(3), 1.0, 0.0).auc_interval()


def test_true_positives_at_few_false_ones():
    others = np.arange(100.0)
    members = np.array([99.0, 99.5, 98.5, 50.0, 200.0])
    result = MembershipResult(members, others, 1.0, 0.0)
    assert result.tpr_at(0.0).value == 2 / 5  # above 99
    assert result.tpr_at(0.01).value == 4 / 5  # above 98
    assert result.tpr_at(0.001).value == 2 / 5
    assert result.tpr_at(1.0).value == 1.0
    # 0.29 times 100 is less than 29 in floating point.
    edge = MembershipResult(np.array([70.5]), others, 1.0, 0.0)
    assert edge.tpr_at(0.29).value == 1.0
    assert edge.tpr_at(0.28).value == 0.0
    interval = binomtest(2, 5).proportion_ci(0.9, method="exact")
    assert result.tpr_at(0.0, 0.9)[1:] == pytest.approx((interval.low, interval.high))
    with pytest.raises(ValueError, match="fpr=2"):
        result.tpr_at(2)
    with pytest.raises(ValueError, match="confidence=1"):
        result.tpr_at(0.1, 1)


def test_threshold_leaves_no_more_alarms_than_allowed():
    rng = np.random.default_rng(3)
    for _ in range(50):
        others = rng.integers(8, size=rng.integers(2, 30)).astype(float)
        members = rng.integers(8, size=20).astype(float)
        result = MembershipResult(members, others, 1.0, 0.0)
        fpr, tpr, _ = result.roc()
        allowed = float(rng.random())
        assert result.tpr_at(allowed).value == pytest.approx(tpr[fpr <= allowed].max())


def test_binomial_limits():
    assert binomial_limits(0, 10)[:2] == (0.0, 0.0)
    assert binomial_limits(10, 10)[2] == 1.0
    for hits in (0, 3, 10):
        interval = binomtest(hits, 10).proportion_ci(0.95, method="exact")
        assert binomial_limits(hits, 10)[1:] == pytest.approx((interval.low, interval.high))


@pytest.mark.usefixtures("agg")
def test_picture_of_small_rates():
    rng = np.random.default_rng(4)
    scores = rng.normal(1, 1, 500), rng.normal(0, 1, 500)
    ax = MembershipResult(*scores, 1.0, 1e-5).plot(log=True)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    # Below one alarm in 500 there is nothing to see.
    assert ax.get_xlim() == pytest.approx((0.002, 1.0))
    ax.figure.canvas.draw()
    few = MembershipResult(np.ones(2), np.zeros(2), 1.0, 1e-5).plot(log=True, legend=False)
    assert few.get_xlim() == pytest.approx((0.1, 1.0))
    found = synthetic_membership(COPIES, MEMBERS, OTHERS, random_state=0)
    ax = found.plot(log=True)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert set(labels) == {*ATTACKS, "guessing", "allowed by ε = ∞"}
    assert len(labels) == len(set(labels))


# The attacks, each against its definition.


def test_distance_to_the_closest_record():
    plain = distance_to_closest_record(COPIES, MEMBERS, OTHERS, scale=None)
    np.testing.assert_allclose(plain.other_scores, -cdist(OTHERS, COPIES).min(axis=1))
    unit = COPIES.std(axis=0)
    scaled = distance_to_closest_record(COPIES, MEMBERS, OTHERS)
    expected = -cdist(OTHERS / unit, COPIES / unit).min(axis=1)
    np.testing.assert_allclose(scaled.other_scores, expected)
    given = distance_to_closest_record(COPIES, MEMBERS, OTHERS, scale=unit)
    np.testing.assert_array_equal(given.member_scores, scaled.member_scores)
    calibrated = distance_to_closest_record(COPIES, MEMBERS, OTHERS, reference=REFERENCE)
    usual = cdist(OTHERS / unit, REFERENCE / unit).min(axis=1)
    np.testing.assert_allclose(calibrated.other_scores, np.log(usual) - np.log(-expected))
    blocks = distance_to_closest_record(COPIES, MEMBERS, OTHERS, scale=None, metric="cityblock")
    expected = -cdist(OTHERS, COPIES, "cityblock").min(axis=1)
    np.testing.assert_allclose(blocks.other_scores, expected)


def test_ratio_of_the_two_closest():
    result = nearest_neighbour_distance_ratio(COPIES, MEMBERS, OTHERS, scale=None)
    near = np.sort(cdist(OTHERS, np.unique(COPIES, axis=0)), axis=1)
    np.testing.assert_allclose(result.other_scores, np.log(near[:, 1] / near[:, 0]))
    assert np.isfinite(result.member_scores).all()  # at distance zero too
    with pytest.raises(ValueError, match="two different rows"):
        nearest_neighbour_distance_ratio(np.ones((3, D)), MEMBERS, OTHERS)


def test_kernel_densities():
    result = density_ratio_membership(COPIES, MEMBERS, OTHERS, REFERENCE, random_state=0)
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
    np.testing.assert_allclose(result.other_scores, logs[0] - logs[1], atol=2e-4)
    # Units do not matter, and neither do constant columns.
    units = np.array([1e-3, 1.0, 1e4, 1.0])
    again = density_ratio_membership(
        *(np.column_stack([X * units, np.ones(N)]) for X in (COPIES, MEMBERS, OTHERS, REFERENCE)),
        random_state=0,
    )
    np.testing.assert_allclose(again.other_scores, result.other_scores, atol=5e-4)


def test_densities_of_many_rows_and_of_none():
    rng = np.random.default_rng(5)
    many = rng.normal(size=(5200, 2))
    far = np.full((2, 2), 1e6)
    result = density_ratio_membership(many, many[:3], far, many[:100], random_state=0)
    np.testing.assert_array_equal(np.isfinite(result.other_scores), True)
    single = density_ratio_membership(many, many[:3], far, many[:100], n_components=1)
    assert len(single.member_scores) == 3


def test_classifier_densities():
    model = LogisticRegression()
    result = density_ratio_membership(COPIES, MEMBERS, OTHERS, REFERENCE, density=model)
    assert not hasattr(model, "coef_")
    fitted = LogisticRegression().fit(
        np.concatenate([REFERENCE, COPIES]), np.repeat([0, 1], [N, N])
    )
    np.testing.assert_allclose(result.other_scores, fitted.decision_function(OTHERS))
    assert result.attack == "density ratio, LogisticRegression"
    for wrong in ("histogram", object()):
        with pytest.raises(ValueError, match="density"):
            density_ratio_membership(COPIES, MEMBERS, OTHERS, REFERENCE, density=wrong)
    with pytest.raises(ValueError, match="n_components=9"):
        density_ratio_membership(COPIES, MEMBERS, OTHERS, REFERENCE, n_components=9)


def test_share_of_the_closest():
    made = np.array([[0.0], [0.2], [0.9], [5.0]])
    result = closest_record_share(made, [[0.0], [5.0]], [[1.0]], scale=None)
    assert result.share.value == 0.75
    assert result.expected == pytest.approx(2 / 3)
    assert result.share[1:] == binomial_limits(3, 4)[1:]
    # A row of two owners counts a half for each, in whichever order they come.
    for own, foreign in (([[0.0], [9.0]], [[0.0]]), ([[9.0], [0.0]], [[0.0]])):
        assert closest_record_share([[0.1]], own, foreign, scale=None).share.value == 0.5


def test_deviation_of_the_share_is_that_of_chance():
    rng = np.random.default_rng(6)
    real = rng.standard_t(3, size=(60, 2))
    made = rng.standard_t(3, size=(1000, 2))
    shares = []
    for _ in range(1000):
        rng.shuffle(real)
        result = closest_record_share(made, real[:40], real[40:], scale=None)
        shares.append(result.share.value)
    assert np.mean(shares) == pytest.approx(2 / 3, abs=5 * result.deviation / np.sqrt(1000))
    assert np.std(shares) == pytest.approx(result.deviation, rel=0.1)
    # The usual binomial limits are far too narrow for so many synthetic rows.
    assert result.deviation > 2 * (result.share.high - result.share.low) / 4
    assert closest_record_share(real[:40], real[:40], real[40:]).p_value < 1e-6
    assert closest_record_share(real[40:], real[:40], real[40:]).p_value > 0.999


# Generators: one that copies, one that overfits, one that is private.


def test_copies_are_found_by_all():
    found = synthetic_membership(COPIES, MEMBERS, OTHERS, X_reference=REFERENCE, random_state=0)
    assert tuple(found.results) == ATTACKS
    table = found.to_frame()
    assert (table["auc_low"] > 0.55).all()
    # Three in five rows occur in a bootstrap, and are found without a single false alarm.
    for name in ATTACKS[:3]:
        assert table.loc[name, "tpr_at_0.001"] == pytest.approx(1 - np.exp(-1), abs=0.05)
    assert found.share.share.value == 1.0
    assert found.share.p_value < 1e-12
    assert found.best.auc == table["auc"].max()
    assert (found.best.epsilon, found.best.delta) == (np.inf, 0.0)


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
    assert exposed.share.p_value < 1e-6
    # Over 12 fits the areas had a mean of at most 0.525 and a standard deviation of 0.022.
    assert (private.to_frame()["auc"] < 0.525 + 6 * 0.022).all()
    assert private.share.p_value > 1e-8
    for result in private.results.values():
        assert (result.epsilon, result.delta) == (1.0, 1e-5)


def test_unrelated_rows_tell_nothing():
    # The attacker's reference must not hold any of the others: at distance zero from it, they
    # would look like others whatever the synthetic rows are.
    for seed in range(3):
        found = synthetic_membership(FRESH, MEMBERS, OTHERS, random_state=seed)
        table = found.to_frame(0.9999)
        assert ((table["auc_low"] < 0.5) & (0.5 < table["auc_high"])).all()
        others = {len(result.other_scores) for result in found.results.values()}
        assert others == {N // 2}


# Arguments and texts.


def test_table_and_repr():
    found = synthetic_membership(COPIES, MEMBERS, OTHERS, random_state=0)
    table = found.to_frame()
    assert table.index.name == "attack"
    assert list(table)[:5] == ["auc", "auc_low", "auc_high", "advantage", "tpr_at_0.001"]
    assert list(table)[-1] == "tpr_at_0.1_high"
    assert repr(found).startswith("SyntheticMembership(5 attacks on 300 rows, largest auc=")
    one = found.results[ATTACKS[0]]
    assert repr(one).startswith("SyntheticMembershipResult('distance to closest record', 300 mem")


def test_what_is_drawn():
    sampler = flow_sampler(epsilon=np.inf, bounds=(-8, 8), n_steps=5).fit(MEMBERS)
    assert synthetic_membership(sampler, MEMBERS, OTHERS).n_synthetic == 1000
    found = synthetic_membership(sampler, MEMBERS, OTHERS, n_samples=50)
    assert found.n_synthetic == 50


def test_refusals():
    with pytest.raises(ValueError, match="members has 2 features and synthetic has 4"):
        distance_to_closest_record(COPIES, MEMBERS[:, :2], OTHERS)
    with pytest.raises(ValueError, match="others must hold finite numbers"):
        distance_to_closest_record(COPIES, MEMBERS, np.full((2, D), np.nan))
    for scale in ("members", [1.0], np.zeros(D), np.full(D, np.nan)):
        with pytest.raises(ValueError, match="scale"):
            distance_to_closest_record(COPIES, MEMBERS, OTHERS, scale=scale)
    with pytest.raises(TypeError, match="SlicedSketch has no method sample"):
        synthetic_membership(SlicedSketch(), MEMBERS, OTHERS)
    with pytest.raises(ValueError, match="at least 4"):
        synthetic_membership(COPIES, MEMBERS, OTHERS[:3])
    for n_samples in (0, 1, -5, 2.5, True):
        with pytest.raises((ValueError, TypeError), match="n_samples"):
            synthetic_membership(COPIES, MEMBERS, OTHERS, n_samples=n_samples)
    t = np.arange(N) % 3
    paths = trajectory_sampler(bounds=(-8, 8)).fit(MEMBERS, t)
    with pytest.raises(ValueError, match="3 dimensions: pass synthetic rows"):
        synthetic_membership(paths, MEMBERS, OTHERS)


def test_errors_quote_nothing():
    rows = np.array([["Ada", "1"], ["Grace", "2"]], dtype=object)
    with pytest.raises(ValueError, match="members must hold finite numbers") as caught:
        distance_to_closest_record(COPIES[:, :2], rows, OTHERS[:, :2])
    assert "Ada" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("role", range(3))
@pytest.mark.parametrize(
    "bad",
    [
        lambda rows: rows[:, 0],
        lambda rows: rows[0, 0],
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
    digits = {f"{value:.3f}".lstrip("-") for value in given[role - 1].ravel()[:40]}
    digits |= {f"{value:.3f}".lstrip("-") for value in (COPIES, MEMBERS, OTHERS)[role].ravel()[:40]}
    for attack in (distance_to_closest_record, closest_record_share, synthetic_membership):
        with pytest.raises(ValueError, match="must be a table|finite numbers") as caught:
            attack(*given)
        assert not any(value in str(caught.value) for value in digits)
        assert "array(" not in str(caught.value)
        assert caught.value.__context__ is None


def test_a_picture_without_a_legend():
    rng = np.random.default_rng(0)
    found = synthetic_membership(
        rng.normal(size=(80, 2)), rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    )
    assert found.plot(legend=False).get_legend() is None
    assert found.plot().get_legend() is not None
