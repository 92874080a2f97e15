"""The device, a GPU or the CPU, that a `device` parameter denotes."""

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Device files of the GPU drivers that torch supports: NVIDIA (desktops, and boards as nv*), AMD
# (kfd), and Linux inside Windows (dxg).
_DRIVERS = ("nvidia*", "nvmap", "nvgpu*", "nvhost*", "kfd", "dxg")


def resolve_device(device: "str | torch.device") -> "torch.device | None":
    """Map a ``device=`` parameter to a torch device, or to None for numpy on the CPU."""
    name = str(device)
    if name.startswith("cpu") or (name == "auto" and not _may_have_gpu()):
        return None
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda") if count else None
    chosen = torch.device(name)
    if (chosen.index or 0) >= count:
        raise ValueError(
            f'device="{name}" needs a GPU that torch can use, and torch finds {count} here. Use '
            'device="auto" to fall back to the CPU.'
        )
    return chosen


def _may_have_gpu() -> bool:
    """Whether a GPU is possible; does not load torch, which takes seconds."""
    if "torch" in sys.modules or sys.platform != "linux":
        return True
    return any(chain.from_iterable(Path("/dev").glob(name) for name in _DRIVERS))
