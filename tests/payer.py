"""Who pays for a charge in a test, in the place of an estimator."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Payer:
    """The promise, the budget and the name that `charge` reads."""

    budget: Any
    epsilon: float | None
    delta: float
    caller: str = "test"
