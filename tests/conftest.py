"""Settings of all tests."""

import os

import pytest

# Workers share the cores; threads of each would only wait for those of the others. It has to be
# said before numpy and torch are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")  # pictures are drawn on no screen

# The shared suites are imported, not collected; their asserts shall speak all the same.
pytest.register_assert_rewrite("tests.contract")


def pytest_collection_modifyitems(items):
    """Let tests fit few rows, so that they are quick; doctests and examples have enough."""
    hidden = pytest.mark.filterwarnings("ignore:.*the noise hides the data")
    for item in items:
        if item.path.is_relative_to(item.config.rootpath / "tests"):
            item.add_marker(hidden, append=False)
