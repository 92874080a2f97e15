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
BATCHES = {"batch_size": 20} | BOX
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


def case(estimator, protected="", **given):
    """An estimator, what `fit` is given beside X, and what of it is protected as X is."""
    return estimator, given, protected


def autoencoder(**options):
    return made(PrivateSWAutoencoder, **(NET | ALL | options))


Y = {"y": LABELS}
CODES = {"y": LABELS, "sensitive_features": GROUPS}
REAL = {"y": TARGETS, "sensitive_features": GROUPS}

# Batches of all rows have a cost in closed form; that of others takes seconds to calibrate.
FITS = {
    "scaler": case(PrivateScaler()),
    "scaler, scales": case(PrivateScaler(with_centering=False)),
    "sketch": case(SlicedSketch(**SKETCH)),
    "sketch, norms": case(SlicedSketch(n_projections=40, n_bins=8), "wide"),
    "sketch, box": case(SlicedSketch(**SKETCH, **BOX)),
    "sketch, automatic": case(SlicedSketch()),
    "sketch, classes": case(SlicedSketch(**SKETCH, **CLASSES), "y", **Y),
    "sketch, public classes": case(SlicedSketch(**SKETCH, **CLASSES, public_labels=True), **Y),
    "flow": case(sampler("sketch", n_bins=8)),
    "flow, automatic": case(flow_sampler(n_steps=3, n_particles=10)),
    "flow, classes": case(sampler("sketch", n_bins=8, **CLASSES), "y", **Y),
    "flow, diffusion": case(sampler("sketch", n_bins=8, diffusion=0.1, n_projections_per_step=1)),
    "flow, resample": case(sampler("resample", **ALL)),
    "flow, resample, float": case(sampler("resample", noise="float", **ALL)),
    "flow, resample, batches": case(sampler("resample", **BATCHES, sigma=2.0)),
    "flow, resample, poisson": case(sampler("resample", **BATCHES, sigma=2.0, sampling="poisson")),
    "flow, presample": case(sampler("presample")),
    "generator": case(generator("sketch", n_bins=8)),
    "generator, classes": case(generator("sketch", n_bins=8, **CLASSES), "y", **Y),
    "generator, smoothing": case(generator("smoothing", **ALL)),
    "generator, gradient": case(generator("gradient", **ALL)),
    "generator, gradient, batches": case(generator("gradient", **BATCHES, sigma=1.0)),
    "autoencoder": case(autoencoder()),
    "autoencoder, prior": case(autoencoder(penalty="prior")),
    "autoencoder, parity": case(autoencoder(penalty="parity"), sensitive_features=GROUPS),
    "autoencoder, batches": case(autoencoder(**BATCHES, sigma=3.0, normalize_codes=False)),
    "classifier": case(classifier(), "y", **BINARY),
    "classifier, threshold": case(classifier(tune_threshold=True), "y", **BINARY),
    "classifier, odds": case(classifier(fairness="equalized_odds", tune_threshold=True), **BINARY),
    "classifier, ranks": case(classifier(mechanism="ranks"), "y", **BINARY),
    "classifier, odds, ranks": case(
        classifier(mechanism="ranks", fairness="equalized_odds"), **BINARY
    ),
    "classifier, batches": case(classifier(batch_fraction=0.3, alpha=0.0), "y", **BINARY),
    "classifier, three classes": case(classifier(classes=[0, 1, 2, 3]), "y", **CODES),
    "regressor": case(regressor(), "y", **REAL),
    "regressor, bounds": case(regressor(target_bounds=(-2, 4)), "y", **REAL),
    "regressor, ranks": case(regressor(mechanism="ranks"), "y", **REAL | {"y": TARGETS[:, 0]}),
    "distance": case(private_distance(**SKETCH)),
    "contribution": case(ClientContribution(private_distance(**SKETCH))),
    "paths": case(paths(mechanism="sketch"), y=TIMES),
    "paths, rough": case(paths(mechanism="sketch", smooth=False, **BOX), y=TIMES),
    "paths, exact": case(paths(mechanism="sketch", coupling="exact"), y=TIMES),
    "paths, some times": case(paths(mechanism="sketch", n_time_subsample=3), y=TIMES),
    "paths, bins of time": case(
        paths(mechanism="sketch", n_times=2, group_size=2), y=TIMES, groups=GROUPS
    ),
    "paths, mfld": case(paths(), y=TIMES),
    "paths, mfld, rough": case(
        paths(smooth=False, coupling="exact", noise_multiplier=[3.0, 2.0]), y=TIMES
    ),
    "paths, mfld, mean": case(paths(warm_start="mean"), y=TIMES),
    "paths, mfld, kmeans": case(paths(warm_start="kmeans", **BOX), y=TIMES),
    "paths, mfld, batches": case(
        paths(sampling_rate=0.5, noise_multiplier=3.0, n_time_subsample=2), y=TIMES
    ),
}


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
