r"""The trials of a private search: candidates, their scores, and the best of all that are fitted.

What is true of the estimator that was given need not be true of a candidate: parameters may put
another part in, or take a private one out. So every candidate is checked itself.

Every score is, before its noise, a sum over the held-out rows that moves by at most 1 when one of
them is replaced. For a score in [0, 1] a row, of the row alone, that is clear. The sliced
Wasserstein distance is no sum, but :math:`|W_1(P, S) - W_1(P', S)| \le W_1(P, P') \le w / n` on an
interval of width w, and directions with :math:`\|\theta\|_1 = 1` map the unit cube to intervals of
width 1: so n times the mean over the directions moves by 1 too.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import wasserstein_distance
from sklearn.base import MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import check_random_state, get_tags

from skdpot._utils.strangers import answers
from skdpot._utils.validation import (
    SecretStream,
    as_finite,
    num_samples,
    safe_indexing,
    spawn_streams,
)
from skdpot.base import chosen_mechanism
from skdpot.exceptions import SkdpotError, is_ours, publishable
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.noise import lattice_noise, round_to_lattice
from skdpot.privacy.pipelines import (
    COMPOSITES,
    PrivateEstimatorMixin,
    keeps_more,
    leaks,
    leaves,
    parts_of,
)
from skdpot.privacy.spent import PrivacySpent, planning
from skdpot.release.gate import Release, forgotten, pass_gate, remember
from skdpot.search.plan import FitTerms, SearchPlan, Splits

ONE_ROW = "all rows of a person would be in both parts of the split. Keep one row of each person."
_SET_BY_SEARCH = "epsilon delta budget random_state classes mechanism__classes verbose".split()
# Parameters of composites that hold other estimators, or write their fits somewhere.
_STRUCTURE = ("steps", "transformer_list", "transformers", "remainder", "memory")
# What composites may not decide: a density is a fact about the rows, and what other processes say
# is heard by whoever watches them.
_OF_COMPOSITES = {"verbose": False, "n_jobs": None, "sparse_threshold": 0.0}


def private_parts(estimator: Any) -> tuple[str, ...]:
    """Return where an estimator keeps what spends privacy, as prefixes of parameter names."""
    for _, composite in leaves(estimator, composite=True):
        _check_composite(composite)
    if found := leaks(estimator):
        raise ValueError(
            f"{found[0]} A candidate is made of parts of skdpot and steps that learn nothing."
        )
    prefixes = []
    for prefix, part in leaves(estimator):
        if isinstance(part, MetaEstimatorMixin):
            raise ValueError(
                f"{type(part).__name__} in a search would release a choice of every candidate. "
                "Search all parameters in one search."
            )
        if isinstance(part, PrivateEstimatorMixin):
            prefixes.append(prefix)
            if part.budget is not None:
                raise ValueError(f"`{prefix}budget` must be None: the search itself is charged.")
            _check_records(part)
    if not prefixes:
        raise ValueError("`estimator` has no private part. Pass a private estimator of skdpot.")
    return tuple(prefixes)


def _check_records(part: Any) -> None:
    """Refuse records of several rows: a search splits by row, and each row is scored."""
    for name, value in part.get_params().items():
        if {"unit": value is not None, "group_size": value != 1}.get(name.rpartition("__")[2]):
            raise ValueError(
                f"`{name}` cannot be used in a search, whose records are single rows: {ONE_ROW}"
            )


def refuse_reserved(names: Any, prefixes: tuple[str, ...]) -> None:
    """Refuse to search for what the search itself sets, or for other estimators."""
    reserved = {prefix + name for prefix in prefixes for name in _SET_BY_SEARCH}
    for name in names:
        why = ""
        if name in reserved:
            why = "the search sets it, alike for every candidate. Leave it out."
        elif name.rpartition("__")[2] in _STRUCTURE:
            why = "it says which parts there are. Search parameters of parts, or single parts."
        elif any(prefix.startswith(f"{name}__") for prefix in prefixes):
            why = "it replaces a private part. Search its parameters, or run several searches."
        if why:
            raise ValueError(f"`{name}` cannot be searched: {why}")


def hand_over(candidate: Any, prefixes: tuple[str, ...], spent: PrivacySpent) -> None:
    """Take the budget away again, and state the cost of the search instead of the single fit.

    The single fit cost less, but it was chosen, and the choice is part of the release. Each private
    part restates what it holds (`PrivateEstimatorMixin`), its sketch for example.
    """
    stated = {"epsilon": spent.epsilon, "delta": spent.delta, "budget": None}
    # A ColumnTransformer has fitted clones of its parts, and keeps the parts too.
    candidate.set_params(**{p + name: value for p in prefixes for name, value in stated.items()})
    for part in parts_of(candidate):
        part._restate(spent)


def check_fit(candidate: Any, n_parts: int, budget: PrivacyBudget) -> None:
    """Make sure that private parts charged what they say they spent, and others kept nothing."""
    # None states that nothing was spent: everything that was learned had been declared.
    parts = [part for part in parts_of(candidate) if hasattr(part, "privacy_spent_")]
    due = {str(part.privacy_spent_.event) for part in parts if part.privacy_spent_ is not None}
    charged = set(budget.history()["event"])
    problem = "" if len(parts) >= n_parts and due <= charged else _UNPAID
    for _, part in leaves(candidate):
        if not isinstance(part, PrivateEstimatorMixin) and keeps_more(part):
            problem = f"{type(part).__name__} says that it needs no fit, and kept private rows."
    if problem:
        raise ValueError(f"{problem} The search stops; what it was charged stays charged.")


_UNPAID = (
    "A private part of a candidate did not charge its fit to the budget that the search gave it. "
    "Search estimators that charge every fit to `budget` and state it in `privacy_spent_`."
)


def _declared(part: Any, classes: Any) -> dict[str, Any]:
    """Return what declares the classes of a part that would take them from its labels."""
    if not getattr(part, "conditional", True):
        return {}
    if hasattr(part, "mechanism") and hasattr(part, "_mechanisms"):
        mechanism = chosen_mechanism(part.mechanism, part._mechanisms)
        if getattr(mechanism, "classes", classes) is None:
            return {"mechanism": mechanism.set_params(classes=classes)}
    return {"classes": classes} if getattr(part, "classes", classes) is None else {}


def _check_composite(composite: Any) -> None:
    """Refuse composites that are not scikit-learn's own."""
    if type(composite) not in COMPOSITES:
        raise ValueError(
            f"{type(composite).__name__} is not scikit-learn's own: for all that is known it would "
            "learn from private rows. Use Pipeline, FeatureUnion or ColumnTransformer."
        )


_MOST_TRIED = 30  # candidates, on made-up rows
_MOST_CHECKED = 500  # candidates, before the charge; all others are checked when they are drawn


def make_candidate(estimator: Any, parameters: Mapping[str, Any], prefixes: tuple[str, ...]) -> Any:
    """Return an unfitted candidate that is private as a whole."""
    candidate = own_copy(estimator)
    candidate.set_params(**{name: own_copy(value) for name, value in parameters.items()})
    found = private_parts(candidate)
    if found != prefixes:
        raise ValueError(
            f"a candidate has {_listed(found)}, and `estimator` has {_listed(prefixes)}: all "
            "candidates must have the same private parts. Run several searches."
        )
    return candidate


def own_copy(value: Any) -> Any:
    """Return a copy of a parameter, unfitted if it is an estimator."""
    return deepcopy(clone(value, safe=False))


def check_candidates(estimator: Any, distributions: Any, prefixes: tuple[str, ...]) -> bool:
    """Refuse candidates that cannot be made, are not private, or are out of range."""
    needed = False
    for parameters in _some_candidates(distributions):
        candidate = make_candidate(estimator, parameters, prefixes)
        for part in parts_of(candidate):
            if hasattr(part, "_parameter_constraints"):
                part._validate_params()
            needed = needed or bool(_declared(part, ()))
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
        listed = {name: values for name, values in one.items() if not hasattr(values, "rvs")}
        laws = {name: values for name, values in one.items() if name not in listed}
        for place in range(max(map(len, listed.values()), default=1)):
            values = {name: values[place % len(values)] for name, values in listed.items()}
            yield values | {name: law.rvs(random_state=rng) for name, law in laws.items()}
    yield from ParameterSampler(given, 20, random_state=rng)


def _listed(prefixes: tuple[str, ...]) -> str:
    names = [f"`{prefix.removesuffix('__')}`" for prefix in prefixes if prefix]
    return f"the private parts {', '.join(names)}" if names else "no parts"


_N_DIRECTIONS = 64
_N_SYNTHETIC = 2000
_A_SCORE = "a function of fitted estimator, X and y that returns a number in [0, 1] for each row"
_SEED = 0  # public: synthetic rows are post-processing, and a seeded search must repeat

# From a fitted candidate, held-out rows and their targets to a number a row, or to their sum.
Score = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Scorer:
    """A score, higher being better: its name, and the sum over the rows of what lies in [0, 1]."""

    name: str
    total: Score
    reads_rows: bool = True
    given: Any = None  # by the caller


def find_scorer(scoring: Any, score_on: str, score_bounds: Any, estimator: Any) -> Scorer:
    """Return the score that was asked for, or the usual one of the estimator."""
    if score_on == "release":
        return _of_release(scoring)
    if callable(scoring):
        return Scorer(_name_of(scoring), _summed(scoring), given=scoring)
    name = _usual(estimator) if scoring is None else scoring
    if name in (by_name := {"accuracy": _is_right, "synthetic_accuracy": _is_right_by_synthetic}):
        return Scorer(name, _summed(by_name[name]))
    if name == "absolute_error":
        return Scorer(name, _summed(_closeness(*_range(score_bounds, name, "the targets"))))
    if name == "sliced_wasserstein":
        return Scorer(name, _sliced(*_range(score_bounds, name, "each feature")))
    raise ValueError(
        f"scoring={scoring!r} is unknown. Use 'accuracy', 'absolute_error', 'synthetic_accuracy', "
        f"'sliced_wasserstein', or {_A_SCORE}, of that row alone; AUC or R2 cannot be made private."
    )


def _name_of(scoring: Any) -> str:
    return str(getattr(scoring, "__name__", type(scoring).__name__))


def _summed(score: Score) -> Score:
    """Sum a score a row, which is clipped to [0, 1]; what is no number, or fails, counts 0."""

    def total(estimator: Any, X: Any, y: Any) -> float:
        def ask(positions: np.ndarray) -> np.ndarray:
            given = take(X, positions), take(y, positions)
            return np.asarray(score(estimator, *given), dtype=np.float64)

        scores = np.nan_to_num(answers(ask, (num_samples(X),)), nan=0.0)
        return float(np.sum(np.clip(scores, 0.0, 1.0)))

    return total


def _closeness(low: np.ndarray, high: np.ndarray) -> Score:
    """Score 1 minus the absolute error, as a share of the range."""

    def score(estimator: Any, X: Any, y: Any) -> np.ndarray:
        predicted, true = (
            np.clip(np.asarray(values, dtype=np.float64), low, high)
            for values in (estimator.predict(X), y)
        )
        error = np.abs(predicted - true.reshape(predicted.shape)) / (high - low)
        return 1.0 - error.reshape(len(error), -1).mean(axis=1)

    return score


def _sliced(low: np.ndarray, high: np.ndarray) -> Score:
    """Score the number of rows times 1 minus the mean W1 distance to synthetic rows."""

    def in_cube(values: Any) -> np.ndarray:
        cube = (np.asarray(values, dtype=np.float64) - low) / (high - low)
        return np.clip(np.nan_to_num(cube), 0.0, 1.0)

    def total(estimator: Any, X: Any, y: Any) -> float:
        synthetic = in_cube(estimator.sample(_N_SYNTHETIC, random_state=_SEED))
        rows = in_cube(X)
        d = rows.shape[1]
        directions = np.random.default_rng(0).normal(size=(_N_DIRECTIONS, d))
        directions = np.concatenate([np.eye(d), directions])
        directions /= np.abs(directions).sum(axis=1, keepdims=True)
        distances = [wasserstein_distance(rows @ u, synthetic @ u) for u in directions]
        return float(len(rows) * (1.0 - np.clip(np.mean(distances), 0.0, 1.0)))

    return total


def _is_right(estimator: Any, X: Any, y: Any) -> np.ndarray:
    return np.asarray(np.asarray(estimator.predict(X)) == np.asarray(y), dtype=np.float64)


def _is_right_by_synthetic(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """Score a sampler by a classifier that is trained on what it samples."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = estimator.sample_labeled(_N_SYNTHETIC, random_state=_SEED)
    if len(np.unique(labels)) < 2:
        return np.asarray(np.asarray(y) == labels[0], dtype=np.float64)
    model = HistGradientBoostingClassifier(max_iter=50, random_state=_SEED)
    return _is_right(model.fit(np.asarray(rows), labels), np.asarray(X), y)


def _distance_to_own_sketch(estimator: Any) -> float:
    return -float(estimator.sketch_.distance(estimator.sample(_N_SYNTHETIC, random_state=_SEED)))


def _of_release(scoring: Any) -> Scorer:
    if scoring is None:
        scoring, name = _distance_to_own_sketch, "distance to the own sketch"
    elif callable(scoring):
        name = _name_of(scoring)
    else:
        raise ValueError(
            f'scoring={scoring!r}: with score_on="release" it must be None (minus the distance to '
            "the own sketch) or a function of the fitted estimator alone."
        )

    def total(estimator: Any, X: Any, y: Any) -> float:
        try:
            score = float(scoring(estimator))
        except Exception:  # of a release, as any other
            return -np.inf
        return -np.inf if np.isnan(score) else score

    return Scorer(name, total, reads_rows=False, given=scoring)


def _usual(estimator: Any) -> str:
    if is_classifier(estimator):
        return "accuracy"
    if is_regressor(estimator):
        return "absolute_error"
    if hasattr(estimator, "sample") and not get_tags(estimator).input_tags.string:
        return "sliced_wasserstein"
    raise ValueError(f"{type(estimator).__name__} has no usual score; pass scoring=, {_A_SCORE}.")


def _range(given: Any, needed_by: str, of: str) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ValueError(
            f"scoring={needed_by!r} needs score_bounds=(low, high), a public range of {of}, "
            "so that no record moves the score by more than a known amount."
        )
    low, high = (as_finite(end, "score_bounds") for end in given)
    if not np.all(low < high):
        raise ValueError("score_bounds=(low, high) needs low < high.")
    return low, high


@dataclass(frozen=True, eq=False)
class SearchTask:
    """What a search looks for: its estimator with the prefixes of its private parts, and terms."""

    estimator: Any
    parts: tuple[str, ...]
    distributions: Any
    splits: Splits
    scorer: Scorer
    plan: SearchPlan
    classes: np.ndarray | None = None


def take(values: Any, positions: np.ndarray) -> Any:
    """Return some rows of an array or a table, in the form that it has."""
    if values is None:
        return None
    rows = values if hasattr(values, "__getitem__") else np.asarray(values)
    return safe_indexing(rows, positions)


@dataclass(frozen=True, eq=False)
class Rows:
    """Private rows, their targets, and what else a fit is given with a value for each of them."""

    X: Any
    y: Any
    options: Mapping[str, Any]

    def take(self, positions: np.ndarray) -> "Rows":
        """Return some of them."""
        options = {name: take(value, positions) for name, value in self.options.items()}
        return Rows(take(self.X, positions), take(self.y, positions), options)


@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate with its noisy score; released if it is the best one, else forgotten."""

    score: float
    parameters: Mapping[str, Any]
    estimator: Any
    releases: tuple[Release, ...]


def best_trial(task: SearchTask, rows: Rows, secret: SecretStream) -> Trial:
    """Run a random number of trials and return the best one.

    Of equally good ones the first is kept: given their number all of them have the same law, so
    that it makes no difference to what can be learned.
    """

    def trial() -> Trial:
        parameters = _draw_candidate(task.distributions, secret)
        # Refused here in plain words: what goes wrong within a trial is not quoted.
        make_candidate(task.estimator, parameters, task.parts)
        return _run(task, parameters, rows, secret)

    n_trials = task.plan.law.draw(secret)
    best = max((trial() for _ in range(n_trials)), key=lambda one: one.score)
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
    return next(iter(ParameterSampler(deepcopy(distributions), 1, random_state=rng)))


def try_out(task: SearchTask, rows: Rows) -> None:
    """Refuse, before the charge, candidates and scores that fail on made-up rows.

    The rows have the columns of X, and targets among the classes; arguments of the fit, such as
    groups, are as given. Fits end where they would be charged. Only for a score of the caller's own
    is one made to the end. Tables of a schema are not made up.
    """
    tags = get_tags(task.estimator).input_tags
    if tags.string or tags.categorical:
        return
    train, held_out = task.splits.folds[0]
    made_up, secret = _made_up(task, rows), spawn_streams(None, "PrivateSearchCV").secret
    fit = (made_up.take(train), task.plan.fit, secret)
    for parameters in islice(_some_candidates(task.distributions), _MOST_TRIED):
        what = f"A candidate with the parameters {parameters}"
        with planning(True), _told_of_made_up_rows(what):
            fit_alone(task, parameters, *fit)
    if task.scorer.given is None:
        return
    parameters = next(_some_candidates(task.distributions))
    with planning(False), _told_of_made_up_rows("A candidate"):
        fitted = fit_alone(task, parameters, *fit)
    with _told_of_made_up_rows("`scoring`"):
        if not task.scorer.reads_rows:
            float(task.scorer.given(fitted))
            return
        others = made_up.take(held_out)
        scores = np.asarray(task.scorer.given(fitted, others.X, others.y), dtype=np.float64)
        if scores.shape != (len(held_out),):
            raise ValueError(f"The score must have shape ({len(held_out)},), got {scores.shape}.")


@contextmanager
def _told_of_made_up_rows(what: str) -> Iterator[None]:
    """Say what fails, silently otherwise; an error about made-up rows quotes nothing private."""
    try:
        with _quiet():
            yield
    except SkdpotError:
        raise
    except Exception as error:
        raise ValueError(
            f"{what} fails on made-up rows with the columns of X: {type(error).__name__}: {error}"
        ) from error


def _made_up(task: SearchTask, rows: Rows) -> Rows:
    """Return as many rows of numbers with the columns of X, and targets."""
    n, rng = num_samples(rows.X), np.random.default_rng(_SEED)
    X: Any = rng.uniform(0.1, 0.9, (n, np.asarray(rows.X).shape[1]))
    if isinstance(rows.X, pd.DataFrame):
        X = pd.DataFrame(X, columns=rows.X.columns)
    y = rows.y
    if is_regressor(task.estimator):
        y = rng.uniform(-1.0, 1.0, np.asarray(y).shape)
    elif y is not None:
        declared = [getattr(part, "classes", None) for part in parts_of(task.estimator)]
        y = np.resize(next(c for c in (task.classes, *declared, [0, 1]) if c is not None), n)
    return Rows(X, y, rows.options)


def fit_alone(
    task: SearchTask,
    parameters: Mapping[str, Any],
    rows: Rows,
    terms: FitTerms,
    secret: SecretStream,
) -> Any:
    """Fit one candidate under a budget of its own, which no fit can overspend."""
    candidate = make_candidate(task.estimator, parameters, task.parts)
    budget = PrivacyBudget(terms.epsilon, terms.delta)
    seed = secret.random_bits(31) if secret.reproducible else None
    given = {"epsilon": terms.part_epsilon, "delta": terms.delta, "budget": budget}
    # Silent: how often it speaks would be counted.
    given |= {"random_state": seed, "verbose": False}
    for _, composite in leaves(candidate, composite=True):
        _set_known(composite, _OF_COMPOSITES)
    for part in parts_of(candidate):
        _set_known(part, given | ({} if task.classes is None else _declared(part, task.classes)))
    targets = () if rows.y is None else (rows.y,)
    candidate.fit(rows.X, *targets, **rows.options)
    check_fit(candidate, len(task.parts), budget)
    return candidate


def _set_known(part: Any, given: Mapping[str, Any]) -> None:
    known = part.get_params(deep=False)
    part.set_params(**{name: value for name, value in given.items() if name in known})


def _run(
    task: SearchTask, parameters: Mapping[str, Any], rows: Rows, secret: SecretStream
) -> Trial:
    """Fit and score a candidate; raise nothing that quotes what it happened on."""
    failure: BaseException | None = None
    with _quiet() as releases:
        try:
            total, fitted = 0.0, None
            for train, held_out in task.splits.folds:
                fitted = fit_alone(task, parameters, rows.take(train), task.plan.fit, secret)
                # A copy, so that nothing that a score leaves behind is released.
                judged, others = deepcopy(fitted), rows.take(held_out)
                total += task.scorer.total(judged, others.X, others.y)
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
    noisy = Release(
        "score", score, sigma=task.plan.score_deviation, lattice=lattice, event=task.plan.event
    )
    return pass_gate(noisy)


@contextmanager
def _quiet() -> Iterator[list[Release]]:
    """Let nobody hear a trial: warnings, and who records releases, would count the trials."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), forgotten() as releases:
        warnings.simplefilter("ignore")
        yield releases


def _publishable(error: BaseException, task: SearchTask) -> BaseException:
    """Return the error itself where it is known to quote no private value: where we raise it."""
    own = type(task.estimator).__module__.startswith("skdpot.") and is_ours(error.__traceback__)
    if isinstance(error, SkdpotError) or (own and isinstance(error, ValueError | TypeError)):
        return error
    return publishable(error, "PrivateSearchCV")
