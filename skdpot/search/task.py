"""The task of a search: everything that is fixed before its first trial."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.search.plan import SearchPlan
from skdpot.search.scorers import Scorer
from skdpot.search.splits import Splits


@dataclass(frozen=True, eq=False)
class SearchTask:
    """An estimator with the prefixes of its private parts, the candidates, and public terms."""

    estimator: Any
    parts: tuple[str, ...]
    distributions: Any
    splits: Splits
    scorer: Scorer
    plan: SearchPlan
    classes: np.ndarray | None = None
