"""What tests of audits share."""

import dataclasses

import pytest

import skdpot.release.sketch as sketch_module


@pytest.fixture
def with_noise_over(monkeypatch):
    """Return what makes sketches draw a fraction of the noise that they claim."""
    plan = sketch_module.plan_sketch

    def set_factor(factor):
        def too_quiet(*args, **kwargs):
            right = plan(*args, **kwargs)
            return dataclasses.replace(right, sigma=right.sigma / factor)

        monkeypatch.setattr(sketch_module, "plan_sketch", too_quiet)

    return set_factor
