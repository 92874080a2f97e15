"""Errors and warnings of the package. None of them carries a private value."""

import dis
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

__all__ = [
    "BudgetExceededError",
    "CalibrationError",
    "FairnessWarning",
    "LedgerError",
    "MessageError",
    "NotPrivateWarning",
    "OpenSketchError",
    "PrivacyWarning",
    "ProtocolRefusedError",
    "ReliabilityWarning",
    "ReplayError",
    "SkdpotError",
    "UnknownEventError",
]

_PASSED_OVER = ("skdpot", "sklearn", "joblib")
_BEFORE = "Before this error epsilon = {:.4g} at delta = {:g} was spent"


class SkdpotError(Exception):
    """Base class of the errors that are specific to this package."""


class BudgetExceededError(SkdpotError, RuntimeError):
    """A release was refused because too little of the budget is left."""


class LedgerError(SkdpotError, RuntimeError):
    """The ledger file of a budget is missing, not a ledger, or damaged."""


class UnknownEventError(SkdpotError, TypeError):
    """No accountant is known for an event."""


class CalibrationError(SkdpotError, ValueError):
    """No noise scale reaches the requested privacy, or the noise is too small for it."""


class OpenSketchError(SkdpotError, RuntimeError):
    """A sketch that is still being filled was read, copied, saved or merged."""


class MessageError(SkdpotError, ValueError):
    """A message of another party is damaged, hostile, or does not fit the protocol."""


class ProtocolRefusedError(SkdpotError, PermissionError):
    """A party was asked for data that it did not agree to send."""


class ReplayError(SkdpotError, RuntimeError):
    """A replayed fit makes other releases than the recorded one."""


class PrivacyWarning(UserWarning):
    """The guarantee holds, but the caller should look at one of its conditions."""


class FairnessWarning(UserWarning):
    """A fit does less for fairness than its parameters request."""


class ReliabilityWarning(PrivacyWarning):
    """Privacy noise hides outputs of a fit, which are no better than a trivial answer."""


class NotPrivateWarning(UserWarning):
    """A computation or message has no privacy guarantee."""


Result = TypeVar("Result")


def publishable(error: BaseException, caller: str) -> BaseException:
    """Return an error that quotes nothing of what it happened on.

    A network of the caller's own may raise anything, with values of private rows in the text, and
    the error itself then tells that such a row is there. An interrupt, and an error of a replay,
    stay as they are; everything else becomes a `RuntimeError` of fixed text, to be raised where
    `error` is no longer handled, so that it is not attached.
    """
    if not isinstance(error, Exception) or isinstance(error, ReplayError):
        return error
    return RuntimeError(
        f"{caller}: the fit failed with a {type(error).__name__}, of which the text is hidden: it "
        "may quote private values. What was charged stays charged. Try what you passed to it, such "
        "as a network, on made-up rows."
    )


def add_charge(error: BaseException, epsilon: float, delta: float, rest: str) -> None:
    """Note in an error what was spent before it, and what is left of that."""
    error.add_note(f"{_BEFORE.format(epsilon, delta)}{rest}")


def charges_before(error: BaseException) -> list[str]:
    """Return what `add_charge` noted; other notes may quote anything."""
    notes = getattr(error, "__notes__", ())
    return [note for note in notes if note.startswith(_BEFORE.partition(" =")[0])]


def told_safely(caller: str, call: Callable[..., Result], *given: Any) -> Result:
    """Return the result of a call, of which an error must be `publishable`."""
    try:
        return call(*given)
    except BaseException as error:
        stopped = publishable(error, caller)
    raise stopped


def is_ours(trace: TracebackType | None) -> bool:
    """Whether a statement ``raise`` of this package made the error.

    An error of ``int(text)`` or ``known[text]`` ends in a line of ours as well, but its text is
    Python's own, and quotes.
    """
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    module = str(frame.f_globals.get("__name__", ""))
    ours = module.partition(".")[0] == "skdpot"
    return ours and frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the first line outside of skdpot and scikit-learn."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


warn_of_privacy = partial(_warn_caller, category=PrivacyWarning)
warn_of_fairness = partial(_warn_caller, category=FairnessWarning)
warn_unreliable = partial(_warn_caller, category=ReliabilityWarning)
warn_not_private = partial(_warn_caller, category=NotPrivateWarning)
