"""What a fit gives depends on private rows through its releases alone.

A fit on some rows is recorded at the gate of `skdpot.privacy.recording`. The same fit on other
rows is given the recorded noisy values in the place of its own. One row is replaced by a far
outlier or by a copy of another row, or all of them are, classes and targets as well where these
are protected. Then everything must be the same to the last bit: what is released next and with
which scale of noise, every fitted attribute, what the estimator answers, prints and warns of, and
its pickle. A private number that takes another way than through the gate makes a difference.

Both fits draw the same secret numbers, by a seed. No charge is checked here:
`test_draws_are_charged` compares the noise with the event.
"""

import io
import pickle
import re
import warnings
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpot import (
    ClientContribution,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateSearchCV,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    SlicedSketch,
)
from skdpot.exceptions import ReplayError
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    NumericColumn,
    PrivateScaler,
    TableEncoder,
    TableSchema,
)
from skdpot.privacy.recording import first_difference, record_releases, replay_releases
from tests.estimators.search_cases import NoisyThreshold
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

D, N = 3, 300  # so many that bounds of each feature are found
RNG = np.random.default_rng(40)
X = RNG.normal(size=(N, D))
PUBLIC = RNG.normal(size=(6, D))
LABELS = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
LABELS[0] = 2  # the only one of its class
GROUPS = np.arange(N) % 2
TIMES = np.arange(N) % 4
TARGETS = X[:, :2] + 1.0
BOX = {"bounds": (-2, 2)}

SKETCH = {"n_projections": 3, "n_bins": 8}
FLOW = {"n_projections": 3, "n_steps": 3, "n_particles": 10}
ALL = {"batch_size": N}  # what that costs has a closed form
GENERATOR = {"n_projections": 3, "n_steps": 3}
NET = {"n_steps": 3, "latent_dim": 2}
FAIR = {"n_steps": 4, "n_releases": 2, "module": "linear", "n_projections": 2}
WHOLE = {**FAIR, "batch_fraction": 1.0}
MFLD = {"n_particles": 5, "schedule": [(0.01, None, 2), (0.005, 0.1, 1)], "n_clusters": 2}
PATHS = {**SKETCH, "n_particles": 5, "schedule": [(1.0, None, 2)]}

CLASSES = {"conditional": True, "classes": [0, 1, 2, 3]}
BINARY = {"y": np.minimum(LABELS, 1), "sensitive_features": GROUPS}


def sampler(mechanism, **options):
    return flow_sampler(mechanism, **FLOW, **options)


def generator(mechanism, **options):
    return sliced_generator(mechanism, **GENERATOR, **options)


def paths(**options):
    mechanism = options.pop("mechanism", "mfld")
    defaults = MFLD if mechanism == "mfld" else PATHS
    return trajectory_sampler(mechanism, **(defaults | options))


def classifier(**options):
    return made(FairPrivateClassifier, **(WHOLE | options))


def regressor(**options):
    return made(FairPrivateRegressor, **(WHOLE | options))


# An estimator, what `fit` is given beside X, and what of it is protected as X is.
CASES = {
    "scaler": (PrivateScaler(), {}, ""),
    "scaler, scales": (PrivateScaler(with_centering=False), {}, ""),
    "sketch": (SlicedSketch(**SKETCH), {}, ""),
    "sketch, norms": (SlicedSketch(n_projections=40, n_bins=8), {}, "wide"),
    "sketch, box": (SlicedSketch(**SKETCH, **BOX), {}, ""),
    "sketch, automatic": (SlicedSketch(), {}, ""),
    "sketch, classes": (SlicedSketch(**SKETCH, **CLASSES), {"y": LABELS}, "y"),
    "sketch, public classes": (
        SlicedSketch(**SKETCH, **CLASSES, public_labels=True), {"y": LABELS}, "",
    ),
    "flow": (sampler("sketch", n_bins=8), {}, ""),
    "flow, automatic": (flow_sampler(n_steps=3, n_particles=10), {}, ""),
    "flow, classes": (sampler("sketch", n_bins=8, **CLASSES), {"y": LABELS}, "y"),
    "flow, diffusion": (sampler("sketch", n_bins=8, diffusion=0.1, n_projections_per_step=1),
        {},
        "",
    ),
    "flow, resample": (sampler("resample", **ALL), {}, ""),
    "flow, resample, float": (sampler("resample", noise="float", **ALL), {}, ""),
    "flow, resample, batches": (sampler("resample", batch_size=20, sigma=2.0, **BOX), {}, ""),
    "flow, resample, poisson": (
        sampler("resample", batch_size=20, sigma=2.0, sampling="poisson", **BOX), {}, "",
    ),
    "flow, presample": (sampler("presample"), {}, ""),
    "generator": (generator("sketch", n_bins=8), {}, ""),
    "generator, classes": (generator("sketch", n_bins=8, **CLASSES), {"y": LABELS}, "y"),
    "generator, smoothing": (generator("smoothing", **ALL), {}, ""),
    "generator, gradient": (generator("gradient", **ALL), {}, ""),
    "generator, gradient, batches": (
        generator("gradient", batch_size=20, sigma=1.0, **BOX), {}, "",
    ),
    "autoencoder": (made(PrivateSWAutoencoder, **NET, **ALL), {}, ""),
    "autoencoder, prior": (made(PrivateSWAutoencoder, **NET, **ALL, penalty="prior"), {}, ""),
    "autoencoder, parity": (
        made(PrivateSWAutoencoder, **NET, **ALL, penalty="parity"),
        {"sensitive_features": GROUPS},
        "",
    ),
    "autoencoder, batches": (
        made(PrivateSWAutoencoder, **NET, batch_size=20, sigma=3.0, normalize_codes=False, **BOX),
        {},
        "",
    ),
    "classifier": (classifier(), BINARY, "y"),
    "classifier, threshold": (classifier(tune_threshold=True), BINARY, "y"),
    "classifier, odds": (classifier(fairness="equalized_odds", tune_threshold=True), BINARY, ""),
    "classifier, ranks": (classifier(mechanism="ranks"), BINARY, "y"),
    "classifier, odds, ranks": (
        classifier(mechanism="ranks", fairness="equalized_odds"), BINARY, "",
    ),
    "classifier, batches": (classifier(batch_fraction=0.3, alpha=0.0), BINARY, "y"),
    "classifier, three classes": (
        classifier(classes=[0, 1, 2, 3]), {"y": LABELS, "sensitive_features": GROUPS}, "y",
    ),
    "regressor": (regressor(), {"y": TARGETS, "sensitive_features": GROUPS}, "y"),
    "regressor, bounds": (
        regressor(target_bounds=(-2, 4)), {"y": TARGETS, "sensitive_features": GROUPS}, "y",
    ),
    "regressor, ranks": (
        regressor(mechanism="ranks"), {"y": TARGETS[:, 0], "sensitive_features": GROUPS}, "y",
    ),
    "distance": (private_distance(**SKETCH), {}, ""),
    "contribution": (ClientContribution(private_distance(**SKETCH)), {}, ""),
    "paths": (paths(mechanism="sketch"), {"y": TIMES}, ""),
    "paths, rough": (paths(mechanism="sketch", smooth=False, **BOX), {"y": TIMES}, ""),
    "paths, exact": (paths(mechanism="sketch", coupling="exact"), {"y": TIMES}, ""),
    "paths, some times": (paths(mechanism="sketch", n_time_subsample=3), {"y": TIMES}, ""),
    "paths, bins of time": (
        paths(mechanism="sketch", n_times=2, group_size=2), {"y": TIMES, "groups": GROUPS}, "",
    ),
    "paths, mfld": (paths(), {"y": TIMES}, ""),
    "paths, mfld, rough": (
        paths(smooth=False, coupling="exact", noise_multiplier=[3.0, 2.0]), {"y": TIMES}, "",
    ),
    "paths, mfld, mean": (paths(warm_start="mean"), {"y": TIMES}, ""),
    "paths, mfld, kmeans": (paths(warm_start="kmeans", **BOX), {"y": TIMES}, ""),
    "paths, mfld, batches": (
        paths(sampling_rate=0.5, noise_multiplier=3.0, n_time_subsample=2), {"y": TIMES}, "",
    ),
}  # fmt: skip


TABLE = pd.DataFrame(
    {
        "number": X[:, 0],
        "count": RNG.integers(0, 9, N),
        "kind": RNG.choice(["a", "b", "c"], N, p=[0.5, 0.3, 0.2]),
        "code": RNG.choice(["u", "v"], N),
        "flag": X[:, 1] > 0,
    }
)
KNOWN = TableSchema(
    [
        NumericColumn("number", lower=-4, upper=4),
        NumericColumn("count", lower=0, upper=8),
        CategoricalColumn("kind", categories=["a", "b", "c"]),
        CategoricalColumn("code", categories=["u", "v"]),
        BooleanColumn("flag"),
    ]
)
PARTICLES = {"n_particles": 100}
TABLES = {
    "encoder": TableEncoder(),
    "encoder, all known": TableEncoder(KNOWN),
    "synthesizer": DPTableSynthesizer(KNOWN, **PARTICLES),
    "synthesizer, target": DPTableSynthesizer(KNOWN, target="flag", **PARTICLES),
    "synthesizer, nothing known": DPTableSynthesizer(**PARTICLES),
    "synthesizer, nothing known, target": DPTableSynthesizer(target="kind", **PARTICLES),
}


OTHER_TABLE = TABLE.assign(
    number=2 * X[::-1, 2],
    count=8 - TABLE["count"],
    kind=np.where(X[:, 1] > 0, "b", "c"),
    code=np.where(X[:, 1] > 0.5, "u", "v"),
)


def other_rows(rows, given, protected):
    """Replace the first row by one from far away, or by a copy of another, or replace all rows."""
    for place in ("far", "copy", "all"):
        other, changed = rows.copy(), dict(given)
        if isinstance(rows, pd.DataFrame):
            kind = "c" if protected == "known" else "never seen"
            other.iloc[0] = [1e9, 8, kind, "v", True] if place == "far" else rows.iloc[7].tolist()
            other = OTHER_TABLE if place == "all" else other
        else:
            other[0] = -1e6 if place == "far" else rows[7]
            other = 0.5 - 3.0 * rows[::-1] ** 2 if place == "all" else other
        if "y" in protected:
            y = given["y"].copy()
            if y.dtype == float:
                y[0] = 1e6 if place == "far" else y[7]
            else:
                y[0] = (y[0] + 1) % 2
            changed["y"] = y[::-1].copy() if place == "all" else y
        yield place, other, changed


def outputs(fitted):
    """Whatever can be had of a fitted estimator, from rows that are public."""
    public = TABLE.iloc[20:30] if isinstance(fitted, (TableEncoder, DPTableSynthesizer)) else PUBLIC
    if getattr(fitted, "n_features_in_", D) == 40:
        public = np.zeros((3, 40))
    calls = {
        name: lambda name=name: getattr(fitted, name)(public)
        for name in ("predict", "predict_proba", "decision_function", "transform", "score_samples")
    } | {
        "sample": lambda: fitted.sample(5, random_state=1),
        "sample_labeled": lambda: fitted.sample_labeled(5, random_state=1),
        "score": lambda: fitted.score(public, *answers(fitted)),
        "inverse_transform": lambda: fitted.inverse_transform(fitted.transform(public)),
        "quantiles": lambda: fitted.quantiles([0.1, 0.5]),
        "distance": lambda: fitted.distance(public),
        "contributions": lambda: fitted.contributions({"a": public, "b": public + 1.0}),
        "quality_report": lambda: report_of(fitted),
    }
    found = {"repr": repr(fitted)}
    if hasattr(fitted, "_repr_html_"):
        found["html"] = re.sub(r"id-\d+", "id", fitted._repr_html_())
    if not getattr(fitted, "conditional", False):
        del calls["sample_labeled"]
    for name, call in calls.items():
        if hasattr(fitted, name):
            found[name] = call()
    return found


def report_of(fitted):
    parts = vars(fitted.quality_report(n_samples=200, random_state=1))
    return {name: part for name, part in parts.items() if name != "created"}  # the time


def answers(fitted):
    """Targets of the public rows, where a score needs them."""
    if isinstance(fitted, PrivateTrajectorySampler):
        return ([fitted.times_[0]] * len(PUBLIC),)
    if isinstance(fitted, FairPrivateRegressor):
        return (fitted.predict(PUBLIC) + 1.0,)
    return (np.zeros(len(PUBLIC), dtype=int),) if hasattr(fitted, "classes_") else ()


def result(fit, rows, given):
    """Fit, and return everything that may be seen."""
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        fitted = fit(rows, **given)
        found = outputs(fitted)
    return {
        "printed": printed.getvalue(),
        "warnings": [(w.category, str(w.message)) for w in caught],
        "attributes": dict(vars(fitted)),
        "outputs": found,
        "pickle": pickled(fitted),
    }


class Pickler(pickle.Pickler):
    """Writes tensors as arrays: torch writes where in memory they are."""

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor):
            return np.asarray, (value.detach().numpy(),)
        return NotImplemented


def pickled(fitted):
    buffer = io.BytesIO()
    Pickler(buffer).dump(fitted)
    return buffer.getvalue()


def check_replay(fit, rows, given, protected=""):
    """Fail if anything but what passes the gate makes a difference."""
    with record_releases(forgetting=False) as releases:
        expected = result(fit, rows, given)
    for place, other, changed in other_rows(rows, given, protected):
        try:
            with replay_releases(releases):
                found = result(fit, other, changed)
        except ReplayError as error:
            pytest.fail(f"{place}: {error}")
        different = first_difference(expected, found)
        assert different is None, f"{place}: {different}"
    return releases


def seeded(estimator):
    """Return a function that fits a clone, with the same secret numbers every time."""
    nested = isinstance(estimator, ClientContribution)
    # Much epsilon, so that bounds are found and choices are made.
    options = {"epsilon": 50.0, "random_state": 3}
    options = {f"estimator__{name}" if nested else name: v for name, v in options.items()}

    def fit(rows, **given):
        return clone(estimator).set_params(**options).fit(rows, **given)

    return fit


@pytest.mark.parametrize("case", CASES)
def test_a_fit_follows_from_its_releases(case):
    estimator, given, protected = CASES[case]
    rows = np.hstack([X] * 14)[:, :40] if "wide" in protected else X
    assert check_replay(seeded(estimator), rows, given, protected)


def streamed(rows, y):
    """A sketch of rows that came in chunks, and another one added."""
    options = {**SKETCH, **BOX, **CLASSES, "projections": np.eye(D)}
    public = SlicedSketch(**options, random_state=4).fit(PUBLIC, [0, 1, 2, 0, 1, 2])
    sketch = SlicedSketch(**options, random_state=3)
    for chunk, labels in zip(np.split(rows, 4), np.split(y, 4), strict=True):
        sketch.partial_fit(chunk, labels, n_samples=len(rows))
    return sketch.merge(public)


def published(rows):
    """What a party would publish of rows that are not those of its fit."""
    fitted = private_distance(**SKETCH, random_state=3).fit(PUBLIC)
    return SimpleNamespace(published=fitted.transform(rows))


def piped(rows):
    """The second of two private steps, on what the first has made of the rows."""
    steps = PrivateScaler(random_state=3), sampler("sketch", n_bins=8, random_state=4)
    return make_pipeline(*steps).fit(rows)[-1]


@pytest.mark.parametrize("fit", [streamed, published, piped])
def test_what_is_made_of_several_releases_follows_from_them(fit):
    assert check_replay(fit, X, {"y": LABELS} if fit is streamed else {}, "y" * (fit is streamed))


def mean_of(fitted):
    return fitted.mean_


ON_RELEASE = {"scoring": mean_of, "score_on": "release"}
# What is searched, how, and among which values of which parameter.
SEARCHES = {
    "held out": (NoisyThreshold(), {}, "shift"),
    "folds, refit": (NoisyThreshold(), {"cv": 2, "refit": True}, "shift"),
    "release": (NoisyThreshold(), ON_RELEASE, "shift"),
    "classifier": (classifier(alpha=0.0), {}, "mechanism__learning_rate"),
    "sampler, release": (sampler("sketch", n_bins=8), {"score_on": "release"}, "step_size"),
    "sampler": (sampler("sketch", n_bins=8), {"score_bounds": (-3, 3)}, "step_size"),
    "sampler, accuracy": (
        sampler("sketch", n_bins=8, conditional=True, classes=[0, 1]),
        {"scoring": "synthetic_accuracy"},
        "step_size",
    ),
}


@pytest.mark.parametrize("case", SEARCHES)
def test_a_search_follows_from_its_releases(case):
    """Trials that are forgotten are replayed too: the winner depends on their noisy scores."""
    estimator, options, name = SEARCHES[case]
    search = PrivateSearchCV(estimator, {name: [0.01, 0.1, 1.0]}, n_trials=2)
    fit = seeded(search.set_params(**options))
    assert check_replay(fit, X, {"y": BINARY["y"]}, "y")


@pytest.mark.parametrize("case", TABLES)
def test_a_fit_of_a_table_follows_from_its_releases(case):
    known = "known" if TABLES[case].schema is KNOWN else ""
    releases = check_replay(seeded(TABLES[case]), TABLE, {}, known)
    assert bool(releases) == (case != "encoder, all known")
