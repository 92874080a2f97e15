"""What a fit gives depends on private rows through its releases alone.

A fit on some rows is recorded at the gate of `skdpot.release.gate`. The same fit on other
rows is given the recorded noisy values in the place of its own. One row is replaced by a far
outlier, by a copy of another row or by the largest and smallest numbers that there are, or all of
them are, classes and targets as well where these are protected; persons get other numbers of rows.
Then everything must be the same to the last bit: what is released next and with
which scale of noise, every fitted attribute, what the estimator answers, prints and warns of, and
its pickle. A private number that takes another way than through the gate makes a difference.

Both fits draw the same secret numbers, by a seed. No charge is checked here:
`test_draws_are_charged` compares the noise with the event.
"""

import io
import pickle
import re
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline

from skdpot import (
    DPTableSynthesizer,
    FairPrivatePostProcessor,
    FairPrivateRegressor,
    FairPrivateTransformer,
    PrivateTrajectorySampler,
    SlicedSketch,
)
from skdpot.exceptions import ReplayError
from skdpot.preprocessing import PrivateScaler, TableEncoder
from skdpot.release.comparison import first_difference
from skdpot.release.gate import record_releases, replay_releases
from skdpot.sources import Source
from tests.contract.fits import (
    BINS,
    BOX,
    CLASSES,
    FITS,
    GROUPS,
    KNOWN,
    LABELS,
    PUBLIC,
    QUICK,
    ROWS,
    RULED,
    SKETCH,
    TABLE,
    D,
    N,
    X,
    case,
    flow,
    generator,
    sketch,
    swept,
)
from tests.flat_options import private_distance

AWARE = FairPrivatePostProcessor, FairPrivateTransformer
pytestmark = pytest.mark.usefixtures("few_synthetic_rows")

OTHER_TABLE = TABLE.assign(
    number=2 * X[::-1, 2],
    count=8 - TABLE["count"],
    kind=np.where(X[:, 1] > 0, "b", "c"),
    code=np.where(X[:, 1] > 0.5, "u", "v"),
)
OTHER_VISITS = OTHER_TABLE.loc[np.arange(310) % N].assign(who=np.arange(310) % N)


def neighbours(fit):
    """Replace the first row by one from far away, or by a copy of another, or replace all rows."""
    if not isinstance(fit.rows, pd.DataFrame):
        yield from islice(extremes(fit), 2)
    for place in ("far", "copy", "all"):
        other, given = fit.rows.copy(), dict(fit.given)
        if isinstance(other, pd.DataFrame):
            kind = "c" if getattr(fit.estimator, "schema", None) in (KNOWN, RULED) else "never seen"
            far = dict(zip(TABLE, (1e9, 8, kind, "v", True), strict=True))
            for column in other.columns.drop("who", errors="ignore"):
                other.loc[0, column] = (far if place == "far" else TABLE.iloc[7])[column]
            if place == "all":  # of as many persons, with fewer rows
                others = OTHER_VISITS if "who" in other else OTHER_TABLE
                other = others[other.columns].astype(other.dtypes)
        else:
            other[0] = -1e6 if place == "far" else other[7]
            other = 0.5 - 3.0 * other[::-1] ** 2 if place == "all" else other
        if fit.protects_y:
            y = given["y"].copy()
            if y.dtype == float:
                y[0] = 1e6 if place == "far" else y[7]
                given["y"] = y[::-1].copy() if place == "all" else y
            else:
                y[0] = (y[0] + 1) % 2
                given["y"] = y[::-1] % 2 if place == "all" else y  # nobody has a third class
        yield place, other, given


def furthest(fit):
    """Leave out the neighbours that other mechanisms of the same estimator are tried on."""
    return (other for other in neighbours(fit) if other[0] in ("far", "all", "largest"))


def extremes(fit):
    """Replace rows, or all, by the largest and smallest numbers of their type."""
    number = np.finfo(fit.rows.dtype)
    most, least, root = number.max, number.smallest_subnormal, np.sqrt(number.max)
    some = fit.rows.copy()
    for k, row in enumerate(([most], [most, -most, least], [least], [-0.0], [root, -root])):
        some[k] = np.resize(row, some.shape[1])  # the squares of the last one are the largest
    all_rows = {"some": some, "largest": most, "zero": 0.0, "least": least}
    for place, rows in all_rows.items():
        replaced = {"y": extreme_answers(fit.given["y"], place)} if fit.protects_y else {}
        yield place, np.full_like(fit.rows, rows), fit.given | replaced


def extreme_answers(y, place):
    """Return targets from far away, or one class for nearly all: which there are is public."""
    if y.dtype == float:
        most = np.finfo(float).max
        if place == "some":
            return np.concatenate([np.full_like(y[:1], most), np.full_like(y[:1], -most), y[2:]])
        return np.full_like(y, most if place == "least" else y.min())
    classes = np.repeat(np.unique(y), 2)  # for both domains of an adapter
    return np.r_[classes, np.full(len(y) - len(classes), classes[-int(place == "zero")])]


def of_persons(sizes, seed):
    """Rows of persons, as many of each as `sizes` say, in any order."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.normal(size=(len(groups), D))
    return X, {"groups": groups, "y": (X[:, 0] > 0).astype(int)}


def sizes_of_persons(fit):
    """Give as many persons other numbers of rows: many, one each, or all but one row to one."""
    n = len(np.unique(fit.given["groups"]))
    sizes = {
        "many": np.random.default_rng(2).integers(1, 40, n),
        "one each": np.ones(n, int),
        "thousands of one": np.r_[5000, np.ones(n - 1, int)],
    }
    for seed, (place, each) in enumerate(sizes.items()):
        X, given = of_persons(each, seed)
        yield place, X, {name: given[name] for name in fit.given}


def outputs(fitted):
    """Whatever can be had of a fitted estimator, from rows that are public."""
    public = PUBLIC
    if isinstance(fitted, TableEncoder | DPTableSynthesizer):
        public = TABLE.iloc[20:30][list(fitted.schema_.names)]
    elif getattr(fitted, "n_features_in_", D) == 40:
        public = np.zeros((3, 40))
    aware = getattr(fitted, "group_aware", isinstance(fitted, AWARE))
    given = {"sensitive_features": np.resize(GROUPS, len(public))} if aware else {}
    calls = {
        name: lambda name=name: getattr(fitted, name)(public, **given)
        for name in ("predict", "predict_proba", "decision_function", "transform", "score_samples")
    } | {
        "sample": lambda: fitted.sample(5, random_state=1),
        "sample_labeled": lambda: fitted.sample_labeled(5, random_state=1),
        "score": lambda: fitted.score(public, *answers(fitted, given), **given),
        "inverse_transform": lambda: fitted.inverse_transform(fitted.transform(public)),
        "quantiles": lambda: fitted.quantiles([0.1, 0.5]),
        "distance": lambda: fitted.distance(public),
        "contributions": lambda: fitted.contributions({"a": public, "b": public + 1.0}),
        "quality_report": lambda: report_of(fitted),
    }
    found = {"repr": repr(fitted)}
    if hasattr(fitted, "_repr_html_"):
        found["html"] = re.sub(r"id-\d+", "id", fitted._repr_html_())
    if not getattr(fitted, "conditional", False):
        del calls["sample_labeled"]
    for name, call in calls.items():
        if hasattr(fitted, name):
            found[name] = call()
    return found


def report_of(fitted):
    parts = vars(fitted.quality_report(n_samples=200, random_state=1))
    return {name: part for name, part in parts.items() if name != "created"}  # the time


def answers(fitted, given):
    """Targets of the public rows, where a score needs them."""
    if isinstance(fitted, PrivateTrajectorySampler):
        return ([fitted.times_[0]] * len(PUBLIC),)
    if isinstance(fitted, FairPrivateRegressor):
        return (fitted.predict(PUBLIC, **given) + 1.0,)
    return (np.zeros(len(PUBLIC), dtype=int),) if hasattr(fitted, "classes_") else ()


def result(fit, rows, given):
    """Fit, and return everything that may be seen."""
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        fitted = fit(rows, **given)
        found = outputs(fitted)
    return {
        "printed": printed.getvalue(),
        "warnings": [(w.category, str(w.message)) for w in caught],
        "attributes": dict(vars(fitted)),
        "outputs": found,
        "pickle": pickled(fitted),
    }


class Pickler(pickle.Pickler):
    """Writes tensors as arrays: torch writes where in memory they are."""

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor):
            return np.asarray, (value.detach().numpy(),)
        return NotImplemented


def pickled(fitted):
    buffer = io.BytesIO()
    Pickler(buffer).dump(fitted)
    return buffer.getvalue()


def check_replay(fit, make, neighbours=neighbours):
    """Fail if anything but what passes the gate makes a difference."""
    with record_releases(forgetting=False) as releases:
        expected = result(make, fit.rows, fit.given)
    for place, other, given in neighbours(fit):
        try:
            with replay_releases(releases):
                found = result(make, other, given)
        except ReplayError as error:
            pytest.fail(f"{place}: {error}")
        different = first_difference(expected, found)
        assert different is None, f"{place}: {different}"
    return releases


@pytest.mark.parametrize("name", swept(FITS))
def test_a_fit_follows_from_its_releases(name):
    """Trials of a search that are forgotten too: the winner depends on their noisy scores."""
    fit = FITS[name]
    # Much epsilon, so that bounds are found and choices are made.
    seeded = {"epsilon": 50.0, "random_state": 3}
    others = neighbours if name in QUICK else furthest
    releases = check_replay(fit, lambda X, **given: fit.chosen(**seeded).fit(X, **given), others)
    assert bool(releases) == (name != "encoder, all known")


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "name",
    ["scaler", "sketch, box", *map(slow, ("sketch", "flow, moments", "regressor, odds"))],
)
def test_a_fit_on_extreme_numbers_follows_from_its_releases(name, dtype):
    """Of both types of numbers; in double precision the test of all fits has such rows."""
    fit = ROWS[name]._replace(rows=ROWS[name].rows.astype(dtype))
    seeded = {"epsilon": 50.0, "random_state": 3}
    check_replay(fit, lambda X, **given: fit.chosen(**seeded).fit(X, **given), extremes)


SEVERAL, OF_SEVERAL = of_persons(np.random.default_rng(0).integers(1, 4, N), 1)
PERSONS = {
    "sketch": sketch(),
    "sketch, box": sketch(**BOX),
    "sketch, classes": sketch(**CLASSES, **BOX),
    "flow": flow("sketch", **BINS),
    "distance": case(private_distance(**SKETCH)),
    "generator": generator("sketch", **BINS),
}


@pytest.mark.parametrize("name", [n if n.startswith("sketch, ") else slow(n) for n in PERSONS])
def test_a_fit_on_persons_follows_from_its_releases(name):
    """How many rows a person has is private."""
    given = {"groups": OF_SEVERAL["groups"]} | ({"y": OF_SEVERAL["y"]} if "classes" in name else {})
    fit = PERSONS[name]._replace(rows=SEVERAL, given=given)
    seeded = {"epsilon": 50.0, "random_state": 3}
    make = lambda X, **given: fit.chosen(**seeded).fit(X, **given)  # noqa: E731
    assert check_replay(fit, make, sizes_of_persons)


def streamed(rows, y):
    """A sketch of rows that came in chunks, and another one added."""
    options = {**SKETCH, **BOX, **CLASSES, "projections": np.eye(D)}
    public = SlicedSketch(**options, random_state=4).fit(PUBLIC, np.arange(20) % 3)
    sketch = SlicedSketch(**options, random_state=3)
    for chunk, labels in zip(np.split(rows, 4), np.split(y, 4), strict=True):
        sketch.partial_fit(chunk, labels, n_samples=len(rows))
    return sketch.merge(public)


def published(rows):
    """What a party would publish of rows that are not those of its fit."""
    fitted = private_distance(**SKETCH, random_state=3).fit(PUBLIC)
    return SimpleNamespace(published=fitted.transform(rows))


def piped(rows):
    """The second of two private steps, on what the first has made of the rows."""
    steps = PrivateScaler(random_state=3), flow("sketch", **BINS).chosen(random_state=4)
    return make_pipeline(*steps).fit(rows)[-1]


class Halves(Source):
    """Rows in two batches."""

    head = None

    def __init__(self, rows):
        self.rows, self.head = rows, rows[:0]

    def sum(self, count):
        return count(self.rows[:100]) + count(self.rows[100:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sketch", "encoder", "synthesizer"])
def test_a_fit_of_batches_follows_from_its_releases(name):
    fit = FITS[name]
    seeded = {"epsilon": 50.0, "random_state": 3}
    assert check_replay(fit, lambda rows: fit.chosen(**seeded).fit(Halves(rows)))


@pytest.mark.parametrize("make", [streamed, published, piped])
def test_what_is_made_of_several_releases_follows_from_them(make):
    fit = case(None, y=LABELS, protects_y=True) if make is streamed else case(None)
    assert check_replay(fit, make)
