"""The documentation names what there is."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import skdpot

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = "".join(
    (ROOT / "doc" / f"{page}.rst").read_text(encoding="utf-8") for page in ("api", "extending")
)
PUBLIC: dict[str, list[str]] = {}
for _module, _names in re.findall(
    r"^\.\. currentmodule:: ([\w.]+)\n\n\.\. autosummary::\n((?:   .*\n|\n)+)", REFERENCE, re.M
):
    PUBLIC.setdefault(_module, []).extend(re.findall(r"^   (\w+)$", _names, re.M))


@pytest.mark.parametrize("module", PUBLIC)
def test_what_the_reference_shows_is_there(module):
    found = import_module(module)
    assert [name for name in PUBLIC[module] if not hasattr(found, name)] == []


def public_packages() -> list[str]:
    """Every module of the first level that says what it exports, besides the wings."""
    names = (module.name for module in iter_modules(skdpot.__path__, "skdpot."))
    return ["skdpot", *(name for name in names if getattr(import_module(name), "__all__", None))]


@pytest.mark.parametrize("module", public_packages())
def test_the_reference_lists_every_public_name(module):
    listed = set(sum(PUBLIC.values(), []))
    assert [name for name in import_module(module).__all__ if name not in listed] == []


def test_the_reference_is_short():
    assert sum(map(len, PUBLIC.values())) <= 145  # on two pages, in groups


def test_every_page_is_found_from_the_first_one():
    """Sphinx warns of a page in no table of contents; this needs no Sphinx."""
    pages, found, waiting = ROOT / "doc", set(), ["index"]
    while waiting:
        name = waiting.pop()
        if name in found or not (pages / f"{name}.rst").exists():
            continue
        found.add(name)
        text = (pages / f"{name}.rst").read_text(encoding="utf-8")
        for block in re.findall(r"^\.\. toctree::\n((?:   .*\n|\n)+)", text, re.M):
            folder = Path(name).parent
            waiting += [
                (folder / n).as_posix() for n in re.findall(r"^   (\w[\w/]*)$", block, re.M)
            ]
    written = {
        path.relative_to(pages).with_suffix("").as_posix()
        for folder in (pages, pages / "experiments")
        for path in folder.glob("*.rst")
    }
    assert sorted(written - found) == []


def words(page: Path) -> int:
    """Count the words of a page and of the texts that it includes, as ``wc -w`` does."""
    text = page.read_text(encoding="utf-8")
    included = re.findall(r"^\.\. include:: (\S+)$", text, re.M)
    return len(text.split()) + sum(words(page.parent / name) for name in included)


def test_guide_pages_are_short():
    """A guide answers one question; what was tried is in ``doc/experiments``."""
    reference = {"api", "extending", "changelog"}
    guide = [path for path in (ROOT / "doc").glob("*.rst") if path.stem not in reference]
    assert {path.name: words(path) for path in guide if words(path) > 1800} == {}


FOR_CONTRIBUTORS = ("CONTRIBUTING.md", *(f"doc/{n}.rst" for n in ("architecture", "extending")))


def home(name: str) -> Path | None:
    """Return a file of the repository, of the package, or of a folder that the text speaks of."""
    places = [ROOT / name, ROOT / "skdpot" / name]
    if "/" not in name:
        places += [*(ROOT / "tests").rglob(name), *(ROOT / "skdpot").rglob(name)]
    return next((place for place in places if place.exists()), None)


@pytest.mark.parametrize("page", [*FOR_CONTRIBUTORS, "doc/add_a_mechanism.rst"])
def test_pages_for_contributors_name_files_that_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/.]+\.(?:py|pyi|rst|md|toml))`", text))
    made_by_the_reader = {
        name for name in named if re.search("WING|ROOM|NAME|mean_and_spread", name)
    }
    assert len(named) > 1
    assert [name for name in named - made_by_the_reader if home(name) is None] == []


@pytest.mark.parametrize("page", FOR_CONTRIBUTORS)
def test_pages_for_contributors_name_what_is_in_a_file(page):
    """``name`` (``file``), or "`NAME` in `file`"."""
    text = (ROOT / page).read_text(encoding="utf-8")
    pairs = re.findall(r"`(\w+)`+\s+(?:\(|in\s)`+([\w/.]+\.pyi?)`", text)
    missing = [
        (name, file)
        for name, file in pairs
        if not re.search(
            rf"^(?:    )?(?:def |class )?{name}\b", home(file).read_text(encoding="utf-8"), re.M
        )
    ]
    assert missing == []


def test_no_page_hides_behind_one_of_sphinx():
    """Sphinx writes pages of these names itself, over those of ours."""
    assert [n for n in ("search", "genindex") if (ROOT / "doc" / f"{n}.rst").exists()] == []


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (\S+)$", citation, re.M) == [skdpot.__version__]
    papers = (ROOT / "doc" / "papers.rst").read_text(encoding="utf-8")
    assert f"version = {{{skdpot.__version__}}}" in papers
    assert re.search(
        rf"^{re.escape(skdpot.__version__)}\n-+$",
        (ROOT / "doc" / "changelog.rst").read_text(encoding="utf-8"),
        re.M,
    )


def test_the_page_of_words_has_every_word_that_constructors_share():
    page = (ROOT / "doc" / "words.rst").read_text(encoding="utf-8")
    used: dict[str, set[str]] = {}
    for name in ("skdpot", "skdpot.mechanisms"):
        for kind in vars(import_module(name)).get("__all__", ()):
            made = getattr(import_module(name), kind)
            for word in getattr(made, "_get_param_names", list)():
                used.setdefault(word, set()).add(kind)
    shared = {word for word, kinds in used.items() if len(kinds) > 1}
    assert len(shared) > 40
    assert sorted(word for word in shared if f"``{word}``" not in page) == []
    for call in re.findall(r"``(DPS\w+|PrivateW\w+)\(\"([\w-]+)\"\)``", page):  # papers' names too
        getattr(skdpot, call[0])(call[1])._validate_params()


def test_the_schema_file_of_the_manual_is_one():
    page = (ROOT / "doc" / "schema_file.rst").read_text(encoding="utf-8")
    written = re.search(r"\.\. code-block:: json\n\n((?:   .*\n)+)", page)
    schema = skdpot.TableSchema.from_json(written[1])
    assert {column.kind for column in schema} == {"numeric", "categorical", "boolean", "datetime"}
    assert [rule.names for rule in schema.rules] == [("admitted", "discharged")]
