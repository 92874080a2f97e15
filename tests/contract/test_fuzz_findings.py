"""What the fuzzing found: each case failed before its defect was mended.

Nothing that is refused, or works, may warn of numbers before.
"""

import re

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skdpot import FairPrivateClassifier, PrivacyBudget, metrics
from skdpot.mechanisms import LatentNetwork, MeanFieldLangevin
from tests.contract.fuzz_strategies import NUMBER, Hostile
from tests.contract.fuzz_targets import TARGETS, fitted, good_fit
from tests.contract.test_refusals import check_refusal

X = np.random.default_rng(0).uniform(-1, 1, (24, 2))
LABELS = np.arange(24) % 2
TIMES = np.arange(24) % 3 * 0.5
GROUPED = {"y": LABELS, "sensitive_features": LABELS}
TABLES = {"torch": torch.tensor(X, requires_grad=True), "foreign": Hostile((24, 2), RuntimeError)}
COLUMN = Hostile((24,), RuntimeError)
COLUMNS = {"torch": torch.linspace(0, 1, 24, requires_grad=True), "foreign": COLUMN}
SKETCH, FLOW = "SlicedSketch", "DPSlicedFlowSampler"
CODES, GENERATOR = "PrivateSWAutoencoder plain", "DPSlicedGenerator sketch"
PATHS, DISTANCE = "PrivateTrajectorySampler sketch", "PrivateWassersteinDistance sliced"
PREDICTOR = "FairPrivateClassifier sketch"


# --- fits that were charged and then refused, or refused with an error that nobody promised -------

NARROW = ({"n_steps": np.int8(100)}, {"mechanism__n_projections": np.uint64(3)})
NO_NOISE = {"epsilon": 1e12}
# What is fitted, with which parameters, what `fit` is given beside X or in its place, and what it
# says.
FITS = [
    # It passed the check of integers, and then broke the generator's call.
    (PATHS, {"n_particles": True}, {"y": TIMES}, "'n_particles' parameter"),
    (SKETCH, {"epsilon": True}, {}, "'epsilon' parameter"),
    # No message can carry them: every comparison was refused later.
    *((DISTANCE, {"bounds": bounds}, {}, "bounds") for bounds in ((-1e300, 1e300), (0, 1e-200))),
    *((SKETCH, {}, {"X": table}, "cannot be read as numbers") for table in TABLES.values()),
    *(
        (name, {}, {"y": column}, text)
        for column in COLUMNS.values()
        for name, text in (
            ("SlicedSketch conditional", "Unknown label type"),
            ("FairPrivateRegressor sketch", "y must hold numbers"),
            (PATHS, "t must hold numbers or dates"),
        )
    ),
    # ``SlicedSketch(X)`` in the place of ``SlicedSketch().fit(X)``.
    *(
        (name, {"epsilon": np.array([[NUMBER, 1.0]])}, {"y": LABELS}, "an object of type ndarray")
        for name in (SKETCH, PREDICTOR)
    ),
    # Products with them wrapped around or were no integers.
    *((GENERATOR, narrow, {}, "must be int64") for narrow in NARROW),
    *(
        (f"{FLOW} {mechanism}", {name: size}, {}, rf"'{name.split('__')[-1]}' .* 2147483647")
        for mechanism, name in (("sketch", "n_particles"), ("resample", "mechanism__batch_size"))
        for size in (2**31, 10**30)
    ),
    # Their sum, which scikit-learn takes, is NaN: a warning would say that both occur.
    (SKETCH, {}, {"X": np.vstack([[np.inf, -np.inf], X])}, "contains infinity"),
    # Private bounds, tables of outputs and histograms found it out once all was paid.
    (CODES, NO_NOISE | {"mechanism__sampling": "without_replacement"}, {}, "protects nothing"),
    (
        "PrivateTrajectorySampler mfld",
        NO_NOISE | {"mechanism": MeanFieldLangevin(schedule=[(1e-4, None, 2)], warm_start="mean")},
        {"y": TIMES},
        "protects nothing",
    ),
    ("PrivateScaler", NO_NOISE, {}, "protects nothing"),
    (PREDICTOR, NO_NOISE | {"mechanism__n_releases": 2}, GROUPED, "protects nothing"),
    (PREDICTOR, NO_NOISE | {"mechanism__alpha": 0.0}, GROUPED, "protects nothing"),
    *(
        (f"PrivateWassersteinDistance {protocol}", {}, {"masses": masses}, "masses must")
        for protocol in ("triangle", "fedwad")
        for masses in (COLUMN, [1e308] * 24)
    ),
]


@pytest.mark.parametrize(("name", "changes", "given", "text"), FITS)
def test_a_refused_fit_is_not_charged_and_leaves_no_traces(name, changes, given, text):
    budget = PrivacyBudget(float("inf"))
    estimator = clone(TARGETS[name].small).set_params(budget=budget, **changes)
    check_refusal(estimator, lambda: estimator.fit(**{"X": X, **given}), text)


@pytest.mark.parametrize(
    "stamps",
    [[-1e308, 1e308] * 12, [0, 10**400] * 12, [0.0, 1e-300, 1e300] * 8],
    ids=["far", "beyond float", "span"],
)
def test_times_too_far_apart_are_refused_or_fitted_without_a_warning(stamps):
    budget = PrivacyBudget(float("inf"))
    try:
        clone(TARGETS[PATHS].small).set_params(budget=budget).fit(X, stamps)
    except ValueError as error:
        assert re.search("t must|regularization|apart", str(error))  # noqa: PT017
        assert len(budget.history()) == 0
    else:
        assert len(budget.history()) == 1


# --- what is asked of fitted estimators, of metrics and of made-up data ---------------------------
# What is refused there, `test_fuzz` meets in every run.

HUGE = np.array([[1e100], [-1e100]])
SLICED = metrics.sliced_wasserstein_distance

# Integers of any type: unsigned and signed ones of 64 bits make floating-point numbers, and
# others wrap around. And numbers whose powers and sums overflowed with a warning.
ANSWERS = [
    (lambda: fitted(f"{FLOW} sketch").sample(np.uint8(3)).shape, (3, 2)),
    (lambda: fitted(f"{FLOW} sketch").sample(np.uint64(3)).shape, (3, 2)),
    (lambda: fitted(PATHS).sample_frame(np.int8(100)).shape, (300, 4)),
    (lambda: SLICED(X, X, n_projections=np.uint64(3)), 0.0),
    (lambda: metrics.wasserstein_distance(HUGE, HUGE + 1e100, p=40), pytest.approx(1e100)),
    (lambda: np.isfinite(SLICED(np.c_[HUGE, HUGE], -np.c_[HUGE, HUGE[::-1]], p=1e300)), True),
    # Notebooks ask for all properties, of which one could not be computed.
    (lambda: "FairPrivateClassifier" in FairPrivateClassifier(module=None)._repr_html_(), True),
]


@pytest.mark.parametrize(("call", "expected"), ANSWERS)
def test_numbers_of_any_type_and_size_are_answered(call, expected):
    assert call() == expected


@pytest.mark.parametrize(
    "changes", [{"module": LatentNetwork(latent_dim=10**12)}, {"n_steps": True}, {"device": "tpu"}]
)
def test_retraining_checks_parameters_too(changes):
    """A network of 10^12 inputs was an error of torch."""
    generator = good_fit(GENERATOR)
    text = "parameter of (DPSlicedGen|LatentNetwork)"
    check_refusal(generator, generator.set_params(**changes).retrain, text)
