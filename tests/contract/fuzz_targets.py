"""What is fuzzed: each estimator with each mechanism, small enough to be fitted in milliseconds."""

import inspect
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone, is_regressor

from skdpot import (
    ClientContribution,
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot._utils.parameters import Interval, StrOptions
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
from tests.contract.fuzz_harness import is_finite

# Usable values that a constraint does not tell, by the name of the parameter.
TWO_NUMBERS = TableSchema(
    [NumericColumn("x0", lower=-1, upper=1), NumericColumn("x1", missing=True)]
)
SHAPES = ((1, 1), (2, 2), (1, 2, 2), (3, 1), [2, 1])
MORE = {
    "bounds": ((-1, 1), (0, 20_000), [-1e9, 1e9], (-1e-9, 1e-9), (-1e300, 1e300)),
    "target_bounds": ("private", (-1, 1), (0, 20_000), (-1e300, 1e300), (0, 5e-324)),
    "projections": (np.eye(2), [[1.0], [2.0]]),
    "classes": (["a", "b"], [0, 1], [0, 1, 2], np.array(["a", "b", "c"])),
    "schedule": ([(0.5, None, 2)], [(0.001, 0.1, 1), (0.01, None, 1)], [(1, 1, 1)], [], [[1]]),
    "noise_multiplier": ([1.0], [1.0, 2.0]),
    "module": (LatentNetwork(latent_dim=1), LatentNetwork(latent_dim=3)),
    "architecture": (
        *(Architecture(a, image_shape=b) for a in ("mlp", "conv", "dcgan") for b in SHAPES),
        Architecture(normalize_codes=False),
    ),
    "schema": (
        *(TWO_NUMBERS, TWO_NUMBERS.to_json(), "{}", TableSchema.from_json),
        TableSchema([CategoricalColumn("x0", other="rest"), NumericColumn("x1", log_scale=True)]),
    ),
    "target": ("x0", "x1", "a", ""),
}
REALS = (
    *(0.0, 5e-324, 1e-300, 1e-20, 1e-9, 1e-6, 0.01, 0.1, 0.1, 0.5, 0.5, 0.999, 1 - 1e-9),
    *(1.0, 1.0, np.float64(1), 2, 2.0, 10.0, 50.0, 1e6, 1e20, 1e300, float("inf"), -5.0),
)
NEVER_NONE = ("n_steps", "n_particles")  # that would be many
NAMED = {
    "boolean": (False, True, np.bool_(True)),
    "random_state": (None, 0, np.random.RandomState(0)),
    "verbose": (0, 1, True),
    None: (None,),
}
OBJECTS = ("mechanism", "protocol", "penalty")


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


@dataclass(frozen=True)
class Target:
    """An estimator that is made small, and parameters that stay as they are."""

    small: BaseEstimator
    fixed: tuple[str, ...] = ()

    @property
    def kind(self) -> type[Any]:
        """Class of the estimator."""
        return type(self.small)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Parameters, with those of the mechanism, protocol or penalty."""
        return dict(sorted(self.small.get_params().items()))

    @cached_property
    def variants(self) -> dict[str, tuple[Any, ...]]:
        """Usable values of parameters, as their constraints have it."""
        found = {}
        for name in self.parameters.keys() - set(OBJECTS) - set(self.fixed):
            holder, _, own = name.rpartition("__")
            owner = self.parameters[holder] if holder else self.small
            declared = owner._parameter_constraints[own]
            values = (value for one in declared for value in usable(own, one))
            found[name] = (*values, *MORE.get(own, ()))
        return {name: values for name, values in found.items() if values}

    @property
    def options(self) -> list[str]:
        """Further columns that `fit` takes."""
        given = inspect.signature(self.kind.fit).parameters
        return ["sample_weight" if p.kind is p.VAR_KEYWORD else n for n, p in given.items()][3:]

    @property
    def second(self) -> str:
        """What the second argument of `fit` holds."""
        if "t" in self.options:
            return "times"
        return "targets" if is_regressor(self.small) else "labels"


_budget: list[PrivacyBudget] = []


def purse() -> PrivacyBudget:
    """Return a budget without a cap, another one before it has many charges or has spent 113."""
    if not _budget or len(_budget[0].history()) > 30 or _budget[0].epsilon_spent() > 60:
        _budget[:] = [PrivacyBudget(float("inf"))]
    return _budget[0]


def made_small(mechanism: type[Any]) -> Any:
    """Return a mechanism along few directions, where it has directions."""
    few = {"n_projections": 3}
    return mechanism(**few) if "n_projections" in mechanism().get_params() else mechanism()


BOX = {"bounds": (-1, 1)}
SKETCH = BOX | {"n_projections": 3, "n_bins": 8}
QUICK = BOX | {"n_steps": 2}
CODES = BOX | {"latent_dim": 2, "mechanism": DPSGD(2)}
PATHS = BOX | {"n_particles": 5}
OF_CLASSES = ("conditional", "classes", "public_labels", "group_size")
FAIR = {"n_projections": 2, "batch_fraction": 1.0}
TARGETS = {
    "SlicedSketch": Target(SlicedSketch(**SKETCH)),
    "SlicedSketch conditional": Target(
        SlicedSketch(**SKETCH, conditional=True, classes=["a", "b"]), OF_CLASSES
    ),
} | {
    f"{type(small).__name__} {name}".strip(): Target(small)
    for name, small in (
        *(
            (name, kind(made_small(of), **QUICK | more))
            for kind, more in ((DPSlicedFlowSampler, {"n_particles": 20}), (DPSlicedGenerator, {}))
            for name, of in kind._mechanisms.items()
        ),
        ("plain", PrivateSWAutoencoder(**CODES)),
        ("prior", PrivateSWAutoencoder(**CODES, penalty=PriorPenalty(n_projections=2))),
        ("parity", PrivateSWAutoencoder(**CODES, penalty=CodeParity(n_projections=2))),
        ("public", PrivateSWAutoencoder(**CODES, private=False)),
        *(  # without noise by default: an account of sampled steps takes a second
            (name, kind(mechanism=mechanism, epsilon=float("inf")))
            for kind in (FairPrivateClassifier, FairPrivateRegressor)
            for name, mechanism in (
                ("sketch", SketchedOutputs(n_steps=2, **FAIR, n_releases=1)),
                ("ranks", RankedOutputs(n_steps=2, **FAIR)),
            )
        ),
        ("bayes", FairPrivateClassifier(epsilon=float("inf"))),
        ("barycenter", FairPrivateRegressor(epsilon=float("inf"))),
        ("sliced", PrivateWassersteinDistance(Sliced(n_projections=3, n_bins=8), **BOX)),
        ("triangle", PrivateWassersteinDistance(Triangle(), **BOX)),
        ("fedwad", PrivateWassersteinDistance(FedWad(n_rounds=2), **BOX)),
        (
            "sketch",
            PrivateTrajectorySampler(
                TrajectorySketch(schedule=[(0.5, None, 2)], n_projections=3, n_bins=8), **PATHS
            ),
        ),
        (
            "mfld",
            PrivateTrajectorySampler(MeanFieldLangevin(schedule=[(0.0005, None, 2)]), **PATHS),
        ),
        ("", PrivateScaler()),
        ("", DPTableSynthesizer(n_particles=100)),
        ("", TableEncoder()),
    )
}


@cache
def fitted(name: str) -> Any:
    """Return a fitted estimator, for calls that must not change it."""
    return good_fit(name)


def good_fit(name: str) -> Any:
    """Fit an estimator on two plain columns; with classes where it knows some."""
    n = 24
    X = np.random.default_rng(1).uniform(-1, 1, (n, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "ClientContribution":
            private = TARGETS["PrivateWassersteinDistance sliced"].small
            return ClientContribution(private).fit(X)
        target = TARGETS[name]
        options = {"sensitive_features": np.arange(n) % 2}
        options = options if "sensitive_features" in target.options else {}
        y = {"labels": np.arange(n) % 2, "times": np.arange(n) % 3 * 0.5, "targets": X[:, 0]}
        labels = y[target.second]
        if getattr(target.small, "classes", None):
            labels = np.array(target.small.classes)[labels]
        takes_classes = hasattr(getattr(target.small, "mechanism", target.small), "classes")
        more = {"conditional": True} if "conditional" in target.variants and takes_classes else {}
        more |= {"budget": purse()} if "budget" in target.parameters else {}
        return clone(target.small).set_params(**more).fit(X, labels, **options)


def rows_for(fitted: Any) -> Any:
    """Return four public rows with the columns that the estimator was fitted on."""
    if isinstance(fitted, TableEncoder):  # points of the ball, decoded
        return fitted.inverse_transform(np.zeros((4, len(fitted.get_feature_names_out()))))
    rows = np.linspace(-1, 1, 4 * fitted.n_features_in_).reshape(4, -1)
    names = getattr(fitted, "feature_names_in_", None)
    return rows if names is None else pd.DataFrame(rows, columns=names)


def check_answers(fitted: Any, n_rows: int | None) -> None:
    """What was learned, and what is answered, is made of finite numbers of the promised shape."""
    # Fits to several times count one row per person and time that is kept.
    if not hasattr(fitted, "times_") and n_rows is not None:
        assert getattr(fitted, "n_samples_", n_rows) == n_rows
    rows, width = rows_for(fitted), fitted.n_features_in_
    learned = [v for k, v in vars(fitted).items() if k.endswith("_") and type(v) is np.ndarray]
    finite(*(array for array in learned if array.dtype.kind == "f"))
    classes = getattr(fitted, "classes_", None)
    if isinstance(fitted, DPTableSynthesizer):
        assert fitted.schema_.is_resolved
        assert fitted.sample(3, random_state=0).shape == (3, width)
        finite(*(table["count"].to_numpy() for table in fitted.marginals_))
    elif hasattr(fitted, "sample"):
        drawn = fitted.sample(3, random_state=0)
        times = [len(fitted.times_)] if hasattr(fitted, "times_") else []
        assert np.shape(drawn) == (3, *times, width)
        finite(drawn)
        if classes is not None:
            assert np.isin(fitted.sample_labeled(3, random_state=0)[1], classes).all()
    if hasattr(fitted, "predict"):
        check_predictions(fitted, rows, classes)
    if isinstance(fitted, SlicedSketch):
        finite(fitted.quantiles([0.1, 0.9]), fitted.cdf([0.0]))
        assert 0 <= fitted.cdf_.min() <= fitted.cdf_.max() <= 1
    check_maps(fitted, rows)


def check_maps(fitted: Any, rows: Any) -> None:
    """There and back, and how far."""
    if hasattr(fitted, "inverse_transform"):
        codes = np.asarray(fitted.transform(rows))
        assert codes.shape == (4, len(fitted.get_feature_names_out()))
        if not isinstance(fitted, TableEncoder):  # values may be missing in tables
            finite(codes, fitted.inverse_transform(codes))
    if getattr(getattr(fitted, "protocol_", None), "is_private", False):
        assert 0 <= fitted.distance(rows) < np.inf
    if getattr(fitted, "scale_", None) is not None:
        assert (fitted.scale_ > 0).all()


def check_predictions(fitted: Any, rows: Any, classes: Any) -> None:
    """One for each row, a number or one of the classes."""
    predicted = fitted.predict(rows)
    assert len(predicted) == 4
    if classes is None:
        finite(predicted)
    else:
        assert np.isin(predicted, classes).all()
        assert np.allclose(fitted.predict_proba(rows).sum(axis=1), 1)


def finite(*values: Any) -> None:
    """Check that everything is a number."""
    for value in values:
        assert is_finite(value)
