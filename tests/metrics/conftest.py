"""What tests of all displays share."""

import pytest


@pytest.fixture(autouse=True)
def backend():
    """Draw without a screen, and close what was drawn."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)
