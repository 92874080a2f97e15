"""The program itself: whose errors are told, where it runs, and what its page names."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpot.cli import console
from skdpot.cli.console import explain, where_it_happened
from skdpot.cli.main import make_parser
from skdpot.exceptions import BudgetExceededError
from tests.cli.cases import SECRET


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


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pipes of a shell")
def test_a_reader_that_leaves_early_is_no_error(folder):
    command = (
        f"{sys.executable} -m skdpot.cli.main schema data.csv --yes --quiet | true; "
        "echo ${PIPESTATUS[0]}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


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
    "report fit.safetensors -o page.html",
):
    assert main(words.split()) == 0, words
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_tables_and_budgets_do_without_torch(folder):
    command = [sys.executable, "-c", WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------- the page of the documentation

DOC = Path(__file__).resolve().parents[2] / "doc"
PAGES = ("command_line", "command_line_schema", "schema_file", "web_page")
PAGE = "".join((DOC / f"{name}.rst").read_text("utf-8") for name in PAGES)


def test_every_command_of_the_page_can_be_typed():
    for command in re.findall(r"^   \$ skdpot ((?:.+\\\n)*.+)$", PAGE, re.M):
        words = shlex.split(command.replace("\\\n", " "))
        assert make_parser().parse_args(words).command == words[0]


def test_every_option_is_on_the_page_and_exists():
    known = set()
    for action in make_parser()._subparsers._group_actions[0].choices.values():
        known |= set(action._option_string_actions)
    named = set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", PAGE))
    assert sorted(named - known) == []
    obvious = "--help --verbose --output --model --rows --where --seed --columns --encoding"
    assert known - named <= {*obvious.split(), "-h", "-q", "-v", "-o", "--epsilon", "--schema"}


def test_every_status_is_told():
    told = {int(code) for code in re.findall(r"^(\d+) {3,}\w", PAGE, re.M)}
    names = ("OK", "FAILED", "USAGE", "BUDGET_EXCEEDED", "INTERRUPTED")
    assert told == {getattr(console, name) for name in names}
