"""Small seeded fits of every estimator, mechanism and option that changes a path.

Fits come from `tests.contract.fits`; those of options that only a record needs are in `MORE`.
Whoever renames a parameter mends these and, where an attribute is renamed, the function that reads
it. The recorded numbers stay. Each case is a function that returns a dict of what came out; `Exact`
marks what is the same on every CPU, `Single` what went through float32.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from skdpot import (
    ClientContribution,
    DPDomainAdapter,
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivatePostProcessor,
    FairPrivateRegressor,
    FairPrivateTransformer,
    PrivateSearchCV,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot.datasets import (
    make_biased_classification,
    make_branching_trajectories,
    make_ornstein_uhlenbeck_trajectories,
)
from skdpot.distance.fedwad import pairwise_fedwad
from skdpot.distance.messages import (
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
from skdpot.distance.party import PROTOCOLS, Party
from skdpot.distance.sliced import pairwise_sliced
from skdpot.distance.triangle import pairwise_triangle, triangle, triangle_to_union
from skdpot.ot.data_values import sliced_values
from skdpot.ot.directions import make_directions
from skdpot.ot.measures import DiscreteMeasure
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
from tests.contract.fits import (
    BINS,
    BOX,
    CLASSES,
    LABELS,
    OTHERS,
    PUBLIC,
    ROWS,
    SEARCHES,
    SOME,
    SUPPORT,
    D,
    Fit,
    N,
    X,
    autoencoder,
    case,
    classifier,
    flow,
    generator,
    search,
    sketch,
)
from tests.flat_options import private_distance

__all__ = ["CASES", "Exact", "Single"]

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


def streamed() -> Found:
    options = {"projections": np.eye(D), "conditional": True, "classes": [0, 1, 2], **BINS, **BOX}
    first = SlicedSketch(**options, **SEED)
    for rows, labels in zip(np.split(X, 4), np.split(LABELS, 4), strict=True):
        first.partial_fit(rows, labels, n_samples=N)
    second = SlicedSketch(**options, epsilon=2.0, random_state=4).fit(OTHERS, np.arange(80) % 3)
    return described_sketch(first) | described_sketch(first.merge(second), "merged: ")


def described_releases(releases: Any) -> Found:
    """Return what a mechanism released: noisy projections, or the numbers of a dataclass."""
    if not hasattr(releases, "batches"):
        return {f"released {name}": value for name, value in vars(releases).items()}
    return {
        "released directions": Single([batch.directions for batch in releases.batches]),
        "released rows": Single(
            np.concatenate([batch.values.ravel() for batch in releases.batches])
        ),
        "released sigma": releases.sigma,
    }


def described_rows(fitted: Any, tolerance: float = 2e-5) -> Found:
    """Return what the flow sampler and the generator released, and what they sample."""
    released = described_sketch(fitted.sketch_, "sketch: ") if hasattr(fitted, "sketch_") else {}
    if hasattr(fitted, "releases_"):
        released |= described_releases(fitted.releases_)
    if hasattr(fitted, "moments_"):
        released |= {"released moments": Exact(fitted.moments_.release.value)}
    found = released | statement(fitted) | bounds_of(fitted.bounds_)
    if isinstance(fitted, DPSlicedGenerator):
        found |= {"parameters": parameters(fitted.module_), "n_steps": fitted.n_steps_}
    else:
        found["particles"] = Single(fitted.particles_, tolerance)
        found["displacements"] = Single(fitted.displacements_, tolerance)
    found["sample"] = Single(fitted.sample(40, random_state=1), tolerance)
    if fitted.conditional:
        rows, labels = fitted.sample_labeled(40, random_state=1)
        found |= {"labeled rows": Single(rows), "labels": Exact(labels)}
    return found


def described_autoencoder(fitted: PrivateSWAutoencoder) -> Found:
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


def described_classifier(fitted: FairPrivateClassifier | FairPrivatePostProcessor) -> Found:
    groups = fitted.groups_
    given = {} if groups is None else {"sensitive_features": np.resize(groups, len(PUBLIC))}
    found: Found = {
        "probabilities": Single(fitted.predict_proba(PUBLIC, **given)),
        "predictions": Exact(fitted.predict(PUBLIC, **given)),
    }
    if hasattr(fitted, "network_"):
        found |= {
            "parameters": parameters(fitted.network_),
            "threshold": Single(fitted.threshold_),
        }
    if fitted.rule_ is None:
        found["n_steps"] = fitted.n_steps_
    else:
        found["frontier"] = Single(fitted.frontier_.to_numpy())
    return found | statement(fitted)


def described_regressor(fitted: FairPrivateRegressor) -> Found:
    found = {
        "parameters": parameters(fitted.network_),
        "predictions": Single(fitted.predict(PUBLIC)),
    }
    if hasattr(fitted, "frontier_"):
        found["frontier"] = Single(fitted.frontier_.to_numpy())
    else:
        found["n_steps"] = fitted.n_steps_
    return found | bounds_of(fitted.target_bounds_) | statement(fitted)


def described_paths(fitted: PrivateTrajectorySampler) -> Found:
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


def described_distance(fitted: PrivateWassersteinDistance) -> Found:
    others = np.arange(80) % 3 if getattr(fitted.protocol_, "labeled", False) else None
    estimate = fitted.compare(OTHERS, others)
    found = {
        "squared distance": Single(estimate.squared_distance),
        "standard error": Single(estimate.squared_standard_error),
        "noise floor": Single(estimate.noise_floor),
        "interval": Single(estimate.interval()),
        "values": fitted.score_samples(OTHERS, others),
    }
    if hasattr(fitted, "sketch_"):
        found |= described_sketch(fitted.sketch_, "sketch: ")
        # The last digits of directions make other noise.
        if isinstance(fitted.protocol_.projections, np.ndarray):
            found["published"] = fitted.transform(OTHERS)
    return found


def described_contribution(fitted: ClientContribution) -> Found:
    table = fitted.contributions({"a": OTHERS, "b": PUBLIC})
    return {"clients": Exact(list(table.index)), "table": table.to_numpy(dtype=float)}


def described_scaler(fitted: PrivateScaler) -> Found:
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
    """Return the text of a schema, whose estimated bounds differ between processors at the end."""
    facts = json.loads(schema.to_json(), parse_float=lambda text: float(f"{float(text):.9g}"))
    return {"schema": Exact(json.dumps(facts, indent=2))}


def described_encoder(fitted: TableEncoder) -> Found:
    coded = fitted.transform(PEOPLE[:60])
    even = [column.replace(knots=None) for column in fitted.schema_ if column.on_scale]
    return (
        {
            "coded": np.asarray(coded, dtype=float),
            "decoded": Exact(fitted.inverse_transform(coded).to_csv(float_format="%.9g")),
        }
        | schema_of(fitted.schema_.replace(*even))
        | (statement(fitted) if fitted.schema is None else {})
    )


def described_table(fitted: DPTableSynthesizer) -> Found:
    marginals = (*fitted.model_.columns, *fitted.model_.marginals)
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


def described_search(fitted: PrivateSearchCV) -> Found:
    plan = fitted.plan_
    return {
        "best score": Single(fitted.best_score_),
        "best parameter": float(*fitted.best_params_.values()),
        "epsilon of a trial": plan.trial_epsilon,
        "deviation of a score": plan.score_deviation,
    } | statement(fitted)


def described_adapter(fitted: DPDomainAdapter) -> Found:
    return {
        "parameters": parameters(fitted.network_),
        "probabilities": Single(fitted.predict_proba(PUBLIC)),
        "moved rows": fitted.map_(PUBLIC),
    } | statement(fitted)


def described_moves(fitted: FairPrivateTransformer) -> Found:
    groups = np.resize(fitted.groups_, len(PUBLIC))
    return {"moved": fitted.transform(PUBLIC, sensitive_features=groups)} | statement(fitted)


DESCRIBED: dict[type, Callable[..., Found]] = {
    SlicedSketch: described_sketch,
    DPSlicedFlowSampler: described_rows,
    DPSlicedGenerator: described_rows,
    PrivateSWAutoencoder: described_autoencoder,
    DPDomainAdapter: described_adapter,
    FairPrivateClassifier: described_classifier,
    FairPrivatePostProcessor: described_classifier,
    FairPrivateRegressor: described_regressor,
    FairPrivateTransformer: described_moves,
    PrivateTrajectorySampler: described_paths,
    PrivateWassersteinDistance: described_distance,
    ClientContribution: described_contribution,
    PrivateScaler: described_scaler,
    TableEncoder: described_encoder,
    DPTableSynthesizer: described_table,
    PrivateSearchCV: described_search,
}


def described(fit: Fit, *more: Any, saved: bool = False, **options: Any) -> Found:
    """Fit, write to a file and read if told so, and return what came out."""
    fitted, names = fit.fitted(**(SEED | options)), {}
    if saved:
        with TemporaryDirectory() as folder:
            fitted.save(Path(folder) / "file")
            fitted = type(fitted).load(Path(folder) / "file")
    if saved and isinstance(fitted, SlicedSketch):
        listed = [*getattr(fitted, "classes_", []), *getattr(fitted, "feature_names_in_", [])]
        names = {"names": Exact([str(name) for name in listed])}
    return DESCRIBED[type(fitted)](fitted, *more) | names


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


GAMMA = DiscreteMeasure(SUPPORT)
seeded = np.random.default_rng


def request() -> SketchRequest:
    options = {"n_projections": 3, "projections": "axes+orthogonal", "rng": seeded(4)}
    return SketchRequest.draw(D, **options, **BINS, **BOX)


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


ON_THE_WIRE = """points masses t interpolation fractions squared_distances costs squared_distance
directions n_bins""".split()


def sent(message: Message) -> Found:
    """Return the public numbers and texts of a message that came over the wire."""
    arrived = Message.from_bytes(message.to_bytes())
    found = {name: getattr(arrived, name, None) for name in ON_THE_WIRE}
    found = {name: value for name, value in found.items() if value is not None}
    found["kind"] = Exact(type(arrived).__name__)
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


def table(rows: Any = PEOPLE, **options: Any) -> Fit:
    return case(DPTableSynthesizer(**({"n_particles": 200} | options)), rows)


def distance(protocol: str, y: Any = None, **options: Any) -> Fit:
    return case(private_distance(protocol, **options), X[:60], y=y)


NOISY = {"epsilon": 1.0, "delta": 1e-6}
TRIANGLE = {"gamma_scale": 0.5, "n_support": 30}
THREE = pd.DataFrame(X, columns=["one", "two", "three"])
GUESSED = PEOPLE.drop(columns="seen")
LEFT_OUT = SCHEMA.exclude("seen", "age")

# What is fitted for the record alone, how it is noised or described, and whether it is written.
MORE: dict[str, Callable[[], Found]] = {
    "sketch, epsilon 1": partial(described, sketch(**BOX), **NOISY),
    "sketch, no noise": partial(described, sketch(**BOX), epsilon=np.inf),
    "flow, epsilon 1": partial(described, flow("sketch", **BINS, **BOX), **NOISY),
    "flow, presample, epsilon 1": partial(described, flow("presample", **BOX), **NOISY),
    "flow, moments, epsilon 1": partial(described, flow("moments", **BOX), **NOISY),
    "flow, automatic": partial(described, ROWS["flow, automatic"], 3e-3),
    "file, sketch": partial(described, ROWS["sketch"], saved=True),
    "file, sketch of classes": partial(
        described, sketch(LABELS, THREE, conditional=True, **BOX), saved=True
    ),
    "table, epsilon 1": partial(described, table(schema=SCHEMA), epsilon=1.0),
    "table, no noise": partial(described, table(schema=SCHEMA), epsilon=np.inf),
    "file, table": partial(described, table(schema=SCHEMA, target="smokes"), saved=True),
    "file, table, nothing known": partial(described, table(GUESSED), saved=True),
}
FITS = {
    "sketch, norm bound": sketch(norm_bound=2.0),
    "sketch, orthogonal": sketch(projections="orthogonal", n_projections=6),
    "sketch, classes found": sketch(LABELS, conditional=True, **BOX),
    "sketch, groups": sketch(LABELS, **CLASSES, public_labels=True, group_size=2, **BOX),
    "flow, public classes": flow("sketch", LABELS, **BINS, **CLASSES, public_labels=True),
    "flow, step size": flow("sketch", **BINS, step_size=0.5),
    "generator, smoothing, poisson": generator("smoothing", sampling="poisson", **SOME),
    "autoencoder, not private": autoencoder(private=False, batch_size=30, **BOX),
    "classifier, mlp": classifier(module="mlp"),
    "distance, data": case(
        private_distance(n_projections=3, target="data", projections=np.eye(D), **BINS, **BOX)
    ),
    "distance, triangle": distance("triangle", **TRIANGLE),
    "distance, triangle, exact": distance("triangle", interpolation="exact", **TRIANGLE),
    "distance, triangle, secret": distance("triangle", disclose_t=False, **TRIANGLE),
    "distance, triangle, labels": distance("triangle", LABELS[:60], labeled=True, **TRIANGLE),
    "distance, fedwad": distance("fedwad", n_rounds=4, n_support=30),
    "distance, fedwad, fixed": distance("fedwad", n_rounds=4, draw_t=False),
    "encoder": case(TableEncoder(), PEOPLE),
    "encoder, all known": case(TableEncoder(SCHEMA), PEOPLE),
    "table": table(schema=SCHEMA),
    "table, target": table(schema=SCHEMA, target="smokes"),
    "table, nothing known": table(GUESSED),
    "table, nothing known, target": table(GUESSED, target="city"),
    "table, left out": table(schema=LEFT_OUT, target="city"),
    "table, array": table(PEOPLE[["age", "income"]].to_numpy()),
    "table, one column": table(PEOPLE[["city"]], schema=TableSchema([SCHEMA["city"]])),
    "search, poisson": search(distribution="poisson"),
}
NOT_RECORDED = (
    "sketch, box", "search, classifier", "search, sampler, accuracy",
    "autoencoder, prior, sketch", "autoencoder, parity, sketch",
    "adapter, batches", "adapter, sketch", "adapter, ranks",
)  # fmt: skip
FITS |= {n: fit for n, fit in (ROWS | SEARCHES).items() if n not in NOT_RECORDED}
CASES: dict[str, Callable[[], Found]] = {
    "datasets": datasets,
    "directions": directions,
    "sketch, stream and merge": streamed,
    "parties, sliced": lambda: pairwise(pairwise_sliced(parties(), request())),
    "parties, triangle": lambda: pairwise(pairwise_triangle(parties(), reference=GAMMA, t=0.3)),
    "parties, fedwad": lambda: pairwise(pairwise_fedwad(parties(), n_rounds=3, rng=seeded(4))),
    "parties, secret fraction": lambda: played(
        triangle(*parties()[:2], t=0.4, disclose_t=False, reference=GAMMA)
    ),
    "parties, union": union,
    "parties, values": valued,
    "messages": messages,
    **{name: partial(described, fit) for name, fit in FITS.items()},
    **MORE,
}
