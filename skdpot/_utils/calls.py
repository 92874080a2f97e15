"""Calls of estimators: the seeds of their public randomness, and actions at their end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

Ending = Callable[[BaseException | None], None]
_REPEATED: ContextVar[tuple[int, int] | None] = ContextVar("repeated", default=None)


@dataclass(eq=False)
class Call:
    """A call that may charge a budget, or a call within it.

    All public randomness follows from the seed of the outermost call, so a second attempt makes the
    same choices. `resumed` is the number of releases kept from an earlier attempt.
    """

    seed: int
    outermost: int
    resumed: int | None = None
    endings: ExitStack = field(default_factory=ExitStack)
    _n_spawned: int = 0

    def spawn(self) -> np.random.SeedSequence:
        """Return the next seed; attempts with the same calls get the same seeds."""
        self._n_spawned += 1
        return np.random.SeedSequence(self.seed, spawn_key=(self._n_spawned,))

    def at_end(self, ending: Ending) -> None:
        """Run `ending` with the error or None when the call ends; the last one is run first."""

        def leave(_: object, error: BaseException | None, __: object) -> bool:
            ending(error)
            return False

        self.endings.push(leave)


_CALL: ContextVar[Call | None] = ContextVar("call", default=None)


def current_call() -> Call | None:
    """Return the innermost call."""
    return _CALL.get()


@contextmanager
def calling() -> Iterator[None]:
    """Make the block a call."""
    outer, repeated = _CALL.get(), _REPEATED.get()
    if outer is not None:
        seed = int.from_bytes(outer.spawn().generate_state(4).tobytes(), "little")
        call = Call(seed, outermost=outer.outermost, resumed=outer.resumed)
    elif repeated is not None:
        call = Call(repeated[0], outermost=repeated[0], resumed=repeated[1])
    else:
        seed = int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
        call = Call(seed, outermost=seed)
    state = _CALL.set(call)
    try:
        with call.endings:
            yield
    finally:
        _CALL.reset(state)


@contextmanager
def repeating(seed: int, resumed: int) -> Iterator[None]:
    """Let calls in the block repeat the public choices of an earlier attempt."""
    state = _REPEATED.set((seed, resumed))
    try:
        yield
    finally:
        _REPEATED.reset(state)


@contextmanager
def apart() -> Iterator[None]:
    """Separate the block from the current call: it neither uses the seed nor advances it."""
    states = _CALL.set(None), _REPEATED.set(None)
    try:
        yield
    finally:
        _CALL.reset(states[0])
        _REPEATED.reset(states[1])
