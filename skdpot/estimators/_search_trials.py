"""The trials of a private search: run one after the other, all but the best forgotten.

What is true of the estimator that was given need not be true of a candidate: parameters may put
another part in, or take a private one out. So every candidate is checked itself.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import check_random_state

from skdpot._utils.rng import SecretStream
from skdpot.estimators._search_plan import FitTerms, SearchPlan, Splits, take
from skdpot.estimators._search_scores import Scorer
from skdpot.exceptions import SkdpotError
from skdpot.mechanisms.base import chosen_mechanism
from skdpot.mechanisms.noisy_training import publishable
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.noise import lattice_noise, round_to_lattice
from skdpot.privacy.parts import COMPOSITES, composites, keeps_more, leaves
from skdpot.privacy.provenance import leaks, parts_of
from skdpot.privacy.recording import Release, forgotten, released, remember
from skdpot.privacy.spent import PrivacySpent, PrivateEstimatorMixin

__all__ = [
    "SearchTask",
    "best_trial",
    "check_candidates",
    "fit_alone",
    "hand_over",
    "own_copy",
    "private_parts",
    "refuse_reserved",
]

_SET_BY_SEARCH = (
    *("epsilon", "delta", "budget", "random_state", "classes", "mechanism__classes", "verbose"),
)
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
        if isinstance(part, MetaEstimatorMixin):
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


def give_budget(
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
        for prefix, part in leaves(candidate):
            if prefix in prefixes:
                chosen |= {prefix + name: value for name, value in _declared(part, classes).items()}
    candidate.set_params(**{name: value for name, value in chosen.items() if name in known})


def hand_over(candidate: Any, prefixes: tuple[str, ...], spent: PrivacySpent) -> None:
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
        What `give_budget` gave it.
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
    due = {str(one.event) for one in spent if isinstance(one, PrivacySpent)}
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
    mechanism = _mechanism_with_classes(part)
    known = part.get_params(deep=False) | ({} if mechanism is None else mechanism.get_params())
    return "classes" in known and known["classes"] is None and bool(known.get("conditional", True))


def _mechanism_with_classes(part: Any) -> Any:
    """Return a copy of the mechanism of a part that declares its classes; None without one."""
    if not (hasattr(part, "mechanism") and hasattr(part, "_mechanisms")):
        return None
    mechanism = chosen_mechanism(part.mechanism, part._mechanisms)
    return mechanism if hasattr(mechanism, "classes") else None


def _declared(part: Any, classes: np.ndarray) -> dict[str, Any]:
    """Return the parameters that declare the classes of a part which declares none."""
    mechanism = _mechanism_with_classes(part)
    if mechanism is None:
        return {"classes": classes} if getattr(part, "classes", None) is None else {}
    return {"mechanism": mechanism.set_params(classes=classes)} if mechanism.classes is None else {}


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


@dataclass(frozen=True, eq=False)
class SearchTask:
    """What a search looks for, and where.

    Parameters
    ----------
    estimator : estimator
        Cloned for every fit.
    parts : tuple of str
        Its private parts, as prefixes.
    distributions : dict or list of dict
        Public distribution of the candidates.
    splits : Splits
        Public split.
    scorer : Scorer
        Compares trials.
    plan : SearchPlan
        What each part may spend; charged already.
    caller : str
        Name for messages.
    classes : ndarray, optional
        Public set of classes, for every fit.
    """

    estimator: Any
    parts: tuple[str, ...]
    distributions: Any
    splits: Splits
    scorer: Scorer
    plan: SearchPlan
    caller: str
    classes: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate with its noisy score; released if it is the best one, else forgotten."""

    score: float
    parameters: Mapping[str, Any]
    estimator: Any
    releases: tuple[Release, ...]


def best_trial(
    task: SearchTask, X: Any, y: Any, fit_params: Mapping[str, Any], secret: SecretStream
) -> Trial:
    """Run a random number of trials and return the best one.

    Of equally good ones the first is kept: given their number all of them have the same law, so
    that it makes no difference to what can be learned.

    Parameters
    ----------
    task : SearchTask
        What to look for.
    X, y : array-like
        Private rows and their targets.
    fit_params : mapping
        What else the fits take, a value a row.
    secret : SecretStream
        Draws the number of trials, the candidates and the noise.

    Returns
    -------
    Trial
    """
    best: Trial | None = None
    for _ in range(task.plan.law.draw(secret)):
        parameters = _draw_candidate(task.distributions, secret)
        # Refused here in plain words: what goes wrong within a trial is not quoted.
        make_candidate(task.estimator, parameters, task.parts, task.caller)
        trial = _run(task, parameters, X, y, fit_params, secret)
        if best is None or trial.score > best.score:
            best = trial
    if best is None:
        raise RuntimeError("A search makes at least one trial.")
    remember(best.releases)
    return best


def _draw_candidate(distributions: Any, secret: SecretStream) -> dict[str, Any]:
    """Draw a candidate that has the same law, and tells nothing else, at every index.

    Each has 128 bits of its own: one short seed for all would make the position of a number in
    the sequence that follows from it a part of what is released. And each has laws of its own:
    an object that counts its draws would put the index of the trial in what it returns.
    """
    bits = np.random.MT19937(np.random.SeedSequence(secret.random_bits(128)))
    rng = np.random.RandomState(bits)  # what scikit-learn and SciPy draw from
    [parameters] = ParameterSampler(deepcopy(distributions), 1, random_state=rng)
    return parameters


def fit_alone(
    task: SearchTask,
    parameters: Mapping[str, Any],
    X: Any,
    y: Any,
    fit_params: Mapping[str, Any],
    terms: FitTerms,
    secret: SecretStream,
) -> Any:
    """Fit one candidate under a budget of its own, which no fit can overspend.

    Parameters
    ----------
    task : SearchTask
        What is searched.
    parameters : mapping
        Of the candidate.
    X, y : array-like
        Private rows and their targets.
    fit_params : mapping
        What else the fit takes.
    terms : FitTerms
        What the fit may spend.
    secret : SecretStream
        Seeds the candidate if it is seeded itself.

    Returns
    -------
    estimator
        Fitted.

    Raises
    ------
    ValueError
        If the candidate is not private as a whole, or did not pay for what it did.
    """
    candidate = make_candidate(task.estimator, parameters, task.parts, task.caller)
    budget = terms.budget()
    seed = secret.random_bits(31) if secret.reproducible else None
    give_budget(candidate, task.parts, budget, terms.part_epsilon, seed, task.classes)
    targets = () if y is None else (y,)
    candidate.fit(X, *targets, **fit_params)
    check_paid(candidate, len(task.parts), budget, task.caller)
    check_learned_nothing(candidate, task.caller)
    return candidate


def _run(
    task: SearchTask,
    parameters: Mapping[str, Any],
    X: Any,
    y: Any,
    fit_params: Mapping[str, Any],
    secret: SecretStream,
) -> Trial:
    """Fit and score a candidate; raise nothing that quotes what it happened on."""
    failure: BaseException | None = None
    with _quiet() as releases:
        try:
            total, fitted = 0.0, None
            for train, held_out in task.splits.folds:
                rows, targets = take(X, train), take(y, train)
                options = {name: take(value, train) for name, value in fit_params.items()}
                terms = task.plan.fit
                fitted = fit_alone(task, parameters, rows, targets, options, terms, secret)
                # A copy, so that nothing that a score leaves behind is released.
                judged = deepcopy(fitted)
                total += task.scorer.total(judged, take(X, held_out), take(y, held_out))
            score = _noisy(total, task, secret)
        except BaseException as error:
            failure = _publishable(error, task)
    if failure is not None:
        raise failure
    kept = fitted if len(task.splits.folds) == 1 else None
    return Trial(score, parameters, kept, tuple(releases))


def _noisy(total: float, task: SearchTask, secret: SecretStream) -> float:
    """Return the mean score with its noise, as a multiple of the lattice over the rows."""
    if not task.scorer.reads_rows:
        return total
    noise = task.plan.score_noise
    if noise is None:  # epsilon is infinite
        return total / task.plan.n_scored
    [drawn] = lattice_noise(
        noise.sigma, 1, secret, lattice=noise.lattice, mu=max(noise.mu, task.plan.trial_mu)
    )
    [units] = round_to_lattice([total], noise.lattice)
    score = float(drawn + units) * noise.lattice / task.plan.n_scored
    lattice = noise.lattice / task.plan.n_scored
    noisy: float = released(
        Release("score", score, sigma=task.plan.score_deviation, lattice=lattice)
    )
    return noisy


@contextmanager
def _quiet() -> Iterator[list[Release]]:
    """Let nobody hear a trial: warnings, and who records releases, would count the trials."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), forgotten() as releases:
        warnings.simplefilter("ignore")
        yield releases


def _publishable(error: BaseException, task: SearchTask) -> BaseException:
    """Return the error itself where it is known to quote no private value."""
    own = type(task.estimator).__module__.startswith("skdpot.")
    if isinstance(error, SkdpotError) or (own and isinstance(error, ValueError | TypeError)):
        return error
    return publishable(error, task.caller)
