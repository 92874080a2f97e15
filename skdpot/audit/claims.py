"""Claims of ε and δ, and how audits compare what they found with them."""

import math
from numbers import Real
from typing import Any

from skdpot.privacy.accounting import compose
from skdpot.privacy.spent import total_spent


def lower_text(bound: float, claim: float = math.inf) -> str:
    """Return a lower bound as text, rounded down, with enough digits to exceed a smaller claim."""
    if math.isinf(bound):
        return "∞"
    for digits in range(2, 16):
        text = f"{math.floor(bound * 10**digits) / 10**digits:.{digits}f}"
        if float(text) > claim or bound <= claim:
            return text
    return repr(bound)


def verdict_of(bound: float, claim: float, confidence: float, noise: str = "") -> str:
    """Return a sentence that compares a lower bound with a claim."""
    proved = f"ε ≥ {lower_text(bound, claim)}{noise} at {100 * confidence:g} % confidence"
    if math.isinf(claim):
        return f"{proved}; nothing was claimed."
    if bound > claim:
        return f"REFUTED: {proved}, but ε = {claim:.4g} was claimed."
    return f"Not refuted: {proved}, within the claimed ε = {claim:.4g}."


def check_claim(epsilon: Any, delta: Any, score: Any) -> None:
    """Refuse an impossible claim or score before anything is fitted."""
    if not callable(score) and score != "auto":
        raise ValueError(f'score must be a function or "auto", not {type(score).__name__}.')
    if epsilon is not None and not (isinstance(epsilon, Real) and float(epsilon) >= 0):
        raise ValueError(f"epsilon={epsilon!r} must be at least 0; inf claims nothing.")
    if delta is not None and not (isinstance(delta, Real) and 0 <= float(delta) < 1):
        raise ValueError(f"delta={delta!r} must be in [0, 1).")


def claimed(fitted: Any, epsilon: float | None, delta: float | None) -> tuple[float, float, bool]:
    """Return the claimed ε and δ, and whether the claim is μ-GDP."""
    if epsilon is not None and delta is not None:
        return float(epsilon), float(delta), False
    try:
        spent = getattr(fitted, "privacy_spent_", None) or total_spent(fitted)
    except TypeError as error:
        raise ValueError(
            "Pass epsilon and delta: what fit returned has no privacy_spent_."
        ) from error
    loss = compose(spent.event)
    is_gaussian = not (loss.is_sampled or loss.leak) and 0.0 < loss.mu_without_sampling < math.inf
    is_stated = epsilon is None and delta is None
    return (
        float(spent.epsilon if epsilon is None else epsilon),
        float(spent.delta if delta is None else delta),
        is_gaussian and is_stated,
    )
