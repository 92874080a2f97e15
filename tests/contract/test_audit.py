"""Every mechanism is attacked: what it claims must hold, and the attack must be able to win.

`CASES` holds one entry for each estimator and mechanism. Each is audited with noise for ε = 1,
where the lower bound must not exceed 1, and without noise, where it must reach 3: an audit that
finds nothing there says nothing anywhere. In between, noise that is ten times too small for the
claim is found out: by the residuals, once the coins are open. A correct mechanism is refuted with
a probability of at most 0.1 % by its guesses and 0.001 % by its noise.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from skdpot import (
    ClientContribution,
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot.audit.attacks import default_score
from skdpot.audit.canaries import AuditedFit, default_canaries
from skdpot.audit.one_run import one_run_audit
from skdpot.preprocessing import CategoricalColumn, PrivateScaler, TableSchema
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

DELTA = 1e-7
CONFIDENCE = 0.999
# That there is much noise is no news here.
pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]
BOX = (-1.0, 1.0)

Data = tuple[np.ndarray, np.ndarray | None, Mapping[str, np.ndarray]]


class Case(NamedTuple):
    """One mechanism under attack.

    Parameters
    ----------
    id : str
        Estimator, mechanism and variant.
    estimator : callable
        Returns the estimator (or function) for an ε.
    data : callable
        Returns the public rows beside the canaries, their labels or None, and further facts of
        rows that `fit` takes by keyword.
    options : mapping
        Further keyword arguments of `one_run_audit`: canaries, score, n_guesses.
    slow : bool
        Whether one of the audits takes more than ten seconds.
    refuted_with_a_tenth : bool
        Whether the audit can tell that the noise is ten times too small for ε = 1.
    epsilons : tuple of float
        With which ε the case is audited.
    """

    id: str
    estimator: Callable[[float], Any]
    data: Callable[[], Data]
    options: Mapping[str, Any] = {}
    slow: bool = False
    refuted_with_a_tenth: bool = True
    epsilons: tuple[float, ...] = (1.0, math.inf)


def no_rows(n_features: int) -> Data:
    """Return no rows beside the canaries."""
    return np.empty((0, n_features)), None, {}


def uniform_rows(n_rows: int, n_features: int, n_labels: int = 0) -> Data:
    """Return rows of the box, with labels that take turns if there are any."""
    X = np.random.default_rng(0).uniform(*BOX, size=(n_rows, n_features))
    return X, np.arange(n_rows) % n_labels if n_labels else None, {}


def histogram_score(audited: AuditedFit) -> np.ndarray:
    """Score pairs by the histograms of private bounds alone."""
    only = tuple(release for release in audited.releases if release.kind == "histogram")
    return default_score(audited.fitted)(replace(audited, releases=only))


def _pairs(make: Callable[[], Any], n_pairs: int, n_features: int) -> Any:
    """Make canaries for a function, which does not say for itself what its records are."""
    rng = np.random.default_rng(0)
    return default_canaries(make(), n_pairs, np.empty((0, n_features)), rng=rng)


_TABLES = {"projections": "orthogonal", "n_projections": 128, "n_bins": 16}
_FEW = {"n_particles": 16}
_PATHS = {"bounds": BOX, "n_particles": 10}


def _sketch(epsilon: float, **parameters: Any) -> SlicedSketch:
    return SlicedSketch(epsilon, DELTA, **({"bounds": BOX} | _TABLES | parameters))


def _merged(epsilon: float) -> Callable[..., SlicedSketch]:
    blocks = np.linalg.qr(np.random.default_rng(1).normal(size=(2, 64, 64)))[0]
    directions = np.concatenate(blocks)

    def fit(X: np.ndarray, y: None) -> SlicedSketch:
        halves = (_sketch(epsilon, projections=directions).fit(half) for half in (X[::2], X[1::2]))
        first, second = halves
        return first.merge(second)

    return fit


def _flow(epsilon: float, mechanism: str, **parameters: Any) -> DPSlicedFlowSampler:
    return flow_sampler(mechanism, epsilon, DELTA, bounds=BOX, **(_FEW | parameters))


def _generator(epsilon: float, mechanism: str, **parameters: Any) -> DPSlicedGenerator:
    settings = {"n_steps": 8, "latent_dim": 2} | parameters
    return sliced_generator(mechanism, epsilon, DELTA, bounds=BOX, **settings)


def _distance(epsilon: float) -> PrivateWassersteinDistance:
    return private_distance(epsilon=epsilon, delta=DELTA, bounds=BOX, n_bins=32, n_projections=64)


def _trajectories(epsilon: float, mechanism: str, **parameters: Any) -> PrivateTrajectorySampler:
    return trajectory_sampler(mechanism, epsilon, DELTA, **(_PATHS | parameters))


_LANGEVIN = {"mechanism": "mfld", "schedule": [(1e-4, None, 5)]}
_FLOW_OF_TIMES = (
    {"mechanism": "sketch", "schedule": [(1.0, None, 2)]} | _TABLES | {"n_projections": 64}
)
_TIMED = partial(uniform_rows, 20, 64, 10)
_ONE_ROW = {"mechanism": "resample", "batch_size": 1, "n_projections": 64, "n_steps": 500}


def grouped_rows(n_rows: int, n_features: int, n_labels: int | None = None) -> Data:
    """Return rows of two groups, with classes that both have, or for 0 classes with targets."""
    X, _, _ = uniform_rows(n_rows, n_features)
    places = np.arange(n_rows)
    targets = places // 2 % n_labels if n_labels else np.linspace(*BOX, n_rows)
    groups = {"sensitive_features": places % 2}
    return X, None if n_labels is None else targets, groups


# One step of batches of all rows: what a step shows is hidden by the noise alone.
_WHOLE = {"n_steps": 1, "learning_rate": 1e-4}
_FAIR = {"batch_fraction": 1.0} | _WHOLE
_GROUPED = partial(grouped_rows, 8, 512, 2)
_TARGETS = partial(grouped_rows, 8, 512, 0)
FEWER = {"canaries": 400}


def _autoencoder(epsilon: float, **parameters: Any) -> PrivateSWAutoencoder:
    settings = {"bounds": BOX, "batch_size": 10_000} | _WHOLE | parameters
    return made(PrivateSWAutoencoder, 8, epsilon, DELTA, **settings)


def _classifier(epsilon: float, **parameters: Any) -> FairPrivateClassifier:
    return made(FairPrivateClassifier, epsilon=epsilon, delta=DELTA, **(_FAIR | parameters))


def _regressor(epsilon: float, **parameters: Any) -> FairPrivateRegressor:
    settings = {"target_bounds": BOX} | _FAIR | parameters
    return made(FairPrivateRegressor, epsilon=epsilon, delta=DELTA, **settings)


def chained_rows(n_rows: int, n_features: int, n_values: int) -> Data:
    """Return numbered categories; each column is a noisy copy of the one before."""
    rng = np.random.default_rng(0)
    X = rng.integers(n_values, size=(n_rows, n_features)).astype(float)
    for column in range(1, n_features):
        copied = rng.random(n_rows) < 0.6
        X[copied, column] = X[copied, column - 1]
    return X, None, {}


_CHAINED = partial(chained_rows, 20_000, 8)
_NUMBERED = TableSchema([CategoricalColumn(f"x{j}", categories=range(8)) for j in range(8)])


def _table(epsilon: float, **parameters: Any) -> DPTableSynthesizer:
    settings = {"schema": _NUMBERED, "n_particles": 1000} | parameters
    return DPTableSynthesizer(epsilon=epsilon, delta=DELTA, **settings)


CASES = [
    Case("SlicedSketch", _sketch, partial(no_rows, 64)),
    Case(
        "SlicedSketch, private labels",
        partial(_sketch, conditional=True),
        partial(uniform_rows, 20, 64, 4),
    ),
    Case(
        "SlicedSketch, public labels",
        partial(_sketch, conditional=True, public_labels=True),
        partial(uniform_rows, 20, 64, 4),
    ),
    Case(
        "SlicedSketch, 2 rows a person",
        partial(_sketch, conditional=True, public_labels=True, group_size=2),
        partial(uniform_rows, 20, 64, 4),
    ),
    Case(
        "SlicedSketch, private bounds",
        partial(_sketch, bounds="private", n_bins=32),
        partial(uniform_rows, 1000, 32),
    ),
    Case(
        "private bounds alone",
        partial(_sketch, bounds="private"),
        partial(uniform_rows, 1000, 16),
        {"score": histogram_score},
        refuted_with_a_tenth=False,  # a score of one's own: only the guesses are counted
        epsilons=(1.0,),  # without noise there is no histogram
    ),
    Case(
        "SlicedSketch, merged from two parties",
        _merged,
        partial(no_rows, 64),
        {"canaries": _pairs(partial(_sketch, 1.0), 1000, 64)},
    ),
    Case(
        "DPSlicedFlowSampler, sketch",
        partial(_flow, mechanism="sketch", n_steps=2, **_TABLES),
        partial(no_rows, 64),
    ),
    Case(
        "DPSlicedFlowSampler, resample",
        partial(_flow, mechanism="resample", n_steps=8, n_projections=8),
        partial(no_rows, 64),
    ),
    Case(
        "DPSlicedFlowSampler, resample a Poisson sample",
        partial(_flow, mechanism="resample", n_steps=8, n_projections=8, sampling="poisson"),
        partial(no_rows, 64),
    ),
    Case(
        "DPSlicedFlowSampler, resample one row",
        lambda epsilon: _flow(epsilon, **_ONE_ROW),
        partial(no_rows, 64),
        FEWER,
        slow=True,
    ),
    Case(
        "DPSlicedFlowSampler, presample",
        partial(_flow, mechanism="presample", n_steps=2, n_projections=16),
        partial(no_rows, 64),
    ),
    Case(
        "DPSlicedGenerator, sketch",
        partial(_generator, mechanism="sketch", **_TABLES),
        partial(no_rows, 64),
    ),
    Case(
        "DPSlicedGenerator, smoothing",
        partial(_generator, mechanism="smoothing", n_projections=8),
        partial(no_rows, 64),
    ),
    Case("PrivateWassersteinDistance, sliced", _distance, partial(no_rows, 64)),
    Case(
        "ClientContribution",
        lambda epsilon: ClientContribution(_distance(epsilon)),
        partial(no_rows, 64),
    ),
    Case("DPTableSynthesizer", _table, partial(_CHAINED, 8), FEWER),
    Case("DPTableSynthesizer, target", partial(_table, target="x0"), partial(_CHAINED, 8), FEWER),
    Case(
        "DPTableSynthesizer, private bounds",
        partial(_table, schema=None),
        partial(_CHAINED, 64),
        FEWER,
    ),
    Case("PrivateTrajectorySampler, sketch", partial(_trajectories, **_FLOW_OF_TIMES), _TIMED),
    Case("PrivateTrajectorySampler, mfld", partial(_trajectories, **_LANGEVIN), _TIMED),
    Case(
        "PrivateTrajectorySampler, mfld from means",
        partial(_trajectories, **_LANGEVIN, warm_start="mean"),
        _TIMED,
    ),
    Case(
        "PrivateTrajectorySampler, mfld from k-means",
        partial(_trajectories, **_LANGEVIN, warm_start="kmeans"),
        _TIMED,
    ),
    Case(
        "PrivateTrajectorySampler, mfld of samples",
        partial(_trajectories, **_LANGEVIN, sampling_rate=0.5),
        _TIMED,
    ),
    Case(
        "PrivateScaler",
        lambda epsilon: PrivateScaler(epsilon, DELTA),
        partial(uniform_rows, 3000, 32),
        epsilons=(1.0,),  # without noise it gives 32 exact medians
    ),
    Case(
        "PrivateScaler, many features",
        lambda epsilon: PrivateScaler(epsilon, DELTA),
        partial(no_rows, 2000),
        FEWER,
        refuted_with_a_tenth=False,  # the case above shows what histograms tell
        epsilons=(math.inf,),
    ),
    Case("PrivateSWAutoencoder", _autoencoder, partial(no_rows, 512), FEWER),
    Case(
        "PrivateSWAutoencoder, Poisson batches",
        partial(_autoencoder, batch_size=200, n_steps=4),
        partial(no_rows, 64),
        FEWER,
    ),
    Case(
        "PrivateSWAutoencoder, prior",
        partial(_autoencoder, penalty="prior", alpha=0.02),
        partial(no_rows, 512),
        FEWER,
    ),
    Case(
        "PrivateSWAutoencoder, parity",
        partial(_autoencoder, penalty="parity"),
        partial(grouped_rows, 4, 64),
        FEWER,
    ),
    Case(
        "PrivateSWAutoencoder, convolutions",
        partial(_autoencoder, architecture="conv", image_shape=(8, 8)),
        partial(no_rows, 64),
        FEWER,
    ),
    Case(
        "DPSlicedGenerator, gradient",
        partial(_generator, mechanism="gradient", n_latents=64, batch_size=10_000, n_steps=3),
        partial(no_rows, 32),
        FEWER,
    ),
    Case("FairPrivateClassifier, sketch", partial(_classifier, n_steps=2), _GROUPED, FEWER),
    Case(
        "FairPrivateClassifier, sketch of Poisson batches",
        partial(_classifier, n_steps=6, batch_fraction=0.3),
        _GROUPED,
        FEWER,
    ),
    Case(
        "FairPrivateClassifier, tuned threshold",
        partial(_classifier, n_steps=2, tune_threshold=True),
        _GROUPED,
        FEWER,
    ),
    Case(
        "FairPrivateClassifier, equalised odds",
        partial(_classifier, n_steps=2, fairness="equalized_odds"),
        _GROUPED,
        FEWER,
    ),
    Case(
        "FairPrivateClassifier, three classes", _classifier, partial(grouped_rows, 8, 512, 3), FEWER
    ),
    Case(
        "FairPrivateClassifier, ranks",
        partial(_classifier, mechanism="ranks", alpha=0.2),
        _GROUPED,
        FEWER,
    ),
    Case(
        "FairPrivateClassifier, ranks of smaller batches",
        partial(_classifier, mechanism="ranks", n_steps=6, batch_fraction=0.3),
        _GROUPED,
        FEWER,
    ),
    Case(
        "FairPrivateClassifier, ranks and equalised odds",
        partial(_classifier, mechanism="ranks", alpha=0.2, fairness="equalized_odds"),
        _GROUPED,
        FEWER,
    ),
    Case("FairPrivateRegressor, sketch", partial(_regressor, n_steps=2), _TARGETS, FEWER),
    Case(
        "FairPrivateRegressor, ranks",
        partial(_regressor, mechanism="ranks", alpha=0.2),
        _TARGETS,
        FEWER,
    ),
    Case(
        "FairPrivateRegressor, private bounds",
        partial(_regressor, n_steps=2, target_bounds="private"),
        _TARGETS,
        FEWER,
    ),
]


def audited(case: Case, epsilon: float, **options: Any) -> Any:
    """Audit a case once; coins and noise are the operating system's."""
    X, y, fit_params = case.data()
    return one_run_audit(
        case.estimator(epsilon),
        X,
        y,
        fit_params=fit_params,
        confidence=CONFIDENCE,
        **({**case.options} | options),
    )


def _parameters(chosen: Callable[[Case], bool]) -> list[Any]:
    return [
        pytest.param(case, id=case.id, marks=[pytest.mark.slow] if case.slow else [])
        for case in CASES
        if chosen(case)
    ]


@pytest.mark.parametrize("case", _parameters(lambda case: 1.0 in case.epsilons))
def test_the_claim_stands(case: Case) -> None:
    result = audited(case, 1.0)
    assert result.epsilon == pytest.approx(1.0, rel=1e-3)
    assert not result.refuted


@pytest.mark.parametrize("case", _parameters(lambda case: math.inf in case.epsilons))
def test_without_noise_the_audit_tells_the_canaries(case: Case) -> None:
    result = audited(case, math.inf)
    assert math.isinf(result.epsilon)
    assert result.epsilon_lower >= 3.0


@pytest.fixture
def a_tenth_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw ten times less noise than is charged, wherever noise is drawn."""

    def less(draw: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def drawn(*args: Any, **options: Any) -> np.ndarray:
            noise = draw(*args, **options)
            return (
                np.rint(noise / 10).astype(noise.dtype) if noise.dtype.kind == "i" else noise / 10
            )

        return drawn

    for name in ("lattice_noise", "gaussian_noise"):
        for module in [m for key, m in sys.modules.items() if key.startswith("skdpot.")]:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, less(getattr(module, name)))


@pytest.mark.parametrize("case", _parameters(lambda case: case.refuted_with_a_tenth))
@pytest.mark.usefixtures("a_tenth_of_the_noise")
def test_a_tenth_of_the_noise_refutes_the_claim(case: Case) -> None:
    assert audited(case, 1.0).refuted
