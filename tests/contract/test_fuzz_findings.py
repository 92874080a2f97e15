"""What the fuzzing found: each case failed before its defect was mended.

Warnings are errors here as everywhere: nothing that is refused, or works, may warn before.
"""

import re
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skdpot import FairPrivateClassifier, PrivacyBudget, SlicedSketch, datasets, metrics
from skdpot.datasets import trajectories
from skdpot.mechanisms import LatentNetwork, MeanFieldLangevin
from skdpot.metrics import fairness
from tests.contract.fuzz_harness import chain
from tests.contract.fuzz_strategies import NUMBER, TEXT, Hostile
from tests.contract.fuzz_targets import TARGETS, fitted, good_fit

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


def refused(call, text):
    """The call is refused as promised, and nothing private hangs on the error."""
    with pytest.raises((ValueError, TypeError), match=text) as refusal:
        call()
    for error in chain(refusal.value):
        assert TEXT not in repr(error)
        assert "8765" not in repr(error)


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
    (PREDICTOR, NO_NOISE | {"alpha": 0.0, "tune_threshold": True}, GROUPED, "protects nothing"),
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
    before = dict(vars(estimator))
    refused(lambda: estimator.fit(**{"X": X, **given}), text)
    assert len(budget.history()) == 0
    assert vars(estimator) == before


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


def asked(name, method, *args):
    return lambda: getattr(fitted(name), method)(*args)


LAW = trajectories.OrnsteinUhlenbeck.of(n_features=2)
INFINITE = np.array([[np.inf, 1.0], [-np.inf, 2.0]])
STACK = np.zeros((4, 3, 2))
HUGE = np.array([[1e100], [-1e100]])
SLICED = metrics.sliced_wasserstein_distance
REFUSED = [
    *((asked(SKETCH, "merge", other), "merge|not fitted") for other in (None, X, SlicedSketch())),
    # A text was quoted, and NaN was answered with NaN.
    *(
        (asked(SKETCH, method, at), "must hold")
        for method in ("cdf", "quantiles")
        for at in (None, TEXT, {}, 1j, [[0.5, None]])
    ),
    # Booleans, and integers that no array can hold, ended in IndexError and OverflowError.
    *(
        (asked(f"{FLOW} sketch", method, n), "n_samples")
        for method in ("sample", "sample_labeled")
        for n in (True, np.bool_(True), 2**31, 10**30, 0, 1.0)
    ),
    *(
        (asked(CODES, "inverse_transform", codes), "cannot be read as numbers")
        for codes in ([[TEXT, "a"]], *TABLES.values())
    ),
    # Complex ones were quoted, in full.
    *(
        (asked(PATHS, "score", X, stamps), "t must hold numbers or dates")
        for stamps in ([1j * NUMBER, 1.0] * 12, COLUMN)
    ),
    *(
        (asked(name, method, parties), "must be a sequence of Party")
        for name, method in (
            *(("ClientContribution", "contributions"), (DISTANCE, "pairwise_distances")),
        )
        for parties in (3, "ab", iter([]))
    ),
    # A sum of infinities of both signs warned.
    (lambda: metrics.wasserstein_distance(INFINITE, INFINITE), "infinity"),
    *(
        (
            partial(fairness.disparate_impact, column, sensitive_features=[0, 1]),
            "y_pred (has|holds|cannot)",
        )
        for column in ([0.0, np.inf], torch.tensor([0.0, 1.0], requires_grad=True))
    ),
    *((partial(trajectories.branching_paths, n, [0.0]), "n_paths") for n in (True, np.bool_(1))),
    *((partial(datasets.make_biased_classification, n), "n_samples") for n in (True, np.bool_(1))),
    *(
        (partial(call, times), "times must")
        for times in (1j, 10**400, "2020")
        for call in (LAW.mean, LAW.covariance, partial(trajectories.branch_of, [[0.0, 0.0]]))
    ),
    *(
        (partial(call, n_projections=n), "n_projections")
        for n in (2**31, True)
        for call in (
            partial(metrics.path_sliced_wasserstein_distance, STACK, STACK),
            partial(SLICED, X, X),
        )
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_cannot_be_answered_is_refused(call, text):
    refused(call, text)


# Integers of any type: unsigned and signed ones of 64 bits make floating-point numbers, and
# others wrap around. And numbers whose powers and sums overflowed with a warning.
ANSWERS = [
    (lambda: fitted(f"{FLOW} sketch").sample(np.uint8(3)).shape, (3, 2)),
    (lambda: fitted(f"{FLOW} sketch").sample(np.uint64(3)).shape, (3, 2)),
    (lambda: fitted(PATHS).sample_frame(np.int8(100)).shape, (300, 4)),
    (lambda: SLICED(X, X, n_projections=np.uint64(3)), 0.0),
    (lambda: metrics.wasserstein_distance(HUGE, HUGE + 1e100, p=40), pytest.approx(1e100)),
    (
        lambda: np.isfinite(SLICED(np.c_[HUGE, HUGE], -np.c_[HUGE, HUGE[::-1]], p=1e300)),
        True,
    ),
    # Notebooks ask for all properties, of which one could not be computed.
    (lambda: "FairPrivateClassifier" in FairPrivateClassifier(alpha=None)._repr_html_(), True),
]


@pytest.mark.parametrize(("call", "expected"), ANSWERS)
def test_numbers_of_any_type_and_size_are_answered(call, expected):
    assert call() == expected


@pytest.mark.parametrize(
    "changes",
    [{"module": LatentNetwork(latent_dim=10**12)}, {"n_steps": True}, {"device": "tpu"}],
)
def test_retraining_checks_parameters_too(changes):
    """A network of 10^12 inputs was an error of torch."""
    generator = good_fit(GENERATOR)
    before = generator.module_
    refused(generator.set_params(**changes).retrain, "parameter of (DPSlicedGen|LatentNetwork)")
    assert generator.module_ is before
