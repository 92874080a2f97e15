"""Threads for numpy kernels that make several passes over their data."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

__all__ = ["in_threads", "n_threads", "one_blas_thread"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """Return how many threads a kernel may use: as many as torch, or as OpenMP without torch.

    ``torch.set_num_threads`` and the variable ``OMP_NUM_THREADS`` change it, and joblib
    lowers it in its worker processes. Torch is not loaded for the answer.
    """
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if of_torch is not None:
        return int(of_torch())
    counts = [library["num_threads"] for library in _openmp().info()]
    return max(counts, default=os.cpu_count() or 1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products on the calling thread.

    The products of these kernels are thin: splitting them gains little, and the threads of
    OpenBLAS spin while they wait, which on a busy machine makes a kernel several times slower.
    """
    with _blas().limit(limits=1):
        yield


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply `function`, which must release the GIL, to each item in a thread of its own.

    Parameters
    ----------
    function : callable
        Called once an item.
    items : sequence
        At most `n_threads` items, of about equal work. A single one is handled without a
        thread.

    Returns
    -------
    list
        Results in the order of the items.
    """
    with one_blas_thread():
        if len(items) == 1:
            return [function(items[0])]
        with ThreadPoolExecutor(len(items)) as pool:
            return list(pool.map(function, items))


@cache
def _blas() -> ThreadpoolController:
    """Find the loaded BLAS libraries, once: looking takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


@cache
def _openmp() -> ThreadpoolController:
    """Find the loaded OpenMP libraries; scikit-learn has loaded one."""
    return ThreadpoolController().select(user_api="openmp")
