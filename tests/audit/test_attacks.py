"""What canaries are made, and what each kind of release says about them.

That the attacks win where there is no noise is asked of every mechanism in
`tests.contract.test_audit`; here, that they read what the mechanism computes, and nothing else.
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from skdpot import (
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateScaler,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditTask, antipodal_pairs, default_canaries
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)
from skdpot.privacy.noise import lattice_noise
from skdpot.release import gradients
from skdpot.release.gradients import gradients_of_vectors, pulled_back_sum, shares_of_vectors
from skdpot.release.langevin import clipped_fit_gradient, clipped_pulls
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]

BOX = (-1.0, 1.0)
SEED = {"random_state": 0}


def rows(n_rows, n_features=16):
    return np.random.default_rng(1).uniform(*BOX, size=(n_rows, n_features))


def coins(n_pairs):
    return np.random.default_rng(7).random(n_pairs) < 0.5


def task(estimator, X, n_pairs, y=None, facts=None, pairs=None):
    rng, facts = np.random.default_rng(1), facts or {}
    if pairs is None:
        pairs = default_canaries(estimator, n_pairs, X, y, fit_params=facts, rng=rng)
    return AuditTask(fit=estimator, pairs=pairs, X=X, y=y, fit_params=facts)


def score(audited):
    return default_score(audited.fitted)(audited)


# --- what all attacks share ----------------------------------------------------------------------

FLOW = {"bounds": BOX, "n_particles": 4, "n_projections": 16} | SEED
PATHS = {"bounds": BOX, "n_particles": 8, "schedule": [(1e-4, None, 3)]} | SEED
NET = {"n_steps": 3, "learning_rate": 1e-4} | SEED
AUTOENCODER = {"latent_dim": 4, "bounds": BOX, "batch_size": 1000} | NET
TIMES = 10.0 * (np.arange(12) % 4)


def paths(**options):
    return trajectory_sampler("mfld", np.inf, **(PATHS | options))


def corners(n_pairs, n_features=16):
    ends, rng = np.ones(n_features), np.random.default_rng(0)
    return antipodal_pairs(n_pairs, -ends, ends, rng=rng, corners=True)


TASKS = {
    "rows": lambda: task(
        flow_sampler("presample", np.inf, n_steps=12, **FLOW), rows(5), 60, pairs=corners(60)
    ),
    "steps of paths": lambda: task(paths(), rows(12), 40, TIMES),
    "gradients": lambda: task(
        made(PrivateSWAutoencoder, epsilon=np.inf, **AUTOENCODER), rows(4, 64), 60
    ),
}


@pytest.mark.parametrize("case", TASKS)
def test_scores_are_read_from_the_releases_of_this_run(case):
    """With the releases of other coins in the place of its own, an attacker finds the others."""
    audit = TASKS[case]()
    heads = coins(len(audit.pairs))
    audited, other = (audit.run(one) for one in (heads, ~heads))
    for found, there in ((audited, heads), (replace(audited, releases=other.releases), ~heads)):
        scores = score(found)
        sure = np.abs(scores) >= np.median(np.abs(scores))
        assert np.mean((scores > 0)[sure] == there[sure]) > 0.95
    if case != "rows":
        assert np.all(score(replace(audited, releases=())) == 0)


@pytest.mark.parametrize(
    ("kind", "start"),
    [("fit_gradients", "mean"), ("cluster_sums", "mean"), ("cluster_sums", "kmeans")],
)
def test_each_kind_of_release_of_paths_counts(kind, start):
    audited = task(paths(warm_start=start), rows(12), 40, TIMES).run(coins(40))
    only = tuple(release for release in audited.releases if release.kind == kind)
    assert np.mean((score(replace(audited, releases=only)) > 0) == coins(40)) > 0.8


def test_tables_in_parts_give_the_same_scores(monkeypatch):
    sketch = SlicedSketch(epsilon=5.0, bounds=BOX, conditional=True)
    audited = task(sketch, rows(50, 24), 40, np.arange(50) % 3).run(coins(40))
    whole = score(audited)
    monkeypatch.setattr("skdpot.release.histogram._FORMED", 20_000)
    np.testing.assert_allclose(score(audited), whole, rtol=1e-7)


# --- projected rows ------------------------------------------------------------------------------


def batched(size, **options):
    sampler = flow_sampler("resample", np.inf, batch_size=size, **(FLOW | options))
    return task(sampler, rows(5), 60, pairs=corners(60)).run(coins(60))


def density(points, place, sigma=1.5):
    return np.exp(-((points - place) ** 2) / (2 * sigma**2))


@pytest.mark.parametrize("size", [10, 1])
def test_the_first_look_is_the_likelihood_ratio_of_the_documentation(size, monkeypatch):
    monkeypatch.setattr("skdpot.audit.attacks._SWEEPS", 1)
    audited = batched(size, sigma=1.5, n_steps=1)
    batches, bounds, pairs = audited.fitted.releases_.batches, audited.fitted.bounds_, audited.pairs
    m, n = len(pairs), len(audited.X) + len(pairs)
    records = bounds.to_ball(np.concatenate([pairs.first, pairs.second, audited.X]))
    shares = np.repeat([0.5, 0.5, 1.0], [m, m, len(audited.X)])
    scores = np.zeros(m)
    for batch in batches:
        assert batch.values.shape[1] == size
        places = records @ batch.directions.T.astype(float)
        for i in range(m):
            others = ~np.isin(np.arange(len(records)), [i, i + m])
            likelihood = []
            for own in (places[i], places[i + m]):
                if size == 1:
                    joint = np.prod(density(batch.values[:, 0], places), axis=1)
                    mixture = (shares * joint)[others].sum() / (n - 1)
                    ratio = np.prod(density(batch.values[:, 0], own)) / mixture
                else:
                    ratio = 1.0
                    for j, values in enumerate(batch.values):
                        all_of = density(values, places[:, j, None])
                        mixture = (shares[others] @ all_of[others]) / (n - 1)
                        ratio *= np.mean(density(values, own[j]) / mixture)
                likelihood.append(1 - size / n + size / n * ratio)
            scores[i] += np.log(likelihood[0] / likelihood[1])
    np.testing.assert_allclose(score(audited), scores, rtol=0.02, atol=0.02)


def test_of_records_that_no_batch_held_nothing_is_known():
    scores = score(batched(1, n_steps=20))
    # Twenty batches of one row show twenty rows at most, however sure they are of those.
    sure = np.abs(scores) > 1.0
    assert 5 < sure.sum() <= 20
    np.testing.assert_array_equal(scores[sure] > 0, coins(60)[sure])


# --- histograms and medians ----------------------------------------------------------------------


@pytest.mark.parametrize("n_features", [4, 40])
@pytest.mark.parametrize("fit", [PrivateScaler(), SlicedSketch(n_projections=4, n_bins=4)])
def test_histograms_are_what_known_rows_and_coins_make_of_them(fit, n_features, monkeypatch):
    monkeypatch.setattr(
        "skdpot.release.value_histogram.lattice_noise",
        lambda *args, **options: np.zeros_like(lattice_noise(*args, **options)),
    )
    heads, X = coins(50), rows(2000, n_features)
    audited = task(fit, X, 50, pairs=task(PrivateScaler(), X, 50).pairs).run(heads)
    shares = audited.shares
    there = np.concatenate([np.ones(2000), heads, ~heads])
    histograms = [release for release in audited.releases if release.kind == "histogram"]
    # One histogram of norms, or two of every feature.
    is_norm = isinstance(fit, SlicedSketch) and n_features == 40
    paired = [False] if is_norm else [True] * n_features + [False] * n_features
    assert [release.facts["counting"].paired for release in histograms] == paired
    for release in histograms:
        (part,) = release.parts((audited.candidates[0],), shares)
        linear = part.rows.sum(there - shares)
        left = part.value - part.center - linear
        if part.exact:
            np.testing.assert_allclose(left, 0.0, atol=1e-9)
            assert np.any(linear != 0.0)
        else:  # where two canaries are partners the mean over the other one's coin is taken
            assert np.abs(left).sum() < 0.2 * np.abs(part.value - part.center).sum()


@pytest.mark.parametrize("n_known", [0, 1])
def test_exact_medians_give_away_whose_they_are(n_known):
    scores = score(task(PrivateScaler(epsilon=np.inf), rows(n_known, 400), 50).run(coins(50)))
    found = scores != 0
    assert found.mean() > 0.9
    np.testing.assert_array_equal(scores[found] > 0, coins(50)[found])


def half(X, y):
    return SlicedSketch(n_projections=3, n_bins=4).fit(X[: len(X) // 2])


@pytest.mark.parametrize(
    "fit",
    [
        half,  # bounds of something else
        private_distance(bounds=BOX, n_projections=3, n_bins=4),  # declared ones
        PrivateScaler(epsilon=np.inf, with_centering=False),  # no medians
    ],
)
def test_without_a_release_nothing_is_known(fit):
    X = rows(500, 3)
    audited = task(fit, X, 50, pairs=task(PrivateScaler(), X, 50).pairs).run(coins(50))
    only = tuple(release for release in audited.releases if release.kind == "histogram")
    assert np.all(score(replace(audited, releases=only)) == 0)


# --- steps of trajectories -----------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_pulls_are_what_the_mechanism_sums(clip):
    """But for a room of 1e-6 that the mechanism leaves below the clip."""
    rng = np.random.default_rng(0)
    particles, X = rng.normal(size=(7, 3)), rng.normal(size=(20, 3))
    options = {"bandwidth": 0.3, "weight": 1.7, "clip": clip}
    pulls = clipped_pulls(particles, X, **options)
    total = clipped_fit_gradient(particles, X, **options)
    np.testing.assert_allclose(pulls.sum(axis=0), total.ravel(), rtol=1e-5)
    for row, pull in zip(X, pulls, strict=True):
        alone = clipped_fit_gradient(particles, row[None], **options)
        np.testing.assert_allclose(pull, alone.ravel(), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "facts"), [({"n_time_subsample": 2}, {}), ({}, {"groups": TIMES})]
)
def test_samplers_that_leave_out_rows_are_refused(options, facts):
    with pytest.raises(ValueError, match="n_time_subsample=None"):
        task(paths(**options), rows(12), 4, TIMES, facts)


# --- gradients of networks -----------------------------------------------------------------------


class Residual(nn.Module):
    """Not a chain of layers: goes through torch.func."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 5)
        self.outer = nn.Linear(5, 2, bias=False)

    def forward(self, rows):
        return self.outer(rows + torch.tanh(self.inner(rows)))


@pytest.mark.parametrize(
    "make", [lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)), Residual]
)
def test_vectors_are_what_the_sums_add(make):
    torch.manual_seed(0)  # noqa: TID251
    network = make().double()
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 5)))

    def vectors(outputs, gram, records):
        return outputs * shares_of_vectors(outputs, gram, 0.5)[:, None]

    own = gradients_of_vectors(network, X, vectors)
    alone = [pulled_back_sum(network, row[None], vectors) for row in X]  # a sum of each row
    expected = np.stack([np.concatenate([v.ravel() for v in one.values()]) for one in alone])
    np.testing.assert_allclose(own.gram(), expected @ expected.T, atol=1e-12)
    np.testing.assert_allclose(own.inner(expected[0]), expected @ expected[0], atol=1e-12)
    np.testing.assert_allclose(own.sum(np.arange(7.0)), np.arange(7.0) @ expected, atol=1e-12)
    mixed, weights = own.plus(own, 0.25), np.eye(7)[3]
    np.testing.assert_allclose(mixed.gram(), expected @ expected.T, atol=1e-12)
    np.testing.assert_allclose(mixed.sum(weights), expected[3], atol=1e-12)


FAIR = {"batch_fraction": 1.0, "alpha": 0.9} | NET | {"learning_rate": 0.1}
CLASSES, GROUPED = np.array([0, 0, 1, 1]), {"sensitive_features": np.array([0, 1, 0, 1])}


@pytest.mark.parametrize(
    ("estimator", "options", "n_features", "room"),
    [
        (PrivateSWAutoencoder, AUTOENCODER, 64, 1e-4),
        (
            PrivateSWAutoencoder,
            AUTOENCODER | {"architecture": "conv", "image_shape": (8, 8)},
            64,
            1e-4,
        ),
        (FairPrivateClassifier, FAIR, 80, 1e-4),
        # Twice in the expected batch, a known row is matched as its first copy is, not as both are.
        (FairPrivateClassifier, FAIR | {"mechanism": "ranks"}, 80, 0.06),
    ],
)
def test_sums_of_known_rows_are_the_released_ones(estimator, options, n_features, room):
    """Of pairs of equal records nothing is left of the sums of whole batches."""
    given = (CLASSES, GROUPED) if estimator is FairPrivateClassifier else ()
    fit = made(estimator, epsilon=np.inf, **options)
    audit = task(fit, rows(4, n_features), 60, *given)
    same = {"second": audit.pairs.first, "second_labels": audit.pairs.first_labels}
    found = []

    def add(self, gram, inner, *rest):
        found.append(np.abs(inner).max() / np.abs(gram).max())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvidenceSum, "add_batch", add)
        audited = replace(audit, pairs=replace(audit.pairs, **same)).run(coins(60))
        with suppress(np.linalg.LinAlgError):  # nothing was added
            score(audited)
    assert len(found) == 3
    assert max(found) <= room


def test_the_gradient_of_a_generator_is_nearly_a_sum_over_rows():
    options = {"bounds": BOX, "batch_size": 1000, "n_latents": 16, "n_steps": 3}
    fit = sliced_generator("gradient", np.inf, learning_rate=1e-4, **options, **SEED)
    audited = task(fit, rows(4), 60).run(coins(60))
    first = next(release for release in audited.releases if release.kind == "gradient")
    units = audited.fitted.bounds_.to_units(audited.candidates[0])
    (part,) = first.parts((units, None), audited.shares)
    chosen = np.concatenate([np.ones(4), coins(60), ~coins(60)])
    difference = part.value - part.center
    linear = part.rows.sum(chosen - audited.shares)
    assert np.sum((difference - linear) ** 2) < 0.05 * np.sum(difference**2)


def test_expected_batches_count_known_rows_twice():
    codes = np.tile([1, 0], 62)
    shares = np.concatenate([np.ones(4), np.full(120, 0.5)])
    order, places, sizes = gradients.expected_batch(codes, shares)
    assert sizes == (64, 64)
    assert np.array_equal(order[places], np.arange(len(places)))
    assert np.bincount(order).tolist() == [2] * 4 + [1] * 120
    assert np.all(np.diff(codes[order]) >= 0)
    assert gradients.expected_batch(codes, np.ones(124))[2] == (62, 62)


def test_canaries_differ_in_what_is_protected_only():
    for estimator, y, opposite in (
        (made(PrivateSWAutoencoder, **AUTOENCODER), None, True),
        (made(FairPrivateClassifier, **FAIR), CLASSES, False),
        (made(FairPrivateClassifier, fairness="equalized_odds", **FAIR), CLASSES, True),
        (made(FairPrivateRegressor, target_bounds=BOX, **FAIR), np.linspace(*BOX, 4), False),
    ):
        pairs = task(estimator, rows(4, 80), 60, y, {} if y is None else GROUPED).pairs
        np.testing.assert_allclose(pairs.first, -pairs.second if opposite else pairs.second)
        if y is not None:
            assert np.all((pairs.first_labels == pairs.second_labels) == opposite)


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (made(PrivateSWAutoencoder, private=False), None, "private=False claims no privacy"),
        (made(FairPrivateRegressor), np.zeros((4, 2)), "a single target"),
    ],
)
def test_networks_without_a_known_attack_are_refused(estimator, y, message):
    with pytest.raises(ValueError, match=message):
        task(estimator, np.zeros((4, 8)), 3, y)


# --- tables --------------------------------------------------------------------------------------

SCHEMA = TableSchema(
    [
        CategoricalColumn("a", categories=[3, 1, 4, 7]),
        NumericColumn("b", lower=-2, upper=5),
        NumericColumn("c", lower=0, upper=9, integer=True),
        BooleanColumn("d"),
    ]
)
LATENT = np.random.default_rng(0).random(3000)
TABLE = np.column_stack(
    [
        np.array([3.0, 1.0, 4.0, 7.0])[(LATENT * 4).astype(int)],
        LATENT * 7 - 2,
        (LATENT * 10).astype(int),
        LATENT > 0.5,
    ]
)


def synthesizer(epsilon=1.0, schema=SCHEMA, **options):
    return DPTableSynthesizer(schema, epsilon, n_particles=500, **options)


def test_canaries_differ_in_all_columns_and_fit_the_schema(tmp_path):
    pairs = task(synthesizer(), TABLE, 200).pairs
    assert (pairs.first != pairs.second).all()
    for side in (pairs.first, pairs.second):
        assert set(side[:, 0]) == {1.0, 3.0, 4.0, 7.0}
        assert (side[:, 1].min() >= -2) & (side[:, 1].max() <= 5)
        assert set(side[:, 2]) <= set(range(10))
        assert set(side[:, 3]) == {0.0, 1.0}
    distance = np.abs(pairs.first - pairs.second)
    assert np.abs(distance[:, 1] - 3.5).max() < 0.1
    assert (distance[:, 2] == 5).all()
    SCHEMA.to_json(tmp_path / "schema.json")
    read = task(synthesizer(schema=str(tmp_path / "schema.json")), TABLE, 200).pairs
    np.testing.assert_array_equal(read.first, pairs.first)


def test_what_a_schema_leaves_open_is_taken_from_the_rows():
    nothing = np.empty((0, 4))
    assert len(task(synthesizer(), nothing, 200).pairs) == 200
    with pytest.raises(ValueError, match="'x0'"):
        task(synthesizer(schema=None), nothing, 200)
    pairs = task(synthesizer(schema=None), TABLE, 200).pairs
    for side in (pairs.first, pairs.second):
        assert (side >= TABLE.min(axis=0)).all()
        assert (side <= TABLE.max(axis=0)).all()
    part = TableSchema([CategoricalColumn("a"), *(NumericColumn(name) for name in "bcd")])
    first = task(synthesizer(schema=part), TABLE, 200).pairs.first
    assert set(first[:, 0]) == {1.0, 3.0, 4.0, 7.0}


@pytest.mark.parametrize(
    "column",
    [
        CategoricalColumn("a", categories=["x", "y"]),
        DatetimeColumn("a", lower="2024-01-01", upper="2024-02-01"),
    ],
)
def test_columns_that_are_no_numbers_are_refused(column):
    with pytest.raises(ValueError, match="'a'"):
        task(synthesizer(schema=SCHEMA.replace(column)), TABLE, 20)


@pytest.mark.parametrize("target", [None, "d"])
def test_the_score_of_one_pair_is_the_likelihood_ratio(target):
    """By hand: each count has noise of its own scale, and the two candidates differ in two."""
    run = task(synthesizer(4.0, target=target), TABLE, 1).run(coins(1))
    fitted, grids = run.fitted, run.fitted._grids

    def counts(noisy, place, X):
        codes = [grid.codes(X[:, j]) for j, grid in enumerate(grids)]
        if place >= len(grids):  # pairs are counted in bins
            codes = [one.bins[cells] for one, cells in zip(fitted.model_.bins, codes, strict=True)]
        return noisy.marginal.counts(np.stack(codes, axis=1))

    log_ratio = information = 0.0
    for place, noisy in enumerate(fitted.marginals_):
        both = [counts(noisy, place, side) for side in (run.pairs.first, run.pairs.second)]
        known, variance = counts(noisy, place, run.X), noisy.sigma**2
        for sign, own in zip((1, -1), both, strict=True):
            log_ratio -= sign * np.sum((noisy.counts - known - own) ** 2) / (2 * variance)
        information += float(np.sum((both[0] - both[1]) ** 2)) / (4 * variance)
    # The estimate of the coin: the matched filter over what it would be without noise, plus one.
    assert score(run)[0] == pytest.approx(log_ratio / 2 / (information + 1), rel=1e-6)
