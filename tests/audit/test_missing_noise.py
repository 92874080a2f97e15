"""Defects of the noise that a mechanism does not tell of, and one run that finds them.

Three defects of each kind of release: a third of the noise is drawn; there is none from the second
draw on (for the single draw of a sketch: the second direction); exact values are used, and noisy
ones are recorded. With correct noise each audit refutes by chance in less than one of 900 runs.
"""

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
FEW = np.random.default_rng(0).uniform(*BOX, size=(8, 200))
CELLS = np.random.default_rng(0).integers(8, size=(500, 6)).astype(float)
SCHEMA = TableSchema([CategoricalColumn(f"x{j}", categories=range(8)) for j in range(6)])
FAIR = (
    made(FairPrivateClassifier, batch_fraction=1.0, n_steps=4, learning_rate=1e-3),
    FEW,
    np.arange(8) // 2 % 2,
    {"fit_params": {"sensitive_features": np.arange(8) % 2}},
)
SKETCH = SlicedSketch(1.0, bounds=BOX, n_projections=16, n_bins=16, projections="orthogonal")
GENERATOR = sliced_generator(
    "gradient", bounds=BOX, n_steps=3, latent_dim=2, n_latents=32, batch_size=10_000
)
# The module whose noise is spoilt, and what is audited, on which rows and labels, with options.
KINDS = {
    "fair tables": (output_tables, *FAIR),
    "fair gradients": (noise, *FAIR),
    "sketch": (histogram, SKETCH, np.empty((0, 16)), None, {}),
    "tables": (marginals, DPTableSynthesizer(SCHEMA, n_particles=200), CELLS, None, {}),
    "generator": (noise, GENERATOR, np.empty((0, 8)), None, {"canaries": 60}),
}


def audited(kind: str) -> AuditResult:
    """Audit one run."""
    _, estimator, X, y, options = KINDS[kind]
    return one_run_audit(estimator, X, y, **{"canaries": 100, "confidence": 0.999} | options)


def a_third(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Draw a third of the noise."""
    module = KINDS[kind][0]
    draw = module.lattice_noise

    def drawn(*args: Any, **options: Any) -> np.ndarray:
        return np.rint(draw(*args, **options) / 3).astype(np.int64)

    monkeypatch.setattr(module, "lattice_noise", drawn)


def none_later(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Draw no noise from the second time on."""
    module, calls = KINDS[kind][0], []
    draw = module.lattice_noise

    def drawn(*args: Any, **options: Any) -> np.ndarray:
        units = draw(*args, **options)
        calls.append(1)
        if len(calls) > 1:
            units[...] = 0
        elif kind == "sketch":
            units[:, 1:] = 0
        return units

    monkeypatch.setattr(module, "lattice_noise", drawn)


def exact_used(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Use the exact value, and record the noisy one."""
    module, drawn = KINDS[kind][0], []
    draw = module.lattice_noise

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

    monkeypatch.setattr(module, "lattice_noise", remembered)
    monkeypatch.setattr(noisy_sums if is_net else module, "released", passed)
    if kind == "sketch":
        monkeypatch.setattr(SlicedSketch, "_decode", decoded)


@pytest.mark.parametrize("kind", ["fair tables", "sketch", "tables", "generator"])
def test_correct_noise_is_not_refuted(kind):
    result = audited(kind)
    assert not result.refuted
    assert result.leak == ""
    assert result.power > 0.15
    assert result.noise.blind == ()


@pytest.mark.parametrize("defect", [a_third, none_later, exact_used])
@pytest.mark.parametrize("kind", KINDS)
def test_a_defect_is_refuted(kind, defect, monkeypatch):
    defect(monkeypatch, kind)
    result = audited(kind)
    assert result.refuted
    assert "REFUTED" in result.verdict
