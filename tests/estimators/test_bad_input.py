"""Bad input: a clear error, no charge, no change, and no private value in sight."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.mechanisms import Presample, Resample
from tests.flat_options import flow_sampler

SECRET, NUMBER = "SECRET-8841", 123456.789
RNG = np.random.default_rng(8841)
GOOD = RNG.uniform(-1, 1, (20, 3))
GOOD[4, 1] = NUMBER
LABELS = np.array(["a", SECRET, "b", "b"] * 5)
CONDITIONAL = {"conditional": True}


def with_value(value):
    rows = GOOD.copy()
    rows[2, 2] = value
    return rows


# X, y, changed parameters, and what the error must say.
BAD_DATA = {
    "NaN": (with_value(np.nan), None, {}, "NaN"),
    "infinity": (with_value(np.inf), None, {}, "infinity"),
    "objects": (pd.DataFrame({"a": [NUMBER, SECRET]}), None, {}, "cannot be read as numbers"),
    "one row": (GOOD[4:5], None, {}, r"1 sample\(s\)"),
    "no feature": (GOOD[:, :0], None, {}, r"0 feature\(s\)"),
    "no X": (None, None, {}, "NoneType|Reshape|numbers"),
    "continuous y": (GOOD, np.linspace(0, NUMBER, 20), CONDITIONAL, "continuous"),
    "no y": (GOOD, None, CONDITIONAL, "requires y"),
    "short y": (GOOD, LABELS[:5], CONDITIONAL, "5 labels for 20 rows"),
    "y with NaN": (GOOD, np.full(20, np.nan), CONDITIONAL, "NaN"),
    "mixed y": (GOOD, np.array([SECRET, 1] * 10, dtype=object), CONDITIONAL, "mixed"),
    "undeclared label": (
        GOOD,
        LABELS,
        CONDITIONAL | {"classes": ["a", "b", "c"]},
        "not among the 3 declared",
    ),
    "more classes than rows": (
        GOOD,
        LABELS,
        CONDITIONAL | {"classes": ["a", "b", SECRET, *"defghijklmnopqrstuvw"]},
        "23 classes for 20 rows",
    ),
}

BAD_PARAMETERS = {
    "epsilon 0": ({"epsilon": 0.0}, "'epsilon' parameter"),
    "epsilon NaN": ({"epsilon": np.nan}, "epsilon"),
    "epsilon beyond any noise": ({"epsilon": 1e7}, "protects nothing"),
    "delta too small for the ledger": ({"delta": 1e-30}, "No noise reaches"),
    "delta 0": ({"delta": 0.0}, "'delta' parameter"),
    "delta NaN": ({"delta": np.nan}, "delta"),
    "one bin": ({"n_bins": 1}, "'n_bins' parameter"),
    "no slice": ({"n_projections": 0}, "'n_projections' parameter"),
    "slices of another width": ({"projections": np.eye(2)}, r"shape \(2, 2\)"),
    "slices with a zero row": ({"projections": np.zeros((4, 3))}, "not zero"),
    "low = high": ({"bounds": (1, 1)}, "low < high"),
    "low > high in one feature": ({"bounds": ([0, 0, 2], 1)}, "low < high"),
    "infinite bounds": ({"bounds": (-np.inf, 1)}, "finite"),
    "three bounds": ({"bounds": (1, 2, 3)}, "3 entries"),
    "bounds for two features": ({"bounds": ([0, 0], [1, 1])}, r"shape \(2,\)"),
    "bounds text": ({"bounds": "public"}, "'bounds' parameter"),
    "bounds and norm": ({"norm_bound": 1.0}, "only one"),
    "negative norm": ({"bounds": "private", "norm_bound": -1.0}, "'norm_bound' parameter"),
    "huge norm": ({"bounds": "private", "norm_bound": 1e300}, "norm_bound"),
    "budget": ({"budget": 1.0}, "'budget' parameter"),
}
BAD_SAMPLER_PARAMETERS = {
    "mechanism": ({"mechanism": "copy"}, "'mechanism' parameter"),
    "no rows a batch": ({"mechanism": Resample(batch_size=0)}, "'batch_size' parameter"),
    "negative sigma": ({"mechanism": Presample(sigma=-1.0)}, "'sigma' parameter"),
    "sigma NaN": ({"mechanism": Presample(sigma=np.nan)}, "'sigma' parameter"),
    "rows of classes": ({"mechanism": Resample(), "conditional": True}, "needs mechanism="),
    "directions of rows": (
        {"mechanism": Presample(projections=np.eye(3))},
        "'projections' parameter",
    ),
    "no particles": ({"n_particles": 0}, "'n_particles' parameter"),
    "step beyond 1": ({"step_size": 1.5}, "'step_size' parameter"),
    "negative diffusion": ({"diffusion": -0.1}, "'diffusion' parameter"),
}


def check_refusal(estimator, call, text):
    """The error says `text`; nothing is charged, changed or shown."""
    budget = estimator.budget
    is_budget = isinstance(budget, PrivacyBudget)
    charged = len(budget.history()) if is_budget else 0
    before = dict(vars(estimator))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises((ValueError, TypeError), match=text) as refusal:
            call()
    assert not is_budget or len(budget.history()) == charged
    after = vars(estimator)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    said = [str(refusal.value), repr(refusal.value), repr(estimator)]
    said += [str(warning.message) for warning in shown]
    for hidden in (SECRET, "123456", "1.23456"):
        owner = before.get("mechanism", estimator)
        declared = SECRET in np.ravel(getattr(owner, "classes", None)).tolist()
        assert not any(hidden in text for text in said[: 2 if declared else None])


ESTIMATORS = {
    "sketch": lambda **p: SlicedSketch(**({"bounds": (-1, 1), "budget": PrivacyBudget(9.0)} | p)),
    "sampler": lambda **p: flow_sampler(
        **({"bounds": (-1, 1), "budget": PrivacyBudget(9.0), "n_steps": 1} | p)
    ),
}
SMALL = {"n_projections": 3, "n_bins": 8}


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data(make, name):
    X, y, changes, text = BAD_DATA[name]
    estimator = ESTIMATORS[make](**(SMALL | changes))
    check_refusal(estimator, lambda: estimator.fit(X, y), text)


@pytest.mark.parametrize("name", sorted(set(BAD_DATA) - {"one row", "more classes than rows"}))
def test_bad_data_of_a_stream(name):
    X, y, changes, text = BAD_DATA[name]
    estimator = ESTIMATORS["sketch"](**(SMALL | changes))
    if estimator.conditional and estimator.classes is None:
        text = "needs the parameter classes"
    check_refusal(estimator, lambda: estimator.partial_fit(X, y), text)


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters(make, name):
    changes, text = BAD_PARAMETERS[name]
    estimator = ESTIMATORS[make](**(SMALL | changes))
    check_refusal(estimator, lambda: estimator.fit(GOOD, LABELS), text)


@pytest.mark.parametrize("name", BAD_SAMPLER_PARAMETERS)
def test_bad_parameters_of_the_sampler(name):
    changes, text = BAD_SAMPLER_PARAMETERS[name]
    estimator = DPSlicedFlowSampler(bounds=(-1, 1), budget=PrivacyBudget(9.0)).set_params(**changes)
    check_refusal(estimator, lambda: estimator.fit(GOOD, LABELS), text)


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize("name", ["NaN", "objects", "undeclared label", "continuous y"])
def test_a_fitted_estimator_keeps_its_fit(make, name):
    X, y, changes, text = BAD_DATA[name]
    estimator = ESTIMATORS[make](**SMALL).fit(GOOD)
    if make == "sampler":
        changes = {f"mechanism__{n}" if n == "classes" else n: one for n, one in changes.items()}
    estimator.set_params(**changes)
    check_refusal(estimator, lambda: estimator.fit(X, y), text)


@pytest.mark.parametrize("make", ESTIMATORS)
def test_rows_to_compare_with_are_checked_too(make):
    fitted = ESTIMATORS[make](**SMALL).fit(GOOD)
    read = fitted.score if make == "sampler" else fitted.distance
    for X, text in ((with_value(np.nan), "NaN"), (GOOD[:, :2], "2 features"), (GOOD[4], "Reshape")):
        check_refusal(fitted, lambda X=X: read(X), text)


@pytest.mark.parametrize("make", ESTIMATORS)
def test_warnings_of_private_bounds_quote_no_value(make):
    """They depend on the noisy tables alone."""
    with pytest.warns(PrivacyWarning) as shown:
        ESTIMATORS[make](**SMALL, epsilon=0.01).set_params(bounds="private").fit(GOOD)
    assert all("123456" not in str(w.message) for w in shown)
    told = [str(w.message) for w in shown if "the noise hides the data" not in str(w.message)]
    assert len(told) == 1
