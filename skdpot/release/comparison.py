"""Comparison of objects to the last bit: their first difference, digests and copies."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

_MOST_HASHED = 2**17  # parts of facts: of the marginals of thousands of columns the first tell


def digest(facts: Any) -> str:
    """Return a hash of public facts, the same in every process."""
    hashed, seen, left = hashlib.sha256(), dict[int, Any](), _MOST_HASHED
    parts = [facts]
    while parts and (left := left - 1):
        part = parts.pop()
        contents = None if id(part) in seen else _parts(part)
        hashed.update(type(part).__qualname__.encode())
        if contents is not None:
            seen[id(part)] = part
            hashed.update(repr(list(map(str, contents))).encode())
            parts += contents.values()
        elif isinstance(part, np.ndarray | np.generic):
            hashed.update(f"{part.dtype.str}{part.shape}".encode() + part.tobytes())
        elif isinstance(part, FunctionType | BuiltinFunctionType | type):
            hashed.update(part.__qualname__.encode())
        elif isinstance(part, str | bytes | int | float | complex | Enum | type(None)):
            hashed.update(repr(part).encode())
    return hashed.hexdigest()


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "new_tensor")  # without importing torch


def copied(value: Any) -> Any:
    """Return a copy of a value, with arrays in the place of tensors."""
    if isinstance(value, tuple | list):
        return type(value)(map(copied, value))
    if _is_tensor(value):
        return value.detach().to("cpu", copy=True).numpy()
    return value.copy() if isinstance(value, np.ndarray) else value


def in_form_of(recorded: Any, value: Any) -> Any:
    """Return a copy of a recorded value, with tensors where `value` has them."""
    if isinstance(value, tuple):
        return tuple(in_form_of(r, v) for r, v in zip(recorded, value, strict=True))
    return value.new_tensor(recorded) if _is_tensor(value) else copied(recorded)


def same_shape(one: Any, other: Any, of: Callable[[Any], Any] = np.shape) -> bool:
    """Whether two values have the same form, and their arrays the same shape."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        parts = zip(one, other, strict=False)
        return len(one) == len(other) and all(same_shape(*pair, of) for pair in parts)
    return type(one) is type(other) and (isinstance(one, list) or of(one) == of(other))


def first_difference(
    one: Any, other: Any, name: str = "", met: dict[tuple[int, int], Any] | None = None
) -> str | None:
    """Name the first place where two objects differ by a single bit; None if they are equal."""
    # Objects may refer to each other. They are kept alive, since an id can be given again.
    met = {} if met is None else met
    if one is other or (id(one), id(other)) in met:
        return None
    if type(one) is not type(other):
        return f"{name} (type)"
    parts, others = _parts(one), _parts(other)
    if parts is None or others is None:
        return None if _equal(one, other) else name
    met[id(one), id(other)] = one, other
    if list(parts) != list(others):
        return f"{name} (parts)"
    for key, part in parts.items():
        difference = first_difference(part, others[key], f"{name}.{key}" if name else str(key), met)
        if difference is not None:
            return difference
    return None


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return the parts of an object, or None if it is compared as a whole."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.dtype == object):
        return dict(enumerate(value))
    if isinstance(value, np.ndarray | np.generic | type | FunctionType):
        return None
    if _is_tensor(value):
        return {"values": copied(value), "grad": value.grad if value.is_leaf else None}
    if isinstance(value, pd.DataFrame | pd.Series):
        axes = [axis.to_numpy() for axis in value.axes]
        return {"axes": axes, "types": str(value.dtypes), "values": value.to_numpy()}
    if isinstance(value, np.random.Generator):
        return dict(value.bit_generator.state)
    if isinstance(value, MethodType):
        return {"function": value.__func__, "owner": value.__self__}
    if is_dataclass(value) and not isinstance(
        value, BaseEstimator
    ):  # fitted attributes are no fields
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return getattr(value, "__dict__", None)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic):
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and one.tobytes() == other.tobytes())
    if isinstance(one, FunctionType | BuiltinFunctionType):
        return bool(one.__qualname__ == other.__qualname__)
    if isinstance(one, float):
        same_sign = math.copysign(1.0, one) == math.copysign(1.0, other)
        return (one == other and same_sign) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
