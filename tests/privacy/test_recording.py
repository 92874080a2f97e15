"""Recording of releases: only inside the block, and of the innermost one."""

import threading

import numpy as np

from skdpot import SlicedSketch
from skdpot.privacy.recording import record, record_releases


def forbidden():
    raise AssertionError("facts were computed though nobody listens")


def test_nothing_is_computed_outside():
    record("sum", forbidden)


def test_records_in_order_and_stops():
    with record_releases() as releases:
        record("sum", lambda: {"value": 1})
        record("count", lambda: {"value": 2})
    record("sum", forbidden)
    assert [(r.kind, r.facts["value"]) for r in releases] == [("sum", 1), ("count", 2)]
    assert repr(releases[0]) == "Release('sum', facts=['value'])"


def test_inner_block_listens_alone():
    with record_releases() as outer:
        with record_releases() as inner:
            record("sum", dict)
        record("count", dict)
    assert [len(inner), len(outer)] == [1, 1]


def test_an_error_ends_the_recording():
    try:
        with record_releases():
            raise RuntimeError
    except RuntimeError:
        record("sum", forbidden)


def test_other_threads_do_not_record():
    with record_releases() as releases:
        thread = threading.Thread(target=record, args=("sum", forbidden))
        thread.start()
        thread.join()
    assert releases == []


def test_private_bounds_are_recorded_with_their_noise():
    X = np.random.default_rng(0).normal(size=(5000, 2))
    with record_releases() as releases:
        SlicedSketch(epsilon=5.0).fit(X)
    histograms = [r for r in releases if r.kind == "histogram"]
    assert histograms
    assert all(r.facts["sigma"] > 0 for r in histograms)
