"""Every noise that a fit draws is in the event that it was charged, and as often as it is drawn.

Whatever module asks for noise is watched, and every release names what was charged. One that nobody
accounted for shows as a scale that the event does not know, one that is made too often as a number
of draws that it does not. Everything that is released is exactly on the lattice of its noise.
"""

import math
import sys
import warnings
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from skdpot import PrivacyBudget
from skdpot.exceptions import PrivacyWarning
from skdpot.privacy.noise import noise_lattice
from skdpot.privacy.thresholds import ThresholdedCountsEvent
from skdpot.release.comparison import first_difference
from skdpot.release.gate import record_releases
from skdpot.tables.cells import ROUNDS
from skdpot.tables.marginal_release import largest_change
from tests.contract.fits import FITS, ROWS, SEARCHES, TABLES, N, swept

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
    pytest.mark.usefixtures("few_synthetic_rows"),
]
COSTS = [name for name in FITS if name != "encoder, all known"]
ONE_EACH = [name for name in COSTS if name not in SEARCHES and "time" not in name]
ONE_EACH = [name for name in ONE_EACH if name.count(",") < 2 and "batches" not in name]
ONE_EACH += ["search, release"]


def hostile_rows(rows):
    """Rows whose last bits differ in every way that floating point knows."""
    rng = np.random.default_rng(3)
    values = np.array(
        "0.1 0.10000000000000001 0.10000000000000002 5e-324 -5e-324 -0.0 0.0 1e-300 1e308 "
        "-1e308 1.0 1.0000000000000002 -1.0 0.3 0.30000000000000004 1.1e-16 1e16".split(),
        dtype=float,
    )
    hostile = values[rng.integers(0, len(values), rows.shape)]
    return np.where(rng.random(rows.shape) < 0.3, rng.uniform(-1, 1, rows.shape), hostile)


class Seen(NamedTuple):
    """A fit, what it has released, the scales of all noise, and sums with noise."""

    fitted: Any
    releases: list[Any]
    drawn: Counter[str]
    sums: list[tuple[np.ndarray, float]]


def everywhere(patch, name, spy):
    """Watch a function wherever it was imported; the spy is given it, and what it is given."""
    for module in [m for key, m in sys.modules.items() if key.split(".")[0] == "skdpot"]:
        if (original := vars(module).get(name)) is not None:
            patch.setattr(module, name, lambda *a, f=original, **k: spy(f, *a, **k))


def scales(numbers):
    return Counter({f"{sigma:.9g}": n for sigma, n in numbers.items()})


@cache
def recorded(name):
    """Fit, with seeds of numpy and torch that make no noise reproducible."""
    fit, drawn, sums = FITS[name], Counter(), []

    def draw(original, sigma, *args, **options):
        drawn[sigma] += 1
        return original(sigma, *args, **options)

    def add(original, values, noise, stream):
        sums.append((original(values, noise, stream), noise.lattice))
        return sums[-1][0].copy()  # callers may write in it

    with pytest.MonkeyPatch.context() as patch, record_releases() as releases:
        for of in ("lattice_noise", "gaussian_noise"):
            everywhere(patch, of, draw)
        everywhere(patch, "noisy_sum", add)
        np.random.seed(0)  # noqa: NPY002, TID251
        torch.manual_seed(0)  # noqa: TID251
        # Much epsilon, so that bounds are found; everything is random, and nothing depends on it.
        rows = hostile_rows(fit.rows) if name in ROWS else fit.rows
        fitted = fit.chosen(epsilon=8.0).fit(rows, **fit.given)
    return Seen(fitted, releases, scales(drawn), sums)


def expected_scales(seen):
    """The scale of all noise that a fit of rows was charged for, and how often it is drawn."""
    expected = Counter()
    for event in seen.fitted.privacy_spent_.event.phases:
        # A warm start adds up the rows of each of four times.
        expected[event.sigma] += event.n_steps * (4 if event.label == "Warm start" else 1)
    return scales(expected)


@pytest.mark.parametrize("name", swept(name for name in ROWS if name != "paths, bins of time"))
def test_every_noise_is_charged_as_often_as_it_is_drawn(name):
    seen = recorded(name)
    phases = seen.fitted.privacy_spent_.event.phases
    assert seen.releases
    assert all(event in phases for release in seen.releases for event in release.event.phases)
    assert seen.drawn == expected_scales(seen)


@pytest.mark.parametrize("name", swept(TABLES))
def test_every_noise_of_a_table_is_charged(name):
    """What the schema leaves open, then tables of counts, and sums of how far these are off."""
    seen, n_columns = recorded(name), FITS[name].rows.shape[1]
    phases = seen.fitted.privacy_spent_.event.phases if seen.drawn else ()
    assert all(event in phases for release in seen.releases for event in release.event.phases)
    tables = [r for r in seen.releases if r.kind in ("marginals", "misfits", "choices")]
    kinds = ["marginals", "misfits", "marginals", "choices", "misfits", "marginals"]
    kinds = kinds if n_columns > 2 else ["marginals"] * n_columns
    if any(phase.label == "Counts of columns on a scale, in coarse cells" for phase in phases):
        kinds = ["marginals"] * len(ROUNDS) + kinds
    kinds = kinds if "synth" in name else []
    before, after = phases[: len(phases) - len(kinds)], phases[len(phases) - len(kinds) :]
    expected = Counter()
    for event in before:
        chosen = isinstance(event, ThresholdedCountsEvent)
        expected[event.sigma] += event.n_columns if chosen else event.n_steps
    for event, kind in zip(after, kinds, strict=True):
        if not tables or tables[0].kind != kind:  # a tree that gains nothing is not counted
            continue
        release = tables.pop(0)
        weight = 2 if name.endswith("rows") else 1  # of the rows of a person
        if kind == "choices":  # of triples, of which a row moves two by eight against each other
            assert len(release.value) <= event.n_steps
            assert event.sensitivity / event.sigma == pytest.approx(8 * weight / release.sigma)
            continue
        if kind == "misfits":
            sigmas = [release.sigma]
            squared_mu = sum(largest_change(m) ** 2 for m in release.facts["marginals"])
            squared_mu *= (weight / release.sigma) ** 2
        else:
            sigmas = list(release.sigma)
            squared_mu = sum(2 * (weight / sigma) ** 2 for sigma in sigmas)
        expected.update(sigmas)
        assert squared_mu == pytest.approx(event.sensitivity**2 / event.sigma**2)
    assert not tables
    assert seen.drawn == scales(expected)
    assert bool(seen.drawn) == (name in COSTS)


@pytest.mark.parametrize("name", swept(ONE_EACH))
def test_global_seeds_do_not_repeat_the_noise(name):
    """Only random_state makes noise reproducible, and then it warns."""
    first = recorded(name).releases
    np.random.seed(0)  # noqa: NPY002, TID251
    torch.manual_seed(0)  # noqa: TID251
    with record_releases() as second:
        FITS[name].fitted(epsilon=8.0)
    assert first_difference(first[0].value, second[0].value) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_EACH)
def test_a_delta_of_one_over_n_is_warned_of_before_the_charge(name):
    budget = PrivacyBudget(20.0, delta=1 / N)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r".*delta = 0.00333333 is not below one over .* \(300\)")
        with pytest.raises(PrivacyWarning, match="Choose a delta well below 0.003"):
            FITS[name].fitted(epsilon=8.0, delta=1 / N, budget=budget)
    assert budget.history().empty
    with warnings.catch_warnings():  # nothing is said of a smaller one
        warnings.filterwarnings("error", ".*is not below one over")
        FITS[name].fitted(epsilon=8.0, delta=0.99 / N)


# ------------------------------------------------------------------ on which lattice


def assert_on_lattice(values, lattice):
    """Every float is exactly a whole multiple, small enough for floats to hold all multiples."""
    assert math.frexp(lattice)[0] == 0.5
    flat = np.ravel(values)
    assert flat.dtype == np.float64
    for value in flat.tolist():
        units = Fraction(value) / Fraction(float(lattice))
        assert units.denominator == 1, value
        assert abs(units.numerator) < 2**53
    # Zero has two floats, and which one it is would tell where it came from.
    assert not np.signbit(flat[flat == 0]).any()


def on_lattices(release):
    """The values of a release with their lattices; sums are looked at before they are divided."""
    value, lattice = release.value, release.lattice
    if release.kind in ("choices", "gradient", "fit_gradients") or (
        release.kind == "rows" and not lattice
    ):
        return []
    if release.kind == "rows":  # multiples of a public radius, rounded
        radius = release.facts["bounds"].radius
        units = np.rint(value.astype(np.float64) / lattice)
        power = 2.0 ** np.round(np.log2(lattice / radius))
        assert np.array_equal((units * power * radius).astype(np.float32), value)
        return [(units * power, power)]
    if release.kind == "category_counts":
        value = np.array([count for _, count in value])
    if release.kind == "cluster_sums":
        value, counts = value
        weight = release.facts["plan"].count_weight
        # A count is a whole number of these, divided once.
        assert np.array_equal(np.rint(counts * weight) / weight, counts)
    if release.kind in ("marginals", "misfits"):
        parts = (
            zip(value, release.sigma, strict=True)
            if release.kind == "marginals"
            else [(value, release.sigma)]
        )
        return [(part, noise_lattice(sigma, 1 / 16)) for part, sigma in parts]
    return [(value, lattice)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ROWS, *TABLES])
def test_whatever_is_released_is_on_its_lattice(name):
    """The lattice is no coarser than a sixteenth of the noise."""
    seen = recorded(name)
    for values, lattice in [part for one in seen.releases for part in on_lattices(one)] + seen.sums:
        assert_on_lattice(values, lattice)
    gradients = [one for one in seen.releases if "gradient" in one.kind]
    assert len(seen.sums) >= len(gradients)
    hardened = "not hardened" not in str(getattr(seen.fitted, "privacy_spent_", ""))
    assert hardened == ("float" not in name)
