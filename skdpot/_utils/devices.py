"""Where numerical kernels run: on which device, and on how many threads of the processor.

torch is loaded only where a GPU may be.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import torch

# What the drivers of GPUs that torch can use show in /dev: NVIDIA's, of desktops and of boards
# (nv*), AMD's, and that of Linux inside of Windows.
_DRIVERS = ("nvidia*", "nvmap", "nvgpu*", "nvhost*", "kfd", "dxg")


def resolve_device(device: str) -> "torch.device | None":
    """Map a ``device=`` parameter to a torch device, or to None for numpy on the CPU."""
    if device == "cpu" or (device == "auto" and not _may_have_gpu()):
        return None
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ValueError(
            'device="cuda" needs a GPU that torch can use, and torch.cuda.is_available() is '
            'False here. Use device="auto" to fall back to the CPU.'
        )
    return torch.device("cuda") if available else None


def _may_have_gpu() -> bool:
    """Whether asking torch, which takes seconds to load, can have another answer than no."""
    if "torch" in sys.modules or sys.platform != "linux":
        return True
    return any(chain.from_iterable(Path("/dev").glob(name) for name in _DRIVERS))


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
    counts = [library["num_threads"] for library in _libraries("openmp").info()]
    return max(counts, default=os.cpu_count() or 1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products on the calling thread.

    The products of these kernels are thin: splitting them gains little, and the threads of
    OpenBLAS spin while they wait, which on a busy machine makes a kernel several times slower.
    """
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
    """Find the loaded libraries of a kind, once: looking takes milliseconds."""
    return ThreadpoolController().select(user_api=kind)
