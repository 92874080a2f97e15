"""Files and messages of honest sizes with hostile numbers: refused, or they behave.

Whatever is accepted can be used without a warning, gives finite answers, and states no more privacy
than its noise gives. A request that a party cannot answer costs it nothing.
"""

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.distance.messages import (
    FractionRequest,
    GeodesicMeasure,
    Message,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
)
from skdpot.distance.party import Party
from skdpot.distance.sliced import pairwise_sliced
from skdpot.exceptions import MessageError, PrivacyWarning
from skdpot.privacy.gdp import gdp_delta
from skdpot.release.sketch_record import SketchRecord
from tests.contract.hostile_files import arrays_of, deep_change, facts_of, forged, places

RNG = np.random.default_rng(7002)
ROWS, LABELS = RNG.uniform(-1, 1, (200, 3)), RNG.integers(0, 2, 200)
PUBLIC = RNG.uniform(-1, 1, (30, 3))
REQUEST = SketchRequest.draw(3, n_projections=3, n_bins=8, bounds=(-1, 1), rng=RNG)
SHARES = RNG.dirichlet(np.ones(4))


def sketch(labels=None, groups=None, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        given_parameters = {"projections": np.eye(3), "n_bins": 8} | parameters
        return SlicedSketch(**given_parameters).fit(ROWS, labels, groups=groups)


BOX = {"bounds": (-1, 1)}
SKETCHES = {
    "plain": sketch(**BOX),
    "classes": sketch(LABELS, conditional=True, **BOX),
    "public classes": sketch(LABELS, conditional=True, public_labels=True, **BOX),
    "merged": sketch(**BOX).merge(sketch(epsilon=0.2, **BOX)),
    "private bounds": sketch(),
    "a ball": sketch(norm_bound=2.0),
    "persons": sketch(groups=np.arange(200) // 2, **BOX),
    "no noise": sketch(epsilon=math.inf, **BOX),
    "merged, one without noise": sketch(epsilon=math.inf, **BOX).merge(sketch(**BOX)),
}
MESSAGES = {
    "request": REQUEST,
    "sketch": SketchMessage(Party("north", ROWS).publish_sketch(REQUEST).sketch),
    "reference": ReferenceMeasure(ROWS[:3], None, 0.3, "exact"),
    "geodesic": GeodesicMeasure(ROWS[:4], SHARES),
    "fractions": FractionRequest(ROWS[:4], SHARES, [0.25, 0.5]),
}
FORMATS = {f"sketch, {name}": SketchRecord.of(made).to_bytes() for name, made in SKETCHES.items()}
FORMATS |= {f"message, {name}": made.to_bytes() for name, made in MESSAGES.items()}


def read_sketch(data):
    return SlicedSketch._restored(*SketchRecord.from_bytes(data).restore())


def use_sketch(read):
    for label in read.classes_ if read.conditional else [None]:
        assert np.isfinite(read.quantiles([0.1, 0.9], label=label)).all()
    if not read.conditional:
        assert math.isfinite(read.distance(PUBLIC))
    assert repr(read)
    assert read._repr_html_()
    spent = read.privacy_spent_
    assert spent.for_group(2) >= 0
    if spent.event.is_private and math.isfinite(spent.epsilon):
        mu = spent.event.phases[-1].sensitivity / read.noise_scale_
        assert gdp_delta(spent.epsilon, mu) <= spent.delta * (1 + 1e-5)
    else:
        assert spent.event.is_private or spent.sigma == 0


def use_message(message):
    assert message.reveals
    with suppress(MessageError):  # by who receives it
        if isinstance(message, SketchRequest):
            ask(message)
        elif isinstance(message, SketchMessage):
            compare(message, REQUEST)
        else:
            move(message)


def ask(request):
    """Let a party answer with a sketch; what it refuses costs nothing."""
    budget = PrivacyBudget(math.inf)
    try:
        answer = Party("north", ROWS, budget=budget).publish_sketch(request)
    except MessageError:
        assert len(budget.history()) == 0
        raise
    compare(answer, request)


@dataclass
class Sender:
    """Stands for a party elsewhere, which sends what it likes."""

    message: SketchMessage
    name: str = "north"
    n_features: int = 3

    @property
    def n_samples(self):
        return self.message.record.n_samples

    def publish_sketch(self, request):
        return self.message


def compare(message, request):
    """Estimate the distance of a sketch from that of another party."""
    parties = [Sender(message), Party("south", PUBLIC)]
    result = pairwise_sliced(parties, request, n_simulations=8)
    assert np.isfinite(result.distances).all()
    assert np.isfinite(result.standard_errors()).all(axis=None)


def move(measure):
    """Let a party that agreed to everything answer a measure."""
    party = Party("north", ROWS[:40], allows=("triangle", "fedwad", "values"))
    if isinstance(measure, FractionRequest):
        assert party.distances_at(measure, MESSAGES["reference"]).to_bytes()
        assert party.cost_matrices(measure, MESSAGES["reference"]).to_bytes()
        return
    assert party.interpolate(measure, 0.5).to_bytes()
    assert np.isfinite(party.values_against(measure).values).all()
    if isinstance(measure, GeodesicMeasure):
        assert party.squared_distance_to(measure).to_bytes()


def check(name, data):
    """Read it, and use what is read."""
    read, use = (
        (read_sketch, use_sketch)
        if name.startswith("sketch")
        else (Message.from_bytes, use_message)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrivacyWarning)
        try:
            made = read(data)
        except ValueError as error:
            return len(str(error)) > 20
        use(made)
    return True


NUMBERS = (
    *(0, -1, 1, 2, 0.5, -0.0, 5e-324, 1e-300, 1e-9, 0.999999, 1e9, 1e15, 10**18),
    *(2**53, 2**53 + 1, 2**63 - 1, 1e150, 1e200, 1.7e308, math.inf, math.nan),
)
FACTORS = (-1, 0.5, 2, 1 + 1e-6, 1 - 1e-6, 1e6, 1e-6)


def draw_forgery(good, rng):
    """Return a file in which one number, or all of an array, is another one."""
    facts = facts_of(good)
    ways = [way for way, old in places(facts) if type(old) in (int, float)]
    arrays = {k: a for k, a in arrays_of(good).items() if a.size and a.dtype != np.uint8}
    where = rng.integers(len(ways) + 2 * len(arrays))
    number, factor = NUMBERS[rng.integers(len(NUMBERS))], FACTORS[rng.integers(len(FACTORS))]
    scaled = bool(rng.random() < 0.3)
    if where < len(ways):
        old = dict(places(facts))[ways[where]]
        number = old * factor if scaled else number
        whole = isinstance(old, int) and math.isfinite(number)
        return (
            ways[where],
            number,
            deep_change(facts, ways[where], int(number) if whole else number),
        )
    name = sorted(arrays)[(where - len(ways)) // 2]
    array = arrays[name].copy()
    some = rng.integers(array.size) if rng.random() < 0.7 else slice(None)
    if array.dtype.kind != "f" and not scaled:
        number = int(min(max(number, -(2**63)), 2**63 - 1)) if math.isfinite(number) else -(2**63)
    with np.errstate(all="ignore"):
        array.flat[some] = array.flat[some] * factor if scaled else number
    return name, number, {name: array}


@pytest.mark.parametrize("n", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FORMATS)
def test_a_number_of_any_other_value_is_refused_or_behaves(name, n):
    good, rng = FORMATS[name], np.random.default_rng([n, *name.encode()])
    assert check(name, good)
    for _ in range(n):
        place, number, changed = draw_forgery(good, rng)
        try:
            is_array = isinstance(place, str)
            data = forged(good, arrays=changed) if is_array else forged(good, changed)
        except (ValueError, OverflowError):  # that file cannot be written
            continue
        try:
            assert check(name, data)
        except Exception as error:
            error.add_note(f"{name}: {place} is {number!r}")
            raise


NOISELESS = FORMATS["sketch, no noise"]


@pytest.mark.parametrize(
    ("way", "number", "said"),
    [
        (("spent", "sigma"), 2.0, "states noise of a release without noise"),
        (("spent", "sigma"), 1e-300, "states noise of a release without noise"),
        (("noise_scale",), 5e-324, "noise_scale of the sketch is"),  # its square is 0
        (("noise_scale",), 1e-200, "noise_scale of the sketch is"),
    ],
)
def test_no_release_without_noise_states_noise(way, number, said):
    """Only a sum with a sketch that has noise has some, and no less than any fit draws."""
    with pytest.raises(ValueError, match=said):
        read_sketch(forged(NOISELESS, deep_change(facts_of(NOISELESS), way, number)))
