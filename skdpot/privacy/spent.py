"""What a fit has spent, in a form that one can read, compare and sign.

Whether a privacy statement that somebody else may have written can be true.

What pipelines are made of, and which of their parts learn from the rows that they are fitted on.

Pipelines, unions and column transformers are looked into; everything else is one part.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from numbers import Real
from typing import Any, ClassVar, SupportsIndex, TypeAlias

import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.utils import get_tags

from skdpot._utils.pages import html_card
from skdpot._utils.records import LARGEST_COUNT
from skdpot._utils.validation import Interval, StrOptions
from skdpot.exceptions import CalibrationError, warn_of_privacy
from skdpot.privacy.accounting import PrivacyLoss, compose, privacy_target
from skdpot.privacy.budget import PrivacyBudget, epsilon_text
from skdpot.privacy.events import ComposedEvent, Event, Relation, check_group_size
from skdpot.privacy.gdp import ROUNDING, exact_leak

# One number, one for each phase of the fit, or none where no single one exists.
Scale: TypeAlias = float | tuple[float, ...] | None


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy statement of one fit: public facts only.

    Parameters
    ----------
    epsilon, delta : float
        The whole fit is (epsilon, delta)-differentially private.
    relation : Relation
        What two neighbouring data sets are.
    event : Event
        Everything that touched private data.
    sigma : float, tuple of float or None
        Standard deviation of the noise, for each phase where there are several.
    sensitivity : float, tuple of float or None
        L2 sensitivity that `sigma` was calibrated to.
    assumptions : tuple of str
        What is taken to be public; the statement holds only if it is.
    mechanism : str, default=""
        How the release was made.
    """

    epsilon: float
    delta: float
    relation: Relation
    event: Event
    sigma: Scale
    sensitivity: Scale
    assumptions: tuple[str, ...]
    mechanism: str = ""

    def for_group(self, group_size: SupportsIndex) -> float:
        """Return the epsilon at the same delta when several records change together.

        Parameters
        ----------
        group_size : int
            Number k of records that change, for example all rows of one person. Under
            replace-one their values are replaced, and what the assumptions call public stays.

        Returns
        -------
        float
            Rounded up; infinity where nothing is proved at this delta. For Gaussian releases that
            touch all records it is the epsilon of k times their mu, which is attained. In general
            it is k x for the smallest x at which delta(x) (e^(k x) - 1) / (e^x - 1) is at most
            `delta`, delta(x) being the profile for one record.

        Raises
        ------
        UnknownEventError
            If the account of the event is not known.
        ValueError
            If `group_size` is not an integer of at least one.

        Notes
        -----
        Dividing epsilon by k is *not* enough: it leaves a larger epsilon at the same delta.
        Whoever wants epsilon = 3 for people with five rows spends 0.5, not 0.6:

        >>> from skdpot.privacy.accounting import SingleFitTarget, calibrate
        >>> from skdpot.privacy.events import GaussianEvent
        >>> def spent(epsilon):
        ...     target = SingleFitTarget(epsilon, 1e-5)
        ...     event = calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=1.0))
        ...     return PrivacySpent(epsilon, 1e-5, event.relation, event, None, None, ())
        >>> spent(0.6).for_group(5)
        3.58
        >>> spent(0.5).for_group(5)
        2.96
        """
        size = check_group_size(group_size)
        if math.isinf(self.epsilon) or size == 1:
            return self.epsilon
        delta = self.delta * (1.0 - 2.0 * ROUNDING)
        return compose(self.event).group_epsilon(size, delta, self.event.group_leak(size))

    def to_frame(self) -> pd.DataFrame:
        """Return one row with a column a field, ready to be stacked with those of other fits.

        Returns
        -------
        DataFrame
            `event` is given as text, the assumptions are joined by semicolons.
        """
        row = {item.name: getattr(self, item.name) for item in fields(self)}
        row |= {"relation": str(self.relation), "event": str(self.event)}
        row["assumptions"] = "; ".join(self.assumptions)
        return pd.DataFrame([row])

    def __repr__(self) -> str:
        """Return the guarantee and the noise on one line."""
        mechanism = f"mechanism={self.mechanism!r}, " if self.mechanism else ""
        return (
            f"PrivacySpent(epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"relation={str(self.relation)!r}, {mechanism}"
            f"sigma={self.sigma!r}, sensitivity={self.sensitivity!r})"
        )

    def __str__(self) -> str:
        """Return the whole statement, a fact a line."""
        guarantee = f"{epsilon_text(self.epsilon)}, δ = {self.delta:g}"
        rows = [("guarantee", guarantee), *self._facts()]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        """Return the statement as a card for notebooks."""
        rows = [(name.capitalize(), value) for name, value in self._facts()]
        title = f"Privacy statement: {epsilon_text(self.epsilon)}"
        aside = f"δ = {self.delta:g} · {str(self.relation).replace('_', ' ')}"
        return html_card(title, aside, rows)

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the statement after the guarantee."""
        meaning = {
            Relation.REPLACE_ONE: "one record replaced by another (their number is public)",
            Relation.ADD_REMOVE: "one record added or removed",
        }
        nothing = "nothing (epsilon is infinite)"
        yield "protects against", nothing if math.isinf(self.epsilon) else meaning[self.relation]
        if self.mechanism:
            yield "mechanism", self.mechanism
        if self.sigma is not None:
            yield "noise sigma", _numbers(self.sigma)
        if self.sensitivity is not None:
            yield "sensitivity", _numbers(self.sensitivity)
        yield "event", str(self.event)
        for number, assumption in enumerate(self.assumptions, start=1):
            yield f"assumes {number}", assumption


class PrivateEstimatorMixin:
    """Mixin of estimators that charge every fit to `budget` and state it in `privacy_spent_`.

    It declares that the estimator has the parameters `epsilon`, `delta` and `budget`, and where
    else its fits leave a statement or a budget: in the attributes that `_stated_in` names, each of
    them such an estimator too. `PrivateSearchCV` and `check_pipeline` go by this declaration. An
    estimator that keeps a statement in another form overrides `_restate`.
    """

    epsilon: float
    delta: float
    budget: PrivacyBudget | None
    privacy_spent_: Any
    _stated_in: ClassVar[tuple[str, ...]] = ()
    _canaries: ClassVar[str] = "corners"  # what shows most of it in an audit

    _parameter_constraints: dict[str, list[Any]] = {
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "budget": [PrivacyBudget, None],
        "random_state": ["random_state"],
        # Where an estimator has them:
        "callbacks": [list, tuple, None],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "verbose": ["verbose"],
    }

    def _epsilon_due(self) -> float:
        """Return the epsilon of the next fit: inf without noise, 0 if it will release nothing."""
        return self.epsilon

    def _seen_by(self, release: Any, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows and labels as the mechanism of a release is given them, for audits."""
        parts = (getattr(self, name, None) for name in self._stated_in)
        own = next((part for part in parts if part is not None), None)
        return (X, y) if own is None else own._seen_by(release, X, y)

    def _restate(self, spent: PrivacySpent) -> None:
        """State `spent` in the place of what the fit alone cost, and let go of its budget.

        What was fitted became part of a larger release, which costs more than this fit did.
        """
        self.epsilon, self.delta, self.budget = spent.epsilon, spent.delta, None
        if getattr(self, "privacy_spent_", None) is not None:  # None has released nothing
            self.privacy_spent_ = spent
        for name in self._stated_in:
            part = getattr(self, name, None)
            if part is not None:
                part._restate(spent)


def scales_of(event: Event) -> tuple[Scale, Scale]:
    """Return noise and sensitivity of each phase of an event, of all its steps together."""
    phases: tuple[Any, ...] = event.phases if event.is_private else ()
    sensitivities = (phase.sensitivity * math.sqrt(phase.n_steps) for phase in phases)
    return tuple(phase.sigma for phase in phases) or None, tuple(sensitivities) or None


def charge(
    owner: Any,
    event: Event,
    *,
    n_samples: int | None,
    assumptions: Iterable[str],
    mechanism: str = "",
    scales: tuple[Scale, Scale] | None = None,
    noise_given: bool = False,
    label: str | None = None,
) -> PrivacySpent:
    """Charge a fit before it draws its noise or looks at its data.

    Parameters
    ----------
    owner : estimator or FitContext
        Has the promise, `epsilon` and `delta`, and the `budget` to charge; None if the fit stands
        alone.
    event : Event
        The whole fit; it must not cost more than is promised.
    n_samples : int or None
        Number of records, which must be public; None if there is no private record.
    assumptions : iterable of str
        What the fit takes to be public.
    mechanism : str, default=""
        For the statement.
    scales : tuple, optional
        Noise and sensitivity for the statement, by default those of each phase of the event.
    noise_given : bool, default=False
        State what the event costs at `delta`, whatever `epsilon` is, for noise that was given
        rather than calibrated.
    label : str, optional
        Name in the budget's history, by default that of the estimator.

    Returns
    -------
    PrivacySpent
        The statement, to be stored as ``privacy_spent_``.

    Raises
    ------
    BudgetExceededError
        If the budget has too little left; nothing is charged then.
    CalibrationError
        If the event costs more than (epsilon, delta); nothing is charged then.
    LedgerError
        If the budget's ledger cannot be used.
    ValueError
        If `epsilon` or `delta` is out of range, or event and budget are of different relations.

    Warns
    -----
    PrivacyWarning
        Before the charge, if `delta`, or that of the budget, is not below ``1 / n_samples``: a
        mechanism that publishes one record, picked at random, is (0, 1/n)-private.
    """
    budget, delta = owner.budget, owner.delta
    name = label or str(getattr(owner, "caller", type(owner).__name__))
    if not (budget is None or isinstance(budget, PrivacyBudget)):
        raise TypeError(f"`budget` must be a PrivacyBudget or None, got {type(budget).__name__}.")
    target = privacy_target(math.inf if noise_given else owner.epsilon, delta, budget)
    if not target.admits(event):
        raise CalibrationError(
            f"{name}: the noise is too small for epsilon={target.epsilon:g} at delta={delta:g}. "
            "Calibrate the event to that target; nothing was charged."
        )
    if noise_given or math.isfinite(target.epsilon):
        _warn_of_delta(name, event, n_samples, target.delta, budget)
    stated = _epsilon(compose(event), target.delta) if noise_given else target.epsilon
    facts = event.relation, event, *(scales or scales_of(event)), tuple(assumptions), mechanism
    spent = PrivacySpent(stated, target.delta, *facts)
    if budget is not None:
        budget.spend(event, label=name)
    return spent


def _warn_of_delta(
    label: str, event: Event, n_samples: int | None, delta: float, budget: PrivacyBudget | None
) -> None:
    """Warn of a delta that lets a release of one record pass; where n is protected, say nothing."""
    if n_samples is None or event.relation is not Relation.REPLACE_ONE:
        return
    largest = delta
    if budget is not None and math.isfinite(budget.epsilon):
        largest = max(delta, budget.delta)
    if largest * n_samples >= 1.0:
        owner = "delta" if largest == delta else "the budget's delta"
        warn_of_privacy(
            f"{label}: {owner} = {largest:g} is not below one over the number of rows "
            f"({n_samples:,}): publishing one row would pass for private. Choose a delta well "
            f"below {1 / n_samples:.1g}."
        )


def total_spent(*fitted: Any, delta: float | None = None) -> PrivacySpent:
    """Add up what several fitted estimators have spent on the same records.

    Use it after the fact; a shared `PrivacyBudget` adds up while the fits are made, and also
    counts refits and fits that were thrown away, which nobody can find here.

    Parameters
    ----------
    *fitted : estimator or PrivacySpent
        Fitted estimators with a ``privacy_spent_``, or pipelines and other composites of them.
        The same object counts once, however often it is passed.
    delta : float, default=None
        The delta of the total, by default the largest delta of the parts.

    Returns
    -------
    PrivacySpent
        The composition of all events. `epsilon` is infinite if a part has no noise. Parts
        without an event are named in the assumptions: they must not have learned anything from
        the private records. Parts that released nothing, whose ``privacy_spent_`` is None, need
        no such assumption.

    Raises
    ------
    TypeError
        If an estimator has no ``privacy_spent_``, if none has spent anything, or if one is a
        search, whose fits are not all kept.
    ValueError
        If nothing is passed, the relations differ, or `delta` is out of range.

    Notes
    -----
    If a later estimator was chosen, or its epsilon set, after looking at earlier results, the
    total is only a running figure; the cap of a shared budget covers that case too.
    """
    parts = [part for estimator in fitted for part in _private_parts(estimator)]
    if not fitted:
        raise ValueError("total_spent needs at least one fitted estimator.")
    if not parts:
        names = ", ".join(dict.fromkeys(type(estimator).__name__ for estimator in fitted))
        raise TypeError(
            f"{names} spent nothing: the fit released nothing about private records, so that there "
            "is no event to add up. Pass estimators that were fitted privately."
        )
    spent = list({id(part): part for _, part in parts if part is not None}.values())
    delta = max(part.delta for part in spent) if delta is None else delta
    event = ComposedEvent(events=tuple(part.event for part in spent))
    assumptions = dict.fromkeys(text for part in spent for text in part.assumptions)
    assumptions |= dict.fromkeys(
        f"{name} (it has no event) learned nothing from the private records"
        for name in silent_parts(*fitted)
    )
    epsilon = _epsilon(compose(event), delta)
    mechanism = " + ".join(part.mechanism or "unnamed" for part in spent)
    facts = event.relation, event, None, None, tuple(assumptions), mechanism
    return PrivacySpent(epsilon, float(delta), *facts)


def silent_parts(*fitted: Any) -> tuple[str, ...]:
    """Name the parts of fitted estimators that learned something and have no event."""
    parts = [part for estimator in fitted for part in _private_parts(estimator)]
    return tuple(dict.fromkeys(name for name, spent in parts if spent is None))


def _private_parts(estimator: object) -> list[tuple[str, PrivacySpent | None]]:
    """Return the parts of one argument: none, or at least one that has spent something."""
    parts = list(_parts(estimator))
    if parts and all(spent is None for _, spent in parts):
        raise TypeError(
            f"{type(estimator).__name__} has no `privacy_spent_`: fit it first, and pass private "
            "estimators or pipelines that hold one."
        )
    return parts


def _parts(estimator: object) -> Iterator[tuple[str, PrivacySpent | None]]:
    """Yield every part that learned something, with what it spent or None."""
    for _, part in leaves(estimator):
        name = type(part).__name__
        if hasattr(part, "cv_results_"):
            raise TypeError(
                f"{name} made many fits and keeps at most one. Give its estimator a "
                "PrivacyBudget, which counts them all."
            )
        spent = getattr(part, "privacy_spent_", part)
        if isinstance(spent, PrivacySpent):
            yield name, spent
        elif spent is part:  # where the statement is None it released nothing
            if part is estimator or learns(part) or isinstance(part, FrozenEstimator):
                yield name, None


def _epsilon(loss: PrivacyLoss, delta: float) -> float:
    """Return an epsilon that bounds what any machine computes at `delta`.

    Twice the accountant's own rounding is taken from delta first, and the noise sampler's error.
    """
    rest = float(Fraction(delta) - exact_leak(loss.n_steps)) * (1.0 - 2.0 * ROUNDING)
    return loss.epsilon(rest) if rest > 0.0 else math.inf


def _numbers(value: float | tuple[float, ...]) -> str:
    """Write one number or several with four digits."""
    return ", ".join(f"{number:.4g}" for number in (value if isinstance(value, tuple) else [value]))


_ROUNDING = 1e-6  # of delta, between machines


def check_statement(spent: PrivacySpent, noun: str) -> tuple[tuple[Any, ...], float | None]:
    """Refuse a statement that promises more than its own events give.

    Returned are the events, none if nothing is private, and the mu that was charged for what is
    stated, if it is the best of a private search. The release itself is then a part of one trial,
    or of the refit, and tells no more than these. A search charges nothing else.
    """
    check_epsilon_delta(spent.epsilon, spent.delta, noun)
    for scale in (spent.sigma, spent.sensitivity):
        numbers = scale if isinstance(scale, tuple) else () if scale is None else (scale,)
        if not all(is_number(number) and 0 <= number < math.inf for number in numbers):
            raise ValueError(f"The {noun} states noise or a sensitivity that cannot be.")
    if spent.relation is not Relation.REPLACE_ONE or spent.event.relation is not spent.relation:
        raise ValueError(f"A {noun} is private under replace-one, and states no other relation.")
    events = spent.event.phases
    chosen = all(event.is_budget for event in events)
    for event in events:
        if not event.in_files or event.is_budget is not chosen:
            raise ValueError(
                f"The {noun} states an event of type {type(event).__name__}, which releases none."
            )
    if not spent.event.is_private:
        if math.isfinite(spent.epsilon):
            raise ValueError(f"The {noun} states a finite epsilon for a release without noise.")
        return (), None
    if not compose(spent.event).delta(spent.epsilon) <= spent.delta * (1 + _ROUNDING):
        raise ValueError(f"The {noun} states a smaller epsilon than its own events cost.")
    return events, events[-1].mu if chosen else None


def check_epsilon_delta(epsilon: Any, delta: Any, noun: str) -> None:
    """Refuse parameters that no mechanism has."""
    if not (is_number(epsilon) and is_number(delta) and epsilon > 0 and 0 < delta < 1):
        raise ValueError(f"The {noun} states an epsilon that is not > 0, or a delta not in (0, 1).")


def is_number(value: Any) -> bool:
    """Whether it is a number that arithmetic in double precision can use."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST_COUNT)


COMPOSITES = (Pipeline, FeatureUnion, ColumnTransformer)

# What these must be told, so that their fit learns nothing that was not declared. Unknown values
# must pass: an error, or a warning, that names one is an output.
_DECLARED: dict[type, dict[str, tuple[Any, ...]]] = {
    OneHotEncoder: {
        "handle_unknown": ("ignore",),
        "min_frequency": (None,),
        "max_categories": (None,),
        "sparse_output": (False,),  # how dense a table is decides the form of what follows
    },
    OrdinalEncoder: {
        "handle_unknown": ("use_encoded_value",),
        "min_frequency": (None,),
        "max_categories": (None,),
    },
    SimpleImputer: {
        "strategy": ("constant",),
        "add_indicator": (False,),
        "keep_empty_features": (True,),
    },
}
# What parts that learn nothing set: the form of the rows, and which object their stop words are.
_FORM = frozenset({"n_features_in_", "feature_names_in_", "_stop_words_id"})


def leaves(estimator: Any, composite: bool = False, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts, in the order of their fits, with their prefixes; or the composites."""
    if isinstance(estimator, COMPOSITES) is composite:
        yield prefix, estimator
    for name, part in _children(estimator):
        yield from leaves(part, composite, f"{prefix}{name}__")


def learns(part: Any) -> bool:
    """Whether the fit of a part that is not private keeps more than the form of the rows.

    By the word of the part itself (its tag ``requires_fit``), and for encoders and imputers by
    whether everything that they would learn was declared.
    """
    if isinstance(part, FrozenEstimator) or _is_declared(part):
        return False
    if not isinstance(part, BaseEstimator) or get_tags(part).requires_fit:
        return True
    # A Gaussian process predicts without a fit, by its prior, and keeps all rows once it has one.
    return hasattr(part, "predict") or not hasattr(part, "transform")


def keeps_more(part: Any) -> bool:
    """Whether a part that should learn nothing holds more than before its fit."""
    if isinstance(part, FrozenEstimator) or _is_declared(part):
        return False
    return not set(vars(part)) <= set(vars(clone(part))) | _FORM


def _is_declared(part: Any) -> bool:
    needed = _DECLARED.get(type(part))
    if needed is None or isinstance(getattr(part, "categories", None), str):  # "auto"
        return False
    return all(getattr(part, name) in allowed for name, allowed in needed.items())


def _children(estimator: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(estimator, ColumnTransformer):
        # What has been fitted are clones of the parts, the remainder among them.
        found = getattr(estimator, "transformers_", None)
        entries = found or [*estimator.transformers, ("remainder", estimator.remainder)]
    elif isinstance(estimator, FeatureUnion):
        entries = estimator.transformer_list
    else:
        entries = estimator.steps if isinstance(estimator, Pipeline) else ()
    for name, part, *_ in entries:
        if part is not None and not isinstance(part, str):
            yield name, part
