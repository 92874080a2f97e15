"""Torch's global generator, for what cannot be given another one."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["torch_randomness"]


@contextmanager
def torch_randomness(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generator from `rng` inside the block; outside it goes on as before.

    Initial weights and dropout draw from it; noise and batches never do.
    """
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        yield
