"""One privacy budget for any number of estimators and processes, and the texts on its state."""

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from skdpot._utils.pages import html_card
from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.privacy.events import Event, Relation
from skdpot.privacy.gdp import gdp_epsilon
from skdpot.privacy.journal import resuming
from skdpot.privacy.ledger import (
    PATIENCE,
    Charge,
    Ledger,
    PlannedFit,
    Terms,
    Totals,
    damaged,
    read_terms,
    transaction,
    warn_of_drive,
)
from skdpot.privacy.other_libraries import event_of
from skdpot.privacy.planned import Reserve, reserve
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import LEAK_SHARE, PrivacyTarget, event_cost
from skdpot.privacy.units import Units, leak_of, mu_of

if TYPE_CHECKING:
    import pandas as pd
from skdpot.privacy.rounding import epsilon_text, rounded_down, rounded_up

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Columns of a history, with their data types.
_HISTORY: dict[str, Any] = {
    "time": object,
    "label": "str",
    "event": "str",
    "relation": "str",
    "mu": float,
    "leak": float,
    "epsilon": float,
    "planned": bool,
    "open": bool,
}
_GLANCE = 1.0  # seconds that a repr waits for the ledger
_CHARGES_SHOWN = 5
_TEMPORARY = "skdpot-budget-"  # prefix of the directories of temporary ledgers


def make_terms(
    epsilon: float, delta: float, relation: str, planned: Sequence[PrivacySpent]
) -> Terms:
    """Check a budget's arguments and compute its caps."""
    try:
        target = PrivacyTarget(epsilon, delta)
    except TypeError:
        raise TypeError(
            "`epsilon` and `delta` must be numbers, got "
            f"{type(epsilon).__name__} and {type(delta).__name__}."
        ) from None
    if target.mu_squared_units < 1 or target.leak_units < 1:
        raise ValueError(
            f"Nothing fits in epsilon={epsilon!r} and delta={delta!r}: use a delta of at least "
            "1e-17 and a larger epsilon."
        )
    allowed = [str(member) for member in Relation]
    if relation not in allowed:
        raise ValueError(f"`relation` must be one of {allowed}, got {relation!r}.")
    if not all(isinstance(getattr(fit, "event", None), Event) for fit in planned):
        raise TypeError("`planned` must hold statements of fits, made by plan_fit.")
    events = [check_relation(fit.event, Relation(relation)) for fit in planned]
    reserves, (mu_squared_cap, leak_cap) = reserve(target, events)
    fits = tuple(
        PlannedFit(float(fit.epsilon), float(fit.delta), str(fit.event), **reserved.account)
        for fit, reserved in zip(planned, reserves, strict=True)
    )
    return Terms(target.epsilon, target.delta, Relation(relation), mu_squared_cap, leak_cap, fits)


def check_relation(event: Event, relation: Relation) -> Event:
    """Return the event, or refuse it if its relation is not that of the budget."""
    if isinstance(event, Event) and event.relation is not relation:
        raise ValueError(
            f"The event is accounted under relation={str(event.relation)!r}, the budget holds "
            f"relation={str(relation)!r}, and the two cannot be added. Use estimators of one "
            "relation with a budget, and one budget per relation."
        )
    return event


def epsilon_of(mu_squared_units: Units, delta: float) -> float:
    """Return the epsilon of a squared mu in units, with the same split of `delta` as the caps."""
    return gdp_epsilon(mu_of(mu_squared_units), (1.0 - LEAK_SHARE) * delta)


@dataclass(frozen=True)
class BudgetState:
    """A ledger's terms and its totals at one moment."""

    terms: Terms
    totals: Totals

    @property
    def spent(self) -> float:
        """The epsilon of all charges, rounded up, and at most the cap."""
        total = epsilon_of(self.totals.mu_squared_units + self._reserve, self.terms.delta)
        return min(total, self.terms.epsilon)

    @property
    def _reserve(self) -> Units:
        """The part of the cap that is reserved for planned fits, made or not."""
        if not self.terms.planned or math.isinf(self.terms.epsilon):
            return 0
        whole = PrivacyTarget(self.terms.epsilon, self.terms.delta).mu_squared_units
        return max(whole - self.terms.mu_squared_cap, 0)

    @property
    def charges(self) -> str:
        """The number of charges, in words."""
        n = self.totals.n_charges
        return "1 charge" if n == 1 else f"{n} charges"

    @property
    def share(self) -> float:
        """The spent share of the cap of which more is spent."""
        if math.isinf(self.terms.epsilon):
            return 0.0
        if self.terms.mu_squared_cap == 0:  # everything is reserved for planned fits
            return 1.0
        reserve = self._reserve
        return max(
            (self.totals.mu_squared_units + reserve) / (self.terms.mu_squared_cap + reserve),
            self.totals.leak_units / self.terms.leak_cap,
        )

    @property
    def remaining(self) -> float:
        """The largest epsilon, rounded down, with which one more estimator is admitted."""
        untouched = self.totals.n_charges == 0 and not self.terms.planned
        if untouched or math.isinf(self.terms.epsilon):
            return self.terms.epsilon
        left = self.terms.mu_squared_cap - self.totals.mu_squared_units
        if left <= 0 or self.totals.leak_units >= self.terms.leak_cap:
            return 0.0
        epsilon = min(epsilon_of(left, self.terms.delta), self.terms.epsilon)
        for exponent in range(-53, 0):
            if epsilon == 0.0:
                break
            if PrivacyTarget(epsilon, self.terms.delta).mu_squared_units <= left:
                return epsilon
            epsilon *= 1.0 - math.ldexp(1.0, exponent)
        return 0.0

    def refusal(self, charge: Charge) -> str:
        """Explain a refused charge in public values: its cost, what is left and what to do."""
        name = f"{charge.label!r} asks" if charge.label else "A release asks"
        asked = f"epsilon={rounded_up(charge.epsilon)} at delta={self.terms.delta:g}"
        left = rounded_down(self.remaining)
        problem = f"epsilon={left} is left"
        advice = f"Ask for epsilon={left} or less"
        if float(left) == 0.0:
            advice = "Reuse what was already released (sampling from a fitted model is free)"
        if self.totals.after(charge).mu_squared_units <= self.terms.mu_squared_cap:
            problem = "the part of delta that pays for random batches and thresholds is used up"
            advice = "Fit without random batches and with the categories declared"
        return (
            f"{name} for {asked}, but {problem} in this budget (epsilon={self.terms.epsilon:g}, "
            f"{self.charges} so far). Nothing was charged or released. {advice}, "
            "or set up a larger budget if your policy allows one. In GridSearchCV and "
            "cross_val_score pass error_score='raise': their default turns this error into a nan "
            "score and goes on."
        )


class PrivacyBudget:
    """A cap on everything that is released about one set of records.

    Pass one budget to all estimators that are fitted on these records. Each fit is charged before
    it draws noise, and is refused if too little of the budget is left. Copies, clones, worker
    processes and pickles spend from the same ledger.

    Parameters
    ----------
    epsilon : float
        The cap, greater than 0. ``float("inf")`` admits everything and keeps the history.
    delta : float, default=1e-5
        In (0, 1). Should be well below one over the number of records.
    ledger : str, path-like or None, default=None
        File that holds the charges. An existing ledger is continued if its epsilon, delta and
        relation agree. If None, a temporary file is used, which is removed when this process ends.
        Keep the file on a local disk; a `PrivacyWarning` explains the risk of a drive that several
        machines share.
    relation : {"replace_one", "add_or_remove_one"}, default="replace_one"
        Definition of neighbouring data sets. Events of another relation are refused.
    planned : sequence of PrivacySpent, default=()
        Statements of fits that are fixed before anything is released, from
        `skdpot.privacy.plan_fit`. They are accounted for exactly, together with the other charges.
        Each planned fit may be made once, at any time, by an estimator with the same parameters and
        this budget.

    Raises
    ------
    ValueError
        If an argument is out of range, or the planned fits cost more than the budget.
    LedgerError
        If the ledger cannot be created, or the file is not a ledger for these values.

    Notes
    -----
    The budget is a privacy filter [1]_: the guarantee also holds if later fits and their number
    depend on earlier results. Each event is bounded by "a leak with probability d, otherwise no
    easier to distinguish than N(0, 1) from N(mu, 1)". It is admitted if the sums of mu^2 and of d
    stay within two caps, which use nine tenths and one tenth of `delta`. One estimator with the
    same epsilon and delta fills the budget exactly.

    Planned fits need no such bound. The sum of mu^2 is capped so that the composition of all
    planned fits with all other charges is (epsilon, delta)-private by the exact privacy profiles
    (proof in `skdpot.privacy.planned`). This matters for searches and for training on random
    batches, which are far from Gaussian. The cost of a planned fit is reserved, whether or not the
    fit is made.

    The guarantee protects the records that the statements of the fits name: rows, or all rows of a
    person (``unit=``, ``groups=``). If a person has several rows, a fit whose records are rows
    protects each row and not the person, and its charge promises less than that of a fit whose
    records are persons.

    Fits on parts of the records, such as folds, add up however the parts overlap, if no private
    value decides which records are in a part and no record is in a part twice. Splits that are
    stratified by private labels and bootstraps do not satisfy this (`check_search`).

    A hyperparameter search charges folds x candidates + 1 fits. Pass ``error_score="raise"`` to
    scikit-learn's searches, which otherwise turn the error of a refused fit into a ``nan`` score.
    The budget does not cover scores on private rows.

    References
    ----------
    .. [1] A. Smith, A. Thakurta, "Fully Adaptive Composition for Gaussian Differential
       Privacy", 2022.

    Examples
    --------
    >>> from skdpot.privacy.budget import PrivacyBudget
    >>> from skdpot.privacy.events import GaussianEvent
    >>> budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    >>> budget.spend(GaussianEvent(sigma=20.0, sensitivity=2.0), label="mean")
    >>> round(budget.epsilon_spent(), 2)
    0.34
    >>> budget.can_afford(GaussianEvent(sigma=2.0, sensitivity=2.0))
    False
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-5,
        *,
        ledger: str | os.PathLike[str] | None = None,
        relation: str = "replace_one",
        planned: Sequence[PrivacySpent] = (),
    ) -> None:
        terms = make_terms(epsilon, delta, relation, planned)
        if ledger is None:
            self._ledger = _temporary_ledger(self, terms)
        else:
            if not isinstance(ledger, str | os.PathLike):
                raise TypeError(f"`ledger` must be a path or None, got {type(ledger).__name__}.")
            self._ledger = _durable_ledger(ledger, terms)
        _LIVE.setdefault(self._ledger, self)

    @classmethod
    def from_ledger(cls, ledger: str | os.PathLike[str]) -> "PrivacyBudget":
        """Continue an existing ledger with its own epsilon, delta and relation.

        Parameters
        ----------
        ledger : str or path-like
            A file that was created by a budget.

        Returns
        -------
        PrivacyBudget
            A budget that spends from this ledger.

        Raises
        ------
        LedgerError
            If the file is missing or not an intact ledger.
        """
        path = str(Path(ledger).expanduser().absolute())
        with transaction(path, "DEFERRED") as connection:
            terms = read_terms(connection, path)
        unplanned = make_terms(terms.epsilon, terms.delta, str(terms.relation), ())
        if not unplanned.covers(terms):  # a plan can only lower the caps
            raise damaged(path)
        warn_of_drive(path)
        return _restore(Ledger.attach(path, terms))

    @property
    def epsilon(self) -> float:
        """The epsilon that all charges together must not exceed."""
        return self._ledger.terms.epsilon

    @property
    def delta(self) -> float:
        """The delta at which `epsilon` holds."""
        return self._ledger.terms.delta

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of all charges."""
        return self._ledger.terms.relation

    @property
    def ledger(self) -> str:
        """Absolute path of the file that holds the charges."""
        return self._ledger.path

    @property
    def is_durable(self) -> bool:
        """Whether the ledger outlives the process that made it."""
        return not Path(self.ledger).parent.name.startswith(_TEMPORARY)

    def spend(self, event: Any, *, label: str = "") -> None:
        """Charge `event`, or refuse it and change nothing.

        When the method returns, the charge is on disk and the release may be made.

        Parameters
        ----------
        event : Event, or release of another library
            One whole fit with all its phases, whose parameters were fixed beforehand. Releases of
            other libraries are accepted under the relation of this budget:

            - a measurement of OpenDP on a data set, by its privacy map. If the map states rho of
              zero-concentrated privacy, the worst such release is charged: 1.25 to 1.75 times the
              mu of Gaussian noise for rho up to 10. To pay for Gaussian noise only, pass a
              `GaussianEvent`;
            - the accountant of Opacus, or its history: a list of tuples (noise multiplier, sample
              rate, steps) of DP-SGD. Every step must use **one Poisson sample and a fixed clipping
              norm**: no ``poisson_sampling=False``, no batches accumulated over several samples,
              no ``clipping="adaptive"``. Replacing a record moves a sum of clipped gradients by
              twice the clipping norm;
            - a `BudgetAccountant` of diffprivlib: its limit or, without a limit, what it has spent.
              Replacing a record costs twice the epsilon, because some of its tools protect against
              adding or removing one. Under add-or-remove it is refused, because the noise of other
              tools depends on the number of rows;
            - (epsilon, delta) of a release, if nothing else is known of it. The worst such release
              is charged, which costs as much as a Gaussian release with a larger epsilon.
        label : str, default=""
            Name in the history. It is public and must not contain private values.

        Raises
        ------
        BudgetExceededError
            If too little of the budget is left.
        LedgerError
            If the ledger is missing, was replaced, or cannot be written.
        UnknownEventError
            If no accountant is known for the event.
        ValueError
            If event and budget have different relations, or the cost under this relation is not
            known.
        """
        if not isinstance(label, str):
            raise TypeError(f"`label` must be a str, got {type(label).__name__}.")
        self._spend(event, label)

    def _spend(self, event: Any, label: str, plan: bytes | None = None) -> int:
        """Charge an event and return the number of the charge, which is open if it has a plan."""
        charges = self._charges(event, label)
        number = self._ledger.admit(*charges, plan=plan)
        if not number:
            raise BudgetExceededError(self._state().refusal(charges[-1]))
        return number

    @contextmanager
    def resume(self, number: int | None = None) -> Iterator[None]:
        """Resume a fit that failed after its charge, without a second charge.

        A budget with a `ledger` keeps the releases of a fit until the fit has ended. The first fit
        in the block must be the interrupted one, on the same rows and with the same parameters. It
        uses the kept releases and makes the missing ones.

        Parameters
        ----------
        number : int or None, default=None
            Number of the charge, counted from 1 as in `history`. None means the only open charge.

        Raises
        ------
        LedgerError
            If nothing is kept of this charge, or another process resumes it. In the block, if the
            fit has another event, number of records or public statement than the interrupted fit,
            or its releases have other public facts. Nothing is charged.

        Privacy
        -------
        The single charge covers all attempts together (proof in `skdpot.privacy.journal`): every
        release that anyone can have seen was kept before, and is returned bit for bit. On other
        rows the result mixes the releases of both data sets, which is private and useless.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpot import PrivacyBudget, PrivateScaler
        >>> budget = PrivacyBudget(1.0, ledger=getfixture("tmp_path") / "study.db")
        >>> scaler = PrivateScaler(epsilon=1.0, budget=budget)
        >>> budget.history()["open"].any()  # after a fit that failed: True
        np.False_
        """
        with resuming(self._ledger, number):
            yield

    def can_afford(self, event: Any) -> bool:
        """Return whether `event` would be admitted now, without charging it.

        Parameters
        ----------
        event : Event, or release of another library
            As in `spend`.

        Returns
        -------
        bool
            True does not reserve anything: another process may spend first.

        Raises
        ------
        LedgerError, UnknownEventError, ValueError
            As in `spend`.
        """
        charges, totals = self._charges(event, ""), self._ledger.totals()
        return any(self._ledger.terms.admit(totals.after(charge)) for charge in charges)

    def plans(self, epsilon: float, delta: float) -> bool:
        """Return whether a fit of exactly this epsilon and delta was planned.

        Parameters
        ----------
        epsilon, delta : float
            Parameters of an estimator. If they are those of a planned fit, the estimator is
            calibrated as without a budget.

        Returns
        -------
        bool
            True whether or not the planned fit has been made.
        """
        fits = self._ledger.terms.planned
        return any((fit.epsilon, fit.delta) == (epsilon, delta) for fit in fits)

    def remaining(self) -> float:
        """Return the largest epsilon with which one more estimator is admitted.

        Returns
        -------
        float
            Rounded down, for an estimator with this budget's delta that uses all records in every
            step; 0.0 if nothing is left. A fit that draws random batches or selects categories also
            uses a thousandth of the leak cap: see `can_afford`.

        Raises
        ------
        LedgerError
            If the ledger cannot be read.
        """
        return self._state().remaining

    def epsilon_spent(self) -> float:
        """Return the epsilon of all charges so far, at this budget's delta.

        Returns
        -------
        float
            A running total for information. The guarantee is the cap, whenever spending ends.

        Raises
        ------
        LedgerError
            If the ledger cannot be read.
        """
        return self._state().spent

    def history(self) -> "pd.DataFrame":
        """Return all charges, the oldest first.

        Returns
        -------
        DataFrame
            Columns ``time`` (UTC), ``label``, ``event``, ``relation``, ``mu``, ``leak``,
            ``epsilon`` (of this event alone, at this budget's delta), ``planned`` (whether it was
            paid for when the budget was made, so that ``mu`` and ``leak`` are 0) and ``open``
            (whether the fit has not ended and can be resumed). Charges for parts of the records
            assume the conditions on parts in the notes of the class.

        Raises
        ------
        LedgerError
            If the ledger cannot be read.
        """
        import pandas as pd  # loading it takes half a second

        rows = history_rows(self)
        columns = {name: [row[name] for row in rows] for name in _HISTORY}
        times = np.array([time.replace(tzinfo=None) for time in columns["time"]], "datetime64[us]")
        typed = {name: pd.Series(columns[name], dtype=kind) for name, kind in _HISTORY.items()}
        return pd.DataFrame(typed | {"time": pd.to_datetime(times, utc=True)})

    def _charges(self, event: Any, label: str) -> tuple[Charge, ...]:
        """Return the possible charges: free ones of matching planned fits, then the full cost."""
        event = event_of(event, self.relation)
        check_relation(event, self.relation)
        cost = event_cost(event, PrivacyTarget(self.epsilon, self.delta).leak_cap)
        asked = epsilon_of(cost.mu_squared_units, self.delta)
        charge = Charge(label, str(event), asked, cost.mu_squared_units, cost.leak_units)
        planned = self._ledger.terms.planned
        account = Reserve.of(event).account if planned else {}
        free = (fit for fit in planned if fit.covers(**account))
        return *(Charge(label, fit.event, fit.epsilon, 0, 0) for fit in free), charge

    def _state(self, patience: float = PATIENCE) -> BudgetState:
        return BudgetState(self._ledger.terms, self._ledger.totals(patience))

    def __repr__(self) -> str:
        """Return the cap and the spent epsilon; never raises."""
        values = f"epsilon={self.epsilon!r}, delta={self.delta!r}"
        if self.relation is not Relation.REPLACE_ONE:
            values += f", relation={str(self.relation)!r}"
        try:
            state = self._state(_GLANCE)
        except LedgerError:
            return f"<PrivacyBudget({values}): ledger not readable>"
        return f"<PrivacyBudget({values}): {rounded_up(state.spent)} spent in {state.charges}>"

    def _repr_html_(self) -> str:
        """Return a card with a bar for notebooks; never raises."""
        title = f"Privacy budget: {epsilon_text(self.epsilon)}"
        aside = f"δ = {self.delta:g} · {str(self.relation).replace('_', ' ')}"
        try:
            state, charges = self._state(_GLANCE), self._ledger.records(_GLANCE)
        except LedgerError:
            rows = (("Ledger", self.ledger), ("State", "not readable, so nothing can be spent"))
            return html_card(title, aside, rows)
        left = f"left for one more fit: ε = {rounded_down(state.remaining)}"
        if math.isinf(self.epsilon):
            left = "no cap"
        spent = f"{epsilon_text(state.spent)} spent in {state.charges}"
        last = charges[-_CHARGES_SHOWN:][::-1]
        costs = [(charge.label or "no label", epsilon_text(charge.epsilon)) for charge in last]
        rankings = [("Last charges, and what each would cost alone", costs)] if costs else []
        return html_card(title, aside, meter=(state.share, spent, left), rankings=rankings)

    def __deepcopy__(self, memo: object = None) -> "PrivacyBudget":
        """Return the budget itself: a copy or a clone must not have a second budget."""
        return self

    __copy__ = __sklearn_clone__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and terms of the ledger, not its charges."""
        return _restore, (self._ledger,)


def history_rows(budget: PrivacyBudget) -> list[dict[str, Any]]:
    """Return the rows of `PrivacyBudget.history` without pandas."""
    ledger, relation = budget._ledger, str(budget.relation)
    charges, unfinished = ledger.records(), ledger.open_charges()
    return [
        {
            "time": _EPOCH + timedelta(microseconds=int(charge.time * 1e6)),
            "label": charge.label,
            "event": charge.event,
            "relation": relation,
            "mu": mu_of(charge.mu_squared_units),
            "leak": leak_of(charge.leak_units),
            "epsilon": charge.epsilon,
            "planned": charge.is_planned,
            "open": charge.number in unfinished,
        }
        for charge in charges
    ]


# The living budgets of this process by ledger: unpickling returns them.
_LIVE: weakref.WeakValueDictionary[Ledger, PrivacyBudget] = weakref.WeakValueDictionary()


def _restore(ledger: Ledger) -> PrivacyBudget:
    """Unpickle a budget without opening its file, which may be missing."""
    budget = object.__new__(PrivacyBudget)
    budget._ledger = ledger
    return _LIVE.setdefault(ledger, budget)


def _temporary_ledger(budget: PrivacyBudget, terms: Terms) -> Ledger:
    """Make a ledger that its own process removes together with `budget`."""
    try:
        # A private directory, so that nobody else can put an SQLite journal beside the ledger.
        directory = tempfile.mkdtemp(prefix=_TEMPORARY)
    except OSError as error:
        raise LedgerError(
            f"No temporary directory for the ledger ({error.strerror}). Set TMPDIR to a writable "
            "directory, or pass `ledger='<path>'`."
        ) from error
    path = Path(directory, "ledger.sqlite").absolute()
    weakref.finalize(budget, _remove, Ledger(str(path), terms), os.getpid())
    return Ledger.create(path, terms)


def _remove(ledger: Ledger, owner: int) -> None:
    """Remove a temporary ledger, unless this process is a fork of its owner."""
    if os.getpid() == owner:
        shutil.rmtree(Path(ledger.path).parent, ignore_errors=True)
        ledger.forget()


def _durable_ledger(path: str | os.PathLike[str], terms: Terms) -> Ledger:
    """Make the ledger at `path`, or continue the existing one."""
    warn_of_drive(path)
    if not os.path.lexists(os.path.expanduser(path)):
        with suppress(FileExistsError):  # another process was faster
            return Ledger.create(path, terms)
    return Ledger.attach(path, terms)
