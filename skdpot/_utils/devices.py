"""Where numerical kernels run; torch is loaded only where a GPU may be."""

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["resolve_device"]

# What the drivers of GPUs that torch can use show in /dev: NVIDIA's, of desktops and of boards
# (nv*), AMD's, and that of Linux inside of Windows.
_DRIVERS = ("nvidia*", "nvmap", "nvgpu*", "nvhost*", "kfd", "dxg")


def resolve_device(device: str) -> "torch.device | None":
    """Map a ``device=`` parameter to a torch device, or to None for numpy on the CPU.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        "auto" is a GPU when torch sees one. On the CPU numpy is used: it sorts and gathers
        faster than torch there.

    Raises
    ------
    ValueError
        If "cuda" is asked for and torch sees no GPU.
    """
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
