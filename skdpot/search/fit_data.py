"""The private data of a fit, and the selection of some of its rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._utils.parameters import safe_indexing


def take(values: Any, positions: np.ndarray) -> Any:
    """Return some rows of an array or a table, as an object of the same type."""
    if values is None:
        return None
    rows = values if hasattr(values, "__getitem__") else np.asarray(values)
    return safe_indexing(rows, positions)


@dataclass(frozen=True, eq=False)
class FitData:
    """Private rows, their targets, and further arguments of a fit with one value per row."""

    X: Any
    y: Any
    options: Mapping[str, Any]

    def take(self, positions: np.ndarray) -> "FitData":
        """Return the data of some rows."""
        options = {name: take(value, positions) for name, value in self.options.items()}
        return FitData(take(self.X, positions), take(self.y, positions), options)
