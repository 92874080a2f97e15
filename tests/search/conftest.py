"""Fixtures of the tests of searches."""

import pytest

from tests.search.search_cases import LOG


@pytest.fixture
def log():
    """Parameters, rows, labels and weights of every fit of a `NoisyThreshold`."""
    LOG.clear()
    return LOG
