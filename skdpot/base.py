"""What all mechanisms share: own parameters, and the terms of a fit."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone

from skdpot._utils.devices import resolve_device
from skdpot._utils.parameters import Interval, check_is_fitted, check_parameters
from skdpot._utils.streams import Streams, solver_generator
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import charge, row_assumptions
from skdpot.privacy.earlier_steps import warn_of_composition
from skdpot.privacy.events import Event
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.reliability import Reliability
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import PrivacyTarget, privacy_target
from skdpot.release.bounds import ROW_BOUNDS, DataBounds
from skdpot.release.moments import NoisyMoments
from skdpot.release.releases import Records, Release
from skdpot.release.sketch import SlicedSketch

# Parameters of many mechanisms: numbers of something, and lengths that gradients are clipped to.
COUNT = Interval(Integral, 1, None, closed="left")
LENGTH = Interval(Real, 1e-30, 1e30, closed="both")


_ON_A_GPU = "the GPU computes a record's gradient from this record alone, to the last bit"
_KEPT_AS: dict[type, str] = {SlicedSketch: "sketch_", NoisyMoments: "moments_"}


class Plan(Protocol):
    """What `FitContext.charge` reads of the plan of a mechanism."""

    @property
    def event(self) -> Event:
        """The event that is charged."""

    @property
    def bounds(self) -> Any:
        """The bounds of the rows: `DataBounds` if the caller declared them, or their plan."""

    @property
    def n_samples(self) -> int:
        """Number of private rows."""

    @property
    def sigma(self) -> float | tuple[float, ...]:
        """Standard deviation of the noise, or that of each phase."""

    @property
    def sensitivity(self) -> float | tuple[float, ...]:
        """L2 sensitivity of what the noise is added to, or that of each phase."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FitContext:
    """The terms of one fit, which an estimator passes to its mechanism.

    Parameters
    ----------
    caller : str
        Class of the estimator, for messages.
    epsilon, delta : float
        The cost that all events of the fit together may have.
    budget : PrivacyBudget or None
        What the events are charged to as well.
    streams : Streams
        Random numbers: `secret` for noise, `public` for what is published, such as directions, and
        `solver` for computations after the release.
    source : object
        X as the caller of `fit` passed it. Private.
    bounds, norm_bound
        As declared, or ``"private"``; see `SlicedSketch`.
    device : str, default="auto"
        Where to compute.
    verbose : int, default=0
        Whether to show progress, which counts steps that public facts determine.
    random_state : int, RandomState or None, optional
        What `streams` were made of.
    feature_names : ndarray of shape (n_features,), optional
        Names of the columns of X, which are public.
    groups : array-like of shape (n_samples,), optional
        The person of each row, if persons have several. Private.
    """

    caller: str
    epsilon: float
    delta: float
    budget: PrivacyBudget | None
    streams: Streams
    source: Any
    bounds: Any = "private"
    norm_bound: float | None = None
    device: str = "auto"
    verbose: int = 0
    random_state: Any = None
    feature_names: np.ndarray | None = None
    groups: Any = None

    @classmethod
    def of(cls, estimator: BaseEstimator, X: Any, streams: Streams, groups: Any = None) -> Self:
        """Read the terms from the parameters of an estimator that has validated X."""
        known = {item.name for item in fields(cls)}
        parameters = estimator.get_params(deep=False).items()
        terms = {name: value for name, value in parameters if name in known}
        terms["feature_names"] = getattr(estimator, "feature_names_in_", None)
        terms |= {"streams": streams, "source": X, "groups": groups}
        return cls(caller=type(estimator).__name__, **terms)

    @property
    def target(self) -> PrivacyTarget:
        """The limit for the cost of all events of the fit together."""
        return privacy_target(self.epsilon, self.delta, self.budget)

    @property
    def divisible_mu(self) -> float:
        """The privacy parameter of the fit, for parts whose squares are to add up to its square."""
        return self.target.mu_cap * (1.0 - 1e-9)  # absorbs their rounding

    def mu_share(self, share: float) -> float:
        """Return the privacy parameter of a part of the fit; infinite without privacy."""
        target = self.target
        return math.inf if math.isinf(target.epsilon) else target.mu_cap * math.sqrt(share)

    def charge(
        self,
        plan: Plan,
        public: Iterable[str],
        mechanism: str,
        *,
        sigma_given: bool = False,
        **known: Any,
    ) -> PrivacySpent:
        """Charge a plan, before any noise is drawn or row is read.

        With `sigma_given` the caller fixed the noise, and the statement says what it costs at
        delta.
        """
        declared = isinstance(plan.bounds, DataBounds)
        facts = (*self.assumptions(declared_bounds=declared, **known), *public)
        scales = (plan.sigma, plan.sensitivity)
        return self.charge_event(
            plan.event, plan.n_samples, facts, mechanism, scales=scales, noise_given=sigma_given
        )

    def charge_event(
        self, event: Event, n_samples: int, public: Iterable[str], mechanism: str, **stated: Any
    ) -> PrivacySpent:
        """Charge an event, and warn of private steps that the rows come from."""
        facts: dict[str, Any] = {"n_samples": n_samples, "assumptions": public}
        spent = charge(self, event, mechanism=mechanism, **facts, **stated)
        warn_of_composition(self.source, spent, self.budget, self.caller)
        return spent

    def assumptions(self, **facts: Any) -> tuple[str, ...]:
        """List what a fit of rows takes to be public."""
        return row_assumptions(seeded=self.streams.secret.reproducible, **facts)

    @property
    def training(self) -> dict[str, Any]:
        """Arguments of the fit for `skdpot.nets.training.train_privately`."""
        return {
            "caller": self.caller,
            "device": resolve_device(self.device),
            "progress": self.progress(self.caller),
        }

    @property
    def arithmetic(self) -> tuple[str, ...]:
        """State what training assumes of a GPU; on CPUs it is tested."""
        return () if resolve_device(self.device) is None else (_ON_A_GPU,)

    def sketch(self, rows: np.ndarray, labels: Any, **options: Any) -> SlicedSketch:
        """Charge, then release a closed sketch on these terms."""
        terms = ("epsilon", "delta", "budget", "bounds", "norm_bound")
        sketch = SlicedSketch(**{name: getattr(self, name) for name in terms}, **options)
        origin = {"origin": self.source, "groups": self.groups}
        return sketch._release(self.caller, self.streams, rows, labels, **origin)

    def progress(self, label: str) -> str | None:
        """Return the label of a progress bar; None for no bar."""
        return label if self.verbose else None


@dataclass(frozen=True, eq=False)
class MechanismResult:
    """The release of a mechanism, with the facts that an estimator stores.

    Parameters
    ----------
    value : object or None
        What was released, for example a closed `SlicedSketch`. None if the attributes hold all.
    bounds : DataBounds or None
        The bounds of the rows. None if nothing was bounded.
    privacy_spent : PrivacySpent
        The statement of the cost.
    classes : ndarray of shape (n_classes,), optional
        The classes, if each has rows of its own.
    class_shares : ndarray of shape (n_classes,), default=[1.0]
        The released share of each class.
    attributes : dict
        Fitted attributes that the estimator stores under these names.
    reliability : Reliability
        The errors of the main outputs, computed from the release.
    foreseen : bool, default=False
        Whether they follow from public facts, and the mechanism has warned before the charge.
    stopped : BaseException, optional
        What interrupted the mechanism after it had paid. The estimator raises it once all this is
        stored.
    """

    value: Any
    bounds: Any  # not None for samplers, which read it
    privacy_spent: PrivacySpent
    classes: np.ndarray | None = None
    class_shares: np.ndarray = field(default_factory=lambda: np.ones(1))
    attributes: dict[str, Any] = field(default_factory=dict)
    reliability: Reliability = Reliability(())
    foreseen: bool = False
    stopped: BaseException | None = None


class Mechanism(BaseEstimator, ABC):
    """Base class of mechanisms, which read private rows, charge for them and release.

    A mechanism owns the parameters that it alone reads. They can be searched over as nested
    parameters of its estimator, for example ``mechanism__batch_size``. A subclass stores them in
    `__init__` (or is a dataclass), declares their values in `_parameter_constraints`, and defines
    `release`. The abstract class of a wing names the further arguments of `release` and the methods
    that its estimators call afterwards.

    A fit takes these steps:

    1. `chosen_mechanism` copies the mechanism of the estimator and checks its parameters.
    2. The estimator validates the rows and collects the terms of the fit in a `FitContext`.
    3. It calls `release` once.
    4. It stores the `MechanismResult`. Everything that is computed from now on follows from this
       result and from public facts: no method of the mechanism may read private rows again.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    @abstractmethod
    def release(self, context: FitContext, *args: Any, **kwargs: Any) -> MechanismResult:
        """Plan, charge, and only then read the private rows and release.

        The order is a promise: what is refused or planned depends on public facts only (the shape
        of the rows, the parameters, the terms), the event is charged by `FitContext.charge` before
        a value is read or noise is drawn, and noise comes from ``context.streams.secret``.

        Parameters
        ----------
        context : FitContext
            The terms of the fit. All of them are public, except `source` and `groups`, which hold
            private rows or lead to them, and the streams, of which `secret` stays unknown.
        *args, **kwargs
            The private rows, as an array of shape (n_samples, n_features), and what else the
            estimators of a wing pass; its abstract class declares them.

        Returns
        -------
        MechanismResult
            What was released, with its cost.

        Raises
        ------
        ValueError
            If the parameters do not suit the shape of the rows. Nothing is charged.
        BudgetExceededError
            If the budget of the fit cannot pay. Nothing is charged.
        """


Part = TypeVar("Part", bound=BaseEstimator)


def chosen_mechanism(named_or_held: str | Part, registry: Mapping[str, type[Part]]) -> Part:
    """Return a copy of the mechanism or penalty that a parameter names or holds, validated."""
    is_name = isinstance(named_or_held, str)
    chosen = registry[named_or_held]() if is_name else clone(named_or_held)
    check_parameters(chosen)
    return chosen


def refuse_classes(mechanism: Mechanism, conditional: bool) -> None:
    """Refuse a class-conditional fit by a mechanism that releases rows, before any charge."""
    if conditional:
        raise ValueError(
            f'conditional=True needs mechanism="sketch": with {type(mechanism).__name__} each '
            "class would have its own rows, and a record that changes its class would change the "
            "number of values, which no noise hides."
        )


@dataclass(eq=False, repr=False)
class PrivateSampler(PrivateEstimatorMixin, BaseEstimator, ABC):
    """Base class of samplers, which are made from the release of a mechanism.

    A subclass declares the names of its mechanisms in `_mechanisms`, and in `_made_last` the fitted
    attribute that `_make` sets last. Its `fit` calls the mechanism, `_store` and `_make`, in this
    order. If a fit is interrupted within `_make`, the release is kept, and the next method that
    calls `_ready` completes the fit. Methods that use what `_make` has set call `_ready` first.
    """

    mechanism: Any = "sketch"
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    budget: PrivacyBudget | None = None
    bounds: Any = "private"
    norm_bound: float | None = None
    random_state: Any = None
    verbose: int = 0

    _stated_in = ("sketch_",)
    _mechanisms: ClassVar[dict[str, type[Any]]]
    _made_last: ClassVar[str]
    _parameter_constraints = PrivateEstimatorMixin._parameter_constraints | ROW_BOUNDS

    @abstractmethod
    def _make(self, rng: np.random.Generator) -> None:
        """Make the sampler from what `_store` has kept: it follows from releases and `rng`."""

    def _store(self, mechanism: Any, release: MechanismResult, X: Any) -> None:
        """Keep the result of the mechanism, and whether X was a DataFrame."""
        if release.value is not None:
            self._keep(release.value)
        self.__dict__.update(release.attributes)
        self.mechanism_, self.bounds_ = mechanism, release.bounds
        self.privacy_spent_, self._frame_out = release.privacy_spent, isinstance(X, pd.DataFrame)
        self.reliability_ = release.reliability
        if not release.foreseen:
            self.reliability_.warn(type(self).__name__)

    def _keep(self, value: Any) -> None:
        """Keep the released value under its public name."""
        setattr(self, _KEPT_AS.get(type(value), "releases_"), value)

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return rows and labels as the mechanism of a release is given them, for audits."""
        moments = getattr(self, "moments_", None)
        return super()._seen_by(release, X, y) if moments is None else moments._seen_by(X, y)

    def _ready(self, random_state: Any) -> np.random.Generator:
        """Return a generator; complete a fit that was interrupted after its release."""
        check_is_fitted(self)
        rng = solver_generator(random_state)
        if not hasattr(self, self._made_last):
            self._make(rng)
        return rng


def like_input(estimator: Any, rows: np.ndarray) -> Any:
    """Return rows as a DataFrame if the estimator was fitted on one."""
    if not estimator._frame_out:
        return rows
    return pd.DataFrame(rows, columns=getattr(estimator, "feature_names_in_", None))
