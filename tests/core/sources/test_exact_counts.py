"""Exact counts add up in any order, travel as bytes, and are in nothing that anybody keeps."""

import copy
import gc
import io
import pickle
import weakref
from collections import Counter

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from skdpot import DPTableSynthesizer, PrivacyBudget, SlicedSketch
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema
from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.source import Source
from tests.core.sources.forms import TABLE as WHOLE

SECRET = 71310579
TABLE = WHOLE[["a", "b", "label"]]
SCHEMA = TableSchema(
    [
        NumericColumn("a", lower=-4, upper=4),
        NumericColumn("b", lower=-4, upper=4),
        CategoricalColumn("label", categories=["u", "v", "w"]),
    ]
)


def counts(numbers=(1, 2, SECRET), labels="uuv"):
    return ExactCounts((np.array(numbers), Counter(labels)), len(labels))


def content(found):
    return pickle.loads(found.packed())


def same(one, other):
    (tables, *rest), (others, *of_other) = content(one), content(other)
    return rest == of_other and all(
        np.array_equal(a, b) for a, b in zip(tables, others, strict=True)
    )


@pytest.mark.parametrize(
    "save",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda found: joblib.dump(found, io.BytesIO()),
        lambda found: pickle.dumps({"inside": [found]}),
        lambda found: clone(SlicedSketch(bounds=found)),
    ],
)
def test_counts_are_saved_by_no_accident(save):
    with pytest.raises(TypeError, match="can be neither pickled nor copied") as caught:
        save(counts())
    assert str(SECRET) not in str(caught.value)


def test_counts_are_not_shown():
    found = counts()
    for text in (repr(found), str(found), f"{found}", f"{found!r}", repr([found]), f"{found!a}"):
        assert text.strip("[]") == "ExactCounts(secret)"
    with pytest.raises(TypeError):
        vars(found)


batches = st.lists(st.lists(st.integers(0, 4), max_size=5), max_size=8)


@given(batches=batches, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_adding_is_exact_in_any_order(batches, seed):
    """Associative and commutative, with batches without rows and numbers beyond doubles."""
    large = 2**60 + 1

    def count(rows):
        if not rows:
            return ExactCounts()
        table = np.bincount(rows, minlength=5) * (large // 40)
        return ExactCounts((table, Counter(rows)), len(rows))

    rows = [row for batch in batches for row in batch]
    found = [count(batch) for batch in batches]
    np.random.default_rng(seed).shuffle(found)
    while len(found) > 1:
        one, other, *found = found
        before = one.packed(), other.packed()
        assert same(one + other, other + one)
        assert before == (one.packed(), other.packed())  # neither has changed
        found.append(ExactCounts.unpacked((one + other).packed()))
    assert same(sum(found, ExactCounts()), count(rows))
    assert same(ExactCounts.total(count(batch) for batch in batches), count(rows))


def test_a_problem_of_one_batch_is_one_of_the_sum():
    wrong = ExactCounts(problem="wrong")
    for found in (
        counts() + wrong,
        wrong + counts(),
        ExactCounts.total([counts(), wrong, counts()]),
    ):
        assert content(found) == ((), 0, "wrong")
    with pytest.raises(ValueError, match="zip"):
        counts() + ExactCounts((np.zeros(3),), 1)
    with pytest.raises(TypeError):
        counts() + 1


class Interrupted(Source):
    """Parts of a table; a pass is interrupted when half of it is counted."""

    head = TABLE[:0]

    def __init__(self, at, error):
        self.at, self.error, self.n_passes, self.held = at, error, 0, None

    def sum(self, count):
        self.n_passes += 1
        self.held = count(TABLE[:40])
        if self.n_passes == self.at:
            raise self.error
        return self.held + count(TABLE[40:])


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(("at", "charges"), [(1, 0), (2, 1)])
@pytest.mark.parametrize("kind", [SlicedSketch, DPTableSynthesizer])
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
def test_an_interrupted_fit_leaves_nothing_behind(kind, at, charges, error):
    """What was fitted before is there as it was, and no counts are held by anything."""
    rows = {"bounds": (-3, 3), "conditional": True}
    options = {"schema": SCHEMA, "n_particles": 100} if kind is DPTableSynthesizer else rows
    estimator = kind(epsilon=1.0, **options).fit(Interrupted(0, None), "label")
    estimator.set_params(budget=(budget := PrivacyBudget(2.5)))
    before = dict(vars(estimator))
    source = Interrupted(at, error)
    with pytest.raises((ValueError, KeyboardInterrupt)):
        estimator.fit(source, "label")
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is value for name, value in before.items())
    assert len(budget.history()) == charges
    left = weakref.ref(source)
    del source
    gc.collect()
    assert left() is None  # nothing holds on to the rows
