"""Nothing that was recorded has changed: see `tests.golden.record`."""

import numpy._core._multiarray_umath as numpy_core
import pytest

from tests.golden.audits import AUDITS
from tests.golden.events import event_figures
from tests.golden.fits import CASES
from tests.golden.record import differences, event_differences, fit_record, recorded

FITS, ATTACKS = recorded("fits"), recorded("audits")


# What a table releases is the same on every processor. The tree that is fitted to it and the scales
# of its last noise differ in the last bits of `exp`, `**` and matrix products; a particle beside an
# edge then falls in the next bin, and other rows are drawn: post-processing, nothing private.
recorded_here = pytest.mark.skipif(
    not numpy_core.__cpu_features__.get("X86_V4", False),
    reason="recorded on a processor with AVX-512",
)


def check(due, found):
    told = differences(due, found)
    assert not told, "\n".join(told)


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_events(sampled):
    """Epsilon, delta and the rest of every event, over a grid of parameters."""
    due = {n: e for n, e in recorded("events").items() if n.startswith("sampled") == sampled}
    told = event_differences(due, event_figures(sampled))
    assert not told, "\n".join(told)


@pytest.mark.slow
@recorded_here
@pytest.mark.parametrize("case", CASES)
def test_fits(case):
    check(FITS[case], fit_record(CASES[case]))


@pytest.mark.slow
@recorded_here
@pytest.mark.parametrize("case", AUDITS)
def test_audits(case):
    check(ATTACKS[case], fit_record(AUDITS[case]))


def test_nothing_is_left_out():
    assert set(FITS) == set(CASES)
    assert set(ATTACKS) == set(AUDITS)


def test_a_changed_number_is_found():
    """The order of numbers, a number, a text and a missing output each make a difference."""
    due = {"a": [0.0, 1.0, 2.0] * 4, "b": [1.0], "c": "text"}
    due_record = fit_record(lambda: due)
    assert not differences(due_record, fit_record(lambda: dict(due)))
    for change in (
        {"a": [1.0, 0.0, 2.0] * 4},
        {"a": [0.0, 1.0, 2.0001] + [0.0, 1.0, 2.0] * 3},
        {"b": [1.0 + 2e-6]},
        {"b": [float("inf")]},
        {"c": "texts"},
        {"d": 1.0},
    ):
        assert len(differences(due_record, fit_record(lambda changed=change: due | changed))) == 1
    assert differences(due_record, fit_record(lambda: {"a": due["a"]}))
    events = {"sampled": {"epsilon": 1.0, "text": "a"}, "closed": {"epsilon": 1.0}}
    assert not event_differences(events, events)
    for other in (
        events | {"closed": {"epsilon": 1.0 + 2e-9}},
        events | {"sampled": {"epsilon": 1.0 + 2e-8, "text": "a"}},
        events | {"sampled": {"epsilon": 1.0, "text": "b"}},
        events | {"closed": {"epsilon": 1.0, "delta": 0.1}},
        events | {"new": {}},
    ):
        assert len(event_differences(events, other)) == 1
