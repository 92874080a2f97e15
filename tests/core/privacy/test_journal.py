"""Fits that fail, are interrupted or killed after their charge, and are resumed without a second.

What anyone can have seen of an attempt is returned bit for bit, and what nobody has seen is drawn
anew: for a failure at every release, and a process killed at every statement of its ledger.
"""

import os
import pickle
import signal
import sqlite3
import threading
from contextlib import closing, contextmanager
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

from skdpot import PrivacyBudget, PrivateScaler, SlicedSketch
from skdpot._utils.calls import calling, repeating
from skdpot._utils.parameters import fit_context
from skdpot._utils.streams import spawn_streams
from skdpot.exceptions import LedgerError, PrivacyWarning, charges_before
from skdpot.privacy import charge, journal
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.events import GaussianEvent
from skdpot.privacy.ledger import Ledger
from skdpot.release import gate
from skdpot.release.gate import forgotten, pass_gate, record_releases
from skdpot.release.releases import Release
from tests.contract.ledger_faults import forked, status_of

ROWS = np.random.default_rng(4).normal(size=(400, 2)) * [1.0, 30.0]
N_RELEASES = 5  # of a scaler without bounds


class FailureError(Exception):
    """What goes wrong in these tests."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def budget(path):
    return PrivacyBudget(3.0, ledger=path)


def scaler(budget, **options):
    return PrivateScaler(**{"epsilon": 2.0, "budget": budget} | options)


def values(releases):
    return [np.asarray(release.value).tobytes() for release in releases]


def fitted(estimator, X=ROWS):
    """Return what is released."""
    with record_releases() as releases:
        estimator.fit(X)
    return values(releases)


@contextmanager
def failing(place, monkeypatch, error=FailureError):
    """Fail when release number `place` is due, counted from 0; the last one fails after it."""
    keep, seen = gate.kept_value, []

    def failing_keep(*given):
        if len(seen) == place:
            raise error
        seen.append(np.asarray(value := keep(*given)).tobytes())
        return value

    with monkeypatch.context() as patch:
        patch.setattr(gate, "kept_value", failing_keep)
        caught = []
        try:
            yield seen, caught
        except error as found:
            caught.append(found)
    assert caught


def failed(budget, monkeypatch, place=2, **options):
    with failing(place, monkeypatch) as (seen, _):
        scaler(budget, **options).fit(ROWS)
    return seen


def n_rows(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM releases").fetchone()[0]


# --- what a second attempt gets ------------------------------------------------------------------


@pytest.mark.parametrize("error", [FailureError, KeyboardInterrupt])
@pytest.mark.parametrize("place", range(N_RELEASES))
def test_a_failure_at_every_release_is_resumed(place, error, budget, path, monkeypatch):
    with failing(place, monkeypatch, error) as (seen, caught):
        scaler(budget).fit(ROWS)
    [note] = charges_before(caught[0])
    assert f"keeps {place} releases" in note
    assert "budget.resume()" in note
    assert budget.history()["open"].tolist() == [True]
    budget = pickle.loads(pickle.dumps(budget))
    with budget.resume():
        found = fitted(scaler(budget))
    assert len(found) == N_RELEASES
    assert found[:place] == seen
    assert budget.history()["open"].tolist() == [False]
    assert n_rows(path) == 0
    with pytest.raises(LedgerError, match="none is open"), budget.resume():
        pass
    fresh = fitted(scaler(budget, epsilon=1.0))
    assert not set(fresh) & set(found)
    assert len(budget.history()) == 2


def test_a_third_attempt_gets_what_both_have_released(budget, monkeypatch):
    seen = failed(budget, monkeypatch, 1)
    with failing(3, monkeypatch) as (more, _), budget.resume():
        scaler(budget).fit(ROWS)
    assert more[:1] == seen
    with budget.resume():
        assert fitted(scaler(budget))[:3] == more
    assert len(budget.history()) == 1


def killed_at(place, budget, write):
    """Fit, write down what could be used, and be killed at a statement."""
    connect, left, keep = sqlite3.connect, [place], gate.kept_value

    class Killer(sqlite3.Connection):
        def execute(self, *given):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().execute(*given)

    def told(*given):
        value = keep(*given)
        os.write(write, np.asarray(value).tobytes())
        return value

    sqlite3.connect, gate.kept_value = (lambda *a, **k: connect(*a, factory=Killer, **k)), told
    scaler(budget).fit(ROWS)


def test_a_process_killed_at_every_statement_shows_nothing_that_is_drawn_again(path):
    """What a child has seen comes back; it writes each release down as soon as it can use it."""
    n_killed, n_kept = 0, []
    for place in range(1, 90, 4):
        ledger, (read, write) = path.with_name(f"ledger{place}"), os.pipe()
        budget = PrivacyBudget(3.0, ledger=ledger)

        status = status_of(forked(partial(killed_at, place, budget, write)))
        os.close(write)
        with os.fdopen(read, "rb") as file:
            seen = file.read()
        charged = budget.history()["open"].tolist()
        n_killed += status < 0
        if charged == [True]:
            with budget.resume():
                found = fitted(scaler(budget))
            assert b"".join(found).startswith(seen)
            assert len(budget.history()) == 1
            n_kept.append(len(seen))
        else:
            assert charged in ([], [False])
            assert bool(seen) == (charged == [False])
    assert n_killed > 8
    assert len(set(n_kept)) == N_RELEASES + 1


def test_noise_of_a_resumed_fit_is_new_and_what_is_public_is_not(budget, monkeypatch):
    """Also with a seed, from which noise that is out would be drawn again."""
    with pytest.warns(PrivacyWarning, match="random_state"):
        whole = fitted(scaler(budget, epsilon=1.0, random_state=3))
    with pytest.warns(PrivacyWarning, match="random_state"):
        seen = failed(budget, monkeypatch, epsilon=1.0, random_state=3)
    assert seen == whole[:2]
    with pytest.warns(PrivacyWarning, match="random_state"), budget.resume(2):
        found = fitted(scaler(budget, epsilon=1.0, random_state=3))
    assert found[:2] == whole[:2]
    assert not set(found[2:]) & set(whole)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"epsilon": 1.0}, "another event"),
        ({"delta": 1e-6}, "another event"),
        ({"random_state": 0}, "another event"),
        ({"budget": None}, "another budget"),
        ({"budget": PrivacyBudget(3.0)}, "another budget"),
        ({"X": ROWS[1:]}, "another event"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*makes the privacy noise")
def test_another_fit_is_refused_and_not_charged(change, match, budget, monkeypatch):
    seen = failed(budget, monkeypatch)
    options = dict(change)
    other = clone(scaler(budget))
    X = options.pop("X", ROWS)
    with pytest.raises(LedgerError, match=match), budget.resume():
        other.set_params(**options).fit(X)
    assert len(budget.history()) == 1
    with budget.resume():
        assert fitted(scaler(budget))[:2] == seen


def test_two_attempts_at_once_make_one_release(budget, monkeypatch):
    """The second to come gets an error in the place of its release."""
    seen, done = failed(budget, monkeypatch), []

    def other():
        with budget.resume():
            done.extend(fitted(scaler(budget)))

    with budget.resume():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with pytest.raises(LedgerError, match="Another process goes on"):
            scaler(budget).fit(ROWS)
    assert done[:2] == seen
    assert len(budget.history()) == 1


TAMPERED = {
    "cut": "UPDATE releases SET data = substr(data, 1, length(data) - 9) WHERE place = 1",
    "bits": "UPDATE releases SET data = substr(data, 1, 99) || x'00' || substr(data, 101)",
    "no blob": "UPDATE releases SET data = 'pickle' WHERE place = 1",
    "a pickle": "UPDATE releases SET data = x'80049500' WHERE place = 1",
    "a gap": "DELETE FROM releases WHERE place = 1",
    "no plan": "DELETE FROM releases WHERE place = 0",
    "exchanged": "UPDATE releases SET place = 3 - place WHERE place > 0 AND place < 3",
    "as of another fit": "UPDATE releases SET data = (SELECT data FROM releases WHERE place = 0)",
}


@pytest.mark.parametrize("how", TAMPERED)
def test_damage_is_refused(how, budget, path, monkeypatch):
    failed(budget, monkeypatch)
    with closing(sqlite3.connect(path)) as connection:
        if how == "exchanged":
            connection.execute("UPDATE releases SET place = 7 WHERE place = 1")
            connection.execute("UPDATE releases SET place = 1 WHERE place = 2")
            connection.execute("UPDATE releases SET place = 2 WHERE place = 7")
        else:
            connection.execute(TAMPERED[how])
        connection.commit()
    match = "damaged|other public facts"
    with pytest.raises(LedgerError, match=match), budget.resume():
        scaler(budget).fit(ROWS)
    assert len(budget.history()) == 1


# --- what is not kept ----------------------------------------------------------------------------


def test_more_than_fits_is_not_kept_and_the_error_says_so(budget, path, monkeypatch):
    monkeypatch.setattr(journal, "_MOST_RELEASES", 2)
    fitted(scaler(budget, epsilon=1.0))
    with failing(4, monkeypatch) as (_, caught):
        scaler(budget, epsilon=1.0).fit(ROWS)
    assert "are lost. They were too many" in charges_before(caught[0])[0]
    assert n_rows(path) == 0
    assert not budget.history()["open"].any()


def test_a_disk_that_fills_up_leaves_a_fit_that_goes_on_alone(budget, path, monkeypatch):
    def full(*given):
        raise LedgerError("The disk is full.")

    monkeypatch.setattr(Ledger, "keep", full)
    assert len(fitted(scaler(budget))) == N_RELEASES
    assert n_rows(path) == 0
    monkeypatch.setattr(Ledger, "close", full)  # what is kept cannot be withdrawn either
    with pytest.raises(LedgerError, match="disk is full"):
        fitted(scaler(budget, epsilon=1.0))


def test_trials_of_a_search_are_in_no_file(budget, path):
    """Only the best one is paid for: what was kept before goes, and nothing comes."""

    class Search(PrivateScaler):
        @fit_context(prefer_skip_nested_validation=True)
        def fit(self, X, y=None):
            scaler(budget, epsilon=0.5).fit(X)
            charge(self, event, n_samples=len(X), assumptions=())
            pass_gate(Release("sum", 1.5, sigma=1e3, event=event))
            assert n_rows(path) == 2
            with forgotten():
                assert n_rows(path) == 0
                scaler(budget, epsilon=0.5).fit(X)
                pass_gate(Release("score", 1.5, sigma=1e3, event=event))
                assert n_rows(path) == 0
            pass_gate(Release("sum", 2.5, sigma=1e3, event=event))
            assert n_rows(path) == 0
            return self

    event = GaussianEvent(sigma=1e3, sensitivity=1.0)
    Search(epsilon=1.0, budget=budget).fit(ROWS)
    assert budget.history()["open"].tolist() == [False] * 3


@pytest.mark.parametrize("most", [0, 2])
def test_one_attempt_alone_goes_on_without_being_kept(most, budget, monkeypatch):
    """What two attempts would draw after the last kept release would be paid for once."""
    monkeypatch.setattr(journal, "_MOST_RELEASES", most)
    with failing(most, monkeypatch):
        scaler(budget).fit(ROWS)
    with budget.resume():
        with budget.resume():
            assert len(fitted(scaler(budget))) == N_RELEASES
        with pytest.raises(LedgerError, match="Another process goes on"):
            scaler(budget).fit(ROWS)
    assert len(budget.history()) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, LedgerError])
def test_a_stream_that_goes_on_is_not_resumed(error, budget, monkeypatch):
    """Its table is released by another call, which nothing is kept of."""

    def fail(*given):
        raise error

    def stream():
        return SlicedSketch(epsilon=1.0, bounds=(-9, 9), n_bins=8, budget=budget)

    first = stream()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "close", fail)
        with pytest.raises(error):
            first.partial_fit(ROWS[:200], n_samples=400)
    assert not hasattr(first, "privacy_spent_")
    stream().partial_fit(ROWS[:200], n_samples=400).partial_fit(ROWS[200:])
    assert budget.history()["open"].tolist() == [True, False]  # of the first nothing was released


def test_seeds_of_trials_do_not_follow_from_the_one_in_the_file():
    """The place of a seed in its sequence would be the index of the best trial."""

    def drawn():
        return float(spawn_streams(None, "trial").public.random())

    def numbers(n_trials):
        with repeating(7, 0), calling():
            first = drawn()
            with forgotten():
                trials = [drawn() for _ in range(n_trials)]
            return first, trials, drawn()

    first, second = numbers(1), numbers(3)
    assert first[0] == second[0]
    assert first[2] == second[2]
    assert len({*first[1], *second[1], first[0], first[2]}) == 6


def test_without_noise_nothing_is_written(path, monkeypatch):
    opened = []
    monkeypatch.setattr(journal.Journal, "keep", lambda *given: opened.append(given))
    scaler(PrivacyBudget(np.inf, ledger=path), epsilon=np.inf).fit(ROWS)
    assert not opened


@pytest.mark.parametrize("own", [None, PrivacyBudget(100.0)])
def test_without_a_file_the_error_says_that_epsilon_is_spent(own, monkeypatch):
    def failing_gate(release):
        raise FailureError

    for module in ("skdpot.release.value_histogram", "skdpot.release.histogram"):
        monkeypatch.setattr(f"{module}.pass_gate", failing_gate)
    with pytest.raises(FailureError) as caught:
        scaler(own).fit(ROWS)
    [note] = charges_before(caught.value)
    assert "epsilon = 2 at delta = 1e-05 was spent" in note
    assert "are lost. A PrivacyBudget with `ledger=`" in note


def test_releases_are_synchronised_before_they_pass(budget, monkeypatch):
    """As charges are: with less a power cut could undo a release that was seen."""
    modes, opened = [], ledger_module.sqlite3.connect

    class Spy(sqlite3.Connection):
        def execute(self, statement, *given):
            if statement.startswith("INSERT INTO releases"):
                modes.append(super().execute("PRAGMA synchronous").fetchone()[0])
            return super().execute(statement, *given)

    monkeypatch.setattr(
        ledger_module.sqlite3, "connect", lambda *a, **k: opened(*a, factory=Spy, **k)
    )
    fitted(scaler(budget))
    assert modes == [3] * (1 + N_RELEASES)  # EXTRA, the plan included
