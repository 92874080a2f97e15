"""How a fuzzed call is run, and what must hold of it whatever it was given."""

import io
import logging
import re
import resource
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skdpot import PrivacyBudget
from skdpot.exceptions import SkdpotError
from tests.contract.fuzz_strategies import LEAK

SECONDS = 10.0
MEMORY = 4 << 30  # above what the process holds: torch reserves addresses by the gigabyte
DOCUMENTED = (ValueError, TypeError, NotFittedError, SkdpotError)
# Children of the above that say something else: an index, an algorithm that gave up.
UNDOCUMENTED = (IndexError, KeyError, ArithmeticError, np.linalg.LinAlgError)
OUR_BUSINESS = (RuntimeWarning, DeprecationWarning, FutureWarning, np.exceptions.ComplexWarning)

# (target, "accepted" or "refused") -> cases; the benchmark script reads it.
COUNTS: Counter[tuple[str, str]] = Counter()


class TooSlowError(BaseException):
    """A call did not come back in time; no handler of the package may catch it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a call."""

    value: Any
    error: BaseException | None
    texts: tuple[str, ...] = field(repr=False)


class Records(logging.Handler):
    """Keep the text of everything that is logged."""

    def __init__(self) -> None:
        super().__init__(level=0)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def limits(seconds: float, memory: int) -> Iterator[None]:
    """Stop a call that runs for too long or asks for too much memory."""

    def stop(*_: Any) -> None:
        raise TooSlowError(f"no answer within {seconds:g} seconds")

    with open("/proc/self/statm") as statistics:
        held = int(statistics.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    # By the time that this process computes: others may keep the machine busy.
    before = [signal.signal(one, stop) for one in (signal.SIGPROF, signal.SIGALRM)]
    resource.setrlimit(resource.RLIMIT_AS, (held + memory, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 20 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and everything that hangs on it, suppressed contexts too."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        yield one
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def attempt(
    name: str,
    call: Callable[[], Any],
    *,
    private: bool = True,
    allowed: tuple[type[BaseException], ...] = (),
    seconds: float = SECONDS,
) -> Outcome:
    """Run a call and check what holds of every call.

    Parameters
    ----------
    name : str
        What to count it as.
    call : callable
        Takes nothing.
    private : bool, default=True
        Whether its arguments are private, so that no text may show them.
    allowed : tuple of exception types
        What else the documentation of this call promises.
    seconds : float
        Limit of time.
    """
    shown, logged = io.StringIO(), Records()
    logging.getLogger().addHandler(logged)
    value, error = None, None
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            redirect_stdout(shown),
            redirect_stderr(shown),
            limits(seconds, MEMORY),
        ):
            warnings.simplefilter("always")
            value = call()
    except Exception as caught:
        error = caught
    finally:
        logging.getLogger().removeHandler(logged)
    COUNTS[name, "accepted" if error is None else "refused"] += 1
    texts = [shown.getvalue(), *logged.texts, *(str(one.message) for one in warned)]
    for one in chain(error):
        texts += [str(one), repr(one), *map(str, getattr(one, "__notes__", ()))]
    if error is not None:
        promised = isinstance(error, DOCUMENTED) and not isinstance(error, UNDOCUMENTED)
        if not promised and not isinstance(error, allowed):
            raise AssertionError(f"{name}: {type(error).__name__} is not documented") from error
        assert str(error).strip(), f"{name}: an error without a text"
    for one in warned:
        ours = f"{name}: {one.category.__name__} at {one.filename}:{one.lineno}: {one.message}"
        assert not issubclass(one.category, OUR_BUSINESS), ours
    if private:
        check_texts(name, texts)
    return Outcome(value, error, tuple(texts))


def check_texts(name: str, texts: list[str], marks: re.Pattern[str] = LEAK) -> None:
    """Look for private values."""
    for text in texts:
        found = marks.search(text)
        assert found is None, f"{name} shows {found.group()!r}: {text[:600]}"


def fingerprint(value: Any, depth: int = 4) -> Any:
    """Return something that differs when a value was changed, in place too."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return str(value.dtype), tuple(value.shape), value.detach().float().numpy().tobytes()
    if isinstance(value, torch.nn.Module):
        return fingerprint(list(value.state_dict().values()))
    if isinstance(value, PrivacyBudget):
        return id(value)
    if isinstance(value, BaseEstimator) and depth:
        return fingerprint(vars(value), depth - 1)
    if isinstance(value, dict) and depth:
        return tuple((str(key), fingerprint(one, depth - 1)) for key, one in value.items())
    if isinstance(value, list | tuple) and depth:
        return type(value).__name__, tuple(fingerprint(one, depth - 1) for one in value)
    return id(value)


def is_finite(value: Any) -> bool:
    """Whether everything in an array or a table is a finite number."""
    return bool(np.isfinite(np.asarray(value, dtype=np.float64)).all())
