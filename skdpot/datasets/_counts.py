"""How many rows, paths or features made-up data have."""

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

__all__ = ["check_count"]

_TOO_MANY = 2**31


def check_count(value: Any, name: str, *, least: int) -> int:
    """Refuse what is no number of things; a boolean is none, although Python says it is.

    Parameters
    ----------
    value : int
        What was given.
    name : str
        Name of the argument.
    least : int
        The smallest number allowed.

    Returns
    -------
    int
        `value`.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is less than `least`, or 2^31 or more.
    """
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an instance of int, not bool.")
    check_scalar(value, name, Integral, min_val=least)
    if value >= _TOO_MANY:
        raise ValueError(f"{name}={value} must be below 2^31.")
    return int(value)
