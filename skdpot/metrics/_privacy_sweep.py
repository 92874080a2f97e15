"""Fits of one estimator at several epsilons, and what they score on public rows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import check_scoring

from skdpot.exceptions import BudgetExceededError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import privacy_target
from skdpot.privacy.events import ComposedEvent, GaussianEvent
from skdpot.privacy.spent import PrivacySpent, total_spent

__all__ = ["check_epsilons", "floor_of", "sweep"]

_ROUNDING = 1 + 1e-9  # each charge is rounded up by itself


def check_epsilons(epsilons: Any) -> list[float]:
    """Return finite epsilons, increasing.

    Parameters
    ----------
    epsilons : sequence of float
        What the caller asked for.

    Returns
    -------
    list of float

    Raises
    ------
    ValueError
        If there are none, or one is not positive and finite, or occurs twice.
    """
    values = np.sort(np.atleast_1d(np.asarray(epsilons, dtype=np.float64)).ravel())
    if not values.size or not np.isfinite(values).all() or values[0] <= 0:
        raise ValueError(
            "epsilons must be positive and finite; for a line without privacy pass reference=, a "
            "score or an estimator."
        )
    if (np.diff(values) == 0).any():
        raise ValueError("epsilons must be different; n_repeats= fits each of them several times.")
    found: list[float] = values.tolist()
    return found


def sweep(
    estimator: Any,
    private: tuple[Any, Any],
    public: tuple[Any, Any],
    epsilons: Sequence[float],
    *,
    n_repeats: int,
    scoring: Any,
    parameter: str,
    fit_params: dict[str, Any],
) -> tuple[pd.DataFrame, PrivacySpent | None]:
    """Fit clones and score them.

    Parameters
    ----------
    estimator : estimator
        With a parameter that is its epsilon.
    private, public : tuple of (X, y)
        What clones are fitted to, and scored on.
    epsilons : sequence of float
        Values of the parameter.
    n_repeats : int
        Fits of each.
    scoring : str, callable or None
        As for scikit-learn.
    parameter : str
        Name of the parameter.
    fit_params : dict
        For ``fit``.

    Returns
    -------
    results : DataFrame
        Columns epsilon and score, a row a fit.
    spent : PrivacySpent or None
        What all fits together cost; None if they do not say what they spent.

    Raises
    ------
    BudgetExceededError
        If a budget cannot pay for all fits: before the first one, where their costs follow from
        their epsilons.
    ValueError
        If there is no such parameter.
    """
    if parameter not in estimator.get_params():
        raise ValueError(
            f"{type(estimator).__name__} has no parameter {parameter!r}; parameter= names its "
            "epsilon, such as 'sampler__epsilon' in a pipeline."
        )
    _check_affordable(estimator, epsilons, n_repeats, parameter)
    fitted, rows = [], []
    for epsilon in epsilons:
        for _ in range(n_repeats):
            model = clone(estimator).set_params(**{parameter: epsilon})
            model.fit(*private, **fit_params)
            score = float(check_scoring(model, scoring=scoring)(model, *public))
            fitted.append(model)
            rows.append((epsilon, score))
    return pd.DataFrame(rows, columns=["epsilon", "score"]), _total(fitted)


def floor_of(floor: Any, estimator: Any, public: tuple[Any, Any], scoring: Any) -> float | None:
    """Return the score that takes no features to reach, by default of a constant prediction.

    The constant is learned from the public rows.
    """
    if not isinstance(floor, str):
        return None if floor is None else float(floor)
    if floor != "auto":
        raise ValueError(f"floor={floor!r} must be 'auto', a number or None.")
    if public[1] is None or not (is_classifier(estimator) or is_regressor(estimator)):
        return None
    guess = DummyClassifier(strategy="prior") if is_classifier(estimator) else DummyRegressor()
    guess.fit(*public)
    return float(check_scoring(guess, scoring=scoring)(guess, *public))


def _check_affordable(
    estimator: Any, epsilons: Sequence[float], n_repeats: int, parameter: str
) -> None:
    """Refuse before anything is spent what a budget cannot pay for in the end."""
    owner, _, _ = parameter.rpartition("__")
    params = estimator.get_params()
    prefix = f"{owner}__" if owner else ""
    budget, delta = params.get(f"{prefix}budget"), params.get(f"{prefix}delta")
    if not isinstance(budget, PrivacyBudget) or delta is None or math.isinf(budget.epsilon):
        return
    mus = [privacy_target(epsilon, delta, budget).mu_cap for epsilon in epsilons]
    one = [GaussianEvent(sigma=1.0, sensitivity=mu * _ROUNDING) for mu in mus]
    fits = len(epsilons) * n_repeats
    if not budget.can_afford(ComposedEvent(events=tuple(one * n_repeats))):
        raise BudgetExceededError(
            f"{fits} fits, {n_repeats} at each of the epsilons, cost more than the budget has left "
            f"(epsilon={budget.epsilon:g} in all). Nothing was charged. Ask for fewer or smaller "
            "epsilons or fewer repeats, or sweep over public rows without a budget."
        )


def _total(fitted: list[Any]) -> PrivacySpent | None:
    """Return what all fits cost together."""
    try:
        return total_spent(*fitted)
    except TypeError:  # an estimator that makes no statement
        return None
