"""Errors and warnings of the package; none of them carries a private value.

Warnings that point at the caller's own line.
"""

import sys
import warnings
from functools import partial

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
    "ReplayError",
    "SkdpotError",
    "UnknownEventError",
]


class SkdpotError(Exception):
    """Base class of the errors that are specific to this package."""


class BudgetExceededError(SkdpotError, RuntimeError):
    """A release was refused because it does not fit in what the budget has left."""


class LedgerError(SkdpotError, RuntimeError):
    """The file that holds a budget's charges is missing, foreign or inconsistent."""


class UnknownEventError(SkdpotError, TypeError):
    """No accountant is known for this event or this combination of events."""


class CalibrationError(SkdpotError, ValueError):
    """No noise scale reaches the requested privacy."""


class OpenSketchError(SkdpotError, RuntimeError):
    """A sketch that still accumulates rows was read, copied, saved or merged."""


class MessageError(SkdpotError, ValueError):
    """What another party sent is damaged, hostile, or does not fit the protocol."""


class ProtocolRefusedError(SkdpotError, PermissionError):
    """A party was asked for something that it did not agree to send."""


class ReplayError(SkdpotError, RuntimeError):
    """A fit releases other things than the one whose releases are replayed to it."""


class PrivacyWarning(UserWarning):
    """The guarantee holds, but something about it deserves the caller's attention."""


class FairnessWarning(UserWarning):
    """A fit does less for fairness than its parameters say."""


class NotPrivateWarning(UserWarning):
    """What is about to be sent or computed gives no privacy at all."""


_PASSED_OVER = ("skdpot", "sklearn", "joblib")


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
        f"{caller}: training failed with a {type(error).__name__}, of which the text is hidden: it "
        "may quote private values. What was charged stays charged. Try the network on made-up rows."
    )


def _warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the first line outside of skdpot and scikit-learn."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


warn_of_privacy = partial(_warn_caller, category=PrivacyWarning)
warn_of_fairness = partial(_warn_caller, category=FairnessWarning)
warn_not_private = partial(_warn_caller, category=NotPrivateWarning)
