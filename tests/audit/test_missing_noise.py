"""Defects of the noise that a mechanism does not tell of, and one run that finds them.

There is no noise from the second draw on (for the single draw of a sketch: the second direction),
or an output follows from the rows beside the releases. That noise is too small everywhere,
`tests.contract.test_audit` finds. With correct noise each audit refutes by chance in less than one
of 900 runs.
"""

from typing import Any

import numpy as np
import pytest

from skdpot import DPTableSynthesizer, FairPrivateClassifier, SlicedSketch
from skdpot.audit import one_run_audit
from skdpot.audit.one_run import AuditResult
from skdpot.nets import output_tables
from skdpot.preprocessing import CategoricalColumn, TableSchema
from skdpot.privacy import noise
from skdpot.release import histogram
from skdpot.tables import marginal_release as marginals
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


@pytest.mark.parametrize("kind", ["fair tables", "sketch", "tables", "generator"])
def test_correct_noise_is_not_refuted(kind):
    result = audited(kind)
    assert not result.refuted
    assert result.leak == ""
    assert result.power > 0.15
    # Choices by secret scores show no noise, and of a small table there are few misfits.
    assert set(result.noise.blind) <= ({"choices", "all misfits"} if kind == "tables" else set())


@pytest.mark.parametrize("kind", KINDS)
def test_noise_that_is_missing_later_is_refuted(kind, monkeypatch):
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
    result = audited(kind)
    assert result.refuted
    assert "REFUTED" in result.verdict


class Leaky(SlicedSketch):
    """Keeps what it has not released."""

    def fit(self, X: Any, y: Any = None) -> "Leaky":
        """Fit, and remember a mean."""
        super().fit(X, y)
        self.mean_ = X.mean(axis=0)
        return self


def test_an_output_beside_the_releases_is_refuted():
    result = one_run_audit(Leaky(**SKETCH.get_params()), np.empty((0, 16)), canaries=100)
    assert result.refuted
    assert "mean_" in result.leak
    assert "REFUTED: the result depends on the rows beside the releases" in result.verdict
