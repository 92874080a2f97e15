"""PrivacyBudget across processes; races and kills are in `test_ledger_faults`.

The scripts run in a fresh interpreter that imports the budget once and forks from there, so
that no test forks the test process with its threads.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, cross_val_score

from skdpot.exceptions import BudgetExceededError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import GaussianEvent

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

PREAMBLE = """
import os, pickle, random, signal, sys, time
from skdpot.privacy.budget import PrivacyBudget
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
def test_a_kill_while_a_ledger_is_made_leaves_all_or_nothing(tmp_path):
    lines = run_script(
        """
        random.seed(1)

        def create():
            for k in range(10**6):
                PrivacyBudget(1.0, ledger=os.path.join(sys.argv[1], f"{os.getpid()}-{k}"))

        def made():  # the drafts of killed processes are hidden files
            return [name for name in os.listdir(sys.argv[1]) if not name.startswith(".")]

        for _ in range(15):
            goal = len(made()) + random.randint(1, 2)
            pid = fork(create)
            until(lambda: len(made()) >= goal)
            time.sleep(random.uniform(0.0, 0.01))
            os.kill(pid, signal.SIGKILL)
            assert wait([pid]) == [-signal.SIGKILL]
        for name in made():
            PrivacyBudget(1.0, ledger=os.path.join(sys.argv[1], name)).remaining()
        print(len(made()) >= 15)
        """,
        tmp_path,
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
