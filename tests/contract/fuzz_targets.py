"""What is fuzzed: each estimator with each mechanism, small enough to be fitted in milliseconds."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
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

__all__ = [
    "DRAWINGS",
    "PURSE",
    "READINGS",
    "TARGETS",
    "Target",
    "contribution",
    "fitted",
    "good_fit",
]

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


def check_contribution(contribution: Any, n_rows: int) -> None:
    assert contribution.privacy_spent_ is contribution.estimator_.privacy_spent_


def public_rows(estimator: Any) -> Any:
    """Return four rows with the columns that the estimator was fitted on."""
    rows = np.linspace(-1, 1, 4 * estimator.n_features_in_).reshape(4, -1)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return rows
    return pd.DataFrame(rows, columns=names)


@dataclass(frozen=True)
class Target:
    """An estimator, how it is made small, and what holds of it once it is fitted.

    Attributes
    ----------
    make : type
        The estimator.
    small : dict
        Parameters that make fits short.
    variants : dict
        Usable values of some parameters.
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
    variants: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    second: str = "labels"
    options: tuple[str, ...] = ()
    private: bool = True

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
        """Return the mechanism or protocol, where one is chosen."""
        return {name: self.small[name] for name in ("mechanism", "protocol") if name in self.small}


BOX = {"bounds": (-1, 1)}
SIZES = {"n_projections": 3, "n_bins": 8}
PRIVACY = {
    "epsilon": (1.0, 0.1, 50.0, np.float64(1), 2, float("inf")),
    "delta": (1e-5, 1e-9, 0.5),
    "bounds": ("private", (-1, 1), (0, 20_000), [-1e9, 1e9], (-1e-9, 1e-9), (-1e300, 1e300)),
    "norm_bound": (None, 1.0, 1e-20, 1e20),
    "random_state": (None, 0, np.random.RandomState(0)),
    "device": ("auto", "cpu", "cuda"),
}
SHAPES = {
    **PRIVACY,
    "n_projections": ("auto", 1, 3, 7, np.int64(2)),
    "n_bins": ("auto", 2, 16),
    "projections": ("axes+orthogonal", "orthogonal", "uniform", np.eye(2), [[1.0], [2.0]]),
}
CLASSES = {
    **SHAPES,
    "conditional": (True, True, False, np.bool_(True)),
    "classes": (None, ["a", "b"], [0, 1], [0, 1, 2], np.array(["a", "b", "c"])),
    "public_labels": (False, True),
    "group_size": (1, 1, 2),
}
FLOW = {
    **PRIVACY,
    "conditional": CLASSES["conditional"],
    "n_particles": (None, 1, 20),
    "n_steps": (1, 2, 5),
    "step_size": ("auto", 1.0, 0.01),
    "diffusion": (0.0, 0.1, 1e6),
    "verbose": (0, 1, True),
}
ROWS = {
    "projections": ("orthogonal", "uniform"),
    "sigma": (None, 0.0, 1.0, 1e-20, 1e20),
    "noise": ("discrete", "float"),
}
BATCHES = ROWS | {
    "n_projections": (1, 3, 7, np.int64(2)),
    "batch_size": (250, 1, 3),
    "sampling": ("without_replacement", "poisson"),
}
SUBSLICES = {"n_projections_per_step": (None, 1, 2, 100)}


def of_mechanism(variants: dict[str, Any]) -> dict[str, Any]:
    """Name the parameters of a mechanism as those of its estimator."""
    return {f"mechanism__{name}": values for name, values in variants.items()}


LABELLED = {name: CLASSES[name] for name in ("classes", "public_labels", "group_size")}
OF_SKETCH = {name: CLASSES[name] for name in ("n_projections", "n_bins", "projections")}
MECHANISMS = {
    "sketch": of_mechanism(OF_SKETCH | LABELLED | SUBSLICES),
    "resample": of_mechanism(BATCHES),
    "presample": of_mechanism(ROWS | {"n_projections": CLASSES["n_projections"]} | SUBSLICES),
}
GENERATOR = {
    **PRIVACY,
    "conditional": CLASSES["conditional"],
    "n_steps": (1, 2, 3),
    "learning_rate": (5e-3, 1e-300, 10.0, 1e300),
    "module": (None, LatentNetwork(latent_dim=1), LatentNetwork(latent_dim=3)),
    "verbose": (0, 1),
}
GRADIENT = {
    "n_projections": CLASSES["n_projections"],
    "n_latents": (None, 2, 20),
    "clip_jacobian": (1.0, 1e-20, 1e20, 1e-300, 1e300),
    **{name: BATCHES[name] for name in ("batch_size", "projections", "sigma")},
}
MECHANISMS |= {"smoothing": MECHANISMS["resample"], "gradient": of_mechanism(GRADIENT)}


def held(
    kind: type, small: dict[str, Any], variants: dict[str, tuple[Any, ...]]
) -> tuple[Any, ...]:
    """Return objects that a parameter holds: each value of each of their own parameters once."""
    return tuple(
        kind(**(small | {name: value})) for name, values in variants.items() for value in values
    )


RATES = ("auto", 1e-300, 10.0, 1e300)
LENGTHS = (1.0, 1e-20, 1e20, 1e-300, 1e300)
PENALTY = {"alpha": (0.0, 0.1, 0.999), "n_projections": (1, 3), "clip_jacobian": LENGTHS}
SHORT = {"n_steps": 2}
AUTOENCODER = {
    **PRIVACY,
    "latent_dim": (1, 2, 5),
    "architecture": (
        *("mlp", "conv", "dcgan"),
        *held(Architecture, {}, {"normalize_codes": (False,)}),
        *(
            Architecture(name, image_shape=shape)
            for name in ("mlp", "conv", "dcgan")
            for shape in ((1, 1), (2, 2), (1, 2, 2), (3, 1), [2, 1])
        ),
    ),
    "mechanism": held(
        DPSGD,
        SHORT,
        {
            "n_steps": (1, 2),
            "batch_size": (250, 1, 3),
            "clip": LENGTHS,
            "learning_rate": RATES,
            "sampling": ("auto", "poisson", "without_replacement"),
            "sigma": (None, 0.0, 1.0, 1e-20, 1e20, 1e300),
        },
    ),
    "verbose": (0, 1),
}
PENALTIES = {
    "prior": {"penalty": held(PriorPenalty, {"n_projections": 2}, PENALTY)},
    "parity": {
        "penalty": held(
            CodeParity, {"n_projections": 2}, PENALTY | {"clip_output": (2.0, 1e-20, 1e20, 1e300)}
        )
    },
}
FAIR = {
    **{name: PRIVACY[name] for name in ("epsilon", "delta", "random_state", "device")},
    "alpha": (0.0, 0.5, 0.999),
    "verbose": (0, 1),
}
GRADIENTS = {
    "n_steps": (1, 2, 3),
    "learning_rate": RATES,
    "batch_fraction": (1.0, 0.5, 0.01, 1e-300),
    "clip_loss": (2.0, 1e-20, 1e20),
    "clip_output": (None, 1.0, 1e-20, 1e20),
    "n_projections": (1, 3),
}
WHOLE = SHORT | {"n_projections": 2, "batch_fraction": 1.0}
FAIR_MECHANISM = {
    "sketch": held(
        SketchedOutputs, WHOLE | {"n_releases": 1}, GRADIENTS | {"n_releases": (1, 2, 20)}
    ),
    "ranks": held(RankedOutputs, WHOLE, GRADIENTS | {"clip_jacobian": (0.25, 1e-20, 1e20)}),
}
CLASSIFIER = {
    **FAIR,
    "fairness": ("demographic_parity", "equalized_odds"),
    "module": ("linear", "mlp"),
    "tune_threshold": (False, True),
    "classes": CLASSES["classes"],
}
REGRESSOR = {
    **FAIR,
    "module": ("linear", "mlp"),
    "target_bounds": ("private", (-1, 1), (0, 20_000), (-1e300, 1e300), (0, 5e-324)),
}


def of_mechanism(variants: dict[str, Any], chosen_by: str = "mechanism") -> dict[str, Any]:
    """Name the parameters of a mechanism as those of its estimator."""
    return {f"{chosen_by}__{name}": values for name, values in variants.items()}


STEPS = {
    "regularization": (0.01, 0.0, 1e-4, 1e-300, 1e300),
    "smooth": (True, False),
    "schedule": (
        None,
        [(0.5, None, 2)],
        [(0.001, 0.1, 1), (0.01, None, 1)],
        [(1, 1, 1)],
        [],
        [[1]],
    ),
}
TRAJECTORY = {
    **{name: PRIVACY[name] for name in PRIVACY if name != "device"},
    "n_times": (None, 1, 2, 50),
    "n_time_subsample": (None, 2, 3),
    "group_size": (1, 1, 2),
    "n_particles": (1, 5),
    "diffusivity": (0.05, 1e-20, 1e20, 1e-300, 1e300),
    "coupling": ("entropic", "exact"),
    "verbose": (0, 1),
}
TIMED_SKETCH = {
    **STEPS,
    "device": PRIVACY["device"],
    **{name: SHAPES[name] for name in ("n_projections", "n_bins", "projections")},
}
LANGEVIN = {
    **STEPS,
    "warm_start": (None, "mean", "kmeans"),
    "warm_start_share": (0.2, 1e-9, 0.999),
    "n_clusters": (1, 3, 50),
    "sampling_rate": (1.0, 0.5, 1e-6),
    "clip": (None, 1.0, 1e-20, 1e20, 1e300),
    "bandwidth": (0.1, 1e-6, 1e6),
    "noise_multiplier": (None, 0.0, 1.0, [1.0], [1.0, 2.0], 1e300, 1e-300),
}
DISTANCE = {
    "n_bins": (2, 8),
    "n_projections": SHAPES["n_projections"],
    "projections": SHAPES["projections"],
    "target": ("population", "data"),
    "shared_seed": (0, 5),
}
PLAIN_DISTANCE = {
    "t": (0.5, 1e-9, 1 - 1e-9, 5e-324),
    "gamma_scale": (1.0, 0.0, 1e-300, 1e300),
    "gamma_mean": (0.0, 1e300, -5.0),
    "n_support": (None, 1, 3, 30),
    "interpolation": ("barycentric", "exact"),
    "labeled": (False, True),
}
PLAIN = {
    "triangle": (Triangle(), {"disclose_t": (True, False)}),
    "fedwad": (FedWad(n_rounds=2), {"draw_t": (True, False), "n_rounds": (1, 3)}),
}

TWO_NUMBERS = TableSchema(
    [NumericColumn("x0", lower=-1, upper=1), NumericColumn("x1", missing=True)]
)
TABLES = {
    **{name: PRIVACY[name] for name in ("epsilon", "delta", "random_state")},
    "schema": (
        *(None, TWO_NUMBERS, TWO_NUMBERS.to_json(), "{}", TableSchema.from_json),
        TableSchema([CategoricalColumn("x0", other="rest"), NumericColumn("x1", log_scale=True)]),
    ),
}

TARGETS: dict[str, Target] = {
    "SlicedSketch": Target(SlicedSketch, BOX | SIZES, check_sketch, CLASSES),
    "SlicedSketch conditional": Target(
        SlicedSketch,
        BOX | SIZES | {"conditional": True, "classes": ["a", "b"]},
        check_sketch,
        SHAPES,
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
            FLOW | MECHANISMS[mechanism],
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
            GENERATOR | MECHANISMS[mechanism],
        )
        for mechanism in ("sketch", "smoothing", "gradient")
    },
    **{
        f"PrivateSWAutoencoder {name}": Target(
            PrivateSWAutoencoder,
            {"latent_dim": 2, "mechanism": DPSGD(2), **BOX, **mode},
            check_autoencoder,
            AUTOENCODER | PENALTIES.get(name, {}),
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
        f"FairPrivateClassifier {gradient}": Target(
            FairPrivateClassifier,
            # Without noise by default: an account of sampled steps takes a second.
            {"mechanism": FAIR_MECHANISM[gradient][0], "epsilon": float("inf")},
            check_predictor,
            CLASSIFIER | {"mechanism": FAIR_MECHANISM[gradient]},
            options=("sensitive_features", "sample_weight"),
        )
        for gradient in ("sketch", "ranks")
    },
    **{
        f"FairPrivateRegressor {gradient}": Target(
            FairPrivateRegressor,
            {"mechanism": FAIR_MECHANISM[gradient][0], "epsilon": float("inf")},
            check_predictor,
            REGRESSOR | {"mechanism": FAIR_MECHANISM[gradient]},
            second="targets",
            options=("sensitive_features", "sample_weight"),
        )
        for gradient in ("sketch", "ranks")
    },
    "PrivateWassersteinDistance sliced": Target(
        PrivateWassersteinDistance,
        BOX | {"protocol": Sliced(**SIZES)},
        check_distance,
        PRIVACY | of_mechanism(DISTANCE, "protocol"),
        options=("masses",),
    ),
    **{
        f"PrivateWassersteinDistance {protocol}": Target(
            PrivateWassersteinDistance,
            {"protocol": chosen},
            check_distance,
            of_mechanism(PLAIN_DISTANCE | variants, "protocol"),
            options=("masses",),
        )
        for protocol, (chosen, variants) in PLAIN.items()
    },
    "PrivateTrajectorySampler sketch": Target(
        PrivateTrajectorySampler,
        {
            "mechanism": TrajectorySketch(schedule=[(0.5, None, 2)], **SIZES),
            "n_particles": 5,
            **BOX,
        },
        check_trajectories,
        TRAJECTORY | of_mechanism(TIMED_SKETCH),
        second="times",
        options=("groups", "t"),
    ),
    "PrivateTrajectorySampler mfld": Target(
        PrivateTrajectorySampler,
        {
            "mechanism": MeanFieldLangevin(schedule=[(0.0005, None, 2)]),
            "n_particles": 5,
            **BOX,
        },
        check_trajectories,
        TRAJECTORY | of_mechanism(LANGEVIN),
        second="times",
        options=("groups", "t"),
    ),
    "PrivateScaler": Target(
        PrivateScaler,
        {},
        check_scaler,
        {
            **{name: PRIVACY[name] for name in ("epsilon", "delta", "random_state")},
            "with_centering": (True, False),
            "with_scaling": (True, False),
        },
    ),
    "DPTableSynthesizer": Target(
        DPTableSynthesizer,
        {"n_particles": 100},
        check_synthesizer,
        TABLES | {
            "target": (None, "x0", "x1", "a", ""),
            "n_particles": (None, 100, 3000),
            "verbose": (0, 1),
        },
    ),
    "TableEncoder": Target(TableEncoder, {}, check_encoder, TABLES),
}  # fmt: skip


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
    mechanism = target.small.get("mechanism")
    rows_only = mechanism in ("smoothing", "gradient") or hasattr(mechanism, "sigma")
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
