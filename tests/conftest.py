"""Settings of all tests."""

import os

import pytest

# Workers share the cores; threads of each would only wait for those of the others. It has to be
# said before numpy and torch are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The shared suites are imported, not collected; their asserts shall speak all the same.
pytest.register_assert_rewrite("tests.contract")
