"""Differentially private optimal transport with the scikit-learn interface.

The public names are listed in ``__init__.pyi`` and loaded on first use: a process that only keeps a
budget does not load torch.
"""

from typing import Any

import lazy_loader

from skdpot.__about__ import __version__ as __version__

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("__version__")


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "skorch"):
            raise
        raise ImportError(
            f"skdpot.{name} trains a network and needs torch and skorch: pip install torch skorch",
            name=error.name,
        ) from error
