"""Settings of all tests."""

import pytest

# The shared suites are imported, not collected; their asserts shall speak all the same.
pytest.register_assert_rewrite("tests.contract")
