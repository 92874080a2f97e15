r"""The releases of fits that have not ended, so that a second attempt needs no second charge.

A fit that fails, is interrupted or is killed after its charge has made releases and has no result.
If its budget has a ledger file, the charge is *open* until the fit has ended, and each release is
written into the ledger before any other code sees it (`skdpot.release.pass_gate`, the gate of all
noisy values). A second attempt, made by `PrivacyBudget.resume`, reads these releases, draws the
missing ones, and is not charged. The releases of a fit are removed when the fit succeeds.

*Claim.* All attempts together are as private as the event that was charged once.

*Proof.* The event bounds a sequence of releases :math:`r_1, r_2, ...`, each of which may depend on
earlier ones: given these, :math:`r_j` is a randomised function of the rows with noise that is
independent of all earlier noise, and the accountant adds up the privacy losses of its steps.

1. Everything that anyone can have seen of an attempt is a function of public facts and of the
   releases that passed the gate. A release passes after SQLite has synchronised it to the disk. So
   everything seen is kept, and nobody has seen a release that is not kept (because the process was
   killed before, or the transaction was rolled back).
2. A later attempt returns the kept releases bit for bit, and draws :math:`r_{k+1}` given
   :math:`r_1, ..., r_k` with new noise. If an earlier attempt drew an :math:`r_{k+1}` that was not
   kept, that draw had no effect, not even on the decision to try again, which depends on the time
   and on the kept releases. So the visible sequence has the law of one run of an adaptive
   composition whose parts are those of the event. Random batches are drawn anew for each step, as
   the account of sampled steps assumes. The account of rows that are drawn once for several
   releases holds for any draw.
3. Each place in the sequence is filled once, by a transaction that checks the number of kept
   releases. If two attempts run at the same time, one of them fills the next place, and the other
   one gets an error instead of its release.
4. An attempt on other rows or with other parameters continues from the same releases and is
   adaptive too. It needs the same event, the same number of records and the same public statement,
   which are compared before anything is released. The public facts of each kept release are
   compared as well, so that the release keeps its meaning.

A later attempt of a fit with a seed draws its noise from the seed again. The seed of a resumed fit
is mixed with the number of kept releases, so that noise that is already released is not added to
other rows.

*What is not kept.* The trials of a private search are not paid for one by one, because only the
best is released. No file may hold their releases, so a search can be resumed only before its first
trial. If a fit has more than 256 releases or 16 MB of them, such as noisy gradients of thousands of
steps, its releases are removed before the next release passes, by one attempt only. The same holds
for a stream, whose table is read in a later call, and for releases of one part of the rows after
another, such as times, if a person pays for one part: on other rows a person could be in several
parts. A file that was changed or copied by hand can hide a release, just as it can hide a charge.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

from skdpot._utils.calls import apart, current_call, repeating
from skdpot._utils.records import Record
from skdpot.exceptions import LedgerError, add_charge
from skdpot.privacy.ledger import Ledger, TakenError
from skdpot.privacy.statement import PrivacySpent

_MOST_RELEASES, _MOST_BYTES = 256, 2**24  # kept per fit
_WITHHELD: ContextVar[bool] = ContextVar("withheld", default=False)
_UNTIL: ContextVar[ExitStack | None] = ContextVar("until", default=None)


@dataclass(frozen=True)
class OpenFit(Record):
    """The facts that a second attempt must share with the first one."""

    kind: ClassVar[str] = "skdpot.open_fit"
    noun: ClassVar[str] = "plan of an open fit"

    statement: str
    seed: str


class Journal:
    """The releases of one charge: first those of an earlier attempt, then new ones."""

    def __init__(self, ledger: Ledger, number: int, kept: Sequence[bytes] = ()) -> None:
        self._ledger, self._number = ledger, number
        self._due = deque(kept)
        self._n_bytes = sum(map(len, kept))
        self.n_kept: int | None = len(kept)  # None: the fit cannot be resumed

    def due(self) -> bytes | None:
        """Return the next release of an earlier attempt, if there is one."""
        return self._due.popleft() if self._due else None

    def keep(self, data: bytes) -> None:
        """Write a release to the disk, or remove all releases of this fit."""
        if self.n_kept is None:
            return
        self._n_bytes += len(data)
        if self.n_kept == _MOST_RELEASES or self._n_bytes > _MOST_BYTES:
            self.drop()
            return
        try:
            self._ledger.keep(self._number, self.n_kept + 1, data)
        except TakenError:
            raise
        except LedgerError:
            # The fit continues without a journal, unless the kept releases cannot be removed either
            # (a full disk): no release may be seen and not kept after others that are kept.
            self.drop()
            return
        self.n_kept += 1

    def drop(self) -> None:
        """Remove the kept releases before another release passes that is not kept."""
        if self.n_kept is not None:
            self._ledger.close(self._number, self.n_kept)
            self.n_kept = None

    def end(self) -> None:
        """Remove the kept releases of a fit that has ended, whose result contains them."""
        with suppress(LedgerError):
            self._ledger.close(self._number)


_JOURNAL: ContextVar[Journal | None] = ContextVar("journal", default=None)


def current_journal() -> Journal | None:
    """Return the journal that keeps releases now, if there is one."""
    return None if _WITHHELD.get() else _JOURNAL.get()


def keep_no_more() -> None:
    """Stop keeping the releases of the fit, which cannot be resumed from here on."""
    journal = current_journal()
    if journal is not None:
        journal.drop()


@contextmanager
def withholding() -> Iterator[None]:
    """Keep no releases of the block, and none of the fit around it.

    Seeds of the block are not part of the sequence that follows from the seed in the file, because
    the position of a seed would be the index of a trial.
    """
    keep_no_more()
    state = _WITHHELD.set(True)
    try:
        with apart():
            yield
    finally:
        _WITHHELD.reset(state)


@contextmanager
def keeping() -> Iterator[None]:
    """Keep the releases of the fits in the block until the block succeeds."""
    with ExitStack() as stack:
        state = _UNTIL.set(stack)
        try:
            yield
        except BaseException:
            stack.pop_all()
            raise
        finally:
            _UNTIL.reset(state)


@dataclass(eq=False)
class _Resumed:
    """An open charge that the next fit resumes."""

    ledger: Ledger
    number: int
    plan: OpenFit
    kept: list[bytes]
    is_due: bool = True

    def take(self, budget: Any, statement: str) -> Journal:
        """Return the journal of the fit, or raise an error if another fit is to be resumed."""
        if current_call() is None or budget is None or budget._ledger != self.ledger:
            problem = "This fit has another budget than the interrupted fit, or none."
        elif statement != self.plan.statement:
            problem = (
                "The interrupted fit has another event, number of records, estimator or public "
                "statement than this one."
            )
        else:
            self.is_due = False
            return Journal(self.ledger, self.number, self.kept)
        raise LedgerError(
            f"{problem} Make the same fit with the same parameters, or leave budget.resume() to "
            "make a new one. Nothing was charged."
        )


_RESUMED: ContextVar[_Resumed | None] = ContextVar("resumed", default=None)


@contextmanager
def resuming(ledger: Ledger, number: int | None) -> Iterator[None]:
    """Let the next fit resume an open charge."""
    numbers = ledger.open_charges()
    if number is None and len(numbers) == 1:
        [number] = numbers
    if number is None or number not in numbers:
        which = f"numbers {', '.join(map(str, numbers))} are open" if numbers else "none is open"
        raise LedgerError(
            f"Which charge of the ledger {ledger.path!r} should be resumed? Of all, {which}. "
            "Pass the number of an open charge. A fit that ended, or whose releases are no longer "
            "kept, cannot be resumed."
        )
    plan, *kept = ledger.kept(number)
    try:
        open_fit = OpenFit.from_bytes(plan)
        seed = int(open_fit.seed, 16)
    except ValueError as error:
        raise LedgerError(f"The open charge of {ledger.path!r} is damaged.") from error
    state = _RESUMED.set(_Resumed(ledger, number, open_fit, kept))
    try:
        with repeating(seed, len(kept)):
            yield
    finally:
        _RESUMED.reset(state)


def charge_fit(budget: Any, label: str, spent: PrivacySpent, n_samples: int | None) -> None:
    """Charge a fit unless it is resumed, and keep its releases until it has ended."""
    event = spent.event
    statement = hashlib.sha256(repr([label, n_samples, event, str(spent)]).encode())
    plan, call, resumed = statement.hexdigest(), current_call(), _RESUMED.get()
    journal: Journal | None = None
    if resumed is not None and resumed.is_due:
        journal = resumed.take(budget, plan)
    elif budget is not None:
        keeps = budget.is_durable and event.is_private and not _WITHHELD.get()
        if call is not None and keeps:
            opened = OpenFit(plan, f"{call.outermost:x}").to_bytes()
            journal = Journal(budget._ledger, budget._spend(event, label, opened))
        else:
            budget.spend(event, label=label)
    if call is None or _WITHHELD.get():
        return
    state = _JOURNAL.set(_JOURNAL.get() if journal is None else journal)

    def ended(error: BaseException | None) -> None:
        _JOURNAL.reset(state)
        if error is not None and event.is_private:
            add_charge(error, spent.epsilon, spent.delta, _what_is_left(budget, journal))
        elif error is None and journal is not None and journal.n_kept is not None:
            until = _UNTIL.get()
            journal.end() if until is None else until.callback(journal.end)

    call.at_end(ended)


def _what_is_left(budget: Any, journal: Journal | None) -> str:
    """Return a text on the kept releases of a failed fit and how to resume it."""
    if journal is not None and journal.n_kept is not None:
        return (
            f". The ledger {budget.ledger!r} keeps {journal.n_kept} releases of this fit. The same "
            "fit inside `with budget.resume():`, or the same `skdpot synth` with --resume, goes on "
            "without a second charge."
        )
    if budget is not None and budget.is_durable:
        why = "They were too many to be kept, or are not paid for one by one."
    else:
        why = "A PrivacyBudget with `ledger=` a path keeps those of a fit that fails."
    return f", and the releases of this fit are lost. {why}"
