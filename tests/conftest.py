"""Settings of all tests."""

import os
import sys

import pytest

# Workers share the cores; threads of each would only wait for those of the others. It has to be
# said before numpy and torch are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")  # pictures are drawn on no screen

# The shared suites are imported, not collected; their asserts shall speak all the same.
pytest.register_assert_rewrite("tests.contract", "tests.laws")


def pytest_collection_modifyitems(items):
    """Let tests fit few rows, so that they are quick; doctests and examples have enough."""
    texts = (".*the noise hides the data", "Private bounds. there are too few rows")
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
