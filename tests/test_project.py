"""The project keeps the promises that it makes about itself."""

import ast
import re
import tomllib
from importlib import import_module
from importlib.metadata import version
from inspect import getdoc, isclass
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import skdpot

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = sorted((ROOT / "skdpot").rglob("*.py"))
MODULES = [path for path in SOURCES if path.name != "__init__.py"]
ESTIMATORS = [
    name
    for name in skdpot.__all__
    if isclass(getattr(skdpot, name)) and issubclass(getattr(skdpot, name), BaseEstimator)
]


def source_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def readme_command(name: str) -> str:
    found = re.search(rf"^<!-- {name} command -->\n```sh\n(.*?)^```$", README, re.M | re.S)
    assert found is not None, f"README.md has no block marked {name} command"
    return found[1]


def requirement_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {requirement_name(name): pinned for name, pinned in pairs}


@pytest.mark.parametrize(
    ("name", "last_step"),
    [
        ("example", "python examples/plot_private_digits.py"),
        ("test", 'python -m pytest -m "not slow" -n auto --dist worksteal'),
    ],
)
def test_readme_command_does_all_the_set_up(name, last_step):
    steps = readme_command(name).strip().split(" &&\n")
    assert steps[0] == "python3 -m venv .venv"
    assert steps[1].startswith(".venv/bin/pip install -c constraints.txt ")
    assert steps[2] == f".venv/bin/{last_step}"


def test_readme_links_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    links += re.findall(r"\bexamples/\w+\.py\b", README)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_readme_lists_the_public_names():
    table = re.findall(r"^\| `(\w+)` \|", README, re.M)
    assert sorted(table) == sorted(skdpot.__all__)


def test_versions_are_equal():
    assert skdpot.__version__ == version("skdpot")


def test_every_direct_dependency_is_pinned_to_a_plain_version():
    direct = [*PROJECT["dependencies"], *sum(PROJECT["optional-dependencies"].values(), [])]
    assert [name for name in map(requirement_name, direct) if name not in pins()] == []
    assert [pinned for pinned in pins().values() if not re.fullmatch(r"[0-9][\w.]*", pinned)] == []


def test_public_names_can_be_imported():
    assert sorted(skdpot.__all__) == skdpot.__all__
    for name in skdpot.__all__:
        value = getattr(skdpot, name)
        assert value.__name__ == name
    assert set(skdpot.__all__) <= set(dir(skdpot))
    with pytest.raises(AttributeError, match="PrivateOracle"):
        _ = skdpot.PrivateOracle


@pytest.mark.parametrize("path", MODULES, ids=source_id)
def test_every_module_can_be_imported_and_has_what_it_exports(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if name == "skdpot.distance.flower":  # needs an extra
        pytest.importorskip("flwr")
    module = import_module(name)
    exports = getattr(module, "__all__", ())
    assert [export for export in exports if not hasattr(module, export)] == []


@pytest.mark.parametrize("path", SOURCES, ids=source_id)
def test_files_are_without_asserts_and_private_names_have_one_home(path):
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    assert not any(isinstance(node, ast.Assert) for node in nodes)
    private = [
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn")
        for alias in node.names
        if "._" in f"{node.module}.{alias.name}"
    ]
    assert private == [] or source_id(path) == "skdpot/_utils/parameters.py"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_say_what_is_private(name):
    text = getdoc(getattr(skdpot, name)) or ""
    assert re.search(r"^Privacy\n-{7}$", text, re.M), f"{name} has no section Privacy"


@pytest.mark.parametrize(
    "wing", ["distance", "fair", "sampling", "search", "tables", "trajectories", "nets", "audit"]
)
def test_a_wing_opens_with_its_page(wing):
    page = getdoc(import_module(f"skdpot.{wing}")) or ""
    assert 5 <= len(page.splitlines()) <= 30
    named = set(re.findall(r"`(\w+)`", page))
    assert named & {path.stem for path in (ROOT / "skdpot" / wing).glob("*.py")}
