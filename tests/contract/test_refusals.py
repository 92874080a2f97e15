"""What cannot be fitted: a clear error, no charge, no change, and no private value in sight."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from skorch.callbacks import EarlyStopping
from torch import nn

from skdpot import (
    DPSlicedFlowSampler,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.exceptions import PrivacyWarning, ReliabilityWarning
from skdpot.mechanisms import Presample, Resample, Sketch
from tests.contract.fuzz_harness import chain
from tests.flat_options import made, sliced_generator, trajectory_sampler
from tests.trajectories.trajectory_examples import MFLD, SKETCH

SECRET, NUMBER, N = "SECRET-8841", 123456.789, 60
HIDDEN = (SECRET, "123456", "1.23456", "1988", "8765", "qzxj")  # and those of fuzzing
RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (N, 3))
X[4, 1] = NUMBER
Y = np.array(["a", SECRET, "b", "b"] * 15)
TARGETS = RNG.normal(size=(N, 2))
GROUPS = np.arange(N) % 2
T = np.repeat(np.arange(4.0), N // 4)
FEW = {"n_projections": 3, "n_steps": 2}
BOX, PARITY, ODDS = {"bounds": (-1, 1)}, {"penalty": "parity"}, {"fairness": "equalized_odds"}
WHOLE = {"n_steps": 2, "batch_fraction": 1.0}
CLASSES = {"conditional": True}

OF_SKETCH = {name: f"mechanism__{name}" for name in ("n_bins", "n_projections", "projections")}
OF_SKETCH["classes"] = "mechanism__classes"
MAKE = {
    "sketch": lambda **o: SlicedSketch(**{"n_projections": 3, "n_bins": 8, **BOX, **o}),
    "flow": lambda **o: DPSlicedFlowSampler(
        **{"n_steps": 2, **BOX, "mechanism": Sketch(3, n_bins=8)}
    ).set_params(**{OF_SKETCH.get(name, name): value for name, value in o.items()}),
    "generator": lambda **o: sliced_generator(**{**FEW, **BOX, **o}),
    "autoencoder": lambda **o: made(PrivateSWAutoencoder, **{"latent_dim": 3, **BOX, **o}),
    "classifier": lambda **o: made(FairPrivateClassifier, **{**WHOLE, **o}),
    "regressor": lambda **o: made(FairPrivateRegressor, **{**WHOLE, "target_bounds": (-3, 3), **o}),
    "scaler": lambda **o: PrivateScaler(**{"epsilon": 8.0, **o}),
    "paths": lambda **o: trajectory_sampler(**{**SKETCH, **o}),
    "mfld": lambda **o: trajectory_sampler(**{**MFLD, **o}),
}
GOOD = {
    "sketch": {"X": X},
    "flow": {"X": X},
    "generator": {"X": X, "y": Y},
    "autoencoder": {"X": X, "sensitive_features": GROUPS},
    "classifier": {"X": X, "y": Y == "b", "sensitive_features": GROUPS},
    "regressor": {"X": X, "y": TARGETS, "sensitive_features": GROUPS},
    "scaler": {"X": X},
    "paths": {"X": X, "y": T},
    "mfld": {"X": X, "y": T},
}


def changed(value, like=X):
    """Rows or labels with a value that cannot be, and one that nobody must see."""
    values = np.array(like, dtype=object if isinstance(value, str) else float)
    values[(2,) + (0,) * (values.ndim - 1)] = value
    values[(5,) + (0,) * (values.ndim - 1)] = NUMBER
    return values


def column(*first):
    return [*first, *["a"] * (N - len(first))]


def nets(encoder, decoder):
    return {"architecture": (encoder, decoder)}


class Logarithm(nn.Linear):
    def forward(self, rows):
        return super().forward(rows.log())


BATCH_NORM = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
OF_NUMBERS = pd.Series(pd.to_datetime(["1988-04-01", None, *["1988-04-01"] * (N - 2)]))

# Who refuses, a name, what is given in the place of good data, options, what the error says.
DATA = [
    ("sketch flow classifier scaler", "NaN", {"X": changed(np.nan)}, {}, "NaN"),
    ("sketch flow scaler", "infinity", {"X": changed(np.inf)}, {}, "infinity"),
    ("sketch flow scaler", "objects", {"X": pd.DataFrame({"a": [NUMBER, SECRET]})}, {},
     "read as numbers"),
    ("classifier", "text", {"X": changed(SECRET)}, {}, "read as numbers"),
    ("sketch flow scaler", "one row", {"X": X[4:5]}, {}, r"1 sample\(s\)"),
    ("sketch flow scaler", "no feature", {"X": X[:, :0]}, {}, r"0 feature\(s\)"),
    ("sketch flow scaler", "no X", {"X": None}, {}, "NoneType|Reshape|numbers"),
    ("sketch flow", "no y", {}, CLASSES, "requires y"),
    ("sketch flow", "continuous y", {"y": np.linspace(0, NUMBER, N)}, CLASSES, "continuous"),
    ("sketch flow", "short y", {"y": Y[:5]}, CLASSES, "5 labels for 60 rows"),
    ("sketch flow", "y with NaN", {"y": np.full(N, np.nan)}, CLASSES, "NaN"),
    ("sketch flow", "mixed y", {"y": changed(SECRET, GROUPS)}, CLASSES, "mixed"),
    ("sketch flow", "undeclared label", {"y": Y}, CLASSES | {"classes": list("abc")},
     "not among the 3 declared"),
    ("sketch flow", "more classes than rows", {"y": Y},
     CLASSES | {"classes": [*Y[:3], *map(str, range(N))]}, "63 classes for 60 rows"),
    ("classifier", "continuous labels", {"y": changed(0.5, X[:, 0])}, {}, "continuous"),
    ("classifier", "missing label", {"y": changed(np.nan, X[:, 0])}, ODDS, "NaN"),
    ("classifier", "mixed labels", {"y": changed(SECRET, GROUPS)}, {}, "mixed or missing|unknown"),
    ("classifier", "another label", {"y": column(SECRET, "b")},
     {"classes": ["a", "b"], "mechanism": "ranks"}, "not among the 2 declared"),
    ("classifier", "single class", {"y": np.zeros(N)}, {}, "single class"),
    ("classifier", "empty cell", {"sensitive_features": np.where(Y == "b", "z", GROUPS == 1)},
     ODDS, "class False has none in group z"),
    ("classifier", "tiny group", {"sensitive_features": ["b", "b", *column()[2:]]},
     {"mechanism": "ranks", "batch_fraction": 0.2}, "group b has 2 rows.*batch_fraction"),
    ("classifier", "many groups", {"sensitive_features": np.arange(N)}, {}, "at most 50"),
    ("classifier", "weights", {"sample_weight": np.ones(N)}, {}, "sample_weight is not supported"),
    ("classifier", "other arguments", {"groups": GROUPS}, {}, "not groups"),
    ("regressor", "missing target", {"y": changed(np.nan, TARGETS)}, {}, "NaN or infinity"),
    ("regressor", "text target", {"y": changed(SECRET, TARGETS)}, {}, "must hold numbers"),
    ("regressor", "short targets", {"y": TARGETS[:5]}, {}, "5 targets for 60 rows"),
    ("regressor", "bounds", {}, {"target_bounds": "public"}, '"private" or a pair'),
    ("autoencoder", "small group", {"sensitive_features": np.arange(N) == 0},
     PARITY | {"batch_size": 20}, "True has 1 row, .* larger batch_size"),
    ("autoencoder", "no groups", {"sensitive_features": None}, PARITY,
     'penalty="parity" requires sensitive_features'),
    ("autoencoder", "no groups, public", {"sensitive_features": None}, PARITY | {"private": False},
     'penalty="parity" requires sensitive_features'),
    ("generator", "BatchNorm", {},
     {"mechanism": "gradient", "module": nn.Sequential(nn.Linear(4, 3), BATCH_NORM)}, "BatchNorm"),
    ("autoencoder", "BatchNorm", {}, nets(BATCH_NORM, nn.Linear(3, 3)), "BatchNorm1d.*GroupNorm"),
    *[("classifier", f"BatchNorm, {mechanism}", {},
       {"module": nn.Sequential(BATCH_NORM, nn.Linear(3, 1)), "mechanism": mechanism},
       "normalises each record by the others") for mechanism in ("sketch", "ranks")],
    ("paths mfld", "no times", {"y": None}, {}, "target y is None"),
    ("paths mfld", "times given twice", {"t": T}, {}, "given twice"),
    ("paths mfld", "too few times", {"y": T[1:]}, {}, "inconsistent numbers of samples"),
    ("paths mfld", "too few groups", {"groups": T[1:]}, {}, "must identify the person of each"),
    ("paths mfld", "a long step", {}, {"schedule": [(1.5, None, 2)]}, "too long|at most 1"),
    ("paths mfld", "missing person", {"groups": changed(np.nan, T)}, {}, "none missing"),
]  # fmt: skip
NO_GROUPS = {
    "NaN": ([NUMBER, np.nan, *[1.0] * (N - 2)], "NaN"),
    "None inside": (column(SECRET, None), "missing"),
    "NaN among strings": (column(SECRET, np.nan), "missing"),
    "NaN among categories": (pd.Series(pd.Categorical(column(SECRET, None))), "missing"),
    "NA in strings": (pd.Series(column(SECRET, pd.NA), dtype="string"), "missing"),
    "NaT": (OF_NUMBERS, "NaT"),
    "null in polars strings": (pl.Series(column(SECRET, None)), "missing"),
    "too short": ([SECRET, "a"], "2 labels for 60 rows"),
    "a scalar": (SECRET, "shape|unknown"),
    "two columns": ([[SECRET, "a"]] * N, r"shape \(60, 2\).* Join several columns"),
    "continuous": ([NUMBER, 0.5, *[1.0] * (N - 2)], "continuous.*pandas.cut"),
    "mixed": (column(SECRET, 1, b"x"), "mixed"),
    "dictionary": ([{SECRET: 1}] * N, "missing|unknown"),
    "one group": ([False] * N, "at least two groups.*holds the group False al"),
}
PARAMETERS = [
    ("sketch flow", {"epsilon": 1e7}, "protects nothing"),
    ("sketch flow", {"delta": 1e-30}, "No noise reaches"),
    ("sketch flow", {"projections": np.eye(2)}, r"shape \(2, 2\)"),
    ("sketch flow", {"projections": np.zeros((4, 3))}, "not zero"),
    ("sketch flow", {"bounds": (1, 1)}, "low < high"),
    ("sketch flow", {"bounds": ([0, 0, 2], 1)}, "low < high"),
    ("sketch flow", {"bounds": (-np.inf, 1)}, "finite"),
    ("sketch flow", {"bounds": (1, 2, 3)}, "3 entries"),
    ("sketch flow", {"bounds": ([0, 0], [1, 1])}, r"shape \(2,\)"),
    ("sketch flow autoencoder", {"norm_bound": 1.0}, "only one"),
    ("sketch flow", {"bounds": "private", "norm_bound": 1e300}, "norm_bound"),
    ("flow", {"mechanism": Resample(), "conditional": True}, "needs mechanism="),
    ("generator", {"mechanism": "smoothing", "conditional": True}, "conditional=True needs"),
    ("generator", {"mechanism": "gradient", "conditional": True}, "conditional=True needs"),
    ("generator", {"mechanism": "smoothing", "bounds": "private", "sigma": 1.0}, "sigma=None"),
    ("generator", {"mechanism": "gradient", "bounds": "private", "sigma": 1.0}, "sigma=None"),
    ("generator autoencoder classifier", {"callbacks": [EarlyStopping()]}, "losses or scores"),
    ("generator", {"mechanism": "gradient", "callbacks": [EarlyStopping()]}, "losses or scores"),
    ("generator", {"mechanism": "sketch", "module": nn.Linear(3, 2)}, "module"),
    ("generator", {"mechanism": "smoothing", "module": nn.Linear(3, 2)}, "module"),
    ("generator", {"mechanism": "gradient", "module": nn.Linear(3, 2)}, "module"),
    ("autoencoder", {"penalty": "prior", "sampling": "poisson"}, "ranks"),
    ("autoencoder", {"latent_dim": 1}, "latent_dim of at least 2"),
    ("autoencoder", {"sigma": 1.0, "bounds": "private"}, "sigma=None"),
    ("autoencoder", {"architecture": "conv"}, "needs image_shape"),
    ("autoencoder", {"image_shape": (2, 2)}, "has 4 values"),
    ("autoencoder", {"architecture": (nn.Linear(3, 3),)}, r"a pair \(encoder, decoder\)"),
    ("autoencoder", nets(nn.Linear(3, 4), nn.Linear(3, 3)), "the encoder maps"),
    ("autoencoder", nets(nn.Linear(5, 3), nn.Linear(3, 3)), "architecture: the encoder does not"),
    ("autoencoder", nets(nn.Linear(3, 3), nn.Linear(4, 3)), "latent_dim numbers per row"),
    ("autoencoder", nets(nn.Linear(3, 3), nn.Linear(3, 5)), "the decoder maps"),
    ("classifier", {"module": nn.Linear(3, 2)}, r"must be \(2, 1\)"),
    ("classifier", {"module": nn.Linear(4, 1)}, "one column per feature"),
    ("classifier", {"module": nn.Linear}, "function without arguments"),
    ("classifier", {"module": Logarithm(3, 1)}, "not a finite number"),
    ("classifier", {"module": nn.Sequential(nn.Softmax(dim=0), nn.Linear(3, 1))}, "other records"),
    ("scaler", {"epsilon": 1e-9, "delta": 1e-12}, "too small"),
    ("scaler", {"with_centering": False, "with_scaling": False}, "nothing to learn"),
    ("paths mfld", {"group_size": 2, "n_times": 2}, "more than one row in a bin"),
    ("paths mfld", {"diffusivity": np.inf}, "diffusivity"),
    *[("paths mfld", {"schedule": schedule}, "schedule must be") for schedule in (
        [], [1, 2, 3], [(0.01, None, np.inf)], [(0.01, 0.0, 2)], [(0.01, None, 2.5)],
        [(0.0, None, 2)])],
    *[("mfld", options, text) for options, text in (
        ({"regularization": 0.0}, "regularization=0"),
        ({"clip_gradient": 1e12, "noise_multiplier": None, "delta": 1e-4}, "clip_gradient"),
        ({"clip_gradient": 1e100}, "clip_gradient"),
        ({"noise_multiplier": 1e100}, "noise_multiplier"),
        ({"epsilon": np.inf}, "noise_multiplier"),
        ({"noise_multiplier": [1.0]}, "one per phase"),
        ({"diffusivity": 1e-30}, "schedule"),
        ({"schedule": [(0.01, 1e308, 2)]}, "schedule"),
        ({"noise_multiplier": None, "warm_start": "mean", "warm_start_share": 0.99,
          "bounds": "private"}, "already costs"),
    )],
    *[(who, {name: value}, f"'{name}' parameter") for who, limits in {
        "sketch flow": {"epsilon": (0.0, np.nan), "delta": (0.0, np.nan), "n_bins": (1,),
                        "n_projections": (0,), "bounds": ("public",), "norm_bound": (-1.0,),
                        "budget": (1.0,)},
        "flow": {"mechanism": ("copy",), "n_particles": (0,), "step_size": (1.5,),
                 "diffusion": (-0.1,)},
        "autoencoder": {"learning_rate": ("fast",), "penalty": ("uniform",)},
        "classifier": {"clip_output": (1e-40, 1e40)},
        "scaler": {"epsilon": (0.0, "1"), "delta": (1.0,), "budget": (1.0,)},
    }.items() for name, values in limits.items() for value in values],
    *[("flow", {"mechanism": mechanism}, f"'{name}' parameter") for mechanism, name in (
        (Resample(batch_size=0), "batch_size"), (Presample(sigma=-1.0), "sigma"),
        (Presample(sigma=np.nan), "sigma"), (Presample(projections=np.eye(3)), "projections"),
    )],
    *[("generator", {"mechanism": "gradient", "clip_jacobian": clip}, "'clip_jacobian' parameter")
      for clip in (1e-31, 1e31)],
    ("generator", {"mechanism": "smoothing", "projections": np.eye(3)}, "'projections' parameter"),
    ("generator", {"mechanism": "gradient", "projections": np.eye(3)}, "'projections' parameter"),
    ("autoencoder", {"penalty": "prior", "alpha": 1.0}, "'alpha' parameter"),
]  # fmt: skip
CASES = {
    f"{who}, {name}": (who, given, options, text)
    for names, name, given, options, text in (
        *DATA,
        *(("classifier", f"groups: {n}", {"sensitive_features": one}, {}, text)
          for n, (one, text) in NO_GROUPS.items()),
        *((names, f"{k}: {text}", {}, options, text)
          for k, (names, options, text) in enumerate(PARAMETERS)),
    )
    for who in names.split()
}  # fmt: skip


def check_refusal(estimator, call, text):
    """The error says `text`; nothing is charged or changed, and nothing private is shown."""
    budget, before = estimator.budget, dict(vars(estimator))
    charged = isinstance(budget, PrivacyBudget) and len(budget.history())
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises((ValueError, TypeError, RuntimeError), match=text) as refusal:
            call()
    assert charged == (isinstance(budget, PrivacyBudget) and len(budget.history()))
    after = vars(estimator)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    said = [*map(repr, chain(refusal.value)), *(str(warning.message) for warning in shown)]
    assert not any(hidden in text for text in said for hidden in HIDDEN)
    assert not any(issubclass(warning.category, RuntimeWarning) for warning in shown)


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value(case):
    who, given, options, text = CASES[case]
    data = GOOD[who] | ({"y": Y} if options.get("conditional") and "no y" not in case else {})
    estimator = MAKE[who](**{"budget": PrivacyBudget(9.0), **options})
    check_refusal(estimator, lambda: estimator.fit(**{**data, **given}), text)


@pytest.mark.filterwarnings("ignore:.*hides the", "ignore:Private bounds")
@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case][2]])
def test_a_fitted_estimator_keeps_its_fit(case):
    who, given, _, text = CASES[case]
    fitted = MAKE[who](budget=PrivacyBudget(9.0)).fit(**GOOD[who])
    check_refusal(fitted, lambda: fitted.fit(**{**GOOD[who], **given}), text)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("sketch, ")])
def test_a_stream_refuses_it_too(case):
    _, given, options, text = CASES[case]
    if case in ("sketch, one row", "sketch, more classes than rows"):
        return
    sketch = MAKE["sketch"](**{"budget": PrivacyBudget(9.0), **options})
    if sketch.conditional and sketch.classes is None:
        text = "needs the parameter classes"
    check_refusal(sketch, lambda: sketch.partial_fit(**{**GOOD["sketch"], **given}), text)


@pytest.mark.parametrize("who", ["sketch", "flow"])
def test_rows_to_compare_with_are_checked_too(who):
    fitted = MAKE[who]().fit(X)
    read = fitted.score if who == "flow" else fitted.distance
    for rows, text in ((changed(np.nan), "NaN"), (X[:, :2], "2 features"), (X[4], "Reshape")):
        check_refusal(fitted, lambda rows=rows: read(rows), text)


@pytest.mark.parametrize("who", ["sketch", "flow"])
def test_warnings_of_private_bounds_quote_no_value(who):
    """They depend on the noisy tables alone."""
    with pytest.warns(PrivacyWarning) as shown:
        MAKE[who](epsilon=0.01, bounds="private").fit(X)
    assert all("123456" not in str(w.message) for w in shown)
    told = [w for w in shown if w.category is not ReliabilityWarning]
    assert len(told) == 2  # no scales, and a radius that is a fallback
