"""The private parts of a candidate: found, checked, and given a budget of their own."""

from typing import Any

from skdpot.estimators._search_result import SearchResult
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.display import describe_event
from skdpot.privacy.parts import COMPOSITES, composites, keeps_more, leaves
from skdpot.privacy.provenance import leaks, parts_of
from skdpot.privacy.spent import PrivacySpent, PrivateEstimatorMixin

__all__ = [
    "arm",
    "check_learned_nothing",
    "check_paid",
    "disarm",
    "needs_classes",
    "private_parts",
    "refuse_reserved",
]

_SET_BY_SEARCH = ("epsilon", "delta", "budget", "random_state", "classes", "verbose")
# Parameters of composites that hold other estimators, or write their fits somewhere.
_STRUCTURE = ("steps", "transformer_list", "transformers", "remainder", "memory")
# What composites may not decide: a density is a fact about the rows, and what other processes say
# is heard by whoever watches them.
_OF_COMPOSITES = {"verbose": False, "n_jobs": None, "sparse_threshold": 0.0}


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
    for _, composite in composites(estimator):
        _check_composite(composite, caller)
    if found := leaks(estimator):
        raise ValueError(
            f"{caller}: {found[0]} A candidate must be private as a whole: estimators of skdpot, "
            "pipelines, unions and column transformers of them, and steps that learn nothing."
        )
    prefixes = []
    for prefix, part in leaves(estimator):
        if isinstance(part, SearchResult):
            raise ValueError(
                f"{caller}: {type(part).__name__} within a search would release a choice of its "
                "own for every candidate. Search all parameters in one search."
            )
        if isinstance(part, PrivateEstimatorMixin):
            prefixes.append(prefix)
            if part.budget is not None:
                raise ValueError(
                    f"{caller}: `{prefix}budget` of the candidates must be None: the search is "
                    "charged once, for everything. Pass the budget to the search."
                )
    if not prefixes:
        raise ValueError(
            f"{caller}: `estimator` has no private part. Pass a private estimator of skdpot, or a "
            "pipeline with one."
        )
    return tuple(prefixes)


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
    reserved = {prefix + name for prefix in prefixes for name in _SET_BY_SEARCH}
    for name in names:
        if name in reserved:
            raise ValueError(
                f"{caller}: `{name}` cannot be searched: the search sets it, alike for every "
                "candidate, from its own parameters and from what `estimator` declares. Leave it "
                "out of `param_distributions`."
            )
        if name.rpartition("__")[2] in _STRUCTURE:
            raise ValueError(
                f"{caller}: `{name}` cannot be searched: it says which parts a candidate has and "
                "where its fits are kept. Search the parameters of parts, or single parts by "
                "their names."
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
    classes: Any = None,
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
    classes : ndarray, optional
        Public set of classes, for the private parts that declare none: which classes occur among
        the rows of *one fit* is not public.
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
    for prefix, _ in composites(candidate):
        chosen |= {prefix + name: value for name, value in _OF_COMPOSITES.items()}
    if classes is not None:
        undeclared = [prefix for prefix in prefixes if known.get(f"{prefix}classes") is None]
        chosen |= {f"{prefix}classes": classes for prefix in undeclared}
    candidate.set_params(**{name: value for name, value in chosen.items() if name in known})


def disarm(candidate: Any, prefixes: tuple[str, ...], spent: PrivacySpent) -> None:
    """Take the budget away again, and state what the search cost in place of the fit alone.

    That one fit was cheaper: but it was chosen, and what chose it is part of the release. Each
    private part restates what it holds (`PrivateEstimatorMixin`), its sketch for example.

    Parameters
    ----------
    candidate : estimator
        The fitted winner.
    prefixes : tuple of str
        From `private_parts`.
    spent : PrivacySpent
        The statement of the search.
    """
    stated = {"epsilon": spent.epsilon, "delta": spent.delta, "budget": None}
    # A ColumnTransformer has fitted clones of its parts, and keeps the parts too.
    candidate.set_params(**{p + name: value for p in prefixes for name, value in stated.items()})
    for part in parts_of(candidate):
        part._restate(spent)


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


def check_learned_nothing(candidate: Any, caller: str) -> None:
    """Make sure that the other parts of a fitted candidate hold what they held before.

    Parameters
    ----------
    candidate : estimator
        Fitted.
    caller : str
        Name for messages.

    Raises
    ------
    ValueError
        If a part has new attributes besides the number and the names of the features.
    """
    for _, part in leaves(candidate):
        if not isinstance(part, PrivateEstimatorMixin) and keeps_more(part):
            raise ValueError(
                f"{caller}: {type(part).__name__} says that it needs no fit, and holds more after "
                "one than before: what it has learned or kept of private rows is not private. The "
                "search stops; what it was charged stays charged."
            )


def needs_classes(part: Any) -> bool:
    """Say whether a private part takes the set of classes from the labels that it is fitted to.

    Parameters
    ----------
    part : estimator
        A private part.

    Returns
    -------
    bool
    """
    known = part.get_params(deep=False)
    return "classes" in known and known["classes"] is None and bool(known.get("conditional", True))


def _check_composite(composite: Any, caller: str) -> None:
    """Refuse composites that write fits down, or are not scikit-learn's own."""
    if getattr(composite, "memory", None) is not None:
        raise ValueError(
            f"{caller}: a pipeline with `memory` would keep the fits of all candidates on disk, "
            "and only the best one is paid for. Use memory=None."
        )
    if type(composite) not in COMPOSITES:
        raise ValueError(
            f"{caller}: {type(composite).__name__} is no pipeline of scikit-learn's own, and would "
            "learn from private rows for all that is known. Use Pipeline, FeatureUnion or "
            "ColumnTransformer."
        )
