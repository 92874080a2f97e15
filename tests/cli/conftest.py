"""Ways to run commands on a small private table."""

import re

import pytest

from skdpot.cli.main import main
from tests.cli.cases import SECRET, Terminal, people, people_schema


@pytest.fixture
def run(capsys):
    """Run a command; return its exit status and what it wrote."""

    def call(line, *more):
        capsys.readouterr()
        code = main([*line.split(), *more])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def refused(run, folder):
    """Run a command that is refused: it changes no file and quotes no value; return its error."""

    def contents():
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def call(line, status, told):
        before = contents()
        code, out, err = run(line)
        assert (code, out) == (status, "")
        assert re.search(told, err), err
        assert "error: " in err
        assert SECRET not in err
        assert "Traceback" not in err
        assert contents() == before
        return err

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
