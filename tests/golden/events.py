"""Events over a grid of parameters, and what each of them costs.

The only places to mend when events are renamed or merged are `make_events` and `figures`.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import PrivacyTarget, SingleFitTarget, calibrate, compose, event_cost
from skdpot.privacy.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
)
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import BudgetedEvent, ThresholdedCountsEvent
from skdpot.privacy.spent import PrivacySpent

__all__ = ["event_figures", "make_events"]

DELTAS = (1e-3, 1e-6, 1e-10)
EPSILONS = (0.0, 0.1, 1.0, 5.0)


def make_events() -> dict[str, Event]:
    """Make every event of the grid; a name that starts with "sampled" has no closed form."""
    add = "add_or_remove_one"
    found: dict[str, Event] = {}
    for sigma, sensitivity, n_steps, lattice in product(
        (0.7, 3.0, 40.0), (1.0, 1.5), (1, 17), (None, 0.125)
    ):
        name = f"gaussian {sigma} {sensitivity} {n_steps} {lattice}"
        found[name] = GaussianEvent(
            sigma=sigma, sensitivity=sensitivity, n_steps=n_steps, lattice=lattice
        )
    found["gaussian, add or remove"] = GaussianEvent(sigma=2.0, sensitivity=1.0, relation=add)
    for sigma, threshold, n_columns, lattice, relation in product(
        (1.5, 4.0), (25.0, 40.0), (1, 6), (None, 0.25), ("replace_one", add)
    ):
        name = f"thresholded {sigma} {threshold} {n_columns} {lattice} {relation}"
        found[name] = ThresholdedCountsEvent(
            sigma=sigma,
            threshold=threshold,
            n_columns=n_columns,
            lattice=lattice,
            relation=relation,
        )
    for mu, (mean, leak), shape in product(
        (0.1, 0.5), ((1.0, 0.0), (7.5, 1e-8)), (-0.5, 0.0, 1.0, math.inf)
    ):
        name = f"selection {mu} {mean} {shape} {leak}"
        found[name] = BudgetedEvent(mu=mu, mean_trials=mean, shape=shape, leak=leak)
    for mu, leak in product((0.2, 1.3), (0.0, 1e-7)):
        found[f"budgeted {mu} {leak}"] = BudgetedEvent(mu=mu, leak=leak)
    found["no noise"] = NonPrivateEvent()
    for (sigma, rate, n_steps), lattice in product(
        ((2.0, 0.02, 5), (2.0, 0.02, 200), (4.0, 0.3, 5), (8.0, 0.3, 60)), (None, 0.01)
    ):
        name = f"sampled poisson {sigma} {rate} {n_steps} {lattice}"
        step = {"sigma": sigma, "sampling_rate": rate, "n_steps": n_steps, "lattice": lattice}
        found[name] = SampledGaussianEvent(sampling="poisson", sensitivity=1.0, **step)
        found[f"{name}, clipped sum"] = SampledGaussianEvent(
            sampling="poisson", sensitivity=1.0, clipped_sum=True, **step
        )
    found["sampled poisson, add or remove"] = SampledGaussianEvent(
        sampling="poisson", sigma=2.0, sensitivity=1.0, sampling_rate=0.05, n_steps=20, relation=add
    )
    found["sampled poisson, all"] = SampledGaussianEvent(
        sampling="poisson", sigma=5.0, sensitivity=1.0, sampling_rate=1.0, n_steps=9
    )
    for sigma, batches, n_steps, lattice in product(
        (2.5, 5.0), (((20,), (1000,)), ((60, 10), (200, 30))), (4, 40), (None, 0.05)
    ):
        found[f"sampled fixed {sigma} {batches} {n_steps} {lattice}"] = SampledGaussianEvent(
            sampling="fixed_size",
            sigma=sigma,
            sensitivity=1.0,
            batch_sizes=batches[0],
            group_sizes=batches[1],
            n_steps=n_steps,
            lattice=lattice,
        )
    found["sampled fixed, all"] = SampledGaussianEvent(
        sampling="fixed_size",
        sigma=3.0,
        sensitivity=1.0,
        batch_sizes=(50,),
        group_sizes=(50,),
        n_steps=3,
    )
    for sigma, rate, n_samples, lattice in product(
        (4.0, 8.0), (0.05, 0.5, 1.0), (40, 3000), (None, 0.05)
    ):
        found[f"sampled rows {sigma} {rate} {n_samples} {lattice}"] = SampledGaussianEvent(
            sampling="poisson_rows",
            sigma=sigma,
            sensitivity=1.0,
            sampling_rate=rate,
            n_samples=n_samples,
            n_steps=12,
            lattice=lattice,
        )
    parts = {
        "gaussian": found["gaussian 3.0 1.0 17 0.125"],
        "thresholded": found["thresholded 4.0 40.0 6 0.25 replace_one"],
        "selection": found["selection 0.1 7.5 1.0 1e-08"],
        "budgeted": found["budgeted 0.2 1e-07"],
        "poisson": found["sampled poisson 2.0 0.02 200 None, clipped sum"],
        "fixed": found["sampled fixed 5.0 ((60, 10), (200, 30)) 4 0.05"],
    }
    for name, kinds in {
        "composed, closed": ("gaussian", "thresholded", "budgeted"),
        "composed, selection": ("gaussian", "selection"),
        "sampled composed, poisson": ("gaussian", "poisson"),
        "sampled composed, both": ("poisson", "fixed", "fixed"),
        "sampled composed, all": tuple(parts),
    }.items():
        found[name] = ComposedEvent(events=tuple(parts[kind] for kind in kinds))
    found["composed, nested"] = ComposedEvent(events=(found["composed, closed"], parts["gaussian"]))
    found["composed, no noise"] = ComposedEvent(events=(parts["gaussian"], NonPrivateEvent()))
    return found


def figures(event: Event) -> dict[str, float | str]:
    """Return whatever the accounts say of one event."""
    loss = compose(event)
    found: dict[str, float | str] = {f"epsilon at {d}": loss.epsilon(d) for d in DELTAS}
    found |= {f"delta at {e}": loss.delta(e) for e in EPSILONS}
    for leak in (0.0, 1e-9):
        private = loss.to_gdp(leak)
        found |= {f"mu with leak {leak}": private.mu, f"leak with leak {leak}": private.leak}
    found |= {"mu without sampling": loss.mu_without_sampling, "certain leak": loss.leak}
    found["number of releases"] = loss.n_steps
    found["epsilon of three"] = compose(event, 3).epsilon(1e-6)
    spent = PrivacySpent(loss.epsilon(1e-5), 1e-5, event.relation, event, None, None, ())
    found |= {f"epsilon of a group of {k}": spent.for_group(k) for k in (2, 5)}
    try:
        found["epsilon of 3 parts"] = compose(event.grouped(3)).epsilon(1e-6)
    except (UnknownEventError, ValueError) as error:
        found["epsilon of 3 parts"] = type(error).__name__
    if math.isfinite(loss.mu_without_sampling):
        cost = event_cost(event, PrivacyTarget(1.0, 1e-5).leak_cap)
        found["units of mu squared"] = float(cost.mu_squared_units)
        found["units of leak"] = float(cost.leak_units)
    return found


def _calibrations() -> Iterator[tuple[str, Callable[[float], Event]]]:
    yield "gaussian", lambda sigma: GaussianEvent(sigma=sigma, sensitivity=1.0, n_steps=3)
    yield "lattice", lambda sigma: GaussianEvent(sigma=sigma, sensitivity=1.0, lattice=0.125)
    yield (
        "sampled poisson",
        lambda sigma: SampledGaussianEvent(
            sampling="poisson",
            sigma=sigma,
            sensitivity=1.0,
            sampling_rate=0.1,
            n_steps=40,
            clipped_sum=True,
        ),
    )
    yield (
        "sampled fixed",
        lambda sigma: SampledGaussianEvent(
            sampling="fixed_size",
            sigma=sigma,
            sensitivity=1.0,
            batch_sizes=(20,),
            group_sizes=(100,),
            n_steps=30,
        ),
    )
    yield (
        "sampled, after a selection of categories",
        lambda sigma: ComposedEvent(
            events=(
                ThresholdedCountsEvent(sigma=6.0, threshold=60.0),
                SampledGaussianEvent(
                    sampling="poisson_rows",
                    sigma=sigma,
                    sensitivity=1.0,
                    sampling_rate=0.2,
                    n_samples=200,
                    n_steps=5,
                ),
            )
        ),
    )


def event_figures() -> dict[str, dict[str, Any]]:
    """Return the figures of every event, of calibrated noise and of the closed forms."""
    found: dict[str, dict[str, Any]] = {n: figures(e) for n, e in make_events().items()}
    for name, make in _calibrations():
        for target in (SingleFitTarget(1.0, 1e-5), PrivacyTarget(2.0, 1e-6)):
            event = calibrate(target, make)
            last = event.events[-1] if isinstance(event, ComposedEvent) else event
            found[f"{name}, calibrated to {type(target).__name__}"] = {"sigma": last.sigma}
    found["mu-GDP"] = {
        f"{f.__name__} {x:.3g} {y:.3g}": f(float(x), float(y))
        for f, first, second in (
            (gdp_delta, np.linspace(0.0, 8.0, 5), np.geomspace(0.01, 20.0, 5)),
            (gdp_epsilon, np.geomspace(0.01, 20.0, 5), np.geomspace(1e-12, 0.1, 5)),
            (gdp_mu, np.geomspace(0.01, 20.0, 5), np.geomspace(1e-12, 0.1, 5)),
        )
        for x, y in product(first, second)
    }
    return found
