"""A party: rows that stay where they are, and the messages that it agrees to send."""

import hashlib
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from skdpot._utils.records import MOST_BYTES
from skdpot._utils.rows import validate_rows
from skdpot.distance.messages import (
    FRACTIONS,
    CostMatrices,
    DistanceMessage,
    DistancesAtFractions,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    MeasureMessage,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
    as_fraction,
    as_fractions,
    as_interpolation,
    check_feature_names,
    check_type,
)
from skdpot.exceptions import MessageError, ProtocolRefusedError
from skdpot.ot.data_values import DataValues, calibrated_values
from skdpot.ot.measures import DiscreteMeasure, labelled_measure
from skdpot.ot.plans import TransportPlan, interpolate, optimal_plan, squared_distances
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import privacy_target
from skdpot.release.histogram import sketch_release
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_plan import plan_sketch, projection_half_widths

PROTOCOLS = ("sliced", "triangle", "fedwad", "values")

# Private data by party. They are no attributes: no pickle, copy, repr or debugger's table of fields
# contains rows, and no code that looks through all attributes of an object comes across them.
_DATA: WeakKeyDictionary[object, "PartyData"] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Introduction:
    """Public facts that a party states before anything is asked."""

    name: str
    n_samples: int
    n_features: int
    n_dimensions: int
    allows: tuple[str, ...]

    @staticmethod
    def of(party: "Party") -> "Introduction":
        """Return the introduction of a party of this process."""
        facts = {item.name: getattr(party, item.name) for item in fields(Introduction)}
        return Introduction(**facts)


@dataclass(eq=False, repr=False)
class PartyData:
    """Private state of a party; `declared_measure` has rows with labels or weights."""

    rows: np.ndarray
    declared_measure: DiscreteMeasure | None
    random_state: int | np.random.RandomState | None
    releases: dict[bytes, SketchMessage] = field(default_factory=dict)
    lock: AbstractContextManager[Any] = field(default_factory=threading.RLock)
    last_plan: TransportPlan | None = None

    @property
    def measure(self) -> DiscreteMeasure:
        """What the protocols that are not private compare."""
        with self.lock:
            if self.declared_measure is None:
                self.declared_measure = DiscreteMeasure(self.rows)
            return self.declared_measure


def data_of(owner: object) -> PartyData:
    """Return the data of a party, for its own methods."""
    return _DATA[owner]


def rehearsed(party: "Party", request: SketchRequest) -> SketchMessage:
    """Return the answer to a request with an empty table, so that a failure costs nothing.

    Only public facts are used: no row is read, no noise is drawn and nothing is charged.
    """
    party._check_agreed("sliced")
    data = data_of(party)
    if data.declared_measure is not None and data.declared_measure.masses is not None:
        raise ProtocolRefusedError(
            f"Party {party.name!r} weighs its rows, and a sketch counts every row once."
        )
    party._check_features(request.n_features, party.n_features)
    published = data.releases.get(request.to_bytes())
    if published is not None:
        return published
    if data.releases and party.budget is None:
        raise ProtocolRefusedError(
            f"Party {party.name!r} has published its sketch, for another request. Repeat that one, "
            "or give the party a PrivacyBudget for several."
        )
    target = privacy_target(party.epsilon, party.delta, party.budget)
    plan = plan_sketch(
        target,
        party.n_samples,
        request.n_features,
        rng=np.random.default_rng(0),
        projections=request.directions,
        n_bins=request.n_bins,
        bounds=request.bounds,
    )
    sketch = SlicedSketch(party.epsilon, delta=party.delta, **request.sketch_parameters)
    sketch.bounds_ = request.bounds
    sketch.directions_ = plan.directions
    sketch.half_widths_ = projection_half_widths(request.bounds, sketch.directions_)
    sketch.n_samples_ = party.n_samples
    event = plan.event
    sketch.privacy_spent_ = PrivacySpent(
        target.epsilon, target.delta, event.relation, event, plan.sigma, plan.sensitivity, ()
    )
    empty = np.zeros((1, len(request.directions), request.n_bins))
    sketch.release_ = sketch_release(
        empty,
        sketch.bounds_,
        sketch.directions_,
        sketch.half_widths_,
        plan.strategy,
        sigma=plan.sigma,
        event=plan.event,
    )
    if party.feature_names is not None:
        sketch.feature_names_in_ = np.array(party.feature_names, dtype=object)
    return SketchMessage(sketch)


def release_seed(
    random_state: int | np.random.RandomState | None, party: str, request: SketchRequest
) -> int | None:
    """Return a seed for each release: equal noise would cancel in the difference of two."""
    if random_state is None:
        return None
    drawn = check_random_state(random_state).randint(0, 2**31, size=4)
    digests = (hashlib.sha256(part).digest() for part in (party.encode(), request.to_bytes()))
    words = np.frombuffer(b"".join(digests), dtype="<u4")
    seed = np.random.SeedSequence([*drawn.tolist(), *words.tolist()])
    return int(seed.generate_state(1)[0])


def is_name(value: Any) -> bool:
    """Whether a value can be the name of a party, which is safe to print on a terminal."""
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Party(Introduction):
    """A data holder that takes part in protocols without handing over its rows.

    A party answers requests in the protocols that its owner allows. Each answer is a message that
    depends on the party's own rows and on the request, never on another party. No attribute, repr,
    pickle, copy or error message contains the rows.

    Parameters
    ----------
    name : str
        Name of the party.
    X : array-like of shape (n_samples, n_features)
        Private rows, at least two; copied. Column names are sent with a sketch.
    y : array-like of shape (n_samples,), optional
        Private classes of the rows. If given, "triangle", "fedwad" and "values" compare each row
        together with the mean and the covariance of its class
        (`skdpot.ot.measures.labelled_measure`). "sliced" ignores them.
    masses : array-like of shape (n_samples,), optional
        Weights of the rows; equal by default. Not allowed with "sliced".
    allows : sequence of {"sliced", "triangle", "fedwad", "values"}, default=("sliced",)
        Protocols that the party agrees to. Only "sliced" is private; with "triangle" and
        "fedwad" the server can compute every row. Other protocols are refused before the rows
        are touched.
    epsilon, delta : float, default=1.0, 1e-5
        Privacy parameters of each published sketch. No request can change them.
    budget : PrivacyBudget, optional
        Budget that sketches are charged to. Protocols that are not private are charged to it too,
        and a finite budget refuses them. Without a budget, the party publishes only one sketch.
    covariance : {"full", "diagonal"}, default="full"
        How classes are compared, see `labelled_measure`.
    random_state : int, RandomState or None, default=None
        Seed of the noise, for tests only: anyone who knows it can remove the noise. The noise also
        depends on the name of the party and on the request.

    Attributes
    ----------
    name, allows, epsilon, delta, budget
        As given; `allows` as a tuple.
    n_samples, n_features : int
        Number of rows and of columns.
    n_dimensions : int
        Dimension of the measure that "triangle" and "fedwad" compare; larger with classes.
    feature_names : tuple of str or None
        Column names, if there are any.

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid. The message quotes no value of X, y or masses.

    Privacy
    -------
    The name, the number of rows and of features and the column names are public, also in protocols
    that the party does not allow. Each message states what it reveals (``message.reveals``). A
    party protects against mistakes of honest code; parties that do not trust each other must run in
    separate processes.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.distance.messages import SketchRequest
    >>> from skdpot.distance.party import Party
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(500, 3))
    >>> hospital = Party("hospital", X, epsilon=1.0)
    >>> request = SketchRequest.draw(
    ...     3, n_projections=6, n_bins=16, bounds=(-1, 1), rng=np.random.default_rng(1)
    ... )
    >>> hospital.publish_sketch(request)
    <SketchMessage (1 x 6 x 16 table, epsilon=1, delta=1e-05, ... bytes)>
    >>> hospital
    Party('hospital', n_samples=500, n_features=3, allows=('sliced',))
    """

    feature_names: tuple[str, ...] | None
    epsilon: float
    delta: float
    budget: PrivacyBudget | None

    def __init__(
        self,
        name: str,
        X: Any,
        y: ArrayLike | None = None,
        *,
        masses: Any = None,
        allows: Iterable[str] = ("sliced",),
        epsilon: float = 1.0,
        delta: float = 1e-5,
        budget: PrivacyBudget | None = None,
        covariance: str = "full",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        if not is_name(name):
            raise ValueError(
                "name must be text that is not empty and has printable characters only, got "
                f"{type(name).__name__}."
            )
        allowed = (allows,) if isinstance(allows, str) else tuple(allows)
        if not allowed or any(protocol not in PROTOCOLS for protocol in allowed):
            raise ValueError(f"allows must hold one or more of {PROTOCOLS}, got {allowed}.")
        if not (budget is None or isinstance(budget, PrivacyBudget)):
            raise TypeError(f"budget must be a PrivacyBudget or None, got {type(budget).__name__}.")
        privacy_target(epsilon, delta, budget)  # checks their ranges
        check_random_state(random_state)
        columns = type("Party", (BaseEstimator,), {})()  # takes the names of the columns
        rows = np.array(validate_rows(columns, X, reset=True, min_samples=2))
        names = getattr(columns, "feature_names_in_", None)
        if names is not None:
            check_feature_names(names)
        measure = None if masses is None else DiscreteMeasure(rows, masses)
        if y is not None:
            measure = labelled_measure(rows, y, masses=masses, covariance=covariance)
        _DATA[self] = PartyData(rows, measure, random_state)
        n_samples, n_features = rows.shape
        public = {
            "name": name,
            "n_samples": n_samples,
            "n_features": n_features,
            "n_dimensions": n_features if measure is None else measure.n_features,
            "allows": tuple(protocol for protocol in PROTOCOLS if protocol in allowed),
            "feature_names": None if names is None else tuple(names),
            "epsilon": epsilon,
            "delta": delta,
            "budget": budget,
        }
        for fact, value in public.items():
            object.__setattr__(self, fact, value)

    @property
    def privacy_spent(self) -> tuple[PrivacySpent, ...]:
        """Privacy statements of the published sketches."""
        return tuple(message.statement for message in data_of(self).releases.values())

    def publish_sketch(self, request: SketchRequest) -> SketchMessage:
        """Release a sketch, or return the one that was released for the same request.

        Parameters
        ----------
        request : SketchRequest
            What to measure. The party alone decides about the noise.

        Returns
        -------
        SketchMessage
            A repeated request returns the same release at no cost.

        Raises
        ------
        ProtocolRefusedError
            If the party does not take part in "sliced", weighs its rows, or has no budget for a
            second request. Nothing is charged.
        BudgetExceededError
            If the budget is too small. Nothing is charged.
        MessageError
            If the request is about other features, or the sketch cannot be sent. Nothing is
            charged.

        Privacy
        -------
        As `SlicedSketch.fit`: one Gaussian event at the party's own (epsilon, delta), charged
        before the noise is drawn. The bounds are those of the request, which are public; rows
        outside are clipped.
        """
        self._check_agreed("sliced")
        check_type(request, SketchRequest)
        data, key = data_of(self), request.to_bytes()
        with data.lock:
            rehearsed(self, request)
            if key not in data.releases:
                names = self.feature_names
                sketch = SlicedSketch(
                    self.epsilon,
                    delta=self.delta,
                    budget=self.budget,
                    random_state=release_seed(data.random_state, self.name, request),
                    **request.sketch_parameters,
                )
                rows = data.rows if names is None else pd.DataFrame(data.rows, columns=names)
                data.releases[key] = SketchMessage(sketch.fit(rows))
            return data.releases[key]

    # The answers of the following methods have no noise and reveal rows. Each method first refuses
    # what the owner has not agreed to, then what does not fit, and charges before it reads a row.

    def interpolate(
        self,
        target: ReferenceMeasure | GeodesicMeasure,
        t: float | None = None,
        kind: str | None = None,
    ) -> InterpolatingMeasure:
        """Move the rows a fraction of the way to a measure; **not private**.

        The other methods that are not private raise the same errors and are charged alike.

        Parameters
        ----------
        target : ReferenceMeasure or GeodesicMeasure
            The measure, of "triangle" or of "fedwad".
        t : float, optional
            Fraction of the way, in (0, 1). By default, the fraction in the message.
        kind : {"barycentric", "exact"}, optional
            Kind of interpolating measure. By default, the kind in the message.

        Returns
        -------
        InterpolatingMeasure
            Reveals every row.

        Raises
        ------
        ProtocolRefusedError
            If the party does not take part in the protocol.
        BudgetExceededError
            If the party has a budget with a finite epsilon.
        MessageError
            If the measure has another number of features, or there is no fraction.

        Privacy
        -------
        None: see `InterpolatingMeasure`. A budget is charged with a `NonPrivateEvent`.
        """
        check_type(target, ReferenceMeasure, GeodesicMeasure)
        eta = self._moved(target, t, kind)
        return InterpolatingMeasure(eta.points, eta.masses)

    def fraction_request(
        self,
        reference: ReferenceMeasure,
        t: float,
        fractions: ArrayLike = FRACTIONS,
        kind: str | None = None,
    ) -> FractionRequest:
        """Ask how far another party's interpolating measures are from one's own; **not private**.

        Parameters
        ----------
        reference : ReferenceMeasure
            Measure that both parties move towards.
        t : float
            Fraction of this party, in (0, 1). It is not sent.
        fractions : array-like of shape (n_fractions,), default=(0.25, 0.5, 0.75)
            Fractions of the other party.
        kind : {"barycentric", "exact"}, optional
            Kind of interpolating measure. By default, the kind in the reference.

        Returns
        -------
        FractionRequest
            Reveals every row, up to t.
        """
        check_type(reference, ReferenceMeasure)
        asked = as_fractions(fractions)
        eta = self._moved(reference, t, kind)
        return FractionRequest(eta.points, eta.masses, asked)

    def distances_at(
        self, request: FractionRequest, reference: ReferenceMeasure
    ) -> DistancesAtFractions:
        """Answer a party that keeps its fraction secret; **not private**.

        Parameters
        ----------
        request : FractionRequest
            Interpolating measure of the other party, and the fractions.
        reference : ReferenceMeasure
            Measure that both parties move towards.

        Returns
        -------
        DistancesAtFractions
            W₂² between the interpolating measures of this party and that of the other.
        """
        self._check_question(request, reference)
        moved = self._at_fractions(request, reference, "distances")
        distances = [optimal_plan(eta, request.measure).squared_distance for eta in moved]
        return DistancesAtFractions(request.fractions, np.array(distances))

    def cost_matrices(self, request: FractionRequest, reference: ReferenceMeasure) -> CostMatrices:
        """Return the squared distances between all points, for a union; **not private**.

        Parameters
        ----------
        request : FractionRequest
            Interpolating measure of the other party, and the fractions.
        reference : ReferenceMeasure
            Measure that all parties move towards.

        Returns
        -------
        CostMatrices
            Reveals every row once there are more points than features.
        """
        self._check_question(request, reference)
        # The exact interpolation has fewer points than rows and reference points together.
        is_exact = reference.interpolation == "exact"
        n_rows = self.n_samples + is_exact * len(reference.points)
        n_bytes = 8 * len(request.fractions) * n_rows * len(request.points)
        if n_bytes > MOST_BYTES:
            raise MessageError(
                f"The answer would have {n_bytes} bytes, and a message at most {MOST_BYTES}."
            )
        moved = self._at_fractions(request, reference, "cost matrices")
        costs = np.stack([squared_distances(eta.points, request.points) for eta in moved])
        return CostMatrices(request.fractions, costs, moved[0].masses)

    def squared_distance_to(self, target: GeodesicMeasure) -> DistanceMessage:
        """Return the squared distance to the measure between both parties; **not private**.

        Parameters
        ----------
        target : GeodesicMeasure
            The measure.

        Returns
        -------
        DistanceMessage
            W₂².
        """
        check_type(target, GeodesicMeasure)
        plan = self._plan_to(target.measure, "fedwad", "distance")
        return DistanceMessage(plan.squared_distance)

    def values_against(self, target: DiscreteMeasure | MeasureMessage) -> DataValues:
        """Value the rows by what they add to a distance, for their owner; **not private**.

        This is the client's side of FedBary. The values are not a message: rows follow from the
        values against a few measures.

        Parameters
        ----------
        target : DiscreteMeasure, ReferenceMeasure, GeodesicMeasure or InterpolatingMeasure
            Measure that the rows are compared with.

        Returns
        -------
        DataValues
            One value per row; large positive values are likely noise.

        References
        ----------
        Li, Fu, Pang, "Data valuation and detections in federated learning", CVPR 2024 (FedBary).
        """
        if not isinstance(target, DiscreteMeasure):
            check_type(target, ReferenceMeasure, GeodesicMeasure, InterpolatingMeasure)
            target = target.measure
        plan = self._plan_to(target, "values", "data values")
        return DataValues(calibrated_values(plan.source_potential, plan.source.masses))

    def _check_agreed(self, protocol: str) -> None:
        """Refuse what the owner has not agreed to; every answer begins with this."""
        if protocol not in self.allows:
            raise ProtocolRefusedError(
                f"Party {self.name!r} does not take part in {protocol!r}: it allows "
                f"{self.allows}. Only its owner can allow more, with Party(..., allows=)."
            )

    def _check_features(self, asked: int, compared: int) -> None:
        """Refuse a question about another number of features."""
        if asked != compared:
            raise MessageError(
                f"Party {self.name!r} compares {compared} features, and was asked about {asked}."
            )

    def _check_question(self, request: FractionRequest, reference: ReferenceMeasure) -> None:
        """Refuse a question about interpolating measures that does not fit."""
        self._check_agreed("triangle")
        check_type(request, FractionRequest)
        check_type(reference, ReferenceMeasure)
        self._check_features(request.n_features, self.n_dimensions)

    def _plan_to(self, target: DiscreteMeasure, protocol: str, release: str) -> TransportPlan:
        """Return the optimal plan to a measure, for a release without noise.

        A `NonPrivateEvent` is charged first, which no budget with a finite epsilon admits. The last
        plan is kept for a second question about the same measure.
        """
        self._check_agreed(protocol)
        self._check_features(target.n_features, self.n_dimensions)
        if self.budget is not None:
            self.budget.spend(NonPrivateEvent(), label=f"{protocol}: {release}")
        data = data_of(self)
        with data.lock:
            last = data.last_plan
            if last is None or not (
                np.array_equal(last.target.points, target.points)
                and np.array_equal(last.target.weights, target.weights)
            ):
                data.last_plan = last = optimal_plan(data.measure, target)
            return last

    def _moved(
        self, target: ReferenceMeasure | GeodesicMeasure, t: float | None, kind: str | None
    ) -> DiscreteMeasure:
        """Return the rows moved towards a measure, after all checks."""
        protocol = "triangle" if isinstance(target, ReferenceMeasure) else "fedwad"
        self._check_agreed(protocol)
        t = target.t if t is None else t
        if t is None:
            raise MessageError("The message does not say how far to go: pass t.")
        fraction, kind = as_fraction("t", t), as_interpolation(kind or target.interpolation)
        plan = self._plan_to(target.measure, protocol, "interpolated rows")
        return interpolate(plan, fraction, kind=kind)

    def _at_fractions(
        self, request: FractionRequest, reference: ReferenceMeasure, release: str
    ) -> list[DiscreteMeasure]:
        """Return the rows moved by all fractions of a request, along one plan."""
        plan = self._plan_to(reference.measure, "triangle", release)
        kind = reference.interpolation
        return [interpolate(plan, float(fraction), kind=kind) for fraction in request.fractions]

    def __repr__(self) -> str:
        return (
            f"Party({self.name!r}, n_samples={self.n_samples}, n_features={self.n_features}, "
            f"allows={self.allows})"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError(
            f"Party {self.name!r} cannot be pickled or copied: its rows stay where they are."
        )
