"""Warnings that point at the caller's own line."""

import sys
import warnings

from skdpot.exceptions import FairnessWarning, NotPrivateWarning, PrivacyWarning

__all__ = ["warn_not_private", "warn_of_fairness", "warn_of_privacy"]

_PASSED_OVER = ("skdpot", "sklearn", "joblib")


def warn_of_privacy(message: str) -> None:
    """Issue a `PrivacyWarning` at the first line outside of skdpot and scikit-learn.

    Parameters
    ----------
    message : str
        Text made of public facts and released values only.

    Warns
    -----
    PrivacyWarning
        With the file and line from which the library was called.
    """
    _warn_caller(message, PrivacyWarning)


def warn_of_fairness(message: str) -> None:
    """Issue a `FairnessWarning` at the first line outside of skdpot and scikit-learn.

    Parameters
    ----------
    message : str
        Text made of public facts and released values only.

    Warns
    -----
    FairnessWarning
        With the file and line from which the library was called.
    """
    _warn_caller(message, FairnessWarning)


def warn_not_private(message: str) -> None:
    """Issue a `NotPrivateWarning` at the first line outside of skdpot and scikit-learn.

    Parameters
    ----------
    message : str
        What is revealed, and to whom.

    Warns
    -----
    NotPrivateWarning
        With the file and line from which the library was called.
    """
    _warn_caller(message, NotPrivateWarning)


def _warn_caller(message: str, category: type[Warning]) -> None:
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_passed_over(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_passed_over(module: str) -> bool:
    return module.partition(".")[0] in _PASSED_OVER
