"""Fuzzing of functions: metrics, data sets, distances along directions, budgets, events."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from skdpot import PrivacyBudget, datasets
from skdpot.fair import rates as fairness
from skdpot.ot import distances, transport
from skdpot.privacy import (
    GaussianEvent,
    SampledGaussianEvent,
    calibrate,
    compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
)
from skdpot.privacy.targets import PrivacyTarget
from skdpot.trajectories import path_metrics
from skdpot.trajectories.ornstein_uhlenbeck import OrnsteinUhlenbeck
from tests.contract.fuzz_harness import attempt
from tests.contract.fuzz_strategies import constants, labels, tables

ANY = constants()


def usually(*values: Any) -> Any:
    """Return a strategy of usable values, and of anything."""
    return st.one_of(st.sampled_from(values), st.sampled_from(values), ANY)


ROWS = tables(width=2, usable=70).map(lambda table: table.value)
LABELS = labels(12, usable=70).map(lambda column: column[1])
PATHS = usually(np.linspace(0, 1, 24).reshape(4, 3, 2), np.zeros((4, 3, 2)), [[[1.0]]])
STAMPS = usually(np.array([0.0, 0.5, 1.0]), [0, 1, 2], [0.0, 0.0, 1.0], 0.5)
COUNT = usually(1, 5, 12)
VALUES = usually(np.arange(12.0), [1.0], [[1.0]])
COVARIANCE = usually(0.05, [0.1, 0.2], np.eye(2), -np.eye(2))
MEAN = usually(0.0, [1.0, 2.0], np.zeros(2))
VARIANCE = usually(0.0, 0.1, 0.4)

# What is drawn for a parameter of this name.
ARGUMENTS = {
    **dict.fromkeys(("X", "Y"), ROWS),
    **dict.fromkeys(("y_true", "sensitive_features"), LABELS),
    "y_pred": st.one_of(st.just(np.arange(12) % 3 // 2), LABELS),
    "scores": usually(np.linspace(0, 1, 12), np.ones((12, 2))),
    "pos_label": usually(None, 1, "a"),
    "reference": usually(None, 0, 1),
    **dict.fromkeys(("first", "second", "paths"), PATHS),
    **dict.fromkeys(("t", "times", "at", "time"), STAMPS),
    "points": st.one_of(ROWS, PATHS),
    "p": usually(1, 2, 2.5, 50),
    **dict.fromkeys(("u", "v"), VALUES),
    **dict.fromkeys(
        ("X_weights", "Y_weights", "u_weights", "v_weights"),
        usually(None, np.ones(12), np.zeros(12)),
    ),
    **dict.fromkeys(("n_projections", "n_samples", "n_paths", "n_steps", "max_points"), COUNT),
    "random_state": usually(None, 0, np.random.RandomState(0)),
    "mean": MEAN,
    "covariance": COVARIANCE,
    "metric": ANY,
    "greater_is_better": usually(True, False),
    "response_method": usually("predict", "predict_proba"),
    "sample_marginal": usually(lambda time, n: np.zeros((n, 2))),
    "alignment": usually(0.0, 0.7, 1.0),
    "n_core": usually(2, 4, 3),
    "n_spurious": usually(0, 3),
    **dict.fromkeys(("core_variance", "spurious_variance", "noise_variance"), VARIANCE),
    "n_per_time": usually(3, [1, 2, 3]),
    "n_times": usually(3),
    "n_features": usually(1, 2, 3),
    "turns": usually(0.0, 1.0),
    "n_genes": usually(20, 50),
    "dropout": usually(0.0, 1.0),
    "duration": usually(1.0, 1e-9),
    "law": st.fixed_dictionaries(
        {},
        optional={
            "mean_reversion": usually(0.0, 2.0, [1.0, 2.0]),
            "rotation": usually(0.0, 3.0, [1.0]),
            "mean": MEAN,
            "diffusivity": VARIANCE,
            "initial_mean": usually(1.0),
            "initial_covariance": COVARIANCE,
        },
    ),
    "epsilon": usually(1.0, 0.1, 50, float("inf")),
    "delta": usually(1e-5, 0.5),
    "mu": usually(1.0),
    "sigma": usually(1.0, 20.0, 1e-9, 1e9),
    "sensitivity": usually(1.0, 2),
    "lattice": usually(None, 0.1),
    "sampling": usually("poisson", "fixed_size"),
    "of_batches": st.one_of(
        st.fixed_dictionaries({"sampling_rate": usually(0.5, 1.0)}),
        st.fixed_dictionaries({"batch_sizes": usually((5,)), "group_sizes": usually((50,))}),
    ),
    "label": usually("a", "", "b"),
    "ledger": ANY.filter(lambda value: not (isinstance(value, str) and value)),
    "event": ANY,
}


def law_density(time: Any, points: Any) -> Any:
    """Read the law of a process."""
    law = OrnsteinUhlenbeck.of(n_features=2)
    return [law.mean(time).sum(), law.covariance(time).sum(), law.density(points, time).sum()]


def spend(epsilon: Any, delta: Any, sigma: Any, label: Any) -> Any:
    """Make a budget and charge it."""
    budget = PrivacyBudget(epsilon, delta)
    budget.spend(GaussianEvent(sigma=sigma, sensitivity=1.0), label=label)
    return [budget.epsilon_spent(), budget.remaining(), len(budget.history())]


def gaussian(sigma: Any, sensitivity: Any, n_steps: Any = 1, lattice: Any = None) -> Any:
    """Account for Gaussian noise."""
    options = {"n_steps": n_steps, "lattice": lattice}
    return compose(GaussianEvent(sigma=sigma, sensitivity=sensitivity, **options)).epsilon(1e-5)


def sampled(sigma: Any, sensitivity: Any, sampling: Any, n_steps: Any, of_batches: Any) -> Any:
    """Account for batches."""
    options = {"sampling": sampling, "n_steps": n_steps} | of_batches
    event = SampledGaussianEvent(sigma=sigma, sensitivity=sensitivity, **options)
    return compose(event).epsilon(1e-5)


@dataclass(frozen=True)
class Function:
    """A function with arguments by the names of its parameters.

    Attributes
    ----------
    call : callable
        What is fuzzed.
    undefined : bool
        Whether NaN and infinity are answers that the documentation gives a meaning.
    allowed : tuple of exception types
        What is accepted beside the documented errors.
    """

    call: Callable[..., Any]
    undefined: bool = False
    allowed: tuple[type[Exception], ...] = ()


def of(module: Any, names: Iterable[str], *, undefined: bool = False) -> dict[str, Function]:
    """Return functions of a module."""
    short = module.__name__.rpartition(".")[2]
    return {f"{short}.{name}": Function(getattr(module, name), undefined) for name in names}


DISTANCES = (
    *("wasserstein_distance", "sliced_wasserstein_distance", "frechet_distance"),
    "GaussianStatistics",
)
PATHS_COMPARED = (
    "resample_paths",
    *("marginal_wasserstein_distances", "path_sliced_wasserstein_distance"),
)
FAIRNESS = (
    *("disparate_impact", "demographic_parity_difference"),
    *("equalized_odds_difference", "equalized_odds_ratios"),
    *("make_parity_scorer", "wasserstein_parity"),
)
FUNCTIONS: dict[str, Function] = {
    **of(distances, DISTANCES),
    **of(path_metrics, PATHS_COMPARED),
    **of(fairness, FAIRNESS, undefined=True),
    **of(datasets, (name for name in datasets.__all__ if name != "OrnsteinUhlenbeck")),
    "datasets.OrnsteinUhlenbeck": Function(law_density, undefined=True),
    **of(transport, ("wasserstein_1d",)),
    "PrivacyBudget": Function(spend, undefined=True),
    "PrivacyBudget.ledger": Function(
        lambda ledger: PrivacyBudget(1.0, ledger=ledger), undefined=True
    ),
    "PrivacyBudget.can_afford": Function(lambda event: PrivacyBudget(1.0).can_afford(event)),
    # The grid of a sampled event grows with 1 / sigma.
    "privacy.GaussianEvent": Function(gaussian, undefined=True, allowed=(MemoryError,)),
    "privacy.SampledGaussianEvent": Function(sampled, undefined=True, allowed=(MemoryError,)),
    "privacy.PrivacyTarget": Function(
        lambda epsilon, delta: PrivacyTarget(epsilon, delta).mu_cap, undefined=True
    ),
    "privacy.calibrate": Function(
        lambda epsilon, delta: calibrate(
            PrivacyTarget(epsilon, delta), lambda sigma: GaussianEvent(sigma=sigma, sensitivity=1.0)
        )
    ),
    "privacy.gdp_delta": Function(gdp_delta),
    "privacy.gdp_epsilon": Function(gdp_epsilon, undefined=True),
    "privacy.gdp_mu": Function(gdp_mu, undefined=True),
}


@st.composite
def arguments(
    draw: st.DrawFn, call: Callable[..., Any], known: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Draw arguments by the names of parameters, those with a default half of the time."""
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            args = (draw(known[name]),)
        elif parameter.kind is parameter.VAR_KEYWORD:
            options |= draw(known.get(name, st.just({})))
        elif parameter.default is parameter.empty or draw(st.booleans()):
            options[name] = draw(known[name])
    return args, options


def check_function(draw: st.DrawFn, name: str, call: Function) -> None:
    """Call a function with whatever is drawn; what it is given is public."""
    _, options = draw(arguments(call.call, ARGUMENTS))
    outcome = attempt(name, lambda: call.call(**options), private=False, allowed=call.allowed)
    if outcome.error is None and not call.undefined:
        assert is_number(outcome.value), f"{name} {options!r}: {outcome.value!r}"


def is_number(value: Any, *, missing: bool = False) -> bool:
    """Whether no part of a result is infinite, or, where nothing may be missing, NaN."""
    if isinstance(value, tuple | list):
        return all(is_number(one, missing=missing) for one in value)
    if isinstance(value, pd.DataFrame):
        return is_number(value.select_dtypes("number").to_numpy(), missing=missing)
    found = np.asarray(value)
    if found.dtype.kind not in "fc":
        return True
    return not np.isinf(found).any() and (missing or not np.isnan(found).any())
