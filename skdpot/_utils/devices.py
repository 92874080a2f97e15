"""Where numerical kernels run."""

import torch

__all__ = ["resolve_device"]


def resolve_device(device: str) -> torch.device | None:
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
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ValueError(
            'device="cuda" needs a GPU that torch can use, and torch.cuda.is_available() is '
            'False here. Use device="auto" to fall back to the CPU.'
        )
    return torch.device("cuda") if available and device != "cpu" else None
