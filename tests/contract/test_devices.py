"""Every estimator that takes a device releases the same on a GPU as on the CPU.

Where there is no GPU, some of them run torch's kernels on the CPU instead of numpy's.
"""

import sys

import numpy as np
import pytest
import torch

from skdpot.release.gate import record_releases
from tests.contract.fits import ROWS

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")

ON_DEVICES = {
    name: [key for key in fit.estimator.get_params() if key.endswith("device")][:1]
    for name, fit in ROWS.items()
}
BY_TORCH = {
    "sketch, classes", "flow, classes", "generator, images", "generator, gradient", "autoencoder",
    "classifier", "regressor, ranks", "adapter", "distance", "paths",
}  # fmt: skip
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
RUNS = [pytest.param(name, "cuda", marks=GPU) for name in ON_DEVICES if ON_DEVICES[name]]
RUNS += [(name, "cpu") for name in sorted(BY_TORCH)]


def outcome(name, device):
    """Return the releases of a fit and what it draws."""
    with record_releases() as releases:
        fitted = ROWS[name].fitted(random_state=0, **dict.fromkeys(ON_DEVICES[name], device))
    drawn = fitted.sample(50, random_state=1) if hasattr(fitted, "sample") else np.zeros(1)
    return releases, np.asarray(drawn)


def flat(value):
    parts = value if isinstance(value, list | tuple) else [value]
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.parametrize(("name", "device"), RUNS)
def test_a_device_gives_what_the_cpu_gives(name, device, monkeypatch):
    """The noise is drawn on the CPU and is the same; counts are equal, sums up to rounding."""
    expected, drawn = outcome(name, "cpu")
    for module in list(sys.modules.values()):
        if module.__name__.startswith("skdpot.") and hasattr(module, "resolve_device"):
            monkeypatch.setattr(module, "resolve_device", lambda _: torch.device(device))
    found, drawn_there = outcome(name, device)
    assert len(found) == len(expected) > 0
    for first, second in zip(expected, found, strict=True):
        gap = np.max(np.abs(flat(first.value) - flat(second.value)))
        assert gap <= (0 if first.kind == "sketch" else 0.01 * np.max(first.sigma))
    assert np.median(np.abs(drawn - drawn_there)) <= 0.01 * max(1e-9, np.std(drawn))
