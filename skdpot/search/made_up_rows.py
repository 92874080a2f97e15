"""Trying candidates and scores on made-up rows, before the charge."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_regressor
from sklearn.utils import get_tags

from skdpot._utils.parameters import num_samples
from skdpot._utils.streams import spawn_streams
from skdpot.exceptions import SkdpotError
from skdpot.privacy.charges import planning
from skdpot.privacy.pipelines import private_parts_of
from skdpot.search.candidates import some_candidates
from skdpot.search.fit_data import FitData
from skdpot.search.fits import fit_alone
from skdpot.search.scorers import PUBLIC_SEED
from skdpot.search.task import SearchTask
from skdpot.search.trials import unheard

# Candidates that are fitted to made-up rows.
_MOST_TRIED = 30


def try_out(task: SearchTask, data: FitData) -> None:
    """Refuse, before the charge, candidates and scores that fail on made-up rows.

    The rows have the columns of X, and targets among the classes. Further arguments of the fit are
    the real ones. Fits end where they would be charged; only a score that the caller wrote is tried
    on a complete fit. Tables with a schema are not tried.
    """
    tags = get_tags(task.estimator).input_tags
    if tags.string or tags.categorical:
        return
    train, held_out = task.splits.folds[0]
    made_up, secret = _made_up(task, data), spawn_streams(None, "PrivateSearchCV").secret
    trained = made_up.take(train)

    def fit(parameters: Mapping[str, Any]) -> Any:
        return fit_alone(task, parameters, trained, task.plan.fit, secret)

    for parameters in islice(some_candidates(task.distributions), _MOST_TRIED):
        tried = f"A candidate with the parameters {parameters}"
        with planning(True), _named(tried):
            fit(parameters)
    if task.scorer.function is None:
        return
    with planning(False), _named("A candidate"):
        fitted = fit(next(some_candidates(task.distributions)))
    with _named("`scoring`"):
        if not task.scorer.reads_rows:
            float(task.scorer.function(fitted))
            return
        others = made_up.take(held_out)
        scores = np.asarray(task.scorer.function(fitted, others.X, others.y), dtype=np.float64)
        if scores.shape != (len(held_out),):
            raise ValueError(f"The score must have shape ({len(held_out)},), got {scores.shape}.")


@contextmanager
def _named(tried: str) -> Iterator[None]:
    """Name what is tried in errors, which quote no private value because rows are made up."""
    try:
        with unheard():
            yield
    except SkdpotError:
        raise
    except Exception as error:
        raise ValueError(
            f"{tried} fails on made-up rows with the columns of X: {type(error).__name__}: {error}"
        ) from error


def _made_up(task: SearchTask, data: FitData) -> FitData:
    """Return as many random rows with the columns of X, and targets."""
    n, rng = num_samples(data.X), np.random.default_rng(PUBLIC_SEED)
    X: Any = rng.uniform(0.1, 0.9, (n, np.asarray(data.X).shape[1]))
    if isinstance(data.X, pd.DataFrame):
        X = pd.DataFrame(X, columns=data.X.columns)
    y = data.y
    if is_regressor(task.estimator):
        y = rng.uniform(-1.0, 1.0, np.asarray(y).shape)
    elif y is not None:
        declared = [getattr(part, "classes", None) for part in private_parts_of(task.estimator)]
        y = np.resize(next(c for c in (task.classes, *declared, [0, 1]) if c is not None), n)
    return FitData(X, y, data.options)
