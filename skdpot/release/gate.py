"""The gate that every noisy number passes on its way out of a mechanism.

A mechanism wraps a noisy value in a `Release`, with its noise and its event, passes it to
`pass_gate`, and continues with the value that this returns. Usually that is the same value.

`record_releases` keeps every release, including those that no attribute stores, such as the
gradients of a training. The accountant charges a fit for all of them, so an audit must see them:

>>> from skdpot.privacy.events import GaussianEvent
>>> from skdpot.release.gate import Release, record_releases, released, replay_releases
>>> from skdpot import PrivateScaler
>>> import numpy as np
>>> X = np.random.default_rng(0).normal(size=(5000, 2))
>>> with record_releases() as releases:
...     scaler = PrivateScaler(epsilon=5.0).fit(X)
>>> [release.kind for release in releases]
['histogram', 'histogram', 'histogram', 'histogram', 'histogram']

`replay_releases` returns the recorded values to the same function on other rows. A function that
depends on private rows through releases alone gives the same result, to the last bit:

>>> event = GaussianEvent(sigma=100.0, sensitivity=1.0)
>>> def positive(rows, n=len(X)):
...     noisy = (rows > 0).sum() + np.random.default_rng().normal(0, 100)
...     noisy = released(Release("count", noisy, sigma=100.0, event=event))
...     return min(noisy / n, 1)
>>> with record_releases() as releases:
...     share = positive(X)
>>> with replay_releases(releases):
...     bool(positive(X - 1) == share)
True

Only noisy values and public facts pass the gate, so the charged event covers what is recorded.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from skdpot._utils.records import Record
from skdpot.exceptions import LedgerError, ReplayError
from skdpot.privacy.events import Event
from skdpot.privacy.journal import Journal, current_journal, withholding

Records: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Vectors:
    """Contributions of single records to a release: the rows of a dense or sparse array."""

    array: Any

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """Return the sum over records, each multiplied by its weight."""
        return np.asarray(weights @ self.array)

    def inner(self, value: np.ndarray) -> np.ndarray:
        """Return the inner products with a value."""
        return np.asarray(self.array @ value)

    def gram(self) -> np.ndarray:
        """Return the inner products of all pairs of records."""
        products = self.array @ self.array.T
        return products if isinstance(products, np.ndarray) else products.toarray()

    def minus(self, first: np.ndarray, second: np.ndarray) -> "Vectors":
        """Return the differences between two lists of records."""
        return Vectors(self.array[first] - self.array[second])


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    r"""Some numbers of a release, and what each record adds to them.

    Their mean over batches and coins is :math:`\sum_j q_j p_j g_j`. Record j contributes
    :math:`q_j g_j`; p is given (the shares), and q is 1 unless batches are drawn.
    """

    value: np.ndarray
    sigma: float
    rows: Any = None  # `Vectors`, or an object with the same sum, inner and gram
    members: np.ndarray | None = None
    rates: np.ndarray | None = None
    center: np.ndarray | None = None
    exact: bool = True
    missed: float = 0.0


@dataclass(frozen=True, eq=False)
class Release:
    """One noisy quantity that leaves a mechanism, made by the function that adds the noise.

    Parameters
    ----------
    kind : str
        Name of the quantity, such as ``"gradient"``.
    value : ndarray, tensor, number, or tuple or list of these
        The noisy value. The length of a list is part of the value; shapes of arrays and lengths of
        tuples are public.
    event : Event
        The event that was charged for it, alone or with other releases.
    facts : mapping, default={}
        Public facts that a replay compares and the linear map needs. Arrays and tensors are copied
        when the release is recorded.
    sigma : float or tuple of float, default=0.0
        Standard deviation of the noise on each number, or on the numbers of each part of the value.
    lattice : float, optional
        Spacing of the noise. None means floating-point noise.
    sensitivity : float, optional
        L2 sensitivity that the noise hides.
    linear : callable, optional
        Map from records to what they add, for releases that are sums over records or nearly so:
        ``linear(release, records, shares)`` yields a `Part` for each part of the release. Records
        are the rows and labels of `fit`, as the estimator passes them to the mechanism
        (`_seen_by`); ``shares`` holds the expected number of each in the data: 1, or 1/2 for the
        two candidates of a slot. Present records come first, then all first and then all second
        candidates.
    """

    kind: str
    value: Any
    event: Event = field(kw_only=True)
    facts: Mapping[str, Any] = field(default_factory=dict)
    sigma: float | tuple[float, ...] = 0.0
    lattice: float | None = None
    sensitivity: float | None = None
    linear: Callable[["Release", Records, np.ndarray], Iterable[Part]] | None = None

    def parts(self, records: Records, shares: np.ndarray) -> Iterable[Part]:
        """Return what records add to each part of the value; nothing if that is unknown."""
        return () if self.linear is None else self.linear(self, records, shares)

    def __repr__(self) -> str:
        return f"Release({self.kind!r}, sigma={self.sigma}, facts={sorted(self.facts)})"


def candidates(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the first and the second candidate of each slot of the data."""
    n_pairs = int(np.count_nonzero(shares < 1.0)) // 2
    first = np.arange(len(shares) - n_pairs)
    return first, np.where(shares[first] < 1.0, first + n_pairs, first)


def of_candidates(facts: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Extend public facts of the rows to all records; candidates of a slot share them."""
    n_pairs = int(np.count_nonzero(shares < 1.0)) // 2
    return np.concatenate([facts, facts[len(facts) - n_pairs :]])


_Gate: TypeAlias = Callable[[Release, Any], Any]
_GATE: ContextVar[_Gate | None] = ContextVar("skdpot_gate", default=None)


class _Recorder:
    """Keeps releases and lets them pass."""

    def __init__(self, forgetting: bool) -> None:
        self.releases: list[Release] = []
        self.forgetting = forgetting

    def __call__(self, release: Release, value: Any) -> Any:
        self.releases.append(release)
        return value


class _Player:
    """Replaces each released value by the recorded one."""

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
        different = first_difference(_public(recorded), _public(release))
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
    """Record everything that mechanisms release inside the block."""
    recorder = _Recorder(forgetting)
    token = _GATE.set(recorder)
    try:
        yield recorder.releases
    finally:
        _GATE.reset(token)


@contextmanager
def replay_releases(releases: Sequence[Release]) -> Iterator[None]:
    """Return the recorded values for what mechanisms release inside the block."""
    player = _Player(releases)
    token = _GATE.set(player)
    try:
        yield
        player.finish()
    finally:
        _GATE.reset(token)


def pass_gate(release: Release) -> Any:
    """Let a noisy value out. The caller must continue with the returned value.

    Parameters
    ----------
    release : Release
        Its facts are copied only while releases are recorded or replayed.

    Returns
    -------
    object
        The value of the release, or the recorded one in a replay.

    Raises
    ------
    RuntimeError
        If the charged event has noise and the release has none.
    LedgerError
        If the release of a resumed fit has other public facts than the one that was kept, or
        another process goes on with the fit.
    """
    least = release.sigma if isinstance(release.sigma, float) else min(release.sigma, default=1.0)
    if least <= 0.0 and release.event.is_private:
        raise RuntimeError(f"{release.kind!r} would be released without the noise of its event.")
    journal = current_journal()
    if journal is not None:
        release = replace(release, value=_kept(journal, release))
    gate = _GATE.get()
    if gate is None:
        return release.value
    facts = {name: _copied(fact) for name, fact in release.facts.items()}
    return gate(replace(release, value=_copied(release.value), facts=facts), release.value)


@contextmanager
def forgotten() -> Iterator[list[Release]]:
    """Withdraw what is released inside the block from the recording, and from what is kept."""
    gate, kept = _GATE.get(), list[Release]()
    start = len(gate.releases) if isinstance(gate, _Recorder) else 0
    try:
        with withholding():
            yield kept
    finally:
        if isinstance(gate, _Recorder):
            kept += gate.releases[start:]
            if gate.forgetting:
                del gate.releases[start:]


def remember(releases: Sequence[Release]) -> None:
    """Add `forgotten` releases to the recording again."""
    gate = _GATE.get()
    if isinstance(gate, _Recorder) and gate.forgetting:
        gate.releases += releases


@dataclass(frozen=True)
class KeptRelease(Record):
    """A release of a fit that has not ended; its arrays are numbered in `value`."""

    kind: ClassVar[str] = "skdpot.kept_release"
    noun: ClassVar[str] = "kept release"

    name: str
    facts: str
    value: str
    arrays: tuple[np.ndarray, ...]

    def restored(self, value: Any, where: str) -> Any:
        """Return the value, in the form that a value of the same release has now."""
        try:
            found = _unpacked(json.loads(self.value), self.arrays)
            if not _same_shape(found, _copied(value), np.ndim):  # batches are of random sizes
                raise ValueError("another form")
        except (TypeError, ValueError, LookupError, RecursionError) as error:
            raise LedgerError(_UNREADABLE.format(where)) from error
        return _restored(found, value)


_OTHER_FACTS = (
    "The interrupted fit released {} given other public facts: its parameters, a library or the "
    "machine were others. Make the same fit, or leave budget.resume() to make a new one. Nothing "
    "was charged."
)
_UNREADABLE = "{} of the interrupted fit is damaged, so that the fit cannot be resumed."


def _kept(journal: Journal, release: Release) -> Any:
    """Return the value that an earlier attempt released, or keep this one before it is used."""
    facts = _digest(_public(release))
    due = journal.due()
    if due is not None:
        where = f"The release {release.kind!r}"
        try:
            known = KeptRelease.from_bytes(due)
        except ValueError as error:
            raise LedgerError(_UNREADABLE.format(where)) from error
        if (known.name, known.facts) != (release.kind, facts):
            raise LedgerError(_OTHER_FACTS.format(repr(release.kind)))
        return known.restored(release.value, where)
    arrays: list[np.ndarray] = []
    try:
        value = json.dumps(_packed(_copied(release.value), arrays))
        data = KeptRelease(release.kind, facts, value, tuple(arrays)).to_bytes()
    except (TypeError, ValueError):  # of a kind that no file holds
        journal.drop()
        return release.value
    journal.keep(data)
    return release.value


def _packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a value as JSON, with arrays beside."""
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_packed(part, arrays) for part in value]}
    if isinstance(value, np.ndarray | np.generic):
        arrays.append(np.asarray(value))
        return {"array" if isinstance(value, np.ndarray) else "number": len(arrays) - 1}
    return value


def _unpacked(content: Any, arrays: Sequence[np.ndarray]) -> Any:
    """Return what `_packed` took apart."""
    if not isinstance(content, dict):
        return content
    [(kind, held)] = content.items()
    if kind in ("tuple", "list"):
        parts = (_unpacked(part, arrays) for part in held)
        return tuple(parts) if kind == "tuple" else list(parts)
    found = arrays[held].copy()
    return found if kind == "array" else found[()]


_MOST_HASHED = 2**17  # parts of facts: of the marginals of thousands of columns the first tell


def _digest(facts: Any) -> str:
    """Return a hash of public facts, the same in every process."""
    found, met, left = hashlib.sha256(), dict[int, Any](), _MOST_HASHED
    parts = [facts]
    while parts and (left := left - 1):
        part = parts.pop()
        held = None if id(part) in met else _parts(part)
        found.update(type(part).__qualname__.encode())
        if held is not None:
            met[id(part)] = part
            found.update(repr(list(map(str, held))).encode())
            parts += held.values()
        elif isinstance(part, np.ndarray | np.generic):
            found.update(f"{part.dtype.str}{part.shape}".encode() + part.tobytes())
        elif isinstance(part, FunctionType | BuiltinFunctionType | type):
            found.update(part.__qualname__.encode())
        elif isinstance(part, str | bytes | int | float | complex | Enum | type(None)):
            found.update(repr(part).encode())
    return found.hexdigest()


def _public(release: Release) -> dict[str, Any]:
    return {**release.facts, "sigma": release.sigma, "lattice": release.lattice}


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "new_tensor")  # without importing torch


def _copied(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_copied, value))
    if _is_tensor(value):
        return value.detach().to("cpu", copy=True).numpy()
    return value.copy() if isinstance(value, np.ndarray) else value


def _restored(recorded: Any, value: Any) -> Any:
    """Return a copy of a recorded value, with tensors where `value` has them."""
    if isinstance(value, tuple):
        return tuple(_restored(r, v) for r, v in zip(recorded, value, strict=True))
    return value.new_tensor(recorded) if _is_tensor(value) else _copied(recorded)


def _same_shape(one: Any, other: Any, of: Callable[[Any], Any] = np.shape) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        parts = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same_shape(*pair, of) for pair in parts)
    return type(one) is type(other) and (isinstance(one, list) or of(one) == of(other))


def first_difference(
    one: Any, other: Any, name: str = "", met: dict[tuple[int, int], Any] | None = None
) -> str | None:
    """Name the first place where two objects differ by a single bit; None if they are equal."""
    # Objects may hold each other. Kept alive, since a number is given to another afterwards.
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
        found = first_difference(part, others[key], f"{name}.{key}" if name else str(key), met)
        if found is not None:
            return found
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
        return {"values": _copied(value), "grad": value.grad if value.is_leaf else None}
    if isinstance(value, pd.DataFrame | pd.Series):
        axes = [axis.to_numpy() for axis in value.axes]
        return {"axes": axes, "types": str(value.dtypes), "values": value.to_numpy()}
    if isinstance(value, np.random.Generator):
        return dict(value.bit_generator.state)
    if isinstance(value, MethodType):
        return {"function": value.__func__, "owner": value.__self__}
    if is_dataclass(value) and not isinstance(value, BaseEstimator):  # which has learned more
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
