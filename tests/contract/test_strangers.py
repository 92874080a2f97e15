"""What is not of this package fails before a fit is charged, or not at all.

Networks, classifiers, scores and callbacks of a caller are called with private rows. An error after
the charge leaves nothing to show for it, and one that depends on a row tells of that row. So every
parameter that takes a stranger is listed here, with hostile ones: each fit either is refused, with
the ledger as it was, or has a result.
"""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from skorch.callbacks import Callback
from torch import nn

import skdpot
from skdpot import (
    DPDomainAdapter,
    DPSlicedGenerator,
    FairPrivateClassifier,
    FairPrivatePostProcessor,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateSearchCV,
    PrivateSWAutoencoder,
)
from skdpot._utils.parameters import HasMethods
from skdpot._utils.strangers import answers
from skdpot.mechanisms import DPSGD, Architecture, Gradient, SketchedOutputs
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from tests.contract.fuzz_harness import attempt

RNG = np.random.default_rng(4)
N, BAD = 120, 0.8765432  # BAD is in some rows, and in none that is made up
X = RNG.uniform(-1, 1, (N, 2))
X[7, 0] = BAD
Y, GROUP = np.arange(N) % 2, np.where(np.arange(N) % 3, "f", "m")
FRAME = pd.DataFrame(X, columns=["a", "b"])


def is_bad(rows):
    return np.asarray(rows)[:, 0] == BAD


class Network(nn.Module):
    """Maps rows to numbers, and goes wrong in one way."""

    def __init__(self, n_outputs, fault, n_inputs=2):
        super().__init__()
        self.layer, self.fault = nn.Linear(n_inputs + (fault == "other inputs"), n_outputs), fault
        if fault == "other outputs":
            self.layer = nn.Linear(n_inputs, n_outputs + 1)

    def forward(self, rows):
        bad = (rows[..., :1] - BAD).abs() < 1e-6
        if self.fault == "raises for a row" and bool(bad.any()):
            raise ValueError(f"{rows}")
        if self.fault == "raises":
            raise KeyError("always")
        if self.fault == "mixes rows":
            rows = rows - rows.mean(dim=0)
        found = self.layer(rows)
        if self.fault == "no number for a row":
            found = torch.where(bad, torch.nan, found)
        return found[:-1] if self.fault == "too few rows" else found


class Classifier(LogisticRegression):
    """Goes wrong in one way."""

    def __init__(self, fault="none"):
        super().__init__()
        self.fault = fault

    def predict_proba(self, rows):
        bad, found = is_bad(rows), super().predict_proba(rows)
        if self.fault == "raises for a row" and bad.any():
            raise ValueError(f"{rows}")
        if self.fault == "raises":
            raise KeyError("always")
        if self.fault == "no number for a row":
            found[bad] = np.nan
        if self.fault == "infinity for a row":
            found[bad] = np.inf
        if self.fault == "too few rows for a row" and bad.any():
            return found[:-1]
        known = {"too few rows": found[:-1], "other outputs": found[:, :1], "text": "good"}
        return known.get(self.fault, found.tolist() if self.fault == "a list" else found)


class Score:
    """Scores rows, and goes wrong in one way."""

    def __init__(self, fault):
        self.fault = fault

    def __call__(self, fitted, rows, y):
        found = np.ones(len(rows))
        if self.fault == "raises for a row" and is_bad(rows).any():
            raise ValueError(f"{rows}")
        if self.fault == "raises":
            raise KeyError("always")
        if self.fault == "no number for a row":
            found[is_bad(rows)] = np.nan
        return {"one number": 1.0, "text": "good", "too few rows": found[1:]}.get(self.fault, found)


class Teller(Callback):
    """Fails, or stops, in the first step."""

    def __init__(self, fault):
        self.fault = fault

    def on_epoch_end(self, net, **kwargs):
        if self.fault == "raises":
            raise KeyError("always")


NETWORK = ("other inputs", "other outputs", "raises", "raises for a row", "too few rows")
NETWORK += ("no number for a row", "mixes rows")
ALWAYS = ("raises", "too few rows", "text")
SOMETIMES = ("raises for a row", "no number for a row")
MODEL = (*ALWAYS, *SOMETIMES, "other outputs", "a list", "infinity for a row")
MODEL += ("too few rows for a row",)
SCORE = (*ALWAYS, *SOMETIMES, "one number")

TWO_STEPS = {"mechanism": SketchedOutputs(n_steps=2)}
OF_GROUPS = {"y": Y, "sensitive_features": GROUP}
OF_DOMAINS = {"y": Y, "sample_domain": np.where(np.arange(N) < 60, 1, -1)}


def post_processor(fault):
    return FairPrivatePostProcessor(Classifier(fault).fit(X, Y))


def group_post_processor(fault):
    of_groups = Classifier(fault).fit(X, GROUP)
    return FairPrivatePostProcessor(Classifier().fit(X, Y), group_estimator=of_groups)


def search(estimator=None, scoring=None, cv=0.2):
    quick = FairPrivateClassifier(mechanism=SketchedOutputs(alpha=0.0, n_steps=2))
    given = estimator or quick
    return PrivateSearchCV(given, {}, scoring=scoring, cv=cv, n_trials=1)


def networks(fault):
    return Architecture((Network(2, fault), Network(2, "none")), normalize_codes=False)


# By class and parameter: how it is made with a stranger, whose faults, arguments of its fit.
STRANGERS = {
    ("FairPrivateClassifier", "module"): (
        lambda fault: FairPrivateClassifier(module=Network(1, fault), **TWO_STEPS),
        NETWORK,
        OF_GROUPS,
    ),
    ("FairPrivateRegressor", "module"): (
        lambda fault: FairPrivateRegressor(
            module=Network(1, fault), target_bounds=(0, 1), **TWO_STEPS
        ),
        NETWORK,
        OF_GROUPS,
    ),
    ("DPDomainAdapter", "module"): (
        lambda fault: DPDomainAdapter(module=Network(2, fault), **TWO_STEPS),
        NETWORK,
        OF_DOMAINS,
    ),
    ("DPSlicedGenerator", "module"): (
        lambda fault: DPSlicedGenerator(
            Gradient(), module=Network(2, fault, 3), bounds=(-1, 1), n_steps=2
        ),
        NETWORK,
        {},
    ),
    ("PrivateSWAutoencoder", "architecture"): (
        lambda fault: PrivateSWAutoencoder(
            2, architecture=networks(fault), bounds=(-1, 1), mechanism=DPSGD(2)
        ),
        NETWORK,
        {},
    ),
    ("FairPrivateClassifier", "callbacks"): (
        lambda fault: FairPrivateClassifier(callbacks=[Teller(fault)], **TWO_STEPS),
        ("raises", "none"),
        OF_GROUPS,
    ),
    ("FairPrivateRegressor", "callbacks"): (
        lambda fault: FairPrivateRegressor(
            callbacks=[Teller(fault)], target_bounds=(0, 1), **TWO_STEPS
        ),
        ("raises", "none"),
        OF_GROUPS,
    ),
    ("DPDomainAdapter", "callbacks"): (
        lambda fault: DPDomainAdapter(callbacks=[Teller(fault)], **TWO_STEPS),
        ("raises", "none"),
        OF_DOMAINS,
    ),
    ("DPSlicedGenerator", "callbacks"): (
        lambda fault: DPSlicedGenerator(
            Gradient(), callbacks=[Teller(fault)], bounds=(-1, 1), n_steps=2
        ),
        ("raises", "none"),
        {},
    ),
    ("PrivateSWAutoencoder", "callbacks"): (
        lambda fault: PrivateSWAutoencoder(
            2, callbacks=[Teller(fault)], bounds=(-1, 1), mechanism=DPSGD(2)
        ),
        ("raises", "none"),
        {},
    ),
    ("FairPrivatePostProcessor", "estimator"): (post_processor, MODEL, OF_GROUPS),
    ("FairPrivatePostProcessor", "group_estimator"): (group_post_processor, MODEL, OF_GROUPS),
    ("PrivateSearchCV", "estimator"): (
        lambda fault: search(
            FairPrivateClassifier(
                module=Network(1, fault), mechanism=SketchedOutputs(alpha=0.0, n_steps=2)
            )
        ),
        NETWORK,
        {"y": Y},
    ),
    ("PrivateSearchCV", "scoring"): (lambda fault: search(scoring=Score(fault)), SCORE, {"y": Y}),
    ("PrivateSearchCV", "cv"): (
        lambda fault: search(cv=[(np.arange(40), np.arange(40, 60) + (fault == "raises") * N)]),
        ("raises", "none"),
        {"y": Y},
    ),
}
CASES = [(*which, fault) for which, (_, faults, _) in STRANGERS.items() for fault in faults]


def takes_a_stranger(name, constraint):
    if name in ("callbacks", "architecture"):
        return True
    return any(one is callable or isinstance(one, HasMethods) for one in constraint)


def test_no_parameter_that_takes_a_stranger_is_forgotten():
    found = set()
    for name in skdpot.__all__:
        kind = getattr(skdpot, name)
        if not (isinstance(kind, type) and issubclass(kind, PrivateEstimatorMixin)):
            continue
        own = set(kind._get_param_names()) if issubclass(kind, BaseEstimator) else set()
        constraints = kind._parameter_constraints
        found |= {(name, one) for one in own if takes_a_stranger(one, constraints[one])}
    assert found == set(STRANGERS)


@pytest.mark.parametrize(("kind", "parameter", "fault"), CASES)
def test_a_stranger_fails_before_the_charge_or_not_at_all(kind, parameter, fault):
    make, _, options = STRANGERS[kind, parameter]
    budget = PrivacyBudget(3.0)
    estimator = make(fault).set_params(budget=budget)
    outcome = attempt(f"{kind}, {parameter}, {fault}", lambda: estimator.fit(X, **options))
    assert len(budget.history()) == (outcome.error is None), outcome.error
    assert str(BAD)[:6] not in str(outcome.texts)
    if outcome.error is None:
        assert estimator.privacy_spent_.epsilon == estimator.epsilon
    refused_always = {"raises", "too few rows", "text", "one number", "other inputs", "mixes rows"}
    if fault in refused_always | {"other outputs"}:
        assert outcome.error is not None
    if fault in ("none", "a list") or (fault.endswith("for a row") and parameter != "module"):
        assert outcome.error is None or parameter in ("architecture", "estimator")
    if isinstance(estimator, FairPrivatePostProcessor) and fault.endswith("for a row"):
        assert outcome.error is None


SCORES = LogisticRegression().fit(FRAME, Y)
OF_WORDS = make_pipeline(
    ColumnTransformer([("w", OneHotEncoder(handle_unknown="ignore"), ["w"])], remainder="drop"),
    LogisticRegression(),
).fit(FRAME.assign(w=np.where(Y, "x", "y")), Y)
STRICT = clone(OF_WORDS).set_params(columntransformer__w__handle_unknown="error")
STRICT.fit(FRAME.assign(w=np.where(Y, "x", "y")), Y)
WITH_GROUP = FRAME.assign(sex=(GROUP == "f") * 1.0)
ONE_MISSING = FRAME.where(np.arange(N)[:, None] != np.array([5, N]))
MISMATCHES = {
    "a missing column": (
        SCORES,
        FRAME[["a"]],
        Y,
        GROUP,
        "X lacks the columns 'b'",
    ),
    "a column more": (SCORES, FRAME.assign(c=1.0), Y, GROUP, "fitted without the columns 'c'"),
    "another order": (SCORES, FRAME[["b", "a"]], Y, GROUP, "another order"),
    "a column less in an array": (SCORES, X[:, :1], Y, GROUP, "fitted with 2 columns"),
    "one dimension": (SCORES, X[:, 0], Y, GROUP, "fitted with 2 columns"),
    "text in the place of numbers": (SCORES, FRAME.astype(str), Y, GROUP, "ValueError says"),
    "unknown words refused": (STRICT, FRAME.assign(w="x"), Y, GROUP, 'handle_unknown="ignore"'),
    "the group among the features": (
        LogisticRegression().fit(WITH_GROUP, Y),
        WITH_GROUP.assign(sex=GROUP),
        Y,
        "sex",
        "the column 'sex', which holds the groups",
    ),
    "labels of another kind": (
        LogisticRegression().fit(FRAME, np.where(Y, "yes", "no")),
        FRAME,
        Y,
        GROUP,
        "classes_ of estimator: y must hold the labels",
    ),
}


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.parametrize("name", MISMATCHES)
def test_what_does_not_fit_a_classifier_is_said_before_the_charge(name):
    model, rows, y, groups, message = MISMATCHES[name]
    budget = PrivacyBudget(3.0)
    with pytest.raises(ValueError, match=message):
        FairPrivatePostProcessor(model, budget=budget).fit(rows, y, sensitive_features=groups)
    assert len(budget.history()) == 0


FITTING = {
    "a missing value in a row": (SCORES, ONE_MISSING),
    "an array for a DataFrame": (SCORES, X),
    "a list": (LogisticRegression().fit(X, Y), X.tolist()),
    "numbers of type object": (LogisticRegression().fit(X, Y), X.astype(object)),
    "a DataFrame of type object": (SCORES, FRAME.astype(object)),
    "polars": (SCORES, pl.DataFrame({"a": X[:, 0], "b": X[:, 1]})),
    "words": (OF_WORDS, FRAME.assign(w=["z", "x"] * (N // 2))),
    "categories": (OF_WORDS, FRAME.assign(w=pd.Categorical(["z", "x"] * (N // 2)))),
    "more types": (
        OF_WORDS,
        FRAME.assign(
            w="x", t=pd.Timestamp("2020"), i=pd.array([1, None] * (N // 2), dtype="Int64"), o=True
        ),
    ),
}


@pytest.mark.parametrize("name", FITTING)
def test_what_fits_a_classifier_is_scored(name):
    model, rows = FITTING[name]
    budget = PrivacyBudget(3.0)
    fair = FairPrivatePostProcessor(model, budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of names
        fair.fit(rows, Y, sensitive_features=GROUP)
        good = np.arange(N) != 5 if name == "a missing value in a row" else np.arange(N) >= 0
        public = rows.filter(pl.Series(good)) if name == "polars" else np.asarray(rows)[good]
        public = rows[good] if isinstance(rows, pd.DataFrame) else public
        assert fair.predict(public, sensitive_features=GROUP[good]).shape == (good.sum(),)
    assert len(budget.history()) == 1
    if name == "a missing value in a row":  # public rows are refused aloud
        with pytest.raises(ValueError, match="NaN"):
            fair.predict(rows, sensitive_features=GROUP)


def test_a_refused_row_changes_no_other_answer():
    """Nor its rounding, which depends on the number of rows of a product."""
    rows = RNG.normal(size=(500, 30))
    weights = RNG.normal(size=(30, 3))
    refused = {7, 250, 251, 499}

    def ask(positions):
        if refused & set(positions.tolist()):
            raise ValueError
        return rows[positions] @ weights

    found = answers(ask, (500, 3))
    due = rows @ weights
    kept = [j for j in range(500) if j not in refused]
    np.testing.assert_array_equal(found[kept], due[kept])
    assert (found[list(refused)] == 0.0).all()
    assert (answers(lambda positions: 1 / 0, (9, 2)) == 0.0).all()
