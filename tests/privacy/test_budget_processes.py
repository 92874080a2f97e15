"""PrivacyBudget across processes: races, forks, kills, joblib.

The scripts run in a fresh interpreter that imports the budget once and forks from there, so
that no test forks the test process with its threads.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import textwrap

import pytest
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, cross_val_score

from skdpot.exceptions import BudgetExceededError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import GaussianEvent

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

PREAMBLE = """
import os, pickle, random, signal, sys, time
from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.events import GaussianEvent

def fork(work, *args):
    pid = os.fork()
    if pid:
        return pid
    try:
        work(*args)
    except BaseException:
        os._exit(99)
    os._exit(0)

def until(progress, seconds=20.0):
    end = time.monotonic() + seconds
    while not progress() and time.monotonic() < end:
        time.sleep(0.0002)

def wait(pids):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
"""


@pytest.fixture
def directory(tmp_path):
    """In memory where possible: races and kills do not depend on how long a disk syncs."""
    memory = "/dev/shm"
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as path:
        yield path


def run_script(script, *args):
    """Run `script` after the preamble and return the lines that it prints."""
    source = PREAMBLE + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_fork
def test_eight_processes_race_for_a_hundred_units_five_times(directory):
    lines = run_script(
        """
        # A hundred of these fit, the next does not.
        event = GaussianEvent(sigma=10.0 / PrivacyTarget(1.0, 1e-5).mu_cap * (1 + 1e-9),
                              sensitivity=1.0)

        def race(ready, out, blob, path):
            # Half of them attach by path, half of them use the pickle.
            budget = PrivacyBudget(1.0, ledger=path) if blob is None else pickle.loads(blob)
            os.read(ready, 1)
            for _ in range(13):
                try:
                    budget.spend(event)
                except BudgetExceededError:
                    continue
                os.write(out, b"x")

        for k in range(5):
            path = os.path.join(sys.argv[1], f"ledger-{k}")
            budget = PrivacyBudget(1.0, ledger=path)
            blob = pickle.dumps(budget)
            out = os.open(path + ".granted", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            ready, start = os.pipe()
            pids = [fork(race, ready, out, blob if i % 2 else None, path) for i in range(8)]
            os.write(start, b"12345678")
            assert wait(pids) == [0] * 8
            print(os.path.getsize(path + ".granted"), len(budget.history()),
                  budget.epsilon_spent() <= 1.0, budget.can_afford(event))
        """,
        directory,
    )
    assert lines == ["100 100 True False"] * 5


@needs_fork
def test_a_kill_at_any_moment_never_leaves_a_release_without_its_charge(directory):
    lines = run_script(
        """
        event = GaussianEvent(sigma=1e4, sensitivity=1.0)
        path = os.path.join(sys.argv[1], "ledger")
        releases = os.open(path + ".releases", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        random.seed(0)

        def fits():
            budget = PrivacyBudget(5.0, ledger=path)
            while True:
                budget.spend(event)
                os.write(releases, b"x")

        def released():
            return os.fstat(releases).st_size

        rounds = 40
        for _ in range(rounds):
            goal = released() + random.randint(0, 3)
            pid = fork(fits)
            until(lambda: released() >= goal)
            time.sleep(random.uniform(0.0, 0.005))
            os.kill(pid, signal.SIGKILL)
            assert wait([pid]) == [-signal.SIGKILL]
        budget = PrivacyBudget(5.0, ledger=path)
        charges = len(budget.history())
        # A kill between the charge and the release wastes the charge: at most one a round.
        print(released() > rounds, released() <= charges <= released() + rounds)
        budget.spend(event)
        print(len(budget.history()) - charges, budget.epsilon_spent() < 5.0)
        """,
        directory,
    )
    assert lines == ["True True", "1 True"]


@needs_fork
def test_a_kill_while_a_ledger_is_made_leaves_all_or_nothing(directory):
    lines = run_script(
        """
        random.seed(1)

        def create():
            for k in range(10**6):
                PrivacyBudget(1.0, ledger=os.path.join(sys.argv[1], f"{os.getpid()}-{k}"))

        def made():  # the drafts of killed processes are hidden files
            return [name for name in os.listdir(sys.argv[1]) if not name.startswith(".")]

        for _ in range(15):
            goal = len(made()) + random.randint(0, 2)
            pid = fork(create)
            until(lambda: len(made()) >= goal)
            time.sleep(random.uniform(0.0, 0.01))
            os.kill(pid, signal.SIGKILL)
            assert wait([pid]) == [-signal.SIGKILL]
        for name in made():
            PrivacyBudget(1.0, ledger=os.path.join(sys.argv[1], name)).remaining()
        print(len(made()) > 8)
        """,
        directory,
    )
    assert lines == ["True"]


@needs_fork
def test_the_temporary_ledger_goes_with_its_process_but_not_with_a_fork():
    path, *lines = run_script(
        """
        budget = PrivacyBudget(1.0)
        print(budget.ledger, flush=True)
        pid = os.fork()
        if pid == 0:
            budget.spend(GaussianEvent(sigma=20.0, sensitivity=1.0), label="child")
            sys.exit(0)  # runs the child's exit handlers
        print(wait([pid]), os.path.exists(budget.ledger), budget.history()["label"].tolist())
        """
    )
    assert lines == ["[0] True ['child']"]
    assert not os.path.exists(os.path.dirname(path))


def test_importing_the_budget_does_not_import_torch():
    assert run_script("print('torch' in sys.modules)") == ["False"]


def test_an_unpickled_budget_of_another_process_spends_from_the_same_ledger(tmp_path):
    budget = PrivacyBudget(1.0)
    (tmp_path / "budget.pickle").write_bytes(pickle.dumps(budget))
    lines = run_script(
        """
        budget = pickle.load(open(sys.argv[1], "rb"))
        budget.spend(GaussianEvent(sigma=20.0, sensitivity=1.0), label="elsewhere")
        print(pickle.loads(pickle.dumps(budget)) is budget)
        """,
        tmp_path / "budget.pickle",
    )
    assert lines == ["True"]
    assert budget.history()["label"].tolist() == ["elsewhere"]
    assert os.path.exists(budget.ledger)  # the other process did not remove it


def make_classifier(budget, event):
    """Return an estimator whose fits spend; a local class travels to workers by value."""

    class Spender(ClassifierMixin, BaseEstimator):
        def __init__(self, budget=None, event=None, size=1):
            self.budget = budget
            self.event = event
            self.size = size

        def fit(self, X, y):
            self.budget.spend(self.event, label=f"size={self.size}")
            self.classes_ = [0, 1]
            return self

        def predict(self, X):
            return [self.size % 2] * len(X)

    return Spender(budget, event)


ROWS = [[float(i)] for i in range(30)]
LABELS = [0, 1] * 15


def test_parallel_workers_are_all_counted():
    budget = PrivacyBudget(1.0)
    event = GaussianEvent(sigma=100.0, sensitivity=1.0)

    def work(k):
        budget.spend(event, label=str(k))
        return budget

    returned = Parallel(n_jobs=2, backend="loky")(delayed(work)(k) for k in range(12))
    assert all(other is budget for other in returned)
    assert sorted(budget.history()["label"], key=int) == [str(k) for k in range(12)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_searches_and_cross_validation_charge_every_fit(n_jobs):
    budget = PrivacyBudget(1.0)
    estimator = make_classifier(budget, GaussianEvent(sigma=100.0, sensitivity=1.0))
    search = GridSearchCV(estimator, {"size": [1, 2, 3]}, cv=2, n_jobs=n_jobs)
    search.fit(ROWS, LABELS)
    assert len(budget.history()) == 2 * 3 + 1
    assert search.best_estimator_.budget is budget
    cross_val_score(estimator, ROWS, LABELS, cv=5, n_jobs=n_jobs)
    assert len(budget.history()) == 7 + 5


def test_a_search_stops_with_the_budgets_error_when_told_to():
    budget = PrivacyBudget(1.0)
    estimator = make_classifier(budget, GaussianEvent(sigma=6.0, sensitivity=1.0))
    search = GridSearchCV(estimator, {"size": [1, 2, 3]}, cv=2, error_score="raise")
    with pytest.raises(BudgetExceededError, match="error_score='raise'"):
        search.fit(ROWS, LABELS)
    assert budget.epsilon_spent() <= 1.0
