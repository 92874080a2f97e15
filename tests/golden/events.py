"""Events over a grid of parameters, and what each of them costs.

The only places to mend when events are renamed or merged are `make_events` and `figures`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import compose
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.choices import ChoiceEvent
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon, gdp_mu
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import BudgetedEvent
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import PrivacyTarget, SingleFitTarget, event_cost
from skdpot.privacy.thresholds import ThresholdedCountsEvent

__all__ = ["event_figures", "make_events"]

DELTAS = (1e-3, 1e-6, 1e-10)
EPSILONS = (0.0, 0.1, 1.0, 5.0)


def grid(
    word: str, kind: Callable[..., Event], names: str, values: Iterable[Any], **options: Any
) -> dict[str, Any]:
    """Make an event of each tuple of values, named by them."""
    return {
        " ".join(map(str, (word, *each))): kind(
            **dict(zip(names.split(), each, strict=True)), **options
        )
        for each in values
    }


def make_events() -> dict[str, Event]:
    """Make every event of the grid; a name that starts with "sampled" has no closed form."""
    add, sampled = "add_or_remove_one", partial(SampledGaussianEvent, sensitivity=1.0)
    poisson, fixed = (partial(sampled, sampling=name) for name in ("poisson", "fixed_size"))
    found: dict[str, Event] = grid(
        "gaussian",
        GaussianEvent,
        "sigma sensitivity n_steps lattice",
        product((0.7, 3.0, 40.0), (1.0, 1.5), (1, 17), (None, 0.125)),
    )
    found["gaussian, add or remove"] = GaussianEvent(sigma=2.0, sensitivity=1.0, relation=add)
    found |= grid(
        "thresholded",
        ThresholdedCountsEvent,
        "sigma threshold n_columns lattice relation",
        product((1.5, 4.0), (25.0, 40.0), (1, 6), (None, 0.25), ("replace_one", add)),
    )
    values = product((0.7, 40.0), (1.0, 8.0), (1, 300))
    found |= grid("choices", ChoiceEvent, "sigma sensitivity n_steps", values)
    found |= grid(
        "selection",
        BudgetedEvent,
        "mu mean_trials shape leak",
        (
            (mu, mean, shape, leak)
            for mu, (mean, leak), shape in product(
                (0.1, 0.5), ((1.0, 0.0), (7.5, 1e-8)), (-0.5, 0.0, 1.0, math.inf)
            )
        ),
    )
    found |= grid("budgeted", BudgetedEvent, "mu leak", product((0.2, 1.3), (0.0, 1e-7)))
    found["no noise"] = NonPrivateEvent()
    runs = ((2.0, 0.02, 5), (2.0, 0.02, 200), (4.0, 0.3, 5), (8.0, 0.3, 60))
    steps = [(*run, lattice) for run in runs for lattice in (None, 0.01)]
    of_steps = "sigma sampling_rate n_steps lattice"
    found |= grid("sampled poisson", poisson, of_steps, steps)
    clipped = grid("sampled poisson", poisson, of_steps, steps, clipped_sum=True)
    found |= {f"{name}, clipped sum": event for name, event in clipped.items()}
    found["sampled poisson, add or remove"] = poisson(
        sigma=2.0, sampling_rate=0.05, n_steps=20, relation=add
    )
    found["sampled poisson, all"] = poisson(sigma=5.0, sampling_rate=1.0, n_steps=9)
    found |= grid(
        "sampled fixed",
        fixed,
        "sigma batch_sizes group_sizes n_steps lattice",
        (
            (sigma, *batches, n_steps, lattice)
            for sigma, batches, n_steps, lattice in product(
                (2.5, 5.0), (((20,), (1000,)), ((60, 10), (200, 30))), (4, 40), (None, 0.05)
            )
        ),
    )
    found["sampled fixed, all"] = fixed(sigma=3.0, batch_sizes=(50,), group_sizes=(50,), n_steps=3)
    found |= grid(
        "sampled rows",
        partial(sampled, sampling="poisson_rows", n_steps=12),
        "sigma sampling_rate n_samples lattice",
        product((4.0, 8.0), (0.05, 0.5, 1.0), (40, 3000), (None, 0.05)),
    )
    parts = {
        "gaussian": found["gaussian 3.0 1.0 17 0.125"],
        "thresholded": found["thresholded 4.0 40.0 6 0.25 replace_one"],
        "selection": found["selection 0.1 7.5 1.0 1e-08"],
        "budgeted": found["budgeted 0.2 1e-07"],
        "poisson": found["sampled poisson 2.0 0.02 200 None, clipped sum"],
        "fixed": found["sampled fixed 5.0 (60, 10) (200, 30) 4 0.05"],
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
    gaussian = partial(GaussianEvent, sensitivity=1.0)
    poisson = partial(SampledGaussianEvent, sampling="poisson", sensitivity=1.0)
    yield "gaussian", lambda sigma: gaussian(sigma=sigma, n_steps=3)
    yield "lattice", lambda sigma: gaussian(sigma=sigma, lattice=0.125)
    clipped = {"sampling_rate": 0.1, "n_steps": 40, "clipped_sum": True}
    yield "sampled poisson", lambda sigma: poisson(sigma=sigma, **clipped)
    sizes = {"batch_sizes": (20,), "group_sizes": (100,), "n_steps": 30}
    yield (
        "sampled fixed",
        lambda sigma: SampledGaussianEvent(
            sampling="fixed_size", sigma=sigma, sensitivity=1.0, **sizes
        ),
    )
    rows = {"sampling_rate": 0.2, "n_samples": 200, "n_steps": 5}
    selection = ThresholdedCountsEvent(sigma=6.0, threshold=60.0)
    yield (
        "sampled, after a selection of categories",
        lambda sigma: ComposedEvent(
            events=(
                selection,
                SampledGaussianEvent(sampling="poisson_rows", sigma=sigma, sensitivity=1.0, **rows),
            )
        ),
    )


def event_figures(sampled: bool) -> dict[str, dict[str, Any]]:
    """Return the figures of events and calibrated noise, of random batches or of closed forms."""
    events = {n: e for n, e in make_events().items() if n.startswith("sampled") == sampled}
    found: dict[str, dict[str, Any]] = {n: figures(e) for n, e in events.items()}
    for name, make in _calibrations():
        if name.startswith("sampled") != sampled:
            continue
        for target in (SingleFitTarget(1.0, 1e-5), PrivacyTarget(2.0, 1e-6)):
            event = calibrate(target, make)
            last = event.events[-1] if isinstance(event, ComposedEvent) else event
            found[f"{name}, calibrated to {type(target).__name__}"] = {"sigma": last.sigma}
    if sampled:
        return found
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
