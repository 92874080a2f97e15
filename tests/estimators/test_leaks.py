"""Attributes, pickles, texts: all are outputs, and none holds anything without noise."""

import io
import pickle

import joblib
import numpy as np
import pytest

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot.slicing import square_root_strategy
from tests.estimators.reachable import reachable

RNG = np.random.default_rng(8841)
N_BINS = 16
CANARY = np.array([123456.789, -98765.4321, 31415.9265])
X = RNG.uniform(-1e5, 1e5, (300, 3))
X[17] = CANARY
Y = np.repeat([0, 1, 2], [50, 173, 77])
BOUNDS = (-200_000, 200_000)
AXES = np.eye(3)


def fitted(kind, conditional):
    options = {"bounds": BOUNDS, "slices": AXES, "n_bins": N_BINS, "conditional": conditional}
    options["budget"] = PrivacyBudget(5.0)
    if kind == "sampler":
        return DPSlicedFlowSampler(**options, n_steps=5, n_particles=60, verbose=0).fit(X, Y)
    if kind == "stream":
        sketch = SlicedSketch(**options, classes=[0, 1, 2])
        for rows in np.array_split(np.arange(300), 4):
            sketch.partial_fit(X[rows], Y[rows], n_samples=300)
        return sketch
    return SlicedSketch(**options).fit(X, Y)


KINDS = [(kind, c) for kind in ("sketch", "stream", "sampler") for c in (False, True)]


def stored(estimator):
    buffer = io.BytesIO()
    joblib.dump(estimator, buffer)
    return [pickle.dumps(estimator, protocol=p) for p in (0, 2, 4, 5)] + [buffer.getvalue()]


def forms(array):
    """Bytes of an array in the types that a program might keep it in."""
    array = np.asarray(array)
    kinds = [np.float64, np.float32]
    if np.array_equal(array, np.rint(array)):
        kinds += [np.int64, np.int32, np.int16, np.uint8]
    for kind in kinds:
        yield array.astype(kind).tobytes()


def exact_counts(conditional):
    bins = np.clip(np.floor((X / 200_000 + 1) / 2 * N_BINS), 0, N_BINS - 1).astype(int)
    groups = [Y == k for k in range(3)] if conditional else [slice(None)]
    return np.array(
        [[np.bincount(column, minlength=N_BINS) for column in bins[group].T] for group in groups]
    )


@pytest.mark.parametrize(("kind", "conditional"), KINDS)
def test_no_private_row_is_in_a_pickle(kind, conditional):
    estimator = fitted(kind, conditional)
    mapped = X / 200_000
    for content in stored(estimator):
        for row in (*X[:30], *mapped[:30], CANARY, CANARY / 200_000):
            assert not any(form in content for form in forms(row))
        for column in (X.T, mapped.T):
            assert not any(part[:4].tobytes() in content for part in column)
        assert b"123456.789" not in content
        assert np.float64(CANARY[0]).tobytes() not in content
        assert np.float32(CANARY[0]).tobytes() not in content


@pytest.mark.parametrize(("kind", "conditional"), KINDS)
def test_no_count_without_noise_is_kept(kind, conditional):
    """Neither a histogram, nor its prefix sums, nor the statistic, nor the class sizes."""
    estimator = fitted(kind, conditional)
    counts = exact_counts(conditional)
    statistic = counts @ square_root_strategy(N_BINS).matrix.T
    exact = [counts, counts.cumsum(axis=2), statistic, statistic * 16]
    rows = [row for table in exact for row in table.reshape(-1, N_BINS)]
    # The rows lie in the middle half of the bins: parts of a table are looked for there.
    rows += [row for table in exact for row in table.reshape(-1, N_BINS)[:, 4:12]]
    if conditional:
        rows += [counts.sum(axis=2)[:, 0], counts.sum(axis=2)[:, 0] / 300]
    for content in stored(estimator):
        for row in rows:
            assert not any(form in content for form in forms(row))
    sizes = {table.shape for table in exact}
    for value in reachable(estimator).values():
        if isinstance(value, np.ndarray) and value.shape in sizes and value.dtype.kind in "if":
            for table in exact:
                assert not np.array_equal(value, table)


@pytest.mark.parametrize(("kind", "conditional"), KINDS)
def test_nothing_of_the_size_of_the_data_is_kept(kind, conditional):
    """Rows, codes, orders and bins all have an axis of 300; synthetic rows are 60."""
    for value in reachable(fitted(kind, conditional)).values():
        assert 300 not in np.shape(value) if isinstance(value, np.ndarray) else True
        assert len(value) != 300 if isinstance(value, (list, tuple, str, bytes)) else True


@pytest.mark.parametrize(("kind", "conditional"), KINDS)
def test_labels_are_not_kept(kind, conditional):
    estimator = fitted(kind, conditional)
    for content in stored(estimator):
        for labels in (Y, Y == 1):
            assert not any(form in content for form in forms(labels))


@pytest.mark.parametrize(("kind", "conditional"), KINDS)
def test_texts_hold_no_private_number(kind, conditional):
    estimator = fitted(kind, conditional)
    spent = estimator.privacy_spent_
    texts = [repr(estimator), str(estimator), estimator._repr_html_(), repr(estimator.budget)]
    texts += [repr(spent), str(spent), spent._repr_html_(), estimator.budget._repr_html_()]
    texts.append(estimator.budget.history().to_string())
    texts.append(spent.to_frame().to_string())
    for hidden in ("123456.", "98765.4", "31415.9"):
        assert not any(hidden in text for text in texts)


def test_particles_are_not_rows():
    particles = fitted("sampler", True).particles_
    nearest = np.min(np.abs(particles[:, None] - X[None]).max(axis=2))
    assert nearest > 0


def test_the_same_rows_give_other_statistics_every_time():
    first, second = (fitted("sketch", False).statistic_ for _ in range(2))
    assert np.mean(first == second) < 0.1


def test_noise_cannot_be_replayed_from_numpy_or_torch_seeds():
    """Only random_state makes noise reproducible, and then it warns."""
    import torch

    tables = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002, TID251
        torch.manual_seed(0)  # noqa: TID251
        tables.append(fitted("sketch", False).statistic_)
    assert np.mean(tables[0] == tables[1]) < 0.1
