"""Defects of the noise that a mechanism does not tell of, and one run that finds them.

Three defects of each kind of release: a third of the noise is drawn; there is none from the second
draw on (for the single draw of a sketch: the second direction); exact values are used, and noisy
ones are recorded. With correct noise each audit refutes by chance in less than one of 900 runs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from skdpot import DPTableSynthesizer, FairPrivateClassifier, SlicedSketch
from skdpot.audit import one_run_audit
from skdpot.audit.one_run import AuditResult
from skdpot.preprocessing import CategoricalColumn, TableSchema
from skdpot.privacy import noise
from skdpot.release import contingency as marginals
from skdpot.release import gradients as noisy_sums
from skdpot.release import histogram, output_tables
from skdpot.release import release as recording
from skdpot.release.release import Release
from tests.flat_options import made, sliced_generator

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]

BOX = (-1.0, 1.0)
DRAWS = {
    "fair tables": (output_tables, "lattice_noise"),
    "fair gradients": (noise, "lattice_noise"),
    "sketch": (histogram, "lattice_noise"),
    "tables": (marginals, "lattice_noise"),
    "generator": (noise, "lattice_noise"),
}


def fair(n_pairs: int = 100) -> AuditResult:
    estimator = made(FairPrivateClassifier, batch_fraction=1.0, n_steps=4, learning_rate=1e-3)
    X = np.random.default_rng(0).uniform(*BOX, size=(8, 200))
    return one_run_audit(
        estimator,
        X,
        np.arange(8) // 2 % 2,
        canaries=n_pairs,
        fit_params={"sensitive_features": np.arange(8) % 2},
        confidence=0.999,
    )


def sketch() -> AuditResult:
    return one_run_audit(
        SlicedSketch(1.0, bounds=BOX, n_projections=16, n_bins=16, projections="orthogonal"),
        np.empty((0, 16)),
        canaries=100,
        confidence=0.999,
    )


def table() -> AuditResult:
    schema = TableSchema([CategoricalColumn(f"x{j}", categories=range(8)) for j in range(6)])
    X = np.random.default_rng(0).integers(8, size=(500, 6)).astype(float)
    return one_run_audit(
        DPTableSynthesizer(schema=schema, n_particles=200), X, canaries=100, confidence=0.999
    )


def generator() -> AuditResult:
    estimator = sliced_generator(
        "gradient", bounds=BOX, n_steps=3, latent_dim=2, n_latents=32, batch_size=10_000
    )
    return one_run_audit(estimator, np.empty((0, 8)), canaries=60, confidence=0.999)


AUDITS: dict[str, Callable[[], AuditResult]] = {
    "fair tables": fair,
    "fair gradients": fair,
    "sketch": sketch,
    "tables": table,
    "generator": generator,
}


def a_third(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Draw a third of the noise."""
    module, name = DRAWS[kind]
    draw = getattr(module, name)

    def drawn(*args: Any, **options: Any) -> np.ndarray:
        return np.rint(draw(*args, **options) / 3).astype(np.int64)

    monkeypatch.setattr(module, name, drawn)


def none_later(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Draw no noise from the second time on."""
    module, name = DRAWS[kind]
    draw, calls = getattr(module, name), []

    def drawn(*args: Any, **options: Any) -> np.ndarray:
        units = draw(*args, **options)
        calls.append(1)
        if len(calls) > 1:
            units[...] = 0
        elif kind == "sketch":
            units[:, 1:] = 0
        return units

    monkeypatch.setattr(module, name, drawn)


def exact_used(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Use the exact value, and record the noisy one."""
    module, name = DRAWS[kind]
    draw, drawn = getattr(module, name), []

    def remembered(sigma: float, *args: Any, lattice: float, **options: Any) -> np.ndarray:
        units = draw(sigma, *args, lattice=lattice, **options)
        drawn.append((units * lattice, sigma))
        return units

    def passed(release: Release) -> Any:
        value = release.value
        numbers = value if isinstance(value, tuple) else (value,)
        noises = [of_draw for of_draw, _ in drawn] or [0.0] * len(numbers)
        if is_net and drawn:  # one draw for all parameters, divided by the size of a batch
            ((whole, sigma),) = drawn
            ends = np.cumsum([number.numel() for number in numbers])[:-1]
            parts = np.split(whole * release.sigma / sigma, ends)
            noises = [
                torch.from_numpy(part).view_as(number).to(number)
                for part, number in zip(parts, numbers, strict=True)
            ]
        drawn.clear()  # first: a replay may raise
        noisy = released(release)
        exact = [number - of_draw for number, of_draw in zip(numbers, noises, strict=True)]
        if kind == "sketch":  # the table that is shown is noisy, and what is read from it exact
            shown.append(exact[0])
            return noisy
        return tuple(exact) if isinstance(value, tuple) else exact[0]

    is_net, released, shown = module is noise, recording.released, []
    decode = SlicedSketch._decode

    def decoded(self: Any) -> None:
        noisy, self.release_ = self.release_, replace(self.release_, value=shown[-1])
        decode(self)
        self.release_ = noisy

    monkeypatch.setattr(module, name, remembered)
    monkeypatch.setattr(noisy_sums if is_net else module, "released", passed)
    if kind == "sketch":
        monkeypatch.setattr(SlicedSketch, "_decode", decoded)


@pytest.mark.parametrize("kind", ["fair tables", "sketch", "tables", "generator"])
def test_correct_noise_is_not_refuted(kind):
    result = AUDITS[kind]()
    assert not result.refuted
    assert result.leak == ""
    assert result.power > 0.15
    assert result.noise.blind == ()


@pytest.mark.parametrize("defect", [a_third, none_later, exact_used])
@pytest.mark.parametrize("kind", DRAWS)
def test_a_defect_is_refuted(kind, defect, monkeypatch):
    defect(monkeypatch, kind)
    result = AUDITS[kind]()
    assert result.refuted
    assert "REFUTED" in result.verdict
