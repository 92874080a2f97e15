"""The program itself: what is asked wrongly, what breaks, what is shown."""

import os
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpot.cli import commands
from skdpot.cli.console import explain, where_it_happened
from skdpot.exceptions import BudgetExceededError, PrivacyWarning
from tests.cli.cases import SECRET

ROOT = Path(__file__).resolve().parents[2]


def program(*argv, **options):
    command = [sys.executable, "-m", "skdpot.cli.main", *argv]
    return subprocess.run(command, capture_output=True, text=True, **options)


FIT = "synth data.csv -o x.csv --epsilon 1 --schema schema.json"


@pytest.mark.parametrize(
    "words",
    [
        "",
        "frobnicate",
        "synth data.csv -o x.csv --epsilon -1 --schema schema.json",
        "synth data.csv -o x.csv --epsilon 1 --delta 1 --schema schema.json",
        "synth data.csv -o x.csv --epsilon 1",
        "synth data.csv --epsilon 1 --schema schema.json",
        "synth -o x.csv",
        "synth data.csv --model m.safetensors -o x.csv",
        "synth --model m.safetensors -o x.csv --epsilon 1",
        "synth --model m.safetensors -o x.csv --seed -1",
        f"{FIT} --target smoke",
        f"{FIT} --save model.txt",
        f"{FIT} --epsilon-cap 3",
        f"{FIT} --where sex",
        "schema data.csv --yes --sep ;;",
        "schema data.csv --yes --private height",
        "schema data.csv --yes --range age=0-120",
        "schema data.csv --yes --range age=young..old",
        "schema data.csv --yes --range sex=0..1",
        "schema data.csv --yes --encoding klingon",
        "distance data.csv --epsilon 1",
        "distance data.csv data.csv --epsilon 1 --schema schema.json --columns age",
    ],
)
def test_wrong_usage_is_status_2_and_writes_nothing(run, folder, words):
    before = sorted(folder.iterdir())
    code, out, err = run(*words.split())
    assert (code, out) == (2, "")
    assert "error" in err
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


def breaking(error):
    def raise_it(args, console):
        if isinstance(error, str):
            pd.to_numeric(pd.Series([error]))  # pandas quotes it
        raise error

    return raise_it


@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_texts_of_other_libraries_are_withheld(run, folder, monkeypatch, verbose):
    monkeypatch.setattr(commands, "run_schema", breaking(SECRET))
    code, out, err = run("schema", "data.csv", *verbose)
    assert (code, out) == (1, "")
    assert "ValueError inside of another library; its text is withheld" in err
    assert SECRET not in err
    assert ("in raise_it" in err) == bool(verbose)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("raise ValueError('fine')", True),
        ("raise ValueError('fine') from None", True),
        ("raise BudgetExceededError('fine')", True),
        ("int(secret)", False),
        ("{}[secret]", False),
        ("np.asarray([secret], dtype=float)", False),
        ("pd.Series([secret]).astype(int)", False),
        ("[].index(secret)", False),
        ("try:\n    int(secret)\nexcept ValueError:\n    raise", False),
        ("with all_or_nothing(object):\n    int(secret)", False),
    ],
)
@pytest.mark.parametrize("module", ["skdpot.somewhere", "elsewhere", "skdpot_extra.part"])
def test_only_texts_that_this_package_wrote_are_told(statement, told, module):
    names = {"secret": SECRET, "np": np, "pd": pd, "__name__": module}
    names |= {"BudgetExceededError": BudgetExceededError, "all_or_nothing": nullcontext}
    with pytest.raises(Exception, match=r"fine|S3CR3T") as caught:
        exec(compile(statement, "somewhere.py", "exec"), names)
    text, _ = explain(caught.value)
    assert SECRET not in text
    ours = told and (module == "skdpot.somewhere" or "Budget" in statement)
    assert (text == "fine") == ours
    assert SECRET not in where_it_happened(caught.value)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "not enough memory"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 1, "x.csv: No such file"),
        (ModuleNotFoundError(name="torch"), 1, "pip install torch skorch"),
    ],
)
def test_other_ends(run, folder, monkeypatch, error, code, text):
    monkeypatch.setattr(commands, "run_schema", breaking(error))
    found, out, err = run("schema", "data.csv")
    assert (found, out) == (code, "")
    assert text in err
    assert len(err.splitlines()) == 1


def test_only_warnings_of_this_package_are_shown(run, folder, monkeypatch):
    def warn(args, console):
        warnings.warn(SECRET, UserWarning, stacklevel=1)
        warnings.warn("take care", PrivacyWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(commands, "run_budget", warn)
    assert run("budget", "study.db") == (0, "", "skdpot: warning: take care\n")


@pytest.mark.skipif(os.name != "posix", reason="pipes of a shell")
def test_a_reader_that_leaves_early_is_no_error(folder):
    command = (
        f"{sys.executable} -m skdpot.cli.main schema data.csv --yes --quiet | true; "
        "echo ${PIPESTATUS[0]}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


WITHOUT_TORCH = """
import sys
from pathlib import Path


class Without:
    def find_spec(self, name, *args):
        if name.partition(".")[0] in ("torch", "skorch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Without())
import pandas as pd
from skdpot import DPTableSynthesizer, PrivacyBudget, TableSchema
from skdpot.cli.main import main

frame, budget = pd.read_csv("data.csv"), PrivacyBudget(9.0)
schema = TableSchema.from_json(Path("schema.json"))
fitted = DPTableSynthesizer(schema, epsilon=3.0, budget=budget, n_particles=500).fit(frame)
fitted.save("fit.safetensors")
again = DPTableSynthesizer.load("fit.safetensors")
assert again.sample(9, random_state=0).equals(fitted.sample(9, random_state=0))
assert again.score(frame) < 0
assert "<html" in again.quality_report(n_samples=50).to_html()
assert len(budget.history()) == 1
for words in (
    "schema data.csv --yes -o new.json",
    "synth data.csv --schema schema.json --epsilon 1 -o new.csv --ledger l.db --report r.html",
    "budget l.db",
    "synth --model fit.safetensors -o more.csv",
    "distance data.csv data.csv --epsilon 1 --columns age",
):
    assert main(words.split()) == 0, words
assert "torch" not in sys.modules
"""


def test_tables_and_budgets_do_without_torch(folder):
    command = [sys.executable, "-c", WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
