"""Rows beyond the bounds are clipped one by one, and no finite value is an error after the charge.

Noise is seeded, so that two fits that see the same clipped rows are equal to the last bit.
"""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from skdpot import FairPrivateRegressor, PrivacyBudget
from tests.contract.fits import FITS, N, swept
from tests.contract.reachable import reachable

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
    pytest.mark.usefixtures("few_synthetic_rows"),
]

ROWS = np.random.default_rng(0).uniform(-1, 1, (N, 3))
FAR = ROWS.copy()
FAR[:5] = [
    [1e308, -1.7e308, 5.0],
    [-1.7e308, 1.7e308, -1e-320],
    [5e-324, -1e30, 1.0000001],
    [3e38, -3e38, 1e39],
    [-1.0, 1.0, -1.0000000000000002],
]
FAR_TARGET = np.where(np.arange(N) == 0, 1.7e308, np.arange(N) % 2).astype(float)
BOUNDED = (
    "sketch", "sketch, classes", "flow", "flow, resample", "flow, presample", "generator",
    "generator, smoothing", "generator, gradient", "autoencoder", "distance", "paths",
    "paths, mfld",
)  # fmt: skip
NUMERIC = (*BOUNDED, "scaler", "classifier", "classifier, odds", "regressor, bounds", "regressor")
OF_TABLES = ("encoder", "synthesizer, nothing known")


def ready(name, rows, **options):
    """Return an estimator, and what fits it."""
    given = dict(FITS[name].given)
    if name in OF_TABLES:
        rows = pd.DataFrame(rows, columns=["a", "b", "c"])
    if isinstance(FITS[name].estimator, FairPrivateRegressor):
        given["y"] = FAR_TARGET
    chosen = FITS[name].chosen(epsilon=2.0, random_state=0, **options)
    return chosen, partial(chosen.fit, rows, **given)


def numbers(estimator):
    """Return all arrays of a fitted estimator, in an order of their own."""
    found = [value for value in reachable(vars(estimator)).values()]
    tensors = [v.detach().numpy() for v in found if isinstance(v, torch.Tensor)]
    return [v for v in found if isinstance(v, np.ndarray) and v.dtype.kind in "fiu"] + tensors


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", swept(BOUNDED))
def test_rows_beyond_the_bounds_count_as_rows_on_them(name, dtype):
    with np.errstate(over="ignore"):
        far = np.nan_to_num(FAR.astype(dtype))
    fits = (ready(name, rows, bounds=(-1, 1))[1] for rows in (far, np.clip(far, -1, 1)))
    first, second = (numbers(fit()) for fit in fits)
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", swept([*NUMERIC, *OF_TABLES]))
def test_no_finite_value_is_an_error_after_the_charge(name):
    """Nor a warning of numpy, whatever the caller has told numpy to raise."""
    budget = PrivacyBudget(9.0)
    fitted, fit = ready(name, FAR, budget=budget)
    with np.errstate(all="raise"):
        fit()
    assert len(budget.history()) == 1
    assert all(np.isfinite(array).all() for array in numbers(fitted))


class Steep(torch.nn.Module):
    """Finite on the cube; far away it overflows, or has no value at all."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)

    def forward(self, rows):
        return self.linear(rows) * torch.exp(rows[:, :1]) * torch.sqrt(rows[:, 1:2] + 1.5)


@pytest.mark.parametrize("mechanism", ["barycenter", "sketch", "ranks"])
def test_no_row_makes_a_network_fail_or_warn(mechanism):
    groups, targets, rows = np.arange(N) % 2, ROWS[:, 0], ROWS.copy()
    rows[7:10] = np.array([-5.0, 600.0, 1e6])[:, None]
    options = {"mechanism": mechanism, "target_bounds": (-1, 1), "module": Steep()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        FairPrivateRegressor(epsilon=2.0, **options).fit(rows, targets, sensitive_features=groups)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", swept(NUMERIC))
def test_what_is_not_finite_is_refused_before_the_charge(name, bad):
    """Of a table NaN is a missing value; infinity is refused in `test_table_encoder`."""
    rows, budget = ROWS.copy(), PrivacyBudget(9.0)
    rows[7, 1] = bad
    estimator, fit = ready(name, rows, budget=budget)
    before = set(vars(estimator))
    with pytest.raises(ValueError, match="contains NaN|infinity"):
        fit()
    assert budget.epsilon_spent() == 0.0
    assert set(vars(estimator)) == before
