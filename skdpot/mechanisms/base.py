"""What all mechanisms share: parameters of their own, and the terms of a fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from sklearn.base import BaseEstimator, clone

from skdpot._utils.rng import Streams
from skdpot._utils.validation import check_parameters
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import PrivacyTarget, privacy_target

__all__ = ["FitContext", "Mechanism", "chosen_mechanism"]


class Mechanism(BaseEstimator):
    """Base class of mechanisms: what reads private rows, charges for it and releases.

    A mechanism owns the parameters that it alone reads. They can be searched over as nested
    parameters of its estimator, for example ``mechanism__batch_size``. It is given arrays and a
    `FitContext`, never the estimator, and returns what it released.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}


@dataclass(frozen=True, eq=False)
class FitContext:
    """The terms of one fit.

    Parameters
    ----------
    caller : str
        Name of the estimator, in errors and in the history of the budget.
    epsilon, delta : float
        What the fit promises.
    budget : PrivacyBudget or None
        What it is charged to.
    bounds, norm_bound : object
        What is public about the range of the rows; parameters of the estimator.
    streams : Streams
        Secret, public and solver randomness.
    source : object
        X as it was passed, for the warning of composition.
    device : str
        Where to compute.
    verbose : int
        Whether to show progress.
    random_state : int, RandomState or None
        What makes noise reproducible, for parties that are made for this estimator.
    """

    caller: str
    epsilon: float
    delta: float
    budget: PrivacyBudget | None
    bounds: Any
    norm_bound: float | None
    streams: Streams
    source: Any
    device: str = "auto"
    verbose: int = 0
    random_state: Any = None

    @classmethod
    def of(cls, estimator: BaseEstimator, X: Any, streams: Streams) -> Self:
        """Read the terms from the parameters of an estimator."""
        given = estimator.get_params(deep=False)
        names = (
            "epsilon",
            "delta",
            "budget",
            "bounds",
            "norm_bound",
            "device",
            "verbose",
            "random_state",
        )
        terms = {name: given[name] for name in names if name in given}
        terms = {"bounds": "private", "norm_bound": None} | terms
        return cls(caller=type(estimator).__name__, streams=streams, source=X, **terms)

    @property
    def target(self) -> PrivacyTarget:
        """What the events of the fit may cost together."""
        return privacy_target(self.epsilon, self.delta, self.budget)

    def progress(self, label: str) -> str | None:
        """Return the label of a progress bar; None for no bar."""
        return label if self.verbose else None


AnyMechanism = TypeVar("AnyMechanism", bound=Mechanism)


def chosen_mechanism(
    given: str | AnyMechanism, registry: Mapping[str, type[AnyMechanism]]
) -> AnyMechanism:
    """Return the mechanism that a parameter names or holds, with valid parameters, as a copy."""
    mechanism = registry[given]() if isinstance(given, str) else clone(given)
    check_parameters(mechanism)
    return mechanism
