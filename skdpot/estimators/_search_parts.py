"""The private parts of a candidate: found, checked, and given a budget of their own."""

from collections.abc import Iterator
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.display import describe_event
from skdpot.privacy.spent import PrivacySpent

__all__ = ["arm", "check_paid", "disarm", "parts_of", "private_parts", "refuse_reserved"]

_COMPOSITES = {
    Pipeline: "steps",
    FeatureUnion: "transformer_list",
    ColumnTransformer: "transformers",
}
_SET_BY_SEARCH = ("epsilon", "delta", "budget", "random_state")


def private_parts(estimator: Any, caller: str) -> tuple[str, ...]:
    """Return where an estimator keeps what spends privacy, as prefixes of parameter names.

    Parameters
    ----------
    estimator : estimator
        A private estimator, or a pipeline, a union or a column transformer of private ones and of
        parts that learn nothing.
    caller : str
        Name for messages.

    Returns
    -------
    tuple of str
        ``("",)`` for a private estimator itself, such as ``("scaler__", "model__")`` otherwise.

    Raises
    ------
    ValueError
        If a part learns from the rows without being private, or none is private, or one has a
        budget of its own.
    """
    prefixes = []
    if any(getattr(part, "memory", None) is not None for _, part in _composites(estimator, "")):
        raise ValueError(
            f"{caller}: a pipeline with `memory` would keep the fits of all candidates on disk, "
            "and only the best one is paid for. Use memory=None."
        )
    for prefix, part in _leaves(estimator, ""):
        if _is_private(part):
            prefixes.append(prefix)
            if part.budget is not None:
                raise ValueError(
                    f"{caller}: `{prefix}budget` of the candidates must be None: the search is "
                    "charged once, for everything. Pass the budget to the search."
                )
        elif _learns(part):
            raise ValueError(
                f"{caller}: {type(part).__name__} would learn from private rows without noise, "
                "and a candidate must be private as a whole: it has no parameters `epsilon`, "
                "`delta` and `budget`. Use a private estimator, or fit it on public rows and pass "
                "sklearn.frozen.FrozenEstimator of it."
            )
    if not prefixes:
        raise ValueError(
            f"{caller}: `estimator` has no part with the parameters `epsilon`, `delta` and "
            "`budget`. Pass a private estimator of skdpot, or a pipeline with one."
        )
    return tuple(prefixes)


def parts_of(estimator: Any) -> list[Any]:
    """Return the private parts themselves.

    Parameters
    ----------
    estimator : estimator
        A private estimator or a composite.

    Returns
    -------
    list of estimator
    """
    return [part for _, part in _leaves(estimator, "") if _is_private(part)]


def refuse_reserved(names: Any, prefixes: tuple[str, ...], caller: str) -> None:
    """Refuse to search for what the search itself sets, or for other estimators.

    Parameters
    ----------
    names : iterable of str
        Parameters of a candidate.
    prefixes : tuple of str
        From `private_parts`.
    caller : str
        Name for messages.

    Raises
    ------
    ValueError
        If one of them is reserved.
    """
    reserved = {prefix + name for prefix in prefixes for name in (*_SET_BY_SEARCH, "verbose")}
    for name in names:
        if name in reserved:
            raise ValueError(
                f"{caller}: `{name}` cannot be searched: the search sets it for every candidate, "
                "from its own epsilon, delta and random_state. Leave it out of "
                "`param_distributions`."
            )
        if any(f"{name}__" == prefix or prefix.startswith(f"{name}__") for prefix in prefixes):
            raise ValueError(
                f"{caller}: `{name}` replaces a private part, whose epsilon could then not be set. "
                "Search its parameters, or run one search for each estimator on one budget."
            )


def arm(
    candidate: Any,
    prefixes: tuple[str, ...],
    budget: PrivacyBudget,
    epsilon: float,
    seed: int | None,
) -> None:
    """Give a candidate its budget, and silence it: how often it speaks would be counted.

    Parameters
    ----------
    candidate : estimator
        A clone.
    prefixes : tuple of str
        From `private_parts`.
    budget : PrivacyBudget
        Of this fit alone.
    epsilon : float
        Of each private part.
    seed : int or None
        For `random_state`, which makes the fits of a seeded search differ.
    """
    known = candidate.get_params()
    given = {
        "epsilon": epsilon,
        "delta": budget.delta,
        "budget": budget,
        "random_state": seed,
        "verbose": False,
    }
    chosen = {prefix + name: value for prefix in prefixes for name, value in given.items()}
    chosen |= {f"{prefix}verbose": False for prefix, _ in _composites(candidate, "")}
    candidate.set_params(**{name: value for name, value in chosen.items() if name in known})


def disarm(candidate: Any, prefixes: tuple[str, ...], spent: PrivacySpent) -> None:
    """Take the budget away again, and state what the search cost in place of the fit alone.

    That one fit was cheaper: but it was chosen, and what chose it is part of the release.

    Parameters
    ----------
    candidate : estimator
        The fitted winner.
    prefixes : tuple of str
        From `private_parts`.
    spent : PrivacySpent
        The statement of the search.
    """
    candidate.set_params(**{f"{prefix}budget": None for prefix in prefixes})
    for _, part in _leaves(candidate, ""):
        if isinstance(getattr(part, "privacy_spent_", None), PrivacySpent):
            part.privacy_spent_ = spent


def check_paid(candidate: Any, n_parts: int, budget: PrivacyBudget, caller: str) -> None:
    """Make sure that every private part of a fitted candidate charged what it says it spent.

    Parameters
    ----------
    candidate : estimator
        Fitted.
    n_parts : int
        Number of its private parts.
    budget : PrivacyBudget
        What `arm` gave it.
    caller : str
        Name for messages.

    Raises
    ------
    ValueError
        If a part makes no statement, or its event was not charged.
    """
    # None states that nothing was spent: everything that was learned had been declared.
    parts = [part for part in parts_of(candidate) if hasattr(part, "privacy_spent_")]
    spent = [part.privacy_spent_ for part in parts]
    charged = set(budget.history()["event"])
    due = {describe_event(one.event) for one in spent if isinstance(one, PrivacySpent)}
    if len(parts) < n_parts or not due <= charged:
        raise ValueError(
            f"{caller}: a private part of a candidate did not charge its fit to the budget that "
            "the search gave it, so that nothing is known about what it released. The search "
            "stops; what it was charged stays charged. Search estimators that charge every fit "
            "to `budget` and state it in `privacy_spent_`, as those of skdpot do."
        )


def _leaves(estimator: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a composite that are no composites, with their prefixes."""
    if type(estimator) not in _COMPOSITES:
        yield prefix, estimator
    for name, part in _children(estimator):
        yield from _leaves(part, f"{prefix}{name}__")


def _composites(estimator: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the composites themselves, with their prefixes."""
    if type(estimator) in _COMPOSITES:
        yield prefix, estimator
    for name, part in _children(estimator):
        yield from _composites(part, f"{prefix}{name}__")


def _children(estimator: Any) -> Iterator[tuple[str, Any]]:
    attribute = _COMPOSITES.get(type(estimator))
    if attribute is None:
        return
    # What a ColumnTransformer has fitted are clones of its parts.
    for name, part, *_ in getattr(estimator, f"{attribute}_", getattr(estimator, attribute)):
        if part is not None and not isinstance(part, str):
            yield name, part


def _is_private(part: Any) -> bool:
    if not isinstance(part, BaseEstimator) or isinstance(part, FrozenEstimator):
        return False
    return {"epsilon", "delta", "budget"} <= set(part.get_params(deep=False))


def _learns(part: Any) -> bool:
    if isinstance(part, FrozenEstimator):
        return False
    return not isinstance(part, BaseEstimator) or bool(get_tags(part).requires_fit)
