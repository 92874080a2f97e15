"""Rows beyond the bounds are clipped one by one, and no finite value is an error after the charge.

Noise is seeded, so that two fits that see the same clipped rows are equal to the last bit.
"""

import numpy as np
import pandas as pd
import pytest
import torch

from skdpot import (
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
    TableEncoder,
)
from tests.estimators.reachable import reachable
from tests.flat_options import flat_options, flow_sampler, sliced_generator

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]

N = 200
ROWS = np.random.default_rng(0).uniform(-1, 1, (N, 3))
FAR = ROWS.copy()
FAR[:5] = [
    [1e308, -1.7e308, 5.0],
    [-1.7e308, 1.7e308, -1e-320],
    [5e-324, -1e30, 1.0000001],
    [3e38, -3e38, 1e39],
    [-1.0, 1.0, -1.0000000000000002],
]
HALVES, THIRDS = np.arange(N) % 2, np.arange(N) % 3
SHORT = {"n_steps": 3}
FLOW = SHORT | {"n_particles": 50}

# What is fitted, and the arguments besides the rows.
BOUNDED = {
    "sketch": (SlicedSketch, {}, ()),
    "sketch with classes": (SlicedSketch, {"conditional": True}, (HALVES,)),
    "flow by a sketch": (flow_sampler, FLOW, ()),
    "flow, resample": (flow_sampler, FLOW | {"mechanism": "resample", "batch_size": 50}, ()),
    "flow, presample": (flow_sampler, FLOW | {"mechanism": "presample"}, ()),
    "generator by a sketch": (sliced_generator, SHORT, ()),
    "generator, smoothing": (sliced_generator, SHORT | {"mechanism": "smoothing"}, ()),
    "generator, gradient": (sliced_generator, SHORT | {"mechanism": "gradient"}, ()),
    "autoencoder": (PrivateSWAutoencoder, SHORT | {"latent_dim": 2}, ()),
    "distance": (PrivateWassersteinDistance, {}, ()),
    "trajectories by a sketch": (PrivateTrajectorySampler, {"n_particles": 10}, (THIRDS,)),
    "trajectories, mfld": (
        PrivateTrajectorySampler,
        {"mechanism": "mfld", "n_particles": 10},
        (THIRDS,),
    ),
}
FAR_TARGET = np.where(np.arange(N) == 0, 1.7e308, HALVES).astype(float)
FREE = {
    "scaler": (PrivateScaler, {}, ()),
    "encoder": (TableEncoder, {}, ()),
    "synthesizer": (DPTableSynthesizer, {"n_particles": 500}, ()),
    "fair classifier": (FairPrivateClassifier, SHORT, (HALVES,)),
    "fair classifier, equalized odds": (
        FairPrivateClassifier,
        SHORT | {"fairness": "equalized_odds"},
        (HALVES,),
    ),
    "fair regressor": (FairPrivateRegressor, SHORT | {"target_bounds": (0, 1)}, (FAR_TARGET,)),
    "fair regressor, no bounds": (FairPrivateRegressor, SHORT, (FAR_TARGET,)),
}
EVERY = {name: (make, {"bounds": "private"} | options, arguments)
         for name, (make, options, arguments) in BOUNDED.items()} | FREE  # fmt: skip


def made(case, **more):
    make, options, _ = case
    return make(**flat_options(make, epsilon=2.0, random_state=0, **options, **more))


def fit(estimator, case, rows):
    make, _, arguments = case
    if make in (TableEncoder, DPTableSynthesizer):
        rows = pd.DataFrame(rows, columns=["a", "b", "c"])
    groups = {"sensitive_features": THIRDS % 2} if "Fair" in make.__name__ else {}
    return estimator.fit(rows, *arguments, **groups)


def numbers(estimator):
    """Return all arrays of a fitted estimator, in an order of their own."""
    found = [value for value in reachable(vars(estimator)).values()]
    tensors = [v.detach().numpy() for v in found if isinstance(v, torch.Tensor)]
    return [v for v in found if isinstance(v, np.ndarray) and v.dtype.kind in "fiu"] + tensors


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", BOUNDED)
def test_rows_beyond_the_bounds_count_as_rows_on_them(name, dtype):
    with np.errstate(over="ignore"):
        far = np.nan_to_num(FAR.astype(dtype))
    case = BOUNDED[name]
    first, second = (
        numbers(fit(made(case, bounds=(-1, 1)), case, rows)) for rows in (far, np.clip(far, -1, 1))
    )
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", EVERY)
def test_no_finite_value_is_an_error_after_the_charge(name):
    """Nor a warning of numpy, whatever the caller has told numpy to raise."""
    case = EVERY[name]
    budget = PrivacyBudget(9.0)
    with np.errstate(all="raise"):
        fitted = fit(made(case, budget=budget), case, FAR)
    assert len(budget.history()) == 1
    assert all(np.isfinite(array).all() for array in numbers(fitted))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("encoder", "synthesizer")])
def test_what_is_not_finite_is_refused_before_the_charge(name, bad):
    """Of a table NaN is a missing value; infinity is refused in `test_table_encoder`."""
    case, rows = EVERY[name], ROWS.copy()
    rows[7, 1] = bad
    budget = PrivacyBudget(9.0)
    estimator = made(case, budget=budget)
    before = set(vars(estimator))
    with pytest.raises(ValueError, match="contains NaN|infinity"):
        fit(estimator, case, rows)
    assert budget.epsilon_spent() == 0.0
    assert set(vars(estimator)) == before
