"""The page on the command line names what there is."""

import re
import shlex
from pathlib import Path

import pytest

from skdpot.cli import console
from skdpot.cli.main import make_parser

PAGE = (Path(__file__).resolve().parents[2] / "doc" / "command_line.rst").read_text("utf-8")
COMMANDS = re.findall(r"^   \$ skdpot ((?:.+\\\n)*.+)$", PAGE, re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_typed(command):
    assert (
        make_parser().parse_args(shlex.split(command.replace("\\\n", " "))).command
        == command.split()[0]
    )


def test_every_option_exists():
    known = set()
    for action in make_parser()._subparsers._group_actions[0].choices.values():
        known |= set(action._option_string_actions)
    named = set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", PAGE))
    assert sorted(named - known) == []
    assert known - named <= {"--help", "--verbose", "--output", "--model", "--rows", "--where"} | {
        *("--seed", "--columns", "--encoding", "-h", "-q", "-v", "-o", "--epsilon", "--schema")
    }


def test_every_status_is_told():
    told = {int(code) for code in re.findall(r"^(\d+) {3,}\w", PAGE, re.M)}
    names = ("OK", "FAILED", "USAGE", "BUDGET_EXCEEDED", "INTERRUPTED")
    assert told == {getattr(console, name) for name in names}
