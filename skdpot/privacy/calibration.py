"""Calibration: the least noise with which an event fits in a privacy target."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import Event, NonPrivateEvent
from skdpot.privacy.targets import HOPELESS, PrivacyTarget

_LARGEST_LOG_SIGMA = 300.0


def calibrate(target: PrivacyTarget, make_event: Callable[[float], Event]) -> Event:
    """Find the least noise with which an event fits in a privacy target.

    Parameters
    ----------
    target : PrivacyTarget
        The epsilon and delta to spend.
    make_event : callable
        Maps sigma to an event. It may raise ``ValueError`` if sigma is too small, for example for
        the lattice. The cost must not increase with sigma.

    Returns
    -------
    Event
        ``make_event(sigma)`` for the smallest sigma that fits, up to a relative 1e-12 (1e-4 with
        sampled steps). If epsilon is infinite, a `NonPrivateEvent`.

    Raises
    ------
    CalibrationError
        If no sigma fits, or if every sigma fits.

    Examples
    --------
    >>> from skdpot.privacy.events import GaussianEvent
    >>> target = PrivacyTarget(epsilon=1.0, delta=1e-5)
    >>> event = calibrate(target, lambda sigma: GaussianEvent(sigma=sigma, sensitivity=2.0))
    >>> event.sigma
    7.5085
    >>> compose(event).epsilon(1e-5)
    0.9931
    """

    def made(log_sigma: float) -> Event | None:
        """Return the event, or None if the noise is refused, for example by its lattice."""
        with suppress(ValueError):
            return make_event(math.exp(log_sigma))
        return None

    def excess(measure: Callable[[Event], float], log_sigma: float) -> float:
        """Return ``log(cost / cap)`` as a function of log(sigma)."""
        event = made(log_sigma)
        if event is None:
            return HOPELESS
        return -HOPELESS if math.isinf(target.epsilon) else measure(event)

    of_bound = partial(excess, target.log_excess_without_sampling)
    high = _above(of_bound, 0.0, target, make_event)
    if math.isinf(target.epsilon):
        return NonPrivateEvent(relation=make_event(math.exp(high)).relation)
    root, step = _crossing(of_bound, high, 1e-13), 1e-13
    if compose(make_event(math.exp(high))).is_sampled:
        # Without sampling the event costs more, so its sigma is an upper end of the search.
        of_losses = partial(excess, target.log_excess)
        high = _above(of_losses, root + 1e-9, target, make_event)
        root, step = _crossing(of_losses, high, 1e-5), 1e-5
    # Increase sigma from the crossing until the recomputed cost fits.
    while (event := made(root)) is None or not target.admits(event):
        root += step
        step *= 2.0
    return event


def _above(
    excess: Callable[[float], float],
    start: float,
    target: PrivacyTarget,
    make_event: Callable[[float], Event],
) -> float:
    """Return a log(sigma) of at least `start` whose cost fits."""
    x = start
    while (value := excess(x)) > 0.0:
        x += max(0.7, 0.5 * value if value < HOPELESS else 0.0)
        if x > _LARGEST_LOG_SIGMA:
            try:
                make_event(math.exp(_LARGEST_LOG_SIGMA))
            except ValueError as error:
                raise CalibrationError(f"No noise scale is accepted: {error}") from error
            raise CalibrationError(
                f"No noise reaches epsilon={target.epsilon:g} at delta={target.delta:g}: what does "
                "not depend on sigma already costs more. Raise epsilon or delta, or release less."
            )
    return x


def _crossing(excess: Callable[[float], float], start: float, tolerance: float) -> float:
    """Decrease log(sigma) from `start`, which fits, and return where the cost reaches the cap."""
    from scipy.optimize import brentq  # loading it takes half a second

    fitting = x = start
    step = 1e-3
    while (value := excess(x)) <= 0.0:
        fitting = x
        step = min(1.4, max(2.0 * step, -0.6 * value))
        x -= step
        if x < -_LARGEST_LOG_SIGMA:
            raise CalibrationError(
                "Every noise scale fits: the event made for the search does not depend on sigma. "
                "Check the function that makes it."
            )
    return float(brentq(excess, x, fitting, xtol=tolerance, rtol=1e-15, maxiter=200))
