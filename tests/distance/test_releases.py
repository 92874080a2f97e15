"""What was published is remembered on disk: a repeated request costs once."""

import os
import sqlite3
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from skdpot import PrivacyBudget
from skdpot.distance.messages import SketchRequest
from skdpot.distance.party import Party
from skdpot.distance.remote import ReleaseFile, answer
from skdpot.exceptions import LedgerError, MessageError, ProtocolRefusedError

X = np.random.default_rng(4411).uniform(-1, 1, (60, 2))


def request(seed=0):
    rng = np.random.default_rng(seed)
    return SketchRequest.draw(2, n_projections=4, n_bins=8, bounds=(-1, 1), rng=rng).to_bytes()


def never():
    raise AssertionError("The release was made again.")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "releases.sqlite"


@pytest.fixture
def budget(tmp_path):
    return PrivacyBudget(1.5, ledger=tmp_path / "ledger.sqlite")


def test_a_release_is_made_once_and_readable_by_its_owner_only(path):
    assert ReleaseFile(path).answer("north", b"request", lambda: b"\x00noisy") == b"\x00noisy"
    assert ReleaseFile(path).answer("north", b"request", never) == b"\x00noisy"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    # Other parties and requests get releases of their own.
    for party, asked in (("south", b"request"), ("north", b"other"), ("northr", b"equest")):
        assert ReleaseFile(path).answer(party, asked, lambda: b"second") == b"second"


@pytest.mark.parametrize("error", [ValueError("no"), OSError("disk"), LedgerError("no ledger")])
def test_nothing_is_kept_when_a_release_fails(path, error):
    def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        ReleaseFile(path).answer("north", b"request", fail)
    assert caught.value is error
    assert ReleaseFile(path).answer("north", b"request", lambda: b"now") == b"now"


def test_of_two_at_a_time_one_makes_the_release(path):
    ReleaseFile(path).answer("north", b"earlier", lambda: b"other")
    made, both = [], threading.Barrier(2)

    def make():
        made.append(1)
        time.sleep(0.5)  # time enough for the other one to look
        return str(len(made)).encode()

    def ask(_):
        both.wait(10)
        return ReleaseFile(path).answer("north", b"request", make)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, range(2))) == [b"1", b"1"]
    assert made == [1]


def test_a_release_that_cannot_be_kept_is_not_sent(path, monkeypatch):
    ReleaseFile(path).answer("north", b"request", lambda: b"first")
    real = sqlite3.connect

    class Full(sqlite3.Connection):
        def execute(self, statement, *parameters):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(statement, *parameters)

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, factory=Full, **k))
    with pytest.raises(LedgerError, match="cannot be used.*disk is full"):
        ReleaseFile(path).answer("north", b"other", lambda: b"lost")


def test_foreign_files_are_left_alone(path, budget):
    path.write_bytes(b"something else, long enough to be no database at all" * 50)
    before = path.read_bytes()
    missing = path.parent / "missing" / "file"
    for place, text in (
        (path, "cannot be used"),
        (budget.ledger, "no intact file of releases"),
        (missing, "cannot be created"),
    ):
        with pytest.raises(LedgerError, match=text):
            ReleaseFile(place).answer("north", b"request", never)
    assert path.read_bytes() == before


def test_repeated_requests_cost_once_and_others_again(budget):
    def asked(seed):
        # A new party each time: what a process remembers ends with it.
        return answer(
            Party("north", X, epsilon=0.5, budget=budget), "publish_sketch", request(seed)
        )

    assert len({asked(seed) for seed in (0, 0, 1, 0)}) == 2
    assert len(budget.history()) == 2
    assert Path(f"{budget.ledger}.releases").exists()
    # A party that left the protocol shows no old release.
    left = Party("north", X, allows=("triangle",), budget=budget)
    with pytest.raises(ProtocolRefusedError, match="does not take part"):
        answer(left, "publish_sketch", request())


def reviewed(message):
    assert isinstance(message, SketchRequest)
    raise MessageError("Not these bounds.")


FEW = (MessageError, "and nothing else")
REFUSED = {
    **{name: (name, {}, *FEW) for name in ("values_against", "budget")},
    "fraction_request": ("fraction_request", {"allows": ("sliced", "triangle")}, *FEW),
    # One that would forget what it spends.
    "no budget": ("publish_sketch", {"budget": None}, ProtocolRefusedError, "ledger='<path>'"),
    "temporary": (
        "publish_sketch", {"budget": PrivacyBudget(1.0)}, ProtocolRefusedError, "ledger='<path>'",
    ),
    "reviewed": ("publish_sketch", {}, MessageError, "Not these bounds"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_costs_nothing(case, budget):
    question, options, error, text = REFUSED[case]
    party = Party("north", X, **{"budget": budget} | options)
    with pytest.raises(error, match=text):
        answer(party, question, request(), review=reviewed if case == "reviewed" else None)
    assert party.privacy_spent == ()
    assert party.budget is None or len(party.budget.history()) == 0
