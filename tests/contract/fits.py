"""Small fits of every estimator with every mechanism, for what must hold of all of them.

`tests.golden.fits` records what they give; the numbers there depend on everything here.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skdpot import (
    ClientContribution,
    DPDomainAdapter,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivatePostProcessor,
    FairPrivateRegressor,
    FairPrivateTransformer,
    PrivateSearchCV,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.mechanisms import (
    CodeParity,
    ImageNetwork,
    RankedOutputs,
    SketchedOutputs,
    TransportedRows,
)
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    Forbidden,
    Implies,
    LessEqual,
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
from tests.search.search_cases import NoisyThreshold

D, N = 3, 300  # so many that bounds of each feature are found
RNG = np.random.default_rng(71)
X = RNG.normal(size=(N, D)).round(6)
FEW = np.random.default_rng(1).normal(size=(64, 3)).round(6) * [1.0, 1.0, 0.01]
WIDE = RNG.normal(size=(N, 40)).round(6)
PUBLIC = RNG.normal(size=(20, D)).round(6)
OTHERS = RNG.normal(0.5, 1.2, size=(80, D)).round(6)
LABELS = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
LABELS[:9] = 2
SUPPORT = RNG.normal(size=(40, D)).round(6)
BINARY = np.minimum(LABELS, 1)
GROUPS = np.arange(N) % 2
PUBLIC_SCORES = LogisticRegression().fit(X + 0.5, BINARY)
PUBLIC_GROUPS = LogisticRegression().fit(X + 0.5, GROUPS)
TIMES = np.arange(N) % 4
TARGETS = X[:, :2] + 1.0


class Fit(NamedTuple):
    """What is fitted to which rows, what `fit` is given beside them, and whether y is private."""

    estimator: Any
    rows: Any
    given: dict[str, Any]
    protects_y: bool

    def tuned(self, estimator: Any, **options: Any) -> Any:
        """Set parameters; an estimator inside another one takes them."""
        inside = "estimator__" if isinstance(estimator, ClientContribution) else ""
        return estimator.set_params(**{inside + name: value for name, value in options.items()})

    def chosen(self, **options: Any) -> Any:
        """Return a clone with other parameters."""
        return self.tuned(clone(self.estimator), **options)

    def fitted(self, **options: Any) -> Any:
        """Fit a clone with other parameters."""
        return self.chosen(**options).fit(self.rows, **self.given)


def case(estimator: Any, rows: Any = X, *, protects_y: bool = False, **given: Any) -> Fit:
    given = {name: value for name, value in given.items() if value is not None}
    return Fit(estimator, rows, given, protects_y)


BOX = {"bounds": (-2, 2)}
ALL = {"batch_size": N}
SOME = {"batch_size": 20, "sigma": 2.0} | BOX
BINS = {"n_bins": 8}
SKETCH = {"n_projections": 3} | BINS
CLASSES = {"conditional": True, "classes": [0, 1, 2, 3]}
FAIR = {
    "n_steps": 4,
    "n_releases": 2,
    "module": "linear",
    "n_projections": 2,
    "batch_fraction": 1.0,
}
CODES_GIVEN_CLASS = CodeParity(fairness="equalized_odds")
CODES_TWICE = {"comparison": "sketch", "n_releases": 2, "n_steps": 4}
MFLD = {"n_particles": 5, "schedule": [(0.01, None, 2), (0.005, 0.1, 1)], "n_clusters": 2}
PATHS = SKETCH | {"n_particles": 5, "schedule": [(1.0, None, 2)]}


def sketch(y: Any = None, rows: Any = X, protects_y: bool = False, **options: Any) -> Fit:
    return case(SlicedSketch(**(SKETCH | options)), rows, protects_y=protects_y, y=y)


def flow(mechanism: str, y: Any = None, protects_y: bool = False, **options: Any) -> Fit:
    defaults = {"n_projections": 3, "n_steps": 4, "n_particles": 12}
    return case(flow_sampler(mechanism, **(defaults | options)), protects_y=protects_y, y=y)


def generator(mechanism: str, y: Any = None, protects_y: bool = False, **options: Any) -> Fit:
    defaults = {"n_projections": 3, "n_steps": 3}
    return case(sliced_generator(mechanism, **(defaults | options)), protects_y=protects_y, y=y)


def autoencoder(groups: Any = None, y: Any = None, **options: Any) -> Fit:
    estimator = made(PrivateSWAutoencoder, **({"n_steps": 3, "latent_dim": 2} | ALL | options))
    return case(estimator, y=y, sensitive_features=groups)


def fair(kind: type, y: Any, protects_y: bool = True, **options: Any) -> Fit:
    estimator = made(kind, **(FAIR | options))
    return case(estimator, protects_y=protects_y, y=y, sensitive_features=GROUPS)


def classifier(y: Any = BINARY, **options: Any) -> Fit:
    return fair(FairPrivateClassifier, y, **options)


def regressor(y: Any = TARGETS, **options: Any) -> Fit:
    return fair(FairPrivateRegressor, y, **options)


def adapter(mechanism: Any) -> Fit:
    domains = 1 - 2 * GROUPS
    return case(
        DPDomainAdapter(mechanism=mechanism), protects_y=True, y=BINARY, sample_domain=domains
    )


def paths(mechanism: str, groups: Any = None, **options: Any) -> Fit:
    defaults = MFLD if mechanism == "mfld" else PATHS
    return case(trajectory_sampler(mechanism, **(defaults | options)), y=TIMES, groups=groups)


OF_CLASSES = CLASSES | {"y": LABELS, "protects_y": True}
OF_PUBLIC_CLASSES = CLASSES | {"y": LABELS, "public_labels": True}
ODDS = {"fairness": "equalized_odds", "protects_y": False}

# Batches of all rows have a cost in closed form; that of others takes seconds to calibrate.
ROWS = {
    "scaler": case(PrivateScaler()),
    "scaler, scales": case(PrivateScaler(with_centering=False)),
    "sketch": sketch(),
    "sketch, norms of many features": sketch(rows=WIDE, n_projections=40),
    "sketch, few rows, units": sketch(rows=FEW),
    "sketch, box": sketch(**BOX),
    "sketch, automatic": sketch(n_projections="auto", n_bins="auto"),
    "sketch, classes": sketch(**OF_CLASSES),
    "sketch, public classes": sketch(**OF_PUBLIC_CLASSES),
    "flow": flow("sketch", **BINS),
    "flow, automatic": flow("sketch", n_projections="auto"),
    "flow, classes": flow("sketch", **BINS, **OF_CLASSES),
    "flow, diffusion": flow("sketch", **BINS, diffusion=0.1, n_projections_per_step=1),
    "flow, resample": flow("resample", **ALL),
    "flow, resample, float": flow("resample", noise="float", **ALL),
    "flow, resample, batches": flow("resample", **SOME),
    "flow, resample, poisson": flow("resample", sampling="poisson", **SOME),
    "flow, presample": flow("presample"),
    "flow, moments": flow("moments"),
    "flow, moments, classes": flow("moments", **OF_CLASSES),
    "flow, moments, parts": flow("moments", n_components=2, **OF_CLASSES),
    "generator": generator("sketch", **BINS),
    "generator, classes": generator("sketch", **BINS, **OF_CLASSES),
    "generator, images": generator("sketch", module=ImageNetwork((1, D)), **BINS, **BOX),
    "generator, smoothing": generator("smoothing", **ALL),
    "generator, gradient": generator("gradient", **ALL),
    "generator, gradient, batches": generator("gradient", batch_size=20, sigma=1.0, **BOX),
    "autoencoder": autoencoder(),
    "autoencoder, prior": autoencoder(penalty="prior"),
    "autoencoder, parity": autoencoder(GROUPS, penalty="parity"),
    "autoencoder, prior, sketch": autoencoder(penalty="prior", **CODES_TWICE),
    "autoencoder, parity, sketch": autoencoder(GROUPS, penalty="parity", **CODES_TWICE),
    "autoencoder, odds": autoencoder(GROUPS, BINARY, penalty=CODES_GIVEN_CLASS),
    "autoencoder, odds, sketch": autoencoder(
        GROUPS, BINARY, penalty=CODES_GIVEN_CLASS, **CODES_TWICE
    ),
    "autoencoder, batches": autoencoder(batch_size=20, sigma=3.0, normalize_codes=False, **BOX),
    "classifier": classifier(),
    "classifier, threshold": classifier(tune_threshold=True),
    "classifier, odds": classifier(tune_threshold=True, **ODDS),
    "classifier, ranks": classifier(mechanism="ranks"),
    "classifier, ranks, odds": classifier(mechanism="ranks", **ODDS),
    "classifier, batches": classifier(batch_fraction=0.5, n_steps=3),
    "classifier, three classes": classifier(LABELS, classes=[0, 1, 2, 3]),
    "classifier, no penalty": classifier(alpha=0.0),
    "classifier, bayes": classifier(mechanism="bayes"),
    "classifier, bayes, aware": classifier(mechanism="bayes", group_aware=True),
    "classifier, bayes, four classes": classifier(LABELS, mechanism="bayes", classes=[0, 1, 2, 3]),
    "post-processor": case(
        FairPrivatePostProcessor(FrozenEstimator(PUBLIC_SCORES)),
        protects_y=True,
        y=BINARY,
        sensitive_features=GROUPS,
    ),
    "fair transformer": case(FairPrivateTransformer(n_rounds=2), sensitive_features=GROUPS),
    "fair transformer, box": case(
        FairPrivateTransformer(n_rounds=1, **BOX), sensitive_features=GROUPS
    ),
    "post-processor, group by its estimator": case(
        FairPrivatePostProcessor(
            FrozenEstimator(PUBLIC_SCORES), group_estimator=FrozenEstimator(PUBLIC_GROUPS)
        ),
        protects_y=True,
        y=BINARY,
        sensitive_features=GROUPS,
    ),
    "regressor": regressor(),
    "regressor, bounds": regressor(target_bounds=(-2, 4)),
    "regressor, odds": regressor(TARGETS[:, 0], fairness="equalized_odds"),
    "regressor, ranks": regressor(TARGETS[:, 0], mechanism="ranks"),
    "adapter": adapter(TransportedRows(4, batch_fraction=1.0, n_projections=3)),
    "adapter, batches": adapter(TransportedRows(3, batch_fraction=0.5, n_projections=6)),
    "adapter, sketch": adapter(SketchedOutputs(n_steps=4, batch_fraction=1.0, n_releases=2)),
    "adapter, ranks": adapter(RankedOutputs(n_steps=4, batch_fraction=1.0, n_projections=2)),
    "regressor, barycenter": regressor(mechanism="barycenter"),
    "regressor, barycenter, one target": regressor(
        TARGETS[:, 0], mechanism="barycenter", target_bounds=(-2, 4)
    ),
    "distance": case(private_distance(**SKETCH)),
    "contribution": case(ClientContribution(private_distance(**SKETCH, **BOX))),
    "paths": paths("sketch"),
    "paths, rough": paths("sketch", smooth=False, **BOX),
    "paths, exact": paths("sketch", coupling="exact"),
    "paths, some times": paths("sketch", n_time_subsample=3),
    "paths, bins of time": paths("sketch", GROUPS, n_times=2, group_size=2),
    "paths, mfld": paths("mfld"),
    "paths, mfld, rough": paths(
        "mfld", smooth=False, coupling="exact", noise_multiplier=[3.0, 2.0]
    ),
    "paths, mfld, mean": paths("mfld", warm_start="mean"),
    "paths, mfld, entropy": paths("mfld", warm_start="mean", entropy=True),
    "paths, mfld, kmeans": paths("mfld", warm_start="kmeans", **BOX),
    "paths, mfld, batches": paths(
        "mfld", batch_fraction=0.5, noise_multiplier=3.0, n_time_subsample=2
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
RULED = TableSchema(
    [NumericColumn("count", lower=0), *(column for column in KNOWN if column.name != "count")],
    rules=[
        LessEqual("number", "count"),
        Implies("kind", "code"),
        Forbidden({"kind": "a", "flag": True}),
    ],
)


# The rows of as many persons, 200 of whom have two.
VISITS = pd.concat([TABLE, TABLE[:200]], ignore_index=True).assign(who=np.arange(N + 200) % N)


def synthesizer(*columns: str, rows: pd.DataFrame = TABLE, **options: Any) -> Fit:
    rows = rows[list(columns)] if columns else rows
    return case(DPTableSynthesizer(n_particles=100, **options), rows)


TABLES = {
    "encoder": case(TableEncoder(), TABLE),
    "encoder, all known": case(TableEncoder(KNOWN), TABLE),
    "encoder, private scale": case(TableEncoder(KNOWN, scale="private"), TABLE),
    "synthesizer": synthesizer(schema=KNOWN),
    "synthesizer, target": synthesizer(schema=KNOWN, target="flag"),
    "synthesizer, nothing known": synthesizer(),
    "synthesizer, nothing known, target": synthesizer(target="kind"),
    "synthesizer, two columns": synthesizer("kind", "flag"),
    "synthesizer, one column": synthesizer("code"),
    "synthesizer, rules": synthesizer(
        rows=TABLE.astype({"count": float}), schema=RULED, target="count"
    ),
    "synthesizer, persons": synthesizer(rows=VISITS, schema=KNOWN, unit="who"),
    "synthesizer, nothing known, rows": synthesizer(
        rows=VISITS, unit="who", weighting="row", max_rows=2
    ),
}


def mean_of(fitted: Any) -> float:
    return float(fitted.mean_)


def search(of: Any = None, name: str = "shift", **options: Any) -> Fit:
    estimator = NoisyThreshold() if of is None else of.estimator
    values = {name: [0.01, 0.1, 1.0]}
    search = PrivateSearchCV(estimator, values, n_trials=2, **options)
    return case(search, protects_y=True, y=BINARY)


QUICK = flow("sketch", **BINS)
SEARCHES = {
    "search": search(),
    "search, folds and refit": search(cv=2, refit=True),
    "search, release": search(scoring=mean_of, score_on="release"),
    "search, classifier": search(classifier(alpha=0.0), "mechanism__learning_rate"),
    "search, sampler": search(QUICK, "step_size", score_bounds=(-3, 3)),
    "search, sampler, release": search(QUICK, "step_size", score_on="release"),
    "search, sampler, accuracy": search(
        flow("sketch", **BINS, conditional=True, classes=[0, 1]),
        "step_size",
        scoring="synthetic_accuracy",
    ),
}
FITS = ROWS | TABLES | SEARCHES

# One of each estimator, and of each mechanism that charges in a way of its own.
QUICK = {
    "scaler", "sketch", "sketch, classes", "flow", "flow, resample", "flow, moments",
    "generator, gradient",
    "autoencoder", "autoencoder, parity, sketch", "classifier", "regressor, ranks", "adapter",
    "distance", "contribution", "paths", "paths, mfld, mean", "encoder",
    "synthesizer, target", "synthesizer, persons", "search",
}  # fmt: skip


def swept(names: Iterable[str]) -> list[Any]:
    """Make parameters of names; what is not in `QUICK` is left out of a quick run."""
    return [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in names]
