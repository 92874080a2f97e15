"""What is fuzzed: each estimator with each mechanism, small enough to be fitted in milliseconds."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from skdpot import (
    ClientContribution,
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateScaler,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot._utils.validation import Interval, StrOptions
from skdpot.mechanisms import (
    DPSGD,
    Architecture,
    CodeParity,
    FedWad,
    LatentNetwork,
    MeanFieldLangevin,
    PriorPenalty,
    RankedOutputs,
    SketchedOutputs,
    Sliced,
    TrajectorySketch,
    Triangle,
)
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableEncoder, TableSchema
from tests.contract.fuzz_harness import Purse, is_finite
from tests.flat_options import private_distance

PURSE = Purse()


def finite(*values: Any) -> None:
    """Check that everything is a number."""
    for value in values:
        assert is_finite(value)


def check_sketch(sketch: Any, n_rows: int) -> None:
    assert sketch.n_samples_ == n_rows
    finite(sketch.cdf_, sketch.class_counts_, sketch.quantiles([0.1, 0.9]), sketch.cdf([0.0]))
    assert sketch.cdf_.min() >= 0
    assert sketch.cdf_.max() <= 1


def check_rows_source(source: Any, n_rows: int) -> None:
    assert source.n_samples_ == n_rows
    drawn = source.sample(3, random_state=0)
    assert np.shape(drawn) == (3, source.n_features_in_)
    finite(drawn)
    if hasattr(source, "classes_"):
        assert np.isin(source.sample_labeled(3, random_state=0)[1], source.classes_).all()


def check_autoencoder(autoencoder: Any, n_rows: int) -> None:
    width = autoencoder.n_features_in_
    assert np.shape(autoencoder.sample(3)) == (3, width)
    codes = autoencoder.transform(public_rows(autoencoder))
    assert codes.shape == (4, autoencoder._n_features_out)
    finite(codes, autoencoder.sample(3), autoencoder.inverse_transform(np.asarray(codes)))


def check_predictor(predictor: Any, n_rows: int) -> None:
    predicted = predictor.predict(public_rows(predictor))
    assert len(predicted) == 4
    if hasattr(predictor, "classes_"):
        assert np.isin(predicted, predictor.classes_).all()
        shares = predictor.predict_proba(public_rows(predictor))
        finite(shares)
        assert np.allclose(shares.sum(axis=1), 1)
    else:
        finite(predicted)


def check_distance(distance: Any, n_rows: int) -> None:
    assert distance.n_samples_ == n_rows
    if distance.protocol_.is_private:
        assert 0 <= distance.distance(public_rows(distance)) < np.inf


def check_trajectories(sampler: Any, n_rows: int) -> None:
    paths = sampler.sample(3)
    assert paths.shape == (3, len(sampler.times_), sampler.n_features_in_)
    finite(paths, sampler.particles_, sampler.sample_marginal(sampler.times_[-1], 2))


def check_scaler(scaler: Any, n_rows: int) -> None:
    for found in (scaler.center_, scaler.scale_):
        finite([0.0] if found is None else found)
    assert scaler.scale_ is None or (scaler.scale_ > 0).all()


def check_synthesizer(synthesizer: Any, n_rows: int) -> None:
    assert synthesizer.n_samples_ == n_rows
    drawn = synthesizer.sample(3, random_state=0)
    assert drawn.shape == (3, len(synthesizer.schema_))
    assert synthesizer.schema_.is_resolved
    finite(*(noisy.counts for noisy in synthesizer.marginals_))


def check_encoder(encoder: Any, n_rows: int) -> None:
    assert encoder.schema_.is_resolved
    assert len(encoder.get_feature_names_out()) == encoder.transform(encoder_rows(encoder)).shape[1]


def encoder_rows(encoder: Any) -> Any:
    """Decode some points of the ball, to have rows that the encoder can read."""
    return encoder.inverse_transform(np.zeros((4, len(encoder.get_feature_names_out()))))


def public_rows(estimator: Any) -> Any:
    """Return four rows with the columns that the estimator was fitted on."""
    rows = np.linspace(-1, 1, 4 * estimator.n_features_in_).reshape(4, -1)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return rows
    return pd.DataFrame(rows, columns=names)


@dataclass
class Target:
    """An estimator, how it is made small, and what holds of it once it is fitted.

    Attributes
    ----------
    make : type
        The estimator.
    small : dict
        Parameters that make fits short.
    fixed : tuple of str
        Parameters that stay as they are in `small`.
    second : {"labels", "times", "targets"}
        What the second argument of `fit` holds.
    options : tuple of str
        Further columns that `fit` takes: "sensitive_features", "masses", "groups", "t".
    check : callable
        Takes a fitted estimator and the number of rows.
    private : bool
        Whether what it is fitted on is protected.
    """

    make: Callable[..., Any]
    small: dict[str, Any]
    check: Callable[[Any, int], None]
    second: str = "labels"
    options: tuple[str, ...] = ()
    private: bool = True
    fixed: tuple[str, ...] = ()

    @cached_property
    def variants(self) -> dict[str, tuple[Any, ...]]:
        """Usable values of parameters, as their constraints have it."""
        made = self.make(**self._inner()).get_params()
        found = {}
        for name in made.keys() - set(OBJECTS) - set(self.fixed):
            holder, _, own = name.rpartition("__")
            declared = (type(made[holder]) if holder else self.make)._parameter_constraints[own]
            values = (value for one in declared for value in usable(own, one))
            found[name] = (*values, *MORE.get(own, ()))
        return {name: values for name, values in found.items() if values}

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that may be spoilt, those of the mechanism too."""
        return sorted(self.make(**self._inner()).get_params())

    def fresh(self) -> dict[str, Any]:
        """Return the parameters that make fits short, with a mechanism of its own."""
        inner = {name: clone(value, safe=False) for name, value in self._inner().items()}
        return self.small | inner

    def made(self, **parameters: Any) -> Any:
        """Make the estimator; ``mechanism__`` leads to the parameters of its mechanism."""
        inner = {name: value for name, value in parameters.items() if "__" in name}
        own = {name: value for name, value in parameters.items() if name not in inner}
        return self.make(**own).set_params(**inner)

    def _inner(self) -> dict[str, Any]:
        """Return the mechanism, protocol or penalty, where one is chosen."""
        return {name: self.small[name] for name in OBJECTS if name in self.small}


OBJECTS = ("mechanism", "protocol", "penalty")
BOX = {"bounds": (-1, 1)}
SIZES = {"n_projections": 3, "n_bins": 8}
TWO_NUMBERS = TableSchema(
    [NumericColumn("x0", lower=-1, upper=1), NumericColumn("x1", missing=True)]
)
SHAPES = ((1, 1), (2, 2), (1, 2, 2), (3, 1), [2, 1])
NETWORKS = ("mlp", "conv", "dcgan")
REALS = (
    *(0.0, 5e-324, 1e-300, 1e-20, 1e-9, 1e-6, 0.01, 0.1, 0.1, 0.5, 0.5, 0.999, 1 - 1e-9),
    *(1.0, 1.0, np.float64(1), 2, 2.0, 10.0, 50.0, 1e6, 1e20, 1e300, float("inf"), -5.0),
)
# Usable values that a constraint does not tell, by the name of the parameter.
MORE = {
    "bounds": ((-1, 1), (0, 20_000), [-1e9, 1e9], (-1e-9, 1e-9), (-1e300, 1e300)),
    "target_bounds": ("private", (-1, 1), (0, 20_000), (-1e300, 1e300), (0, 5e-324)),
    "projections": (np.eye(2), [[1.0], [2.0]]),
    "classes": (["a", "b"], [0, 1], [0, 1, 2], np.array(["a", "b", "c"])),
    "schedule": ([(0.5, None, 2)], [(0.001, 0.1, 1), (0.01, None, 1)], [(1, 1, 1)], [], [[1]]),
    "noise_multiplier": ([1.0], [1.0, 2.0]),
    "module": (LatentNetwork(latent_dim=1), LatentNetwork(latent_dim=3)),
    "architecture": (
        *(Architecture(name, image_shape=shape) for name in NETWORKS for shape in SHAPES),
        Architecture(normalize_codes=False),
    ),
    "schema": (
        *(TWO_NUMBERS, TWO_NUMBERS.to_json(), "{}", TableSchema.from_json),
        TableSchema([CategoricalColumn("x0", other="rest"), NumericColumn("x1", log_scale=True)]),
    ),
    "target": ("x0", "x1", "a", ""),
}
NEVER_NONE = ("n_steps", "n_particles")  # that would be many
NAMED = {
    "boolean": (False, True, np.bool_(True)),
    "random_state": (None, 0, np.random.RandomState(0)),
    "verbose": (0, 1, True),
    None: (None,),
}


def usable(name: str, constraint: Any) -> tuple[Any, ...]:
    """Return values of a parameter that a constraint admits, small ones of what costs time."""
    if isinstance(constraint, StrOptions):
        return tuple(sorted(constraint.options))
    if isinstance(constraint, Interval) and constraint.type is Integral:
        least = int(constraint.left)
        return least, least, least + 1, np.int64(least + 2), least + 4
    if isinstance(constraint, Interval):
        return tuple(filter(constraint.is_satisfied_by, REALS))
    if constraint is None and name in NEVER_NONE:
        return ()
    return NAMED.get(constraint, ()) if isinstance(constraint, str | None) else ()


TARGETS: dict[str, Target] = {
    "SlicedSketch": Target(SlicedSketch, BOX | SIZES, check_sketch),
    "SlicedSketch conditional": Target(
        SlicedSketch,
        BOX | SIZES | {"conditional": True, "classes": ["a", "b"]},
        check_sketch,
        fixed=("conditional", "classes", "public_labels", "group_size"),
    ),
    **{
        f"DPSlicedFlowSampler {mechanism}": Target(
            DPSlicedFlowSampler,
            {
                "mechanism": DPSlicedFlowSampler._mechanisms[mechanism](n_projections=3),
                "n_steps": 2,
                "n_particles": 20,
                **BOX,
            },
            check_rows_source,
        )
        for mechanism in ("sketch", "resample", "presample")
    },
    **{
        f"DPSlicedGenerator {mechanism}": Target(
            DPSlicedGenerator,
            {
                "mechanism": DPSlicedGenerator._mechanisms[mechanism](n_projections=3),
                "n_steps": 2,
                **BOX,
            },
            check_rows_source,
        )
        for mechanism in ("sketch", "smoothing", "gradient")
    },
    **{
        f"PrivateSWAutoencoder {name}": Target(
            PrivateSWAutoencoder,
            {"latent_dim": 2, "mechanism": DPSGD(2), **BOX, **mode},
            check_autoencoder,
            options=("sensitive_features",),
            private=mode.get("private", True),
        )
        for name, mode in {
            "plain": {},
            "prior": {"penalty": PriorPenalty(n_projections=2)},
            "parity": {"penalty": CodeParity(n_projections=2)},
            "public": {"private": False},
        }.items()
    },
    **{
        f"{kind.__name__} {name}": Target(
            kind,
            # Without noise by default: an account of sampled steps takes a second.
            {"mechanism": mechanism, "epsilon": float("inf")},
            check_predictor,
            second=second,
            options=("sensitive_features", "sample_weight"),
        )
        for kind, second in ((FairPrivateClassifier, "labels"), (FairPrivateRegressor, "targets"))
        for name, mechanism in {
            "sketch": SketchedOutputs(2, n_projections=2, batch_fraction=1.0, n_releases=1),
            "ranks": RankedOutputs(2, n_projections=2, batch_fraction=1.0),
        }.items()
    },
    **{
        f"PrivateWassersteinDistance {name}": Target(
            PrivateWassersteinDistance,
            BOX | {"protocol": protocol},
            check_distance,
            options=("masses",),
        )
        for name, protocol in {
            "sliced": Sliced(**SIZES),
            "triangle": Triangle(),
            "fedwad": FedWad(n_rounds=2),
        }.items()
    },
    **{
        f"PrivateTrajectorySampler {name}": Target(
            PrivateTrajectorySampler,
            {"mechanism": mechanism, "n_particles": 5, **BOX},
            check_trajectories,
            second="times",
            options=("groups", "t"),
        )
        for name, mechanism in {
            "sketch": TrajectorySketch(schedule=[(0.5, None, 2)], **SIZES),
            "mfld": MeanFieldLangevin(schedule=[(0.0005, None, 2)]),
        }.items()
    },
    "PrivateScaler": Target(PrivateScaler, {}, check_scaler),
    "DPTableSynthesizer": Target(DPTableSynthesizer, {"n_particles": 100}, check_synthesizer),
    "TableEncoder": Target(TableEncoder, {}, check_encoder),
}


@cache
def fitted(name: str) -> Any:
    """Return a fitted estimator, for calls that must not change it."""
    return good_fit(name)


def good_fit(name: str) -> Any:
    """Fit an estimator on two plain columns; with classes where it knows some."""
    target = TARGETS[name]
    n = 24
    X = np.random.default_rng(1).uniform(-1, 1, (n, 2))
    options: dict[str, Any] = {}
    if "sensitive_features" in target.options:
        options["sensitive_features"] = np.arange(n) % 2
    y: Any = {"labels": np.arange(n) % 2, "times": np.arange(n) % 3 * 0.5, "targets": X[:, 0]}[
        target.second
    ]
    if "classes" in target.small:
        y = np.array(target.small["classes"])[y]
    rows_only = hasattr(target.small.get("mechanism"), "sigma")
    more = {"conditional": True} if "conditional" in target.variants and not rows_only else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = target.made(**target.fresh(), **more, **purse(target))
        return estimator.fit(X, y, **options)


def purse(target: Target) -> dict[str, Any]:
    """Return a budget for estimators that take one."""
    return {"budget": PURSE.budget()} if "budget" in target.make._parameter_constraints else {}


@cache
def contribution() -> Any:
    """Return a fitted `ClientContribution`."""
    rows = np.random.default_rng(2).uniform(-1, 1, (24, 2))
    private = private_distance(n_projections=2, n_bins=4, epsilon=50.0, bounds=(-1, 1))
    return ClientContribution(private).fit(rows)


# Methods that take rows, by the target that they are tried on: (name, charges on success).
READINGS: dict[str, tuple[tuple[str, int], ...]] = {
    "SlicedSketch": (("distance", 0),),
    "DPSlicedFlowSampler sketch": (("score", 0),),
    "DPSlicedFlowSampler resample": (("score", 0),),
    "DPSlicedFlowSampler presample": (("score", 0),),
    "DPSlicedGenerator sketch": (("score", 0),),
    "DPSlicedGenerator gradient": (("score", 0),),
    "PrivateSWAutoencoder plain": (("transform", 0), ("inverse_transform", 0), ("score", 0)),
    "FairPrivateClassifier sketch": (
        *(("predict", 0), ("predict_proba", 0), ("decision_function", 0)),
        *(("score", 0),),
    ),
    "FairPrivateRegressor sketch": (("predict", 0), ("score", 0)),
    "PrivateWassersteinDistance sliced": (
        *(("distance", 0), ("compare", 0), ("score", 0), ("score_samples", 0)),
        *(("transform", 1), ("publish", 1)),
    ),
    "PrivateWassersteinDistance triangle": (
        *(("distance", 0), ("compare", 0), ("score", 0), ("score_samples", 0)),
        *(("transform", 0), ("publish", 0)),
    ),
    "PrivateWassersteinDistance fedwad": (("distance", 0), ("score", 0), ("score_samples", 0)),
    "PrivateTrajectorySampler sketch": (("score", 0),),
    "PrivateTrajectorySampler mfld": (("score", 0),),
    "PrivateScaler": (("transform", 0), ("inverse_transform", 0)),
    "DPTableSynthesizer": (("score", 0),),
    "TableEncoder": (("transform", 0), ("inverse_transform", 0)),
}

# Methods that draw rows.
DRAWINGS: dict[str, tuple[str, ...]] = {
    "DPSlicedFlowSampler sketch": ("sample", "sample_labeled"),
    "DPSlicedFlowSampler presample": ("sample", "sample_labeled"),
    "DPSlicedGenerator sketch": ("sample", "sample_labeled"),
    "PrivateSWAutoencoder plain": ("sample",),
    "PrivateTrajectorySampler sketch": ("sample", "sample_frame", "sample_marginal"),
    "DPTableSynthesizer": ("sample",),
}
