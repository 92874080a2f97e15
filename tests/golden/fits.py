"""Small seeded fits of every estimator, mechanism and option that changes a path.

All constructor calls are in this file: whoever renames a parameter mends `CASES` and, where an
attribute is renamed, the function that reads it. The recorded numbers stay. Each case is a
function that fits something and returns a dict of what came out; `exact` marks what is the same
on every CPU, `single` what went through float32.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from skdpot import (
    ClientContribution,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateSearchCV,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.datasets import (
    make_biased_classification,
    make_branching_trajectories,
    make_ornstein_uhlenbeck_trajectories,
)
from skdpot.federated.baselines import (
    pairwise_fedwad,
    pairwise_triangle,
    triangle,
    triangle_to_union,
)
from skdpot.federated.messages import (
    CostMatrices,
    DistanceMessage,
    DistancesAtFractions,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
)
from skdpot.federated.party import PROTOCOLS, Party
from skdpot.federated.sliced_protocol import pairwise_sliced
from skdpot.federated.valuation import sliced_values
from skdpot.ot.measures import DiscreteMeasure
from skdpot.ot.slices import make_directions
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    PrivateScaler,
    TableEncoder,
    TableSchema,
)
from skdpot.privacy.accounting import compose
from tests.estimators.search_cases import NoisyThreshold
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

__all__ = ["CASES", "Exact", "Single"]

D, N = 3, 300  # so many that private bounds are found
RNG = np.random.default_rng(71)
X = RNG.normal(size=(N, D)).round(6)
WIDE = RNG.normal(size=(N, 40)).round(6)
PUBLIC = RNG.normal(size=(20, D)).round(6)
OTHERS = RNG.normal(0.5, 1.2, size=(80, D)).round(6)
LABELS = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
LABELS[:9] = 2
BINARY = np.minimum(LABELS, 1)
GROUPS = np.arange(N) % 2
TIMES = np.arange(N) % 4
TARGETS = X[:, :2] + 1.0
TWO = {"sensitive_features": GROUPS}
BOX = {"bounds": (-2, 2)}
SEED = {"epsilon": 50.0, "random_state": 3}  # much epsilon, so that bounds are found


@dataclass
class Exact:
    """Numbers on a lattice, integers or texts, recorded by a hash of their bytes."""

    values: Any


@dataclass
class Single:
    """Numbers that went through float32, or that sorting made more of the last digits of."""

    values: Any
    tolerance: float = 2e-5


Found = dict[str, Any]


def statement(fitted: Any) -> Found:
    """Return the numbers of a privacy statement, and what the event costs without sampling."""
    spent = fitted.privacy_spent_
    loss = compose(spent.event)
    scales = {"sigma": spent.sigma, "sensitivity": spent.sensitivity}
    return {
        f"statement: {name}": np.atleast_1d(np.array(value, dtype=float))
        for name, value in {"epsilon": spent.epsilon, "delta": spent.delta, **scales}.items()
    } | {
        "event: mu": loss.mu_without_sampling,
        "event: leak": loss.leak,
        "event: releases": loss.n_steps,
    }


def bounds_of(bounds: Any) -> Found:
    return {f"bounds: {n}": getattr(bounds, n) for n in ("center", "scale", "radius", "box")}


def parameters(*networks: Any) -> Single:
    return Single(
        np.concatenate(
            [p.detach().numpy().ravel() for network in networks for p in network.parameters()]
        )
    )


def described_sketch(sketch: SlicedSketch, prefix: str = "") -> Found:
    names = ("directions_", "half_widths_", "noise_scale_", "cdf_", "class_counts_")
    found = {name: getattr(sketch, name) for name in names}
    found |= bounds_of(sketch.bounds_) | statement(sketch)
    if sketch.noise_scale_ > 0:
        found["statistic_"] = Exact(sketch.statistic_)
    label = sketch.classes_[0] if sketch.conditional else None
    found["quantiles"] = sketch.quantiles([0.1, 0.5, 0.9], label=label)
    return {prefix + name: value for name, value in found.items()}


def sketch(X: Any = X, y: Any = None, **options: Any) -> Found:
    fitted = SlicedSketch(**({"n_projections": 3, "n_bins": 8} | SEED | options)).fit(X, y)
    return described_sketch(fitted)


def streamed() -> Found:
    options = {
        "n_bins": 8,
        "projections": np.eye(D),
        "conditional": True,
        "classes": [0, 1, 2],
        **BOX,
    }
    first = SlicedSketch(**options, **SEED)
    for rows, labels in zip(np.split(X, 4), np.split(LABELS, 4), strict=True):
        first.partial_fit(rows, labels, n_samples=N)
    second = SlicedSketch(**options, epsilon=2.0, random_state=4).fit(OTHERS, np.arange(80) % 3)
    return described_sketch(first) | described_sketch(first.merge(second), "merged: ")


def saved_sketch(**options: Any) -> Found:
    X_, y = options.pop("X", X), options.pop("y", None)
    fitted = SlicedSketch(**({"n_projections": 3, "n_bins": 8} | SEED | options)).fit(X_, y)
    with TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "sketch")
        loaded = SlicedSketch.load(Path(folder) / "sketch")
    names = [*getattr(loaded, "classes_", []), *getattr(loaded, "feature_names_in_", [])]
    return described_sketch(loaded) | {"names": Exact([str(name) for name in names])}


def rows_of(fitted: Any, generator: bool = False, tolerance: float = 2e-5) -> Found:
    """Return what the flow sampler and the generator released, and what they sample."""
    released = described_sketch(fitted.sketch_, "sketch: ") if hasattr(fitted, "sketch_") else {}
    if hasattr(fitted, "releases_"):
        batches = fitted.releases_.batches
        values = np.concatenate([batch.values.ravel() for batch in batches])
        released |= {
            "released directions": Single([batch.directions for batch in batches]),
            "released rows": Single(values),
            "released sigma": fitted.releases_.sigma,
        }
    found = released | statement(fitted) | bounds_of(fitted.bounds_)
    if generator:
        found |= {"parameters": parameters(fitted.module_), "n_steps": fitted.n_steps_}
    else:
        found["particles"] = Single(fitted.particles_, tolerance)
        found["displacements"] = Single(fitted.displacements_, tolerance)
    found["sample"] = Single(fitted.sample(40, random_state=1), tolerance)
    if fitted.conditional:
        rows, labels = fitted.sample_labeled(40, random_state=1)
        found |= {"labeled rows": Single(rows), "labels": Exact(labels)}
    return found


def flow(mechanism: str, y: Any = None, tolerance: float = 2e-5, **options: Any) -> Found:
    defaults = {"n_projections": 3, "n_steps": 4, "n_particles": 12} | SEED
    return rows_of(flow_sampler(mechanism, **(defaults | options)).fit(X, y), tolerance=tolerance)


def generator(mechanism: str, y: Any = None, **options: Any) -> Found:
    defaults = {"n_projections": 3, "n_steps": 3} | SEED
    return rows_of(sliced_generator(mechanism, **(defaults | options)).fit(X, y), generator=True)


def autoencoder(**options: Any) -> Found:
    given = {"sensitive_features": options.pop("groups", None)}
    defaults = {"n_steps": 3, "latent_dim": 2, "batch_size": N} | SEED
    fitted = made(PrivateSWAutoencoder, **(defaults | options)).fit(X, **given)
    codes = fitted.transform(PUBLIC)
    return (
        {
            "parameters": parameters(fitted.encoder_, fitted.decoder_),
            "codes": Single(codes),
            "decoded": Single(fitted.inverse_transform(codes)),
            "sample": Single(fitted.sample(20, random_state=1)),
            "score": Single(fitted.score(PUBLIC)),
            "n_steps": fitted.n_steps_,
        }
        | (statement(fitted) if hasattr(fitted, "privacy_spent_") else {})
        | bounds_of(fitted.bounds_)
    )


FAIR = {
    "n_steps": 4,
    "n_releases": 2,
    "module": "linear",
    "n_projections": 2,
    "batch_fraction": 1.0,
}


def classifier(y: Any = BINARY, **options: Any) -> Found:
    fitted = made(FairPrivateClassifier, **(FAIR | SEED | options)).fit(X, y, **TWO)
    return {
        "parameters": parameters(fitted.network_),
        "probabilities": Single(fitted.predict_proba(PUBLIC)),
        "predictions": Exact(fitted.predict(PUBLIC)),
        "threshold": Single(fitted.threshold_),
        "n_steps": fitted.n_steps_,
    } | statement(fitted)


def regressor(y: Any = TARGETS, **options: Any) -> Found:
    fitted = made(FairPrivateRegressor, **(FAIR | SEED | options)).fit(X, y, **TWO)
    return (
        {
            "parameters": parameters(fitted.network_),
            "predictions": Single(fitted.predict(PUBLIC)),
            "n_steps": fitted.n_steps_,
        }
        | bounds_of(fitted.target_bounds_)
        | statement(fitted)
    )


MFLD = {"n_particles": 5, "schedule": [(0.01, None, 2), (0.005, 0.1, 1)], "n_clusters": 2}
PATHS = {"n_projections": 3, "n_bins": 8, "n_particles": 5, "schedule": [(1.0, None, 2)]}


def paths(mechanism: str, groups: Any = None, **options: Any) -> Found:
    defaults = MFLD if mechanism == "mfld" else PATHS
    fitted = trajectory_sampler(mechanism, **(defaults | SEED | options))
    fitted.fit(X, TIMES, **({} if groups is None else {"groups": groups}))
    optional = ("noise_multiplier_", "centers_", "cluster_shares_")
    found = {name: np.array(getattr(fitted, name)) for name in optional if hasattr(fitted, name)}
    if hasattr(fitted, "sketch_"):
        found |= described_sketch(fitted.sketch_, "sketch: ")
    times = fitted.times_
    middle = (times[0] + times[1]) / 2
    return (
        found
        | {
            "times": times,
            "time counts": fitted.time_counts_,
            "particles": Single(fitted.particles_),
            "displacements": Single(fitted.displacements_),
            "paths": Single(fitted.sample(6, random_state=1)),
            "marginal": Single(fitted.sample_marginal(middle, 6, random_state=1)),
        }
        | bounds_of(fitted.bounds_)
        | statement(fitted)
    )


def distance(protocol: str = "sliced", y: Any = None, others: Any = None, **options: Any) -> Found:
    fewer = (
        {"n_projections": 3, "n_bins": 8} | SEED if protocol == "sliced" else {"random_state": 3}
    )
    rows = X if protocol == "sliced" else X[:60]
    fitted = private_distance(protocol, **(fewer | options)).fit(rows, y)
    estimate = fitted.compare(OTHERS, others)
    found = {
        "squared distance": Single(estimate.squared_distance),
        "standard error": Single(estimate.squared_standard_error),
        "noise floor": Single(estimate.noise_floor),
        "interval": Single(estimate.interval()),
        "values": fitted.score_samples(OTHERS, others),
    }
    if protocol == "sliced":
        found |= described_sketch(fitted.sketch_, "sketch: ")
        if options.get("projections") is not None:  # the last digits of directions make other noise
            found["published"] = fitted.transform(OTHERS)
    return found


def contribution() -> Found:
    nested = private_distance(n_projections=3, n_bins=8, **SEED, **BOX)
    fitted = ClientContribution(nested).fit(X)
    table = fitted.contributions({"a": OTHERS, "b": PUBLIC})
    return {"clients": Exact(list(table.index)), "table": table.to_numpy(dtype=float)}


def scaler(**options: Any) -> Found:
    fitted = PrivateScaler(**(SEED | options)).fit(X)
    found = {n: getattr(fitted, n) for n in ("center_", "scale_") if getattr(fitted, n) is not None}
    return found | {"scaled": fitted.transform(PUBLIC)} | statement(fitted)


def _people() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    income = rng.exponential(2000, N).round(2)
    income[rng.random(N) < 0.1] = np.nan
    size = pd.Categorical(rng.choice(["S", "M", "L"], N), categories=["S", "M", "L"], ordered=True)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, N),
            "income": income,
            "city": rng.choice(["Bonn", "Graz", "Linz", "Rome"], N, p=[0.5, 0.3, 0.15, 0.05]),
            "size": size,
            "smokes": rng.random(N) < 0.3,
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, N), "D"),
        }
    )


PEOPLE = _people()
SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=18, upper=90, integer=True),
        NumericColumn("income", lower=0, upper=50_000, log_scale=True, missing=True),
        CategoricalColumn("city", categories=["Bonn", "Graz", "Linz", "Rome"], other="elsewhere"),
        CategoricalColumn("size", categories=["S", "M", "L"], ordered=True),
        BooleanColumn("smokes"),
        DatetimeColumn("seen", lower="2024-01-01", upper="2024-12-31", resolution="D"),
    ]
)


def schema_of(schema: TableSchema) -> Found:
    return {"schema": Exact(schema.to_json())}


def encoder(schema: Any = None) -> Found:
    fitted = TableEncoder(schema, **SEED).fit(PEOPLE)
    coded = fitted.transform(PEOPLE[:60])
    return (
        {
            "coded": np.asarray(coded, dtype=float),
            "decoded": Exact(fitted.inverse_transform(coded).to_csv()),
        }
        | schema_of(fitted.schema_)
        | (statement(fitted) if schema is None else {})
    )


def described_table(fitted: DPTableSynthesizer) -> Found:
    marginals = fitted.marginals_
    rows = fitted.sample(60, random_state=1)
    report = fitted.quality_report(n_samples=200, random_state=2)
    found = {
        "columns of marginals": Exact([list(m.marginal.columns) for m in marginals]),
        "counts": np.concatenate([m.counts for m in marginals]),
        "sigmas": np.array([m.sigma for m in marginals]),
        "sample": Exact(rows.to_csv() if isinstance(rows, pd.DataFrame) else rows),
        "score": fitted.score(rows),
        "n_samples": fitted.n_samples_,
        "report: columns": report.columns.select_dtypes("number").to_numpy(dtype=float),
        "report: pairs": report.pairs.select_dtypes("number").to_numpy(dtype=float),
    }
    return found | schema_of(fitted.schema_) | statement(fitted)


def table(X: Any = PEOPLE, saved: bool = False, **options: Any) -> Found:
    fitted = DPTableSynthesizer(**({"n_particles": 200} | SEED | options)).fit(X)
    if saved:
        with TemporaryDirectory() as folder:
            fitted.save(Path(folder) / "table")
            fitted = DPTableSynthesizer.load(Path(folder) / "table")
    return described_table(fitted)


def mean_of(fitted: Any) -> float:
    return float(fitted.mean_)


def search(estimator: Any, name: str, **options: Any) -> Found:
    fitted = PrivateSearchCV(
        estimator, {name: [0.01, 0.1, 1.0]}, n_trials=2, **(SEED | options)
    ).fit(X, BINARY)
    plan = fitted.plan_
    return {
        "best score": Single(fitted.best_score_),
        "best parameter": float(fitted.best_params_[name]),
        "epsilon of a trial": plan.trial_epsilon,
        "deviation of a score": plan.score_deviation,
    } | statement(fitted)


def party(name: str, rows: Any = X[:40], **options: Any) -> Party:
    return Party(name, rows, **({"allows": PROTOCOLS, "random_state": 3} | options))


def parties() -> list[Party]:
    return [party("first"), party("second", OTHERS[:40]), party("third", PUBLIC)]


def played(result: Any) -> Found:
    return {"squared distance": result.squared_distance, "messages": len(result.transcript)}


def pairwise(result: Any) -> Found:
    return {
        "names": Exact(list(result.names)),
        "distances": Single(result.distances, 1e-4),  # small differences
        "messages": len(result.transcript),
    }


GAMMA = DiscreteMeasure(RNG.normal(size=(40, D)).round(6))


def union() -> Found:
    first, *sellers = parties()
    shares = {"shares": [3, 1], "reference": GAMMA}
    return {
        f"{disclosed}: {name}": value
        for disclosed in (True, False)
        for name, value in played(
            triangle_to_union(first, sellers, t=0.4, disclose_t=disclosed, **shares)
        ).items()
    }


def arrays_of(message: Message) -> Iterator[tuple[str, Any]]:
    """Yield the public numbers and texts of a message that came over the wire."""
    for name in ("points", "masses", "t", "interpolation", "fractions", "squared_distances"):
        if getattr(message, name, None) is not None:
            yield name, getattr(message, name)
    for name in ("costs", "squared_distance", "directions", "n_bins"):
        if getattr(message, name, None) is not None:
            yield name, getattr(message, name)


def sent(message: Message) -> Found:
    arrived = Message.from_bytes(message.to_bytes())
    found = dict(arrays_of(arrived)) | {"kind": Exact(type(arrived).__name__)}
    if isinstance(arrived, SketchMessage):
        found |= described_sketch(arrived.sketch)
    return found


def messages() -> Found:
    rng = np.random.default_rng(8)
    points, masses = rng.normal(size=(5, D)), rng.dirichlet(np.ones(5))
    request = SketchRequest.draw(D, n_projections=4, n_bins=8, bounds=(-1, [1, 2, 3]), rng=rng)
    plain = SlicedSketch(**request.sketch_parameters, **SEED).fit(X)
    classes = SlicedSketch(**SEED, n_projections=3, n_bins=8, conditional=True, **BOX)
    frame = pd.DataFrame(X, columns=["a", "ü", "c c"])
    made = {
        "reference": ReferenceMeasure(points, masses, 0.3, "exact"),
        "interpolating": InterpolatingMeasure(points, masses),
        "geodesic": GeodesicMeasure(points, masses, 0.9, "exact"),
        "fractions": FractionRequest(points, None, [0.5]),
        "distances": DistancesAtFractions((0.25, 0.5, 0.75), [0.0, 1.5, 2.0]),
        "costs": CostMatrices([0.5, 0.6], rng.uniform(size=(2, 4, 5)), [0.1, 0.2, 0.3, 0.4]),
        "distance": DistanceMessage(0.1),
        "request": request,
        "sketch": SketchMessage(plain),
        "sketch of classes": SketchMessage(classes.fit(frame, LABELS.astype(str))),
    }
    return {
        f"{kind}: {name}": value
        for kind, message in made.items()
        for name, value in sent(message).items()
    }


def directions() -> Found:
    kinds = ("orthogonal", "axes+orthogonal", "uniform", "sparse")
    return {kind: make_directions(kind, 7, D, rng=np.random.default_rng(2)) for kind in kinds}


def datasets() -> Found:
    made = {
        "biased": make_biased_classification(50, random_state=1),
        "branching": make_branching_trajectories(6, 4, random_state=1),
        "process": make_ornstein_uhlenbeck_trajectories(6, 4, random_state=1)[:2],
    }
    return {f"{n} {k}": np.asarray(v) for n, vs in made.items() for k, v in enumerate(vs)}


def valued() -> Found:
    fitted = SlicedSketch(n_projections=3, n_bins=8, **SEED, **BOX).fit(X)
    return {"values": np.asarray(sliced_values(PUBLIC / 2.0, fitted.table()))}


CLASSES = {"conditional": True, "classes": [0, 1, 2, 3]}
ALL = {"batch_size": N}
SOME = {"batch_size": 20, "sigma": 2.0, **BOX}
FLOW = {"n_bins": 8}
QUICK = {"n_projections": 3, "n_steps": 4, "n_particles": 12, "n_bins": 8}
NOISY = {"epsilon": 1.0, "delta": 1e-6, **BOX}
TRIANGLE = {"gamma_scale": 0.5, "n_support": 30}

CASES: dict[str, Callable[[], Found]] = {
    "datasets": datasets,
    "directions": directions,
    "scaler": scaler,
    "scaler, scales": lambda: scaler(with_centering=False),
    "sketch": sketch,
    "sketch, epsilon 1": lambda: sketch(**NOISY),
    "sketch, no noise": lambda: sketch(epsilon=np.inf, **BOX),
    "sketch, norms of many features": lambda: sketch(WIDE, n_projections=40),
    "sketch, norm bound": lambda: sketch(norm_bound=2.0),
    "sketch, automatic": lambda: sketch(n_projections="auto", n_bins="auto"),
    "sketch, orthogonal": lambda: sketch(projections="orthogonal", n_projections=6),
    "sketch, classes": lambda: sketch(y=LABELS, **CLASSES),
    "sketch, classes found": lambda: sketch(y=LABELS, conditional=True, **BOX),
    "sketch, public classes": lambda: sketch(y=LABELS, **CLASSES, public_labels=True),
    "sketch, groups": lambda: sketch(y=LABELS, **CLASSES, public_labels=True, group_size=2, **BOX),
    "sketch, stream and merge": streamed,
    "file, sketch": saved_sketch,
    "file, sketch of classes": lambda: saved_sketch(
        X=pd.DataFrame(X, columns=["one", "two", "three"]), y=LABELS, conditional=True, **BOX
    ),
    "flow": lambda: flow("sketch", **FLOW),
    "flow, epsilon 1": lambda: flow("sketch", **FLOW, **NOISY),
    "flow, automatic": lambda: flow("sketch", n_projections="auto", tolerance=3e-3),
    "flow, classes": lambda: flow("sketch", y=LABELS, **FLOW, **CLASSES),
    "flow, public classes": lambda: flow("sketch", y=LABELS, **FLOW, **CLASSES, public_labels=True),
    "flow, diffusion": lambda: flow("sketch", **FLOW, diffusion=0.1, n_projections_per_step=1),
    "flow, step size": lambda: flow("sketch", **FLOW, step_size=0.5),
    "flow, resample": lambda: flow("resample", **ALL),
    "flow, resample, float": lambda: flow("resample", noise="float", **ALL),
    "flow, resample, batches": lambda: flow("resample", **SOME),
    "flow, resample, poisson": lambda: flow("resample", sampling="poisson", **SOME),
    "flow, presample": lambda: flow("presample"),
    "flow, presample, epsilon 1": lambda: flow("presample", **NOISY),
    "generator": lambda: generator("sketch", **FLOW),
    "generator, classes": lambda: generator("sketch", y=LABELS, **FLOW, **CLASSES),
    "generator, smoothing": lambda: generator("smoothing", **ALL),
    "generator, smoothing, poisson": lambda: generator("smoothing", sampling="poisson", **SOME),
    "generator, gradient": lambda: generator("gradient", **ALL),
    "generator, gradient, batches": lambda: generator("gradient", batch_size=20, sigma=1.0, **BOX),
    "autoencoder": autoencoder,
    "autoencoder, prior": lambda: autoencoder(penalty="prior"),
    "autoencoder, parity": lambda: autoencoder(penalty="parity", groups=GROUPS),
    "autoencoder, batches": lambda: autoencoder(
        batch_size=20, sigma=3.0, normalize_codes=False, **BOX
    ),
    "autoencoder, not private": lambda: autoencoder(private=False, batch_size=30, **BOX),
    "classifier": classifier,
    "classifier, mlp": lambda: classifier(module="mlp"),
    "classifier, threshold": lambda: classifier(tune_threshold=True),
    "classifier, odds": lambda: classifier(fairness="equalized_odds", tune_threshold=True),
    "classifier, ranks": lambda: classifier(mechanism="ranks"),
    "classifier, ranks, odds": lambda: classifier(mechanism="ranks", fairness="equalized_odds"),
    "classifier, batches": lambda: classifier(batch_fraction=0.5, n_steps=3),
    "classifier, three classes": lambda: classifier(LABELS, classes=[0, 1, 2, 3]),
    "classifier, no penalty": lambda: classifier(alpha=0.0),
    "regressor": regressor,
    "regressor, bounds": lambda: regressor(target_bounds=(-2, 4)),
    "regressor, ranks": lambda: regressor(TARGETS[:, 0], mechanism="ranks"),
    "distance": distance,
    "distance, data": lambda: distance(target="data", projections=np.eye(D), **BOX),
    "distance, triangle": lambda: distance("triangle", **TRIANGLE),
    "distance, triangle, exact": lambda: distance("triangle", interpolation="exact", **TRIANGLE),
    "distance, triangle, secret": lambda: distance("triangle", disclose_t=False, **TRIANGLE),
    "distance, triangle, labels": lambda: distance(
        "triangle", y=LABELS[:60], others=np.arange(80) % 3, labeled=True, **TRIANGLE
    ),
    "distance, fedwad": lambda: distance("fedwad", n_rounds=4, n_support=30),
    "distance, fedwad, fixed": lambda: distance("fedwad", n_rounds=4, draw_t=False),
    "contribution": contribution,
    "parties, sliced": lambda: pairwise(
        pairwise_sliced(
            parties(),
            SketchRequest.draw(
                D,
                n_projections=3,
                n_bins=8,
                projections="axes+orthogonal",
                rng=np.random.default_rng(4),
                **BOX,
            ),
        )
    ),
    "parties, triangle": lambda: pairwise(pairwise_triangle(parties(), reference=GAMMA, t=0.3)),
    "parties, fedwad": lambda: pairwise(
        pairwise_fedwad(parties(), n_rounds=3, rng=np.random.default_rng(4))
    ),
    "parties, secret fraction": lambda: played(
        triangle(*parties()[:2], t=0.4, disclose_t=False, reference=GAMMA)
    ),
    "parties, union": union,
    "parties, values": valued,
    "messages": messages,
    "paths": lambda: paths("sketch"),
    "paths, rough": lambda: paths("sketch", smooth=False, **BOX),
    "paths, exact": lambda: paths("sketch", coupling="exact"),
    "paths, some times": lambda: paths("sketch", n_time_subsample=3),
    "paths, bins of time": lambda: paths("sketch", groups=GROUPS, n_times=2, group_size=2),
    "paths, mfld": lambda: paths("mfld"),
    "paths, mfld, rough": lambda: paths(
        "mfld", smooth=False, coupling="exact", noise_multiplier=[3.0, 2.0]
    ),
    "paths, mfld, mean": lambda: paths("mfld", warm_start="mean"),
    "paths, mfld, kmeans": lambda: paths("mfld", warm_start="kmeans", **BOX),
    "paths, mfld, batches": lambda: paths(
        "mfld", sampling_rate=0.5, noise_multiplier=3.0, n_time_subsample=2
    ),
    "encoder": encoder,
    "encoder, all known": lambda: encoder(SCHEMA),
    "table": lambda: table(schema=SCHEMA),
    "table, epsilon 1": lambda: table(schema=SCHEMA, epsilon=1.0),
    "table, target": lambda: table(schema=SCHEMA, target="smokes"),
    "table, nothing known": lambda: table(PEOPLE.drop(columns="seen")),
    "table, nothing known, target": lambda: table(PEOPLE.drop(columns="seen"), target="city"),
    "table, left out": lambda: table(schema=SCHEMA.exclude("seen", "age"), target="city"),
    "table, array": lambda: table(PEOPLE[["age", "income"]].to_numpy()),
    "table, one column": lambda: table(PEOPLE[["city"]], schema=TableSchema([SCHEMA["city"]])),
    "table, no noise": lambda: table(schema=SCHEMA, epsilon=np.inf),
    "file, table": lambda: table(schema=SCHEMA, target="smokes", saved=True),
    "file, table, nothing known": lambda: table(PEOPLE.drop(columns="seen"), saved=True),
    "search": lambda: search(NoisyThreshold(), "shift"),
    "search, folds and refit": lambda: search(NoisyThreshold(), "shift", cv=2, refit=True),
    "search, poisson": lambda: search(NoisyThreshold(), "shift", distribution="poisson"),
    "search, release": lambda: search(
        NoisyThreshold(), "shift", scoring=mean_of, score_on="release"
    ),
    "search, sampler": lambda: search(
        flow_sampler("sketch", **QUICK), "step_size", score_bounds=(-3, 3)
    ),
    "search, sampler, release": lambda: search(
        flow_sampler("sketch", **QUICK), "step_size", score_on="release"
    ),
}
