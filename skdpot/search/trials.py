"""The trials of a search: fit, score, add noise, and keep the best one alone."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._utils.streams import SecretStream
from skdpot.exceptions import SkdpotError, is_ours, publishable
from skdpot.privacy.noise import lattice_noise, round_to_lattice
from skdpot.release.gate import forgotten, pass_gate, remember
from skdpot.release.releases import Release
from skdpot.search.candidates import draw_candidate, make_candidate
from skdpot.search.fit_data import FitData
from skdpot.search.fits import fit_alone
from skdpot.search.task import SearchTask


@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate with its noisy score; released if it is the best one, otherwise forgotten.

    `estimator` is None after a trial of several folds.
    """

    score: float
    parameters: Mapping[str, Any]
    estimator: Any
    releases: tuple[Release, ...]


def best_trial(task: SearchTask, data: FitData, secret: SecretStream) -> Trial:
    """Run a random number of trials and return the best one.

    Of trials with equal scores the first is kept. Given their number all trials have the same law,
    so that the choice among them reveals nothing.
    """

    def trial() -> Trial:
        parameters = draw_candidate(task.distributions, secret)
        # Refused here, because errors within a trial are not quoted.
        make_candidate(task.estimator, parameters, task.parts)
        return _run(task, parameters, data, secret)

    n_trials = task.plan.law.draw(secret)
    best = max((trial() for _ in range(n_trials)), key=lambda candidate: candidate.score)
    remember(best.releases)
    return best


def _run(
    task: SearchTask, parameters: Mapping[str, Any], data: FitData, secret: SecretStream
) -> Trial:
    """Fit and score a candidate; raise no error that quotes private values."""
    failure: BaseException | None = None
    with unheard() as releases:
        try:
            total, fitted = 0.0, None
            for train, held_out in task.splits.folds:
                fitted = fit_alone(task, parameters, data.take(train), task.plan.fit, secret)
                # A copy, so that attributes set by a score are not released.
                scored, others = deepcopy(fitted), data.take(held_out)
                total += task.scorer.total(scored, others.X, others.y)
            score = noisy_score(total, task, secret)
        except BaseException as error:
            failure = _publishable(error, task)
    if failure is not None:
        raise failure
    winner = fitted if len(task.splits.folds) == 1 else None
    return Trial(score, parameters, winner, tuple(releases))


def noisy_score(total: float, task: SearchTask, secret: SecretStream) -> float:
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
    noisy = Release(
        "score", score, sigma=task.plan.score_deviation, lattice=lattice, event=task.plan.event
    )
    return pass_gate(noisy)


@contextmanager
def unheard() -> Iterator[list[Release]]:
    """Suppress warnings and records of releases, which would reveal the number of trials."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), forgotten() as releases:
        warnings.simplefilter("ignore")
        yield releases


def _publishable(error: BaseException, task: SearchTask) -> BaseException:
    """Return an error that skdpot raised itself, and otherwise one without the private text."""
    if isinstance(error, SkdpotError):
        return error
    of_skdpot = type(task.estimator).__module__.startswith("skdpot.")
    if of_skdpot and is_ours(error.__traceback__) and isinstance(error, ValueError | TypeError):
        return error
    return publishable(error, "PrivateSearchCV")
