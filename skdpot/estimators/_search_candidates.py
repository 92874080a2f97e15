"""Candidates of a private search: made and checked one by one, without anything of the caller's.

What is true of the estimator that was given need not be true of a candidate: parameters may put
another part in, or take a private one out. So every candidate is checked itself.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any

from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import check_random_state

from skdpot.estimators._search_parts import needs_classes, private_parts
from skdpot.privacy.provenance import parts_of

__all__ = ["check_candidates", "make_candidate", "own_copy"]

_MOST_CHECKED = 500  # candidates, before the charge; all others are checked when they are drawn


def make_candidate(
    estimator: Any, parameters: Mapping[str, Any], prefixes: tuple[str, ...], caller: str
) -> Any:
    """Return an unfitted candidate that is private as a whole.

    Parameters
    ----------
    estimator : estimator
        What is searched.
    parameters : mapping
        Of the candidate.
    prefixes : tuple of str
        Of its private parts, from `private_parts`.
    caller : str
        Name for messages.

    Returns
    -------
    estimator
        Shares no object with `estimator` or `parameters`, frozen estimators included: a fit or a
        call of one of them would otherwise be seen in the caller's hands.

    Raises
    ------
    ValueError
        If a part learns without privacy, or the private parts are others.
    """
    candidate = deepcopy(clone(estimator))
    candidate.set_params(**{name: own_copy(value) for name, value in parameters.items()})
    found = private_parts(candidate, caller)
    if found != prefixes:
        raise ValueError(
            f"{caller}: a candidate has {_listed(found)}, and `estimator` has {_listed(prefixes)}: "
            "the privacy of a fit is divided among those. Candidates must have the same private "
            "parts; run one search for each set of parts on one budget."
        )
    return candidate


def own_copy(value: Any) -> Any:
    """Return a copy of a parameter, unfitted if it is an estimator."""
    return deepcopy(clone(value, safe=False))


def check_candidates(
    estimator: Any, distributions: Any, prefixes: tuple[str, ...], caller: str
) -> bool:
    """Refuse candidates that cannot be made, are not private, or are out of range.

    Parameters
    ----------
    estimator : estimator
        What is searched.
    distributions : dict or list of dict
        Of the candidates. Every value of a list occurs in one that is checked.
    prefixes : tuple of str
        From `private_parts`.
    caller : str
        Name for messages.

    Returns
    -------
    bool
        Whether one of them takes the set of classes from the labels.

    Raises
    ------
    ValueError
        If one is refused.
    """
    needed = False
    for parameters in _some_candidates(distributions):
        candidate = make_candidate(estimator, parameters, prefixes, caller)
        for part in parts_of(candidate):
            if hasattr(part, "_parameter_constraints"):
                part._validate_params()
            needed = needed or needs_classes(part)
    return needed


def _some_candidates(given: Any) -> Iterator[dict[str, Any]]:
    """Yield all candidates of a grid; of a large one or a law some, with every listed value."""
    lists = given if isinstance(given, list) else [given]
    if not any(hasattr(values, "rvs") for one in lists for values in one.values()):
        grid = ParameterGrid(lists)
        yield from islice(grid, _MOST_CHECKED)
        if len(grid) <= _MOST_CHECKED:
            return
    rng = check_random_state(0)
    for one in lists:
        longest = max(
            (len(values) for values in one.values() if hasattr(values, "__len__")), default=1
        )
        for position in range(longest):
            yield {
                name: (
                    values.rvs(random_state=rng)
                    if hasattr(values, "rvs")
                    else values[position % len(values)]
                )
                for name, values in one.items()
            }
    yield from ParameterSampler(given, 20, random_state=rng)


def _listed(prefixes: tuple[str, ...]) -> str:
    names = [f"`{prefix.removesuffix('__')}`" for prefix in prefixes if prefix]
    return f"the private parts {', '.join(names)}" if names else "no parts"
