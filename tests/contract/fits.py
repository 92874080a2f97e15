"""Small fits of every estimator with every mechanism, for what must hold of all of them."""

import numpy as np
import pandas as pd

from skdpot import (
    ClientContribution,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    NumericColumn,
    PrivateScaler,
    TableEncoder,
    TableSchema,
)
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

D, N = 3, 400  # so many that bounds of each feature are found
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
ALL = {"batch_size": N}
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


# An estimator, what `fit` is given beside X, and what of it is protected as X is. Batches of all
# rows have a cost in closed form; that of others takes seconds to calibrate.
FITS = {
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
