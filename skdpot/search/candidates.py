"""Candidates of a search: unfitted copies of its estimator with other parameters.

A candidate need not have the properties of the estimator: parameters may add a part, or replace a
private one. Every candidate is therefore checked itself.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import check_random_state

from skdpot._utils.streams import SecretStream
from skdpot.privacy.pipelines import private_parts_of
from skdpot.search.private_parts import listed_parts, private_prefixes, undeclared_classes

# Candidates of a grid that are checked before the charge; others are checked when they are drawn.
_MOST_CHECKED = 500
# Random candidates of a law, or of a larger grid, that are checked before the charge.
_N_RANDOM = 20
# Bits of the seed of a drawn candidate, too many to be tried.
_SEED_BITS = 128


def make_candidate(estimator: Any, parameters: Mapping[str, Any], prefixes: tuple[str, ...]) -> Any:
    """Return an unfitted candidate that is private as a whole."""
    candidate = own_copy(estimator)
    candidate.set_params(**{name: own_copy(value) for name, value in parameters.items()})
    of_candidate = private_prefixes(candidate)
    if of_candidate != prefixes:
        raise ValueError(
            f"a candidate has {listed_parts(of_candidate)}, and `estimator` has "
            f"{listed_parts(prefixes)}: all "
            "candidates must have the same private parts. Run several searches."
        )
    return candidate


def own_copy(value: Any) -> Any:
    """Return a copy of a parameter, unfitted if it is an estimator."""
    return deepcopy(clone(value, safe=False))


def check_candidates(estimator: Any, distributions: Any, prefixes: tuple[str, ...]) -> bool:
    """Refuse candidates that cannot be made, are not private, or are out of range.

    Return whether a part of some candidate would read its classes from labels.
    """
    by_class = False
    for parameters in some_candidates(distributions):
        candidate = make_candidate(estimator, parameters, prefixes)
        for part in private_parts_of(candidate):
            if hasattr(part, "_parameter_constraints"):
                part._validate_params()
            by_class = by_class or bool(undeclared_classes(part, ()))
    return by_class


def some_candidates(distributions: Any) -> Iterator[dict[str, Any]]:
    """Yield all candidates of a small grid, and otherwise some, with every listed value."""
    alternatives = distributions if isinstance(distributions, list) else [distributions]
    if not any(hasattr(values, "rvs") for laws in alternatives for values in laws.values()):
        grid = ParameterGrid(alternatives)
        yield from islice(grid, _MOST_CHECKED)
        if len(grid) <= _MOST_CHECKED:
            return
    rng = check_random_state(0)
    for alternative in alternatives:
        lists = {name: values for name, values in alternative.items() if not hasattr(values, "rvs")}
        laws = {name: law for name, law in alternative.items() if name not in lists}
        for k in range(max(map(len, lists.values()), default=1)):
            chosen = {name: values[k % len(values)] for name, values in lists.items()}
            yield chosen | {name: law.rvs(random_state=rng) for name, law in laws.items()}
    yield from ParameterSampler(distributions, _N_RANDOM, random_state=rng)


def draw_candidate(distributions: Any, secret: SecretStream) -> dict[str, Any]:
    """Draw the parameters of a candidate, with the same law at every index of a trial.

    Each draw has 128 secret bits of its own. With one short seed for all draws, the parameters
    would reveal the index of the trial. Each draw also has its own copy of the distributions: an
    object that counts its draws could return the index.
    """
    bits = np.random.MT19937(np.random.SeedSequence(_candidate_seed(secret)))
    rng = np.random.RandomState(bits)  # scikit-learn and SciPy draw from this type
    return next(iter(ParameterSampler(_uncounted(distributions), 1, random_state=rng)))


def _candidate_seed(secret: SecretStream) -> int:
    """Draw the secret seed of one candidate."""
    return secret.random_bits(_SEED_BITS)


def _uncounted(distributions: Any) -> Any:
    """Return a copy of the distributions, so that no object counts the draws."""
    return deepcopy(distributions)
