"""Every noise that a fit draws is in the event that it was charged, and as often as it is drawn.

Whatever module asks for noise is watched. A release that nobody accounted for shows as a scale
that the event does not know, one that is made too often as a number of draws that it does not.
"""

import sys
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skdpot import (
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateSearchCV,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    NumericColumn,
    PrivateScaler,
    TableEncoder,
    TableSchema,
)
from skdpot.privacy.category_selection import ThresholdedCountsEvent
from skdpot.privacy.events import GaussianEvent
from skdpot.privacy.recording import record_releases
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

# All rows in every batch: what that costs has a closed form, others take seconds to calibrate.
D, N = 3, 400
RNG = np.random.default_rng(40)
X = RNG.normal(size=(N, D))
LABELS = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
GROUPS = np.arange(N) % 2
TIMES = np.arange(N) % 4
COUNTED = {"n_projections": 3, "n_bins": 8}
FLOW = {"n_projections": 3, "n_steps": 4, "n_particles": 10}
FAIR = {
    "n_steps": 4,
    "n_releases": 2,
    "module": "linear",
    "batch_fraction": 1.0,
    "n_projections": 2,
}
NET = {"n_steps": 4, "batch_size": N, "latent_dim": 2}
MFLD = {"n_particles": 5, "schedule": [(0.01, None, 3), (0.005, None, 2)], "sampling_rate": 1.0}


# Each: an estimator, what `fit` is given beside X, and calls for noise a step of each phase after
# the bounds.
CASES = {
    "sketch": (SlicedSketch(**COUNTED), {}, [1]),
    "sketch, classes": (SlicedSketch(**COUNTED, conditional=True), {"y": LABELS}, [1]),
    "flow, sketch": (flow_sampler(**FLOW, n_bins=8), {}, [1]),
    "flow, resample": (flow_sampler("resample", **FLOW, batch_size=N), {}, [1]),
    "flow, resample, float": (
        flow_sampler("resample", noise="float", **FLOW, batch_size=N), {}, [1],
    ),
    "flow, presample": (flow_sampler("presample", **FLOW), {}, [1]),
    "generator, sketch": (sliced_generator(**COUNTED, n_steps=4), {}, [1]),
    "generator, smoothing": (
        sliced_generator("smoothing", n_projections=3, n_steps=4, batch_size=N), {}, [1],
    ),
    "generator, gradient": (
        sliced_generator("gradient", n_projections=3, n_steps=4, batch_size=N), {},
        [1],
    ),
    "autoencoder": (made(PrivateSWAutoencoder, **NET), {}, [1]),
    "autoencoder, prior": (made(PrivateSWAutoencoder, **NET, penalty="prior"), {}, [1]),
    "autoencoder, parity": (
        made(PrivateSWAutoencoder, **NET, penalty="parity"), {"sensitive_features": GROUPS}, [1],
    ),
    "classifier": (
        made(FairPrivateClassifier, **FAIR, tune_threshold=True),
        {"y": LABELS, "sensitive_features": GROUPS}, [1, 1, 1, 1, 1],
    ),
    "classifier, ranks": (
        made(FairPrivateClassifier, **FAIR, mechanism="ranks", fairness="equalized_odds"),
        {"y": LABELS, "sensitive_features": GROUPS}, [1],
    ),
    "regressor": (
        made(FairPrivateRegressor, **FAIR), {"y": X[:, :2], "sensitive_features": GROUPS}, [1, 1],
    ),
    "regressor, ranks": (
        made(FairPrivateRegressor, **FAIR, mechanism="ranks"),
        {"y": X[:, :2], "sensitive_features": GROUPS}, [1],
    ),
    "trajectories, sketch": (
        trajectory_sampler(**COUNTED, n_particles=5, schedule=[(1.0, None, 2)]),
        {"y": TIMES}, [1],
    ),
    "trajectories, mfld": (trajectory_sampler("mfld", **MFLD), {"y": TIMES}, [1, 1]),
    "trajectories, mfld, phases": (
        trajectory_sampler("mfld", noise_multiplier=[9.0, 5.0], **MFLD), {"y": TIMES},
        [1, 1],
    ),
    "trajectories, mfld, mean": (
        trajectory_sampler("mfld", warm_start="mean", **MFLD), {"y": TIMES}, [4, 1, 1],
    ),
    "trajectories, mfld, kmeans": (
        trajectory_sampler("mfld", warm_start="kmeans", **MFLD), {"y": TIMES}, [4, 1, 1],
    ),
    "distance": (private_distance(**COUNTED), {}, [1]),
    "scaler": (PrivateScaler(), {}, []),
}  # fmt: skip


def leaves(event):
    """The phases of an event, in their order."""
    parts = getattr(event, "events", None)
    return [event] if parts is None else [leaf for part in parts for leaf in leaves(part)]


@pytest.fixture
def drawn(monkeypatch):
    """The scale of every noise that anybody asks for."""
    scales = []
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] == "skdpot"]:
        for name in ("lattice_noise", "gaussian_noise"):
            if (draw := vars(module).get(name)) is not None:

                def spy(sigma, *args, draw=draw, **options):
                    scales.append(sigma)
                    return draw(sigma, *args, **options)

                monkeypatch.setattr(module, name, spy)
    return scales


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.parametrize("case", CASES)
def test_every_noise_is_charged_as_often_as_it_is_drawn(case, drawn):
    estimator, given, calls = CASES[case]
    # Much epsilon, so that bounds are found; everything is random, and nothing depends on it.
    fitted = estimator.set_params(epsilon=8.0).fit(X, **given)
    phases = leaves(fitted.privacy_spent_.event)
    bounds, others = phases[: len(phases) - len(calls)], phases[len(phases) - len(calls) :]
    private = getattr(estimator, "bounds", getattr(estimator, "target_bounds", "private"))
    has_bounds = private == "private" and not isinstance(estimator, FairPrivateClassifier)
    assert bool(bounds) == has_bounds
    expected = Counter()
    for event in bounds:
        assert type(event) is GaussianEvent
        # A record is in one cell of the histogram of each feature: 2 d counts move.
        expected[event.sigma] += round(event.sensitivity**2 / 2)
    for event, count in zip(others, calls, strict=True):
        expected[event.sigma] += event.n_steps * count
    found = Counter(drawn)
    assert {f"{s:.9g}": n for s, n in found.items()} == {f"{s:.9g}": n for s, n in expected.items()}


TABLE = pd.DataFrame(
    {
        "number": X[:, 0],
        "count": RNG.integers(0, 9, N),
        "kind": RNG.choice(["a", "b", "c"], N),
        "code": RNG.choice(["u", "v"], N),
        "flag": X[:, 1] > 0,
    }
)
SCHEMA = TableSchema(
    [
        NumericColumn("number", lower=-4, upper=4),
        NumericColumn("count", lower=0, upper=8),
        CategoricalColumn("kind", categories=["a", "b", "c"]),
        CategoricalColumn("code", categories=["u", "v"]),
        BooleanColumn("flag"),
    ]
)
# An estimator, and the names of the columns that it is fitted on.
TABLES = {
    "synthesizer": (DPTableSynthesizer(SCHEMA, n_particles=200), list(TABLE)),
    "synthesizer, target": (
        DPTableSynthesizer(SCHEMA, n_particles=200, target="flag"), list(TABLE),
    ),
    "synthesizer, nothing known": (DPTableSynthesizer(n_particles=200), list(TABLE)),
    "synthesizer, two columns": (DPTableSynthesizer(n_particles=200), ["kind", "flag"]),
    "synthesizer, one column": (DPTableSynthesizer(n_particles=200), ["code"]),
    "encoder": (TableEncoder(), list(TABLE)),
    "encoder, all known": (TableEncoder(SCHEMA), list(TABLE)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("case", TABLES)
def test_every_noise_of_a_table_is_charged(case, drawn):
    """What the schema leaves open, then tables of counts, and sums of how far these are off."""
    estimator, names = TABLES[case]
    schema = None if estimator.schema is None else TableSchema([SCHEMA[name] for name in names])
    with record_releases() as releases:
        fitted = estimator.set_params(epsilon=8.0, schema=schema).fit(TABLE[names])
    phases = leaves(fitted.privacy_spent_.event) if schema is None or "synth" in case else []
    tables = [release for release in releases if release.kind in ("marginals", "misfits")]
    kinds = ["marginals", "misfits", "marginals", "misfits", "marginals"][: 4 * len(names) - 3]
    kinds = kinds if "synth" in case else []
    before, after = phases[: len(phases) - len(kinds)], phases[len(phases) - len(kinds) :]
    expected = Counter()
    for event in before:
        # A record is in one cell of the histogram of each column: two counts move.
        histograms = event.n_columns if isinstance(event, ThresholdedCountsEvent) else None
        expected[event.sigma] += histograms or round(event.sensitivity**2 / 2)
    for event, kind in zip(after, kinds, strict=True):
        if not tables or tables[0].kind != kind:  # a tree that gains nothing is not counted
            continue
        release = tables.pop(0)
        if kind == "misfits":
            scales = [release.sigma]
            squared_mu = 4 * len(release.facts["marginals"]) / scales[0] ** 2
        else:
            scales = list(release.sigma)
            squared_mu = sum(2 / sigma**2 for sigma in scales)
        expected.update(scales)
        assert squared_mu == pytest.approx(event.sensitivity**2 / event.sigma**2)
    assert not tables
    found = Counter(drawn)
    assert {f"{s:.9g}": n for s, n in found.items()} == {f"{s:.9g}": n for s, n in expected.items()}
    assert bool(drawn) == (case != "encoder, all known")


FITS = {name: (estimator, X, given) for name, (estimator, given, *_) in CASES.items()} | {
    name: (estimator, TABLE[names], {})
    for name, (estimator, names) in TABLES.items()
    if name != "encoder, all known"  # it is charged nothing
}
FITS["search"] = (
    PrivateSearchCV(
        made(FairPrivateClassifier, **FAIR, classes=[0, 1]),
        {"mechanism__learning_rate": [0.1, 0.2]},
        n_trials=1,
    ),
    X,
    {"y": LABELS},
)


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.parametrize("case", FITS)
def test_a_delta_of_one_over_n_is_warned_of_before_the_charge(case):
    estimator, rows, given = FITS[case]
    budget = PrivacyBudget(20.0, delta=1 / N)
    warned = clone(estimator).set_params(epsilon=8.0, delta=1 / N, budget=budget)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r".*delta = 0.0025 is not below one over .* \(400\)")
        with pytest.raises(PrivacyWarning, match="Choose a delta well below 0.003"):
            warned.fit(rows, **given)
    assert budget.history().empty
    with warnings.catch_warnings():  # nothing is said of a smaller one
        warnings.filterwarnings("error", ".*is not below one over")
        warned.set_params(delta=0.99 / N, budget=None).fit(rows, **given)
