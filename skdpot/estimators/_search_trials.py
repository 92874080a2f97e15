"""The trials of a private search: run one after the other, all but the best forgotten."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import ParameterSampler

from skdpot._utils.rng import SecretStream
from skdpot.estimators._private_errors import publishable
from skdpot.estimators._search_candidates import make_candidate
from skdpot.estimators._search_parts import arm, check_learned_nothing, check_paid
from skdpot.estimators._search_plan import FitTerms, SearchPlan
from skdpot.estimators._search_scores import Scorer
from skdpot.estimators._search_splits import Splits, take
from skdpot.exceptions import SkdpotError
from skdpot.privacy.noise import lattice_noise, round_to_lattice
from skdpot.privacy.recording import Release, forgotten, released, remember

__all__ = ["SearchTask", "Trial", "best_trial", "fit_alone"]


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
    arm(candidate, task.parts, budget, terms.part_epsilon, seed, task.classes)
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
    return released("score", score, lambda: {"sigma": task.plan.score_deviation})


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
