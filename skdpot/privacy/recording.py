"""The gate that every noisy number passes on its way out of a mechanism.

A mechanism computes a noisy value, gives it to `released`, and goes on with what `released`
returns. Ordinarily that is the same value. Two others may stand at the gate.

*Who records* sees every release, also those that no attribute keeps: the gradients of a training,
the sums of a clustering. The accountant charges a fit for all of them, so an audit must see them:

>>> from skdpot.privacy.recording import record_releases, released, replay_releases
>>> from skdpot import PrivateScaler
>>> import numpy as np
>>> X = np.random.default_rng(0).normal(size=(5000, 2))
>>> with record_releases() as releases:
...     scaler = PrivateScaler(epsilon=5.0).fit(X)
>>> sorted({release.kind for release in releases})
['cell_width', 'histogram', 'histogram_rows']

*Who replays* returns the recorded values to the same function on other rows. If its result depends
on private rows through releases alone, it must then be the same to the last bit:

>>> def positive(rows, n=len(X)):
...     noisy = (rows > 0).sum() + np.random.default_rng().normal(0, 100)
...     noisy = released("count", noisy, lambda: {"sigma": 100})
...     return min(noisy / n, 1)
>>> with record_releases() as releases:
...     share = positive(X)
>>> with replay_releases(releases):
...     bool(positive(X - 1) == share)
True

Only what has its noise already passes here, together with public facts, so that a record is
covered by the event that was charged.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from skdpot.exceptions import ReplayError

__all__ = [
    "Release",
    "first_difference",
    "forgotten",
    "record_releases",
    "released",
    "remember",
    "replay_releases",
]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Release:
    """One noisy quantity that left a mechanism.

    Parameters
    ----------
    kind : str
        What it is, such as ``"gradient"``.
    value : object
        A copy of the noisy value: an array, a number, or a tuple or list of these. Tensors become
        arrays. None if only public facts were told.
    facts : mapping
        The scale of the noise, and the public facts that the value was computed with.
    """

    kind: str
    value: Any
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Release({self.kind!r}, facts={sorted(self.facts)})"


class _Gate(Protocol):
    def __call__(self, release: Release, value: Any) -> Any: ...


_GATE: ContextVar[_Gate | None] = ContextVar("skdpot_gate", default=None)


class _Recorder:
    """Keeps releases, and lets them pass."""

    def __init__(self, forgetting: bool) -> None:
        self.releases: list[Release] = []
        self.forgetting = forgetting

    def __call__(self, release: Release, value: Any) -> Any:
        self.releases.append(release)
        return value


class _Player:
    """Returns recorded values, each in the place of the next one that is released."""

    def __init__(self, releases: Sequence[Release]) -> None:
        self._due = list(releases)
        self._place = 0

    def __call__(self, release: Release, value: Any) -> Any:
        name = f"{release.kind!r}, release number {self._place}"
        if self._place == len(self._due):
            raise ReplayError(f"More is released than was recorded: {name}.")
        recorded = self._due[self._place]
        if release.kind != recorded.kind:
            raise ReplayError(f"{recorded.kind!r} was recorded in the place of {name}.")
        if not _same_shape(recorded.value, release.value):
            raise ReplayError(f"The shape of {name}, differs from the recorded one.")
        different = first_difference(recorded.facts, release.facts)
        if different is not None:
            raise ReplayError(f"A fact of {name}, differs from the recorded one: {different}.")
        self._place += 1
        return _restored(recorded.value, value)

    def finish(self) -> None:
        if self._place < len(self._due):
            missing = self._due[self._place].kind
            raise ReplayError(f"Less was released than recorded: {missing!r} is missing.")


@contextmanager
def record_releases(*, forgetting: bool = True) -> Iterator[list[Release]]:
    """Keep everything that mechanisms release inside the block.

    Parameters
    ----------
    forgetting : bool, default=True
        Leave out the trials of a private search that did not win: they are not published.

    Yields
    ------
    list of Release
        Grows while the block runs; of this thread and its asynchronous tasks only, not of
        worker processes. Of nested blocks the inner one records.
    """
    recorder = _Recorder(forgetting)
    token = _GATE.set(recorder)
    try:
        yield recorder.releases
    finally:
        _GATE.reset(token)


@contextmanager
def replay_releases(releases: Sequence[Release]) -> Iterator[None]:
    """Give what mechanisms release inside the block the recorded noisy values.

    Parameters
    ----------
    releases : sequence of Release
        From `record_releases`, with ``forgetting=False`` if a private search was recorded.

    Raises
    ------
    ReplayError
        If what is released differs in kind, number, shape or public facts from what was recorded.
    """
    player = _Player(releases)
    token = _GATE.set(player)
    try:
        yield
        player.finish()
    finally:
        _GATE.reset(token)


def released(kind: str, value: T, facts: Callable[[], Mapping[str, Any]]) -> T:
    """Let a noisy value out. Whatever follows must use the value that this returns.

    Parameters
    ----------
    kind : str
        What is released.
    value : ndarray, tensor, number, or tuple or list of these
        The value with its noise. The length of a list is part of the value; shapes of arrays and
        lengths of tuples are public. None tells public facts alone.
    facts : callable
        Returns the scale of the noise and public circumstances, copied, since the mechanism may
        go on to change its arrays. Called only if somebody records or replays.

    Returns
    -------
    object
        `value`, or in a replay the recorded one.
    """
    gate = _GATE.get()
    if gate is None:
        return value
    passed: T = gate(Release(kind, _copied(value), dict(facts())), value)
    return passed


@contextmanager
def forgotten() -> Iterator[list[Release]]:
    """Take what is released inside the block back from who records it.

    Yields
    ------
    list of Release
        Filled when the block ends, if somebody records; for `remember`.
    """
    gate, kept = _GATE.get(), list[Release]()
    start = len(gate.releases) if isinstance(gate, _Recorder) else 0
    try:
        yield kept
    finally:
        if isinstance(gate, _Recorder):
            kept += gate.releases[start:]
            if gate.forgetting:
                del gate.releases[start:]


def remember(releases: Sequence[Release]) -> None:
    """Show who records something that was `forgotten`."""
    gate = _GATE.get()
    if isinstance(gate, _Recorder) and gate.forgetting:
        gate.releases += releases


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "new_tensor")  # without importing torch


def _copied(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_copied, value))
    if _is_tensor(value):
        return value.detach().to("cpu", copy=True).numpy()
    return value.copy() if isinstance(value, np.ndarray) else value


def _restored(recorded: Any, value: Any) -> Any:
    """Return a copy of what was recorded, with tensors where `value` has them."""
    if isinstance(value, tuple):
        return tuple(_restored(r, v) for r, v in zip(recorded, value, strict=True))
    return value.new_tensor(recorded) if _is_tensor(value) else _copied(recorded)


def _same_shape(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same_shape, one, other))
    return type(one) is type(other) and (isinstance(one, list) or np.shape(one) == np.shape(other))


def first_difference(one: Any, other: Any, name: str = "") -> str | None:
    """Name the first place in which two objects differ by a single bit; None if there is none.

    Arrays, tensors, numbers, containers, dataclasses (by their fields) and other objects (by
    their attributes) are compared all the way down, functions by their names.

    Parameters
    ----------
    one, other : object
        What to compare.
    name : str, default=""
        How to call it.
    """
    return _Comparison().difference(one, other, name)


class _Comparison:
    def __init__(self) -> None:
        # Objects may hold each other. Kept alive, since a number is given to another afterwards.
        self._met: dict[tuple[int, int], tuple[Any, Any]] = {}

    def difference(self, one: Any, other: Any, name: str) -> str | None:
        if one is other or (id(one), id(other)) in self._met:
            return None
        if type(one) is not type(other):
            return f"{name} (type)"
        if (parts := _parts(one)) is not None:
            self._met[id(one), id(other)] = one, other
            return self._of_parts(parts, _parts(other) or {}, name)
        return None if _equal(one, other) else name

    def _of_parts(self, parts: dict[Any, Any], others: dict[Any, Any], name: str) -> str | None:
        if list(parts) != list(others):
            return f"{name} (parts)"
        for key, part in parts.items():
            found = self.difference(part, others[key], f"{name}.{key}" if name else str(key))
            if found is not None:
                return found
        return None


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return what an object consists of, or None for what is compared as a whole."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.dtype == object):
        return dict(enumerate(value))
    if isinstance(value, np.ndarray | np.generic | type | FunctionType):
        return None
    if _is_tensor(value):
        return {"values": _copied(value), "grad": value.grad if value.is_leaf else None}
    if isinstance(value, pd.DataFrame | pd.Series):
        axes = [axis.to_numpy() for axis in value.axes]
        return {"axes": axes, "types": str(value.dtypes), "values": value.to_numpy()}
    if isinstance(value, np.random.Generator):
        return dict(value.bit_generator.state)
    if isinstance(value, MethodType):
        return {"function": value.__func__, "owner": value.__self__}
    if is_dataclass(value):
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
