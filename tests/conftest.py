"""Settings of all tests."""

import gc
import os
import re
import sys

import pytest

# Workers share the cores; threads of each would only wait for those of the others. It has to be
# said before numpy and torch are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")  # pictures are drawn on no screen

# What marks a test as slow, in the text of its file: other files are not even imported for them.
SLOW = re.compile(r"mark\.slow|\bswept\(")
# These wait for other processes or are single long tests: they run while others use the cores.
FIRST = (
    "test_engine_faults.py",
    "test_examples.py",
    "test_flower.py",
    "test_tutorials.py",
    "test_ui.py",
)

# The shared suites are imported, not collected; their asserts shall speak all the same.
pytest.register_assert_rewrite("tests.contract", "tests.laws")


def pytest_ignore_collect(collection_path, config):
    """Leave out the files without a slow test where only slow tests are wanted."""
    wanted = config.option.markexpr != "slow" or collection_path.suffix != ".py"
    return None if wanted or SLOW.search(collection_path.read_text("utf-8")) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage among what stays: modules, and the million parts of the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        if not gc.get_freeze_count():  # a mutant runs tests in the process of a test
            gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary():
    """Let hypothesis, which may be imported for its part of the summary, see all objects."""
    gc.unfreeze()


def pytest_collection_modifyitems(items):
    """Let tests fit few rows, so that they are quick; doctests and examples have enough."""
    for path in {item.path for item in items if item.get_closest_marker("slow")}:
        assert SLOW.search(path.read_text("utf-8")), (
            f"{path}: -m slow would not find its slow tests"
        )
    items.sort(key=lambda item: item.path.name not in FIRST)
    texts = (".*rivacy noise hides ", "Private bounds. there are too few rows")
    hidden = [pytest.mark.filterwarnings(f"ignore:{text}") for text in texts]
    for item in items:
        if item.path.is_relative_to(item.config.rootpath / "tests"):
            for mark in hidden:
                item.add_marker(mark, append=False)


@pytest.fixture
def few_synthetic_rows(monkeypatch):
    """Take few rows, directions, levels and models where more make a figure more exact."""
    numbers = {
        "search.scorers._N_DIRECTIONS": 8,
        "search.scorers._N_SYNTHETIC": 200,
        "tables.synthesizer._SCORED_ROWS": 500,
        "fair.fair_rule._SHOWN": (0.0, 0.5, 1.0),
        "fair.score_law._MISFITS": (0.03, 0.2),
        "tables.report._FEWEST": 500,
        "tables.row_map._LEARNED_FROM": 2000,
    }
    for name, number in numbers.items():
        monkeypatch.setattr(f"skdpot.{name}", number)


@pytest.fixture(autouse=True)
def close_pictures():
    """Close what a test or an example has drawn."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
