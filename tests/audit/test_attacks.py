"""What canaries are made, and what each kind of release says about them.

That the attacks win where there is no noise is asked of every mechanism in
`tests.contract.test_audit`; here, that they read what the mechanism computes, and nothing else.
"""

from dataclasses import replace

import numpy as np
import pytest

from skdpot import (
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateScaler,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.audit.attacks import default_score
from skdpot.audit.audited_fit import AuditTask
from skdpot.audit.canaries import antipodal_pairs, default_canaries
from skdpot.preprocessing import BooleanColumn, CategoricalColumn, NumericColumn, TableSchema
from skdpot.trajectories.fit_gradient import clipped_fit_gradient, clipped_pulls
from tests.flat_options import flow_sampler, made, trajectory_sampler

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
    return default_score(audited)


# --- what all attacks share ----------------------------------------------------------------------

FLOW = {"bounds": BOX, "n_particles": 4, "n_projections": 16} | SEED
PATHS = {"bounds": BOX, "n_particles": 8, "schedule": [(1e-4, None, 3)]} | SEED
NET = {"n_steps": 3, "learning_rate": 1e-4} | SEED
AUTOENCODER = {"latent_dim": 4, "bounds": BOX, "batch_size": 1000} | NET
TIMES = 10.0 * (np.arange(12) % 4)


def paths(**options):
    return trajectory_sampler("mfld", epsilon=np.inf, **(PATHS | options))


def corners(n_pairs, n_features=16):
    ends, rng = np.ones(n_features), np.random.default_rng(0)
    return antipodal_pairs(n_pairs, -ends, ends, rng=rng, corners=True)


TASKS = {
    "rows": lambda: task(
        flow_sampler("presample", epsilon=np.inf, n_steps=12, **FLOW),
        rows(5),
        60,
        pairs=corners(60),
    ),
    "steps of paths": lambda: task(paths(), rows(12), 40, TIMES),
    "gradients": lambda: task(
        made(PrivateSWAutoencoder, epsilon=np.inf, **AUTOENCODER), rows(4, 64), 60
    ),
}


@pytest.mark.slow
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


@pytest.mark.parametrize("kind", ["fit_gradients", "cluster_sums"])
def test_each_kind_of_release_of_paths_counts(kind):
    audited = task(paths(warm_start="kmeans"), rows(12), 40, TIMES).run(coins(40))
    only = tuple(release for release in audited.releases if release.kind == kind)
    assert np.mean((score(replace(audited, releases=only)) > 0) == coins(40)) > 0.8


def test_tables_in_parts_give_the_same_scores(monkeypatch):
    sketch = SlicedSketch(epsilon=5.0, bounds=BOX, n_projections=8, n_bins=8, conditional=True)
    audited = task(sketch, rows(50), 40, np.arange(50) % 3).run(coins(40))
    whole = score(audited)
    monkeypatch.setattr("skdpot.release.histogram._FORMED", 5000)
    np.testing.assert_allclose(score(audited), whole, rtol=1e-7)


# --- projected rows ------------------------------------------------------------------------------


def batched(size, **options):
    sampler = flow_sampler("resample", epsilon=np.inf, batch_size=size, **(FLOW | options))
    return task(sampler, rows(5), 60, pairs=corners(60)).run(coins(60))


def density(points, place, sigma=1.5):
    return np.exp(-((points - place) ** 2) / (2 * sigma**2))


@pytest.mark.parametrize("size", [10, 1])
def test_the_first_look_is_the_likelihood_ratio_of_the_documentation(size, monkeypatch):
    monkeypatch.setattr("skdpot.audit.row_attack._SWEEPS", 1)
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


# --- histograms and medians ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_known", "n_features"), [(0, 100), pytest.param(1, 400, marks=pytest.mark.slow)]
)
def test_exact_medians_give_away_whose_they_are(n_known, n_features):
    X = rows(n_known, n_features)
    scores = score(task(PrivateScaler(epsilon=np.inf), X, 50).run(coins(50)))
    found = scores != 0
    assert found.mean() > 0.9
    np.testing.assert_array_equal(scores[found] > 0, coins(50)[found])


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


# --- gradients of networks -----------------------------------------------------------------------


FAIR = {"batch_fraction": 1.0, "alpha": 0.9} | NET | {"learning_rate": 0.1}
CLASSES, GROUPED = np.array([0, 0, 1, 1]), {"sensitive_features": np.array([0, 1, 0, 1])}


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


# --- tables --------------------------------------------------------------------------------------

LEVELS, LATENT = np.array([3.0, 1.0, 4.0, 7.0]), np.random.default_rng(0).random(3000)
SCHEMA = TableSchema(
    [
        CategoricalColumn("a", categories=LEVELS),
        NumericColumn("b", lower=-2, upper=5),
        NumericColumn("c", lower=0, upper=9, integer=True),
        BooleanColumn("d"),
    ]
)
TABLE = np.column_stack(
    [LEVELS[(LATENT * 4).astype(int)], LATENT * 7 - 2, (LATENT * 10).astype(int), LATENT > 0.5]
)


def synthesizer(epsilon=1.0, schema=SCHEMA, **options):
    return DPTableSynthesizer(schema, epsilon=epsilon, n_particles=500, **options)


def test_canaries_differ_in_all_columns_and_fit_the_schema(tmp_path):
    pairs = task(synthesizer(), TABLE, 200).pairs
    assert (pairs.first != pairs.second).all()
    for side in (pairs.first, pairs.second):
        assert set(side[:, 0]) == set(LEVELS)
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
    assert set(first[:, 0]) == set(LEVELS)


TEXT = CategoricalColumn("a", categories=["x", "y"])


@pytest.mark.parametrize(
    ("estimator", "y", "facts", "message"),
    [
        (paths(n_time_subsample=2), TIMES, {}, "n_time_subsample=None"),
        (paths(), TIMES, {"groups": TIMES}, "n_time_subsample=None"),
        (made(PrivateSWAutoencoder, private=False), None, {}, "private=False claims no privacy"),
        (made(FairPrivateRegressor), np.zeros((12, 2)), {}, "a single target"),
        (synthesizer(schema=SCHEMA.replace(TEXT)), None, {}, "'a'"),
    ],
)
def test_what_has_no_canaries_is_refused(estimator, y, facts, message):
    with pytest.raises(ValueError, match=message):
        task(estimator, TABLE[:12], 4, y, facts)
