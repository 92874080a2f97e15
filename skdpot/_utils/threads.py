"""Threads of numerical kernels: their number and their limits."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """Return the number of threads of a kernel: torch's number, or OpenMP's without torch."""
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if of_torch is not None:
        return int(of_torch())
    counts = [library["num_threads"] for library in _libraries("openmp").info()]
    return max(counts, default=os.cpu_count() or 1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Restrict BLAS to one thread, because waiting threads slow down thin matrix products."""
    with _libraries("blas").limit(limits=1):
        yield


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply `function`, which must release the GIL, to each item in a thread of its own."""
    with one_blas_thread():
        if len(items) == 1:
            return [function(items[0])]
        with ThreadPoolExecutor(len(items)) as pool:
            return list(pool.map(function, items))


@cache
def _libraries(kind: str) -> ThreadpoolController:
    """Return the loaded libraries of a kind; cached, because the search takes milliseconds."""
    return ThreadpoolController().select(user_api=kind)
