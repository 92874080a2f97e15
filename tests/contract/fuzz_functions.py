"""Fuzzing of functions: metrics, data sets, distances along directions, budgets, events."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from skdpot import PrivacyBudget, datasets, metrics, slicing
from skdpot.privacy import (
    GaussianEvent,
    PrivacyTarget,
    SampledGaussianEvent,
    calibrate,
    compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
)
from tests.contract.fuzz_harness import attempt
from tests.contract.fuzz_strategies import constants, labels, tables

__all__ = ["FUNCTIONS", "check_function"]

ROWS = tables(width=2, usable=70).map(lambda table: table.value)
LABELS = labels(12, usable=70).map(lambda column: column[1])
DECISIONS = st.one_of(st.just(np.arange(12) % 3 // 2), LABELS)
ANY = constants()


def usually(*values: Any) -> Any:
    """Return a strategy of usable values, and of anything."""
    return st.one_of(st.sampled_from(values), st.sampled_from(values), ANY)


@dataclass(frozen=True)
class Function:
    """A function with strategies of its arguments.

    Attributes
    ----------
    call : callable
        What is fuzzed.
    arguments : tuple
        Strategies of what is always passed.
    options : dict
        Strategies of keywords, each passed half of the time; those with a name in `always` are
        always passed.
    always : tuple of str
        Keywords that have no default.
    undefined : bool
        Whether NaN and infinity are answers that the documentation gives a meaning.
    allowed : tuple of exception types
        What is accepted beside the documented errors.
    """

    call: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] | None = None
    always: tuple[str, ...] = ()
    undefined: bool = False
    allowed: tuple[type[Exception], ...] = ()


SEED = usually(None, 0, np.random.RandomState(0))
RATES = {"sensitive_features": LABELS, "pos_label": usually(None, 1, "a")}
DIRECTED = RATES | {"reference": usually(None, 0, 1)}
GROUPS = ("sensitive_features",)
PATHS = usually(np.linspace(0, 1, 24).reshape(4, 3, 2), np.zeros((4, 3, 2)), [[[1.0]]])
STAMPS = usually(np.array([0.0, 0.5, 1.0]), [0, 1, 2], [0.0, 0.0, 1.0], 0.5)
COUNT = usually(1, 5, 12)
EVENT = {"sigma": usually(1.0, 1e-9, 1e9), "sensitivity": usually(1.0, 2)}
WEIGHTS = usually(None, np.ones(12), np.zeros(12))
ORDER = usually(1, 2, 2.5, 50)


def spend(epsilon: Any, delta: Any, sigma: Any, label: Any) -> Any:
    """Make a budget and charge it."""
    budget = PrivacyBudget(epsilon, delta)
    budget.spend(GaussianEvent(sigma=sigma, sensitivity=1.0), label=label)
    return [budget.epsilon_spent(), budget.remaining(), len(budget.history())]


def affords(what: Any) -> Any:
    """Ask whether a budget can pay for whatever is passed."""
    return PrivacyBudget(1.0).can_afford(what)


def law_density(time: Any, points: Any) -> Any:
    """Read the law of a process."""
    law = datasets.OrnsteinUhlenbeck.of(n_features=2)
    return [law.mean(time).sum(), law.covariance(time).sum(), law.density(points, time).sum()]


FUNCTIONS: dict[str, Function] = {
    "metrics.wasserstein_distance": Function(
        metrics.wasserstein_distance,
        (ROWS, ROWS),
        {"p": ORDER, "X_weights": WEIGHTS, "Y_weights": WEIGHTS},
    ),
    "metrics.sliced_wasserstein_distance": Function(
        metrics.sliced_wasserstein_distance,
        (ROWS, ROWS),
        {"p": ORDER, "n_projections": COUNT, "random_state": SEED, "X_weights": WEIGHTS},
    ),
    "metrics.frechet_distance": Function(metrics.frechet_distance, (ROWS, ROWS)),
    "metrics.GaussianStatistics": Function(
        metrics.GaussianStatistics, (usually(np.zeros(2)), usually(np.eye(2), -np.eye(2)))
    ),
    **{
        f"metrics.{name}": Function(
            getattr(metrics, name), (DECISIONS,), options, GROUPS, undefined=True
        )
        for name, options in {
            "disparate_impact": DIRECTED,
            "demographic_parity_difference": RATES,
            "selection_rates": RATES | {"y_true": LABELS},
        }.items()
    },
    **{
        f"metrics.{name}": Function(
            getattr(metrics, name), (LABELS, DECISIONS), options, GROUPS, undefined=True
        )
        for name, options in {
            "equalized_odds_difference": RATES,
            "equalized_odds_ratio": RATES,
            "equalized_odds_ratios": DIRECTED,
        }.items()
    },
    "metrics.wasserstein_parity": Function(
        metrics.wasserstein_parity,
        (usually(np.linspace(0, 1, 12), np.ones((12, 2))),),
        {
            "sensitive_features": LABELS,
            "y_true": LABELS,
            "n_projections": COUNT,
            "random_state": SEED,
        },
        GROUPS,
        undefined=True,
    ),
    "metrics.make_parity_scorer": Function(metrics.make_parity_scorer, (ANY,)),
    "metrics.resample_paths": Function(metrics.resample_paths, (PATHS, STAMPS, STAMPS)),
    "metrics.marginal_wasserstein_distances": Function(
        metrics.marginal_wasserstein_distances, (PATHS, PATHS)
    ),
    "metrics.path_sliced_wasserstein_distance": Function(
        metrics.path_sliced_wasserstein_distance,
        (PATHS, PATHS),
        {"n_projections": COUNT, "random_state": SEED},
    ),
    **{
        f"datasets.{name}": Function(
            getattr(datasets, name),
            (COUNT,),
            {
                "alignment": usually(0.0, 0.7, 1.0),
                "n_core": usually(2, 4, 3),
                "n_spurious": usually(0, 3),
                "core_variance": usually(0.0, 0.2),
                "spurious_variance": usually(0.0, 0.4),
                "random_state": SEED,
            },
        )
        for name in ("make_biased_classification", "make_biased_regression")
    },
    "datasets.make_branching_trajectories": Function(
        datasets.make_branching_trajectories,
        (usually(3, [1, 2, 3]), usually(3)),
        {"noise_variance": usually(0.0, 0.1), "random_state": SEED},
    ),
    "datasets.branching_paths": Function(
        datasets.branching_paths,
        (COUNT, STAMPS),
        {"noise_variance": usually(0.0, 0.1), "random_state": SEED},
    ),
    "datasets.branch_of": Function(datasets.branch_of, (st.one_of(ROWS, PATHS), STAMPS)),
    "datasets.one_point_a_person": Function(
        datasets.one_point_a_person, (PATHS, STAMPS), {"random_state": SEED}
    ),
    "datasets.make_ornstein_uhlenbeck_trajectories": Function(
        datasets.make_ornstein_uhlenbeck_trajectories,
        (usually(3, [1, 2, 3]), usually(3)),
        {
            "n_features": usually(1, 2),
            "duration": usually(1.0, 1e-9),
            "mean_reversion": usually(0.0, 2.0, [1.0, 2.0]),
            "mean": usually(0.0, [1.0, 2.0]),
            "diffusivity": usually(0.0, 0.1),
            "initial_mean": usually(1.0),
            "initial_covariance": usually(0.05, [0.1, 0.2], np.eye(2), -np.eye(2)),
            "random_state": SEED,
        },
    ),
    "datasets.OrnsteinUhlenbeck": Function(law_density, (STAMPS, ROWS), undefined=True),
    "slicing.wasserstein_1d": Function(
        slicing.wasserstein_1d,
        (usually(np.arange(12.0), [1.0]), usually(np.arange(12.0), [[1.0]])),
        {"u_weights": WEIGHTS, "v_weights": WEIGHTS, "p": ORDER},
    ),
    "PrivacyBudget": Function(
        spend,
        (
            usually(1.0, 0.1, 50, float("inf")),
            usually(1e-5, 0.5),
            usually(20.0, 1e9),
            usually("a", "", "b"),
        ),
        undefined=True,
    ),
    "PrivacyBudget.ledger": Function(
        lambda path: PrivacyBudget(1.0, ledger=path),
        (ANY.filter(lambda value: not (isinstance(value, str) and value)),),
        undefined=True,
    ),
    "PrivacyBudget.can_afford": Function(affords, (ANY,)),
    **{
        f"privacy.{name}": Function(
            lambda make=make, **fields: compose(make(**fields)).epsilon(1e-5),
            options=EVENT | more,
            always=("sigma", "sensitivity", *(name for name in more if name != "lattice")),
            undefined=True,
            allowed=(MemoryError,),  # the grid of a sampled event grows with 1 / sigma
        )
        for name, make, more in (
            ("GaussianEvent", GaussianEvent, {"n_steps": COUNT, "lattice": usually(None, 0.1)}),
            (
                "SampledGaussianEvent, poisson",
                partial(SampledGaussianEvent, sampling="poisson"),
                {"sampling_rate": usually(0.5, 1.0), "n_steps": COUNT},
            ),
            (
                "SampledGaussianEvent, fixed_size",
                partial(SampledGaussianEvent, sampling="fixed_size"),
                {
                    "batch_sizes": usually((5,)),
                    "group_sizes": usually((50,)),
                    "n_steps": COUNT,
                },
            ),
        )
    },
    "privacy.PrivacyTarget": Function(
        lambda epsilon, delta: PrivacyTarget(epsilon, delta).mu_cap,
        (usually(1.0), usually(1e-5)),
        undefined=True,
    ),
    "privacy.calibrate": Function(
        lambda epsilon, delta: calibrate(
            PrivacyTarget(epsilon, delta), lambda sigma: GaussianEvent(sigma=sigma, sensitivity=1.0)
        ),
        (usually(1.0, 100.0), usually(1e-5)),
    ),
    "privacy.gdp_delta": Function(gdp_delta, (usually(1.0), usually(1.0))),
    "privacy.gdp_epsilon": Function(gdp_epsilon, (usually(1.0), usually(1e-5)), undefined=True),
    "privacy.gdp_mu": Function(gdp_mu, (usually(1.0), usually(1e-5)), undefined=True),
}


def check_function(draw: st.DrawFn, name: str, call: Function) -> None:
    """Call a function with whatever is drawn; what it is given is public."""
    arguments = [draw(strategy) for strategy in call.arguments]
    options = {
        key: draw(strategy)
        for key, strategy in (call.options or {}).items()
        if key in call.always or draw(st.booleans())
    }
    outcome = attempt(
        name, lambda: call.call(*arguments, **options), private=False, allowed=call.allowed
    )
    if outcome.error is None and not call.undefined:
        assert is_number(outcome.value), f"{name}{arguments!r} {options!r}: {outcome.value!r}"


def is_number(value: Any) -> bool:
    """Whether no part of a result is NaN or infinite."""
    if isinstance(value, tuple | list):
        return all(is_number(one) for one in value)
    found = np.asarray(value)
    return found.dtype.kind not in "fc" or bool(np.isfinite(found).all())
