"""Ways to run commands on a small private table."""

import pytest

from skdpot.cli.main import main
from tests.cli.cases import Terminal, people, people_schema


@pytest.fixture
def run(capsys):
    """Run a command; return its exit status and what it wrote."""

    def call(*argv):
        capsys.readouterr()
        code = main([str(word) for word in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with data.csv and schema.json."""
    monkeypatch.chdir(tmp_path)
    people(500).to_csv("data.csv", index=False)
    people_schema().to_json("schema.json")
    return tmp_path


@pytest.fixture
def answer(monkeypatch):
    """Type an answer on a terminal."""

    def type_in(text):
        monkeypatch.setattr("sys.stdin", Terminal(text))

    return type_in
