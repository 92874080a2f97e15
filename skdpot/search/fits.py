"""The fit of one candidate under a budget of its own, and the statement of a winner."""

from collections.abc import Mapping
from typing import Any

from sklearn.base import BaseEstimator

from skdpot._utils.streams import SecretStream
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin, keeps_more, leaves, private_parts_of
from skdpot.privacy.statement import PrivacySpent
from skdpot.search.candidates import make_candidate
from skdpot.search.fit_data import FitData
from skdpot.search.plan import FitTerms
from skdpot.search.private_parts import undeclared_classes
from skdpot.search.task import SearchTask

# Parameters of composites that every fit sets: density is a fact about the rows, and messages of
# several processes would reveal that a trial runs.
_OF_COMPOSITES = {"verbose": False, "n_jobs": None, "sparse_threshold": 0.0}
_UNPAID = (
    "A private part of a candidate did not charge its fit to the budget that the search gave it. "
    "Search estimators that charge every fit to `budget` and state it in `privacy_spent_`."
)


def fit_alone(
    task: SearchTask,
    parameters: Mapping[str, Any],
    data: FitData,
    terms: FitTerms,
    secret: SecretStream,
) -> Any:
    """Fit one candidate under a budget of its own, which no fit can overspend."""
    candidate = make_candidate(task.estimator, parameters, task.parts)
    budget = PrivacyBudget(terms.epsilon, terms.delta)
    seed = secret.random_bits(31) if secret.reproducible else None
    private = {"epsilon": terms.part_epsilon, "delta": terms.delta, "budget": budget}
    # Silent, because messages would reveal the number of trials.
    private |= {"random_state": seed, "verbose": False}
    for _, composite in leaves(candidate, composite=True):
        _set_known(composite, _OF_COMPOSITES)
    for part in private_parts_of(candidate):
        classes = {} if task.classes is None else undeclared_classes(part, task.classes)
        _set_known(part, private | classes)
    targets = () if data.y is None else (data.y,)
    candidate.fit(data.X, *targets, **data.options)
    check_fit(candidate, len(task.parts), budget)
    return candidate


def _set_known(part: BaseEstimator, values: Mapping[str, Any]) -> None:
    """Set those parameters that a part has."""
    known = part.get_params(deep=False)
    part.set_params(**{name: value for name, value in values.items() if name in known})


def check_fit(candidate: Any, n_parts: int, budget: PrivacyBudget) -> None:
    """Refuse private parts that did not charge what they state, and others that kept rows."""
    # A statement of None means that nothing was spent, because everything was declared.
    parts = [part for part in private_parts_of(candidate) if hasattr(part, "privacy_spent_")]
    due = {str(part.privacy_spent_.event) for part in parts if part.privacy_spent_ is not None}
    charged = set(budget.history()["event"])
    problem = "" if len(parts) >= n_parts and due <= charged else _UNPAID
    for _, part in leaves(candidate):
        if not isinstance(part, PrivateEstimatorMixin) and keeps_more(part):
            problem = f"{type(part).__name__} says that it needs no fit, and kept private rows."
    if problem:
        raise ValueError(f"{problem} The search stops; what it was charged stays charged.")


def hand_over(candidate: Any, prefixes: tuple[str, ...], spent: PrivacySpent) -> None:
    """Remove the budget of the single fit, and state the cost of the search instead.

    The single fit cost less, but it was chosen, and the choice is part of the release. Each private
    part restates what it holds, for example its sketch (`PrivateEstimatorMixin`).
    """
    stated = {"epsilon": spent.epsilon, "delta": spent.delta, "budget": None}
    # A ColumnTransformer holds both its parts and their fitted clones.
    candidate.set_params(**{p + name: value for p in prefixes for name, value in stated.items()})
    for part in private_parts_of(candidate):
        part._restate(spent)
