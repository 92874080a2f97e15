"""Comparison of objects to the last bit: first difference, digest and copy."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

if TYPE_CHECKING:
    import torch

_MOST_HASHED = 2**17  # parts of the facts that a digest covers; thousands of columns have more


def digest(facts: object) -> str:
    """Return a hash of public facts, the same in every process."""
    hashed, seen, left = hashlib.sha256(), dict[int, object](), _MOST_HASHED
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


def _is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
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


def same_shape(first: object, second: object, of: Callable[[Any], object] = np.shape) -> bool:
    """Whether two values have the same form, and their arrays the same shape."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        parts = zip(first, second, strict=False)
        return len(first) == len(second) and all(same_shape(a, b, of) for a, b in parts)
    return type(first) is type(second) and (isinstance(first, list) or of(first) == of(second))


def first_difference(
    first: object, second: object, name: str = "", met: dict[tuple[int, int], object] | None = None
) -> str | None:
    """Return the name of the first part in which two objects differ by a bit; None if equal."""
    # Objects may refer to each other. They are kept alive, since Python reuses ids.
    met = {} if met is None else met
    if first is second or (id(first), id(second)) in met:
        return None
    if type(first) is not type(second):
        return f"{name} (type)"
    parts, partners = _parts(first), _parts(second)
    if parts is None or partners is None:
        return None if _equal(first, second) else name
    met[id(first), id(second)] = first, second
    if list(parts) != list(partners):
        return f"{name} (parts)"
    for key, part in parts.items():
        path = f"{name}.{key}" if name else str(key)
        difference = first_difference(part, partners[key], path, met)
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
    # Fitted attributes of an estimator are not fields.
    if is_dataclass(value) and not isinstance(value, BaseEstimator):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return getattr(value, "__dict__", None)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray | np.generic):
        same = first.dtype == second.dtype and first.shape == second.shape
        return bool(same and first.tobytes() == second.tobytes())
    if isinstance(first, FunctionType | BuiltinFunctionType):
        return bool(first.__qualname__ == second.__qualname__)
    if isinstance(first, float):
        same_sign = math.copysign(1.0, first) == math.copysign(1.0, second)
        return (first == second and same_sign) or (math.isnan(first) and math.isnan(second))
    return bool(first == second)
