"""Warnings that point at the caller's own line."""

import sys
import warnings
from functools import partial

from skdpot.exceptions import FairnessWarning, NotPrivateWarning, PrivacyWarning

_PASSED_OVER = ("skdpot", "sklearn", "joblib")


def _warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the first line outside of skdpot and scikit-learn."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


warn_of_privacy = partial(_warn_caller, category=PrivacyWarning)
warn_of_fairness = partial(_warn_caller, category=FairnessWarning)
warn_not_private = partial(_warn_caller, category=NotPrivateWarning)
