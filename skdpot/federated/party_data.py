"""Where a party's rows are kept, out of reach of everything that walks over the party."""

import hashlib
import threading
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.utils import check_random_state

from skdpot.exceptions import MessageError, ProtocolRefusedError
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.messages import SketchMessage, SketchRequest
from skdpot.federated.plans import TransportPlan, optimal_plan
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import privacy_target
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.directions import make_directions
from skdpot.slicing.plan import plan_sketch
from skdpot.slicing.rules import projection_half_widths
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["Agreement", "PartyData", "data_of", "keep_data", "rehearsed", "release_seed"]


@dataclass(frozen=True)
class Agreement:
    """What the owner of a party has agreed to."""

    allows: tuple[str, ...]
    epsilon: float
    delta: float
    budget: PrivacyBudget | None
    solver: str
    random_state: Any


@dataclass(eq=False, repr=False)
class PartyData:
    """Everything that a party has; `given_measure` are rows with labels or weights."""

    name: str
    rows: np.ndarray
    feature_names: tuple[str, ...] | None
    terms: Agreement
    given_measure: DiscreteMeasure | None = None
    weighted: bool = False
    releases: dict[bytes, Any] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)
    _last_plan: TransportPlan | None = None

    @property
    def n_dimensions(self) -> int:
        """Dimension of the measure that is compared without privacy."""
        given = self.given_measure
        return int(self.rows.shape[1]) if given is None else given.n_features

    @property
    def measure(self) -> DiscreteMeasure:
        """What the protocols that are not private compare."""
        with self.lock:
            if self.given_measure is None:
                self.given_measure = DiscreteMeasure(self.rows)
            return self.given_measure

    def check_agreed(self, protocol: str) -> None:
        """Refuse what the owner has not agreed to; the first thing in every answer."""
        if protocol not in self.terms.allows:
            raise ProtocolRefusedError(
                f"Party {self.name!r} does not take part in {protocol!r}: it allows "
                f"{self.terms.allows}. Only its owner can allow more, with Party(..., allows=)."
            )

    def check_features(self, asked: int, due: int) -> None:
        """Refuse a question about other features."""
        if asked != due:
            raise MessageError(
                f"Party {self.name!r} compares {due} features, and was asked about {asked}."
            )

    def plan_to(self, target: DiscreteMeasure, protocol: str, release: str) -> TransportPlan:
        """Return the optimal plan to a measure, for a release without noise.

        Charges a `NonPrivateEvent` first, which no budget with a finite epsilon admits. The last
        plan is kept, for a second question about the same measure.
        """
        self.check_agreed(protocol)
        self.check_features(target.n_features, self.n_dimensions)
        if self.terms.budget is not None:
            self.terms.budget.spend(NonPrivateEvent(), label=f"{protocol}: {release}")
        with self.lock:
            last = self._last_plan
            if last is None or not _equal(last.target, target):
                last = optimal_plan(self.measure, target, solver=self.terms.solver)
                self._last_plan = last
            return last


# Data are no attributes of parties. So no pickle, copy, repr or debugger's table of fields,
# and no code that looks through all attributes of an object, comes across rows.
_DATA: WeakKeyDictionary[object, PartyData] = WeakKeyDictionary()


def keep_data(owner: object, data: PartyData) -> None:
    """Keep the data of a party as long as the party lives."""
    _DATA[owner] = data


def data_of(owner: object) -> PartyData:
    """Return the data of a party, for its own methods."""
    return _DATA[owner]


def _equal(first: DiscreteMeasure, second: DiscreteMeasure) -> bool:
    return np.array_equal(first.points, second.points) and np.array_equal(
        first.weights, second.weights
    )


def rehearsed(data: PartyData, request: SketchRequest) -> SketchMessage:
    """Write the answer to a request with an empty table, so that what fails does so for free.

    Public facts only: no row is touched, no noise drawn and nothing charged.
    """
    terms = data.terms
    data.check_agreed("sliced")
    if data.weighted:
        raise ProtocolRefusedError(
            f"Party {data.name!r} weighs its rows, and a sketch counts every row once. Make "
            "a party without masses."
        )
    n_samples, n_features = data.rows.shape
    data.check_features(request.n_features, n_features)
    published: SketchMessage | None = data.releases.get(request.to_bytes())
    if published is not None:
        return published
    if data.releases and terms.budget is None:
        raise ProtocolRefusedError(
            f"Party {data.name!r} has published its sketch, for another request; a "
            "second one would cost epsilon once more. Repeat the first request, or "
            "give the party a PrivacyBudget for several."
        )
    target = privacy_target(terms.epsilon, terms.delta, terms.budget)
    plan = plan_sketch(
        target,
        n_samples,
        request.n_features,
        n_slices=len(request.directions),
        n_bins=request.n_bins,
        bounds=request.bounds,
    )
    statement = PrivacySpent(
        epsilon=target.epsilon,
        delta=target.delta,
        relation=plan.event.relation,
        event=plan.event,
        sigma=plan.sigma,
        sensitivity=plan.sensitivity,
        assumptions=(),
    )
    sketch = SlicedSketch(terms.epsilon, terms.delta, **request.sketch_parameters)
    sketch.bounds_ = request.bounds
    sketch.directions_ = make_directions(
        request.directions, 0, request.n_features, np.random.default_rng(0)
    )
    sketch.half_widths_ = projection_half_widths(request.bounds, sketch.directions_)
    sketch.n_samples_ = n_samples
    sketch.noise_scale_ = plan.sigma
    sketch.privacy_spent_ = statement
    sketch.statistic_ = np.zeros((1, len(request.directions), request.n_bins))
    if data.feature_names is not None:
        sketch.feature_names_in_ = np.array(data.feature_names, dtype=object)
    return SketchMessage(sketch)


def release_seed(random_state: Any, party: str, request: SketchRequest) -> int | None:
    """Return the seed of one release: another party or request gets other noise.

    Equal noise in two releases would cancel in their difference, and leave rows in the clear.
    """
    if random_state is None:
        return None
    given = check_random_state(random_state).randint(0, 2**31, size=4)
    digests = (hashlib.sha256(part).digest() for part in (party.encode(), request.to_bytes()))
    words = np.frombuffer(b"".join(digests), dtype="<u4")
    seed = np.random.SeedSequence([*given.tolist(), *words.tolist()])
    return int(seed.generate_state(1)[0])
