"""Mechanisms: how an estimator accesses private data.

An estimator takes the name of a mechanism, or an object with its own parameters:
``DPSlicedFlowSampler(mechanism="resample")`` is short for ``mechanism=Resample()``.

The names are listed in ``mechanisms.pyi`` and loaded on first use: only mechanisms that train
networks load torch.
"""

import sys
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub("skdpot", __file__)


def __getattr__(name: str) -> Any:
    """Import a mechanism on first use."""
    value = globals()[name] = _load(name)
    # The loader has stored it as `skdpot.NAME` too, where it is not public.
    vars(sys.modules["skdpot"]).pop(name, None)
    return value
