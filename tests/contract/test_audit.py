"""Every mechanism is attacked: what it claims must hold, and the attack must be able to win.

`CASES` holds entries for each estimator and mechanism. Each is audited with noise for ε = 1, where
the lower bound must not exceed 1, and with a tenth of this noise, which the residuals must detect
once the coins are open. Guesses must detect it too, or else prove ε ≥ 3 without noise: an audit
that cannot find anything proves nothing. A correct mechanism is refuted with a probability of at
most 0.1 % by the guesses and 0.001 % by the noise.

The quick tests audit the claim of four cases (`QUICK`) with few canaries, and find too little noise
in a sketch. The slow ones audit all cases with many.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skdpot import (
    ClientContribution,
    DPDomainAdapter,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivatePostProcessor,
    FairPrivateRegressor,
    FairPrivateTransformer,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.audit.attacks import default_score
from skdpot.audit.audited_fit import AuditedFit, AuditTask
from skdpot.audit.canaries import default_canaries
from skdpot.audit.one_run import one_run_audit
from skdpot.mechanisms import TransportedRows
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
FEW_CANARIES = 100
# Few rows, so that audits take seconds: the fits warn that noise hides much.
pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
    pytest.mark.usefixtures("few_synthetic_rows"),
]
BOX = (-1.0, 1.0)


Data = tuple[np.ndarray, np.ndarray | None, Mapping[str, np.ndarray]]


class Case(NamedTuple):
    """One mechanism under attack: an estimator of an epsilon, and the rows beside the canaries."""

    estimator: Callable[..., Any]
    data: Callable[[], Data]
    options: Mapping[str, Any] = {}  # of the audit
    refuted_with_a_tenth: bool = True  # of the noise
    epsilons: tuple[float, ...] = (1.0, math.inf)
    faint: bool = False  # whether guesses tell nothing at a tenth of the noise


def uniform_rows(n_rows: int, n_features: int, n_labels: int = 0) -> Data:
    """Return rows of the box, with labels that take turns if there are any."""
    X = np.random.default_rng(0).uniform(*BOX, size=(n_rows, n_features))
    return X, np.arange(n_rows) % n_labels if n_labels else None, {}


def grouped_rows(n_rows: int, n_features: int, n_labels: int | None = None) -> Data:
    """Return rows of two groups, with classes that both have, or for 0 classes with targets."""
    X, _, _ = uniform_rows(n_rows, n_features)
    places = np.arange(n_rows)
    targets = places // 2 % n_labels if n_labels else np.linspace(*BOX, n_rows)
    return X, None if n_labels is None else targets, {"sensitive_features": places % 2}


def chained_rows(n_rows: int, n_values: int = 8) -> Data:
    """Return numbered categories; each column is a noisy copy of the one before."""
    rng = np.random.default_rng(0)
    X = rng.integers(n_values, size=(n_rows, 8)).astype(float)
    for column in range(1, 8):
        copied = rng.random(n_rows) < 0.6
        X[copied, column] = X[copied, column - 1]
    return X, None, {}


def histogram_score(audited: AuditedFit) -> np.ndarray:
    """Score pairs by the histograms of private bounds alone."""
    only = tuple(release for release in audited.releases if release.kind == "histogram")
    return default_score(replace(audited, releases=only))


_BOUNDED = {"bounds": BOX}
_TABLES = {"projections": "orthogonal", "n_projections": 128, "n_bins": 16}
# One step of batches of all rows: what a step shows is hidden by the noise alone.
_WHOLE = {"n_steps": 1, "learning_rate": 1e-4}


def _made(make: Any, epsilon: float, **parameters: Any) -> Any:
    return make(epsilon=epsilon, delta=DELTA, **parameters)


_sketch = partial(_made, SlicedSketch, **_BOUNDED, **_TABLES)
_flow = partial(_made, flow_sampler, n_particles=16, **_BOUNDED)
_generator = partial(_made, sliced_generator, n_steps=8, latent_dim=2, **_BOUNDED)
_distance = partial(_made, private_distance, n_bins=32, n_projections=64, **_BOUNDED)
_paths = partial(_made, trajectory_sampler, n_particles=10, **_BOUNDED)
_mfld = partial(_paths, mechanism="mfld", schedule=[(1e-4, None, 5)])
_autoencoder = partial(
    _made,
    partial(made, PrivateSWAutoencoder),
    latent_dim=8,
    batch_size=10_000,
    **_WHOLE,
    **_BOUNDED,
)
_classifier = partial(_made, partial(made, FairPrivateClassifier), batch_fraction=1.0, **_WHOLE)
_regressor = partial(
    _made, partial(made, FairPrivateRegressor), batch_fraction=1.0, target_bounds=BOX, **_WHOLE
)


def _public_scores(n_classes: int) -> FrozenEstimator:
    """Return a classifier of classes or groups, by one feature per class."""
    X = BOX[1] * np.eye(n_classes, 512)
    return FrozenEstimator(LogisticRegression(C=10.0).fit(X, np.arange(n_classes)))


# Lists for every two of eight classes, so that each canary is among few.
_post_processor = partial(_made, partial(FairPrivatePostProcessor, _public_scores(8)))
_EIGHT = partial(grouped_rows, 32, 512, 8)
_adapter = partial(
    _made,
    DPDomainAdapter,
    mechanism=TransportedRows(2, learning_rate=1e-4, batch_fraction=1.0, n_projections=64),
)
_NUMBERED = TableSchema([CategoricalColumn(f"x{j}", categories=range(8)) for j in range(8)])
_table = partial(_made, DPTableSynthesizer, schema=_NUMBERED, n_particles=1000)


def _merged(epsilon: float) -> Callable[..., SlicedSketch]:
    blocks = np.linalg.qr(np.random.default_rng(1).normal(size=(2, 64, 64)))[0]
    sketch = _sketch(epsilon, projections=np.concatenate(blocks))

    def fit(X: np.ndarray, y: None) -> SlicedSketch:
        return clone(sketch).fit(X[::2]).merge(clone(sketch).fit(X[1::2]))

    return fit


_NONE = partial(uniform_rows, 0, 64)
_LABELLED = partial(uniform_rows, 20, 64, 4)
_TIMED = partial(uniform_rows, 20, 64, 10)
_GROUPED = partial(grouped_rows, 8, 512, 2)
_TARGETS = partial(grouped_rows, 8, 512, 0)


def _two_domains() -> Data:
    X, y, given = grouped_rows(8, 64, 2)
    return X, y, {"sample_domain": 1 - 2 * given["sensitive_features"]}


FEWER = {"canaries": 400}
# A function does not say for itself what its records are.
_PAIRS = default_canaries(_sketch(1.0), 1000, _NONE()[0], rng=np.random.default_rng(0))
_FEW_STEPS = {"mechanism": "resample", "n_steps": 8, "n_projections": 8}

CASES = {
    "SlicedSketch": Case(_sketch, _NONE),
    "SlicedSketch, private labels": Case(partial(_sketch, conditional=True), _LABELLED),
    "SlicedSketch, public labels": Case(
        partial(_sketch, conditional=True, public_labels=True), _LABELLED,
    ),
    "SlicedSketch, private bounds": Case(
        partial(_sketch, bounds="private", n_bins=32), partial(uniform_rows, 1000, 32),
    ),
    "private bounds alone": Case(
        partial(_sketch, bounds="private"),
        partial(uniform_rows, 1000, 16),
        {"score": histogram_score},
        refuted_with_a_tenth=False,  # a score of one's own: only the guesses are counted
        epsilons=(1.0,),  # without noise there is no histogram
    ),
    "SlicedSketch, merged from two parties": Case(_merged, _NONE, {"canaries": _PAIRS}),
    "DPSlicedFlowSampler, sketch": Case(partial(_flow, n_steps=2, **_TABLES), _NONE),
    "DPSlicedFlowSampler, resample": Case(
        partial(_flow, **_FEW_STEPS), _NONE, faint=True,
    ),
    "DPSlicedFlowSampler, resample a Poisson sample": Case(
        partial(_flow, sampling="poisson", **_FEW_STEPS), _NONE, faint=True,
    ),
    "DPSlicedFlowSampler, presample": Case(
        partial(_flow, mechanism="presample", n_steps=2, n_projections=16),
        _NONE,
        faint=True,
    ),
    "DPSlicedFlowSampler, moments": Case(
        partial(_flow, mechanism="moments", conditional=True), partial(uniform_rows, 20, 48, 4)
    ),
    "DPSlicedGenerator, sketch": Case(partial(_generator, **_TABLES), _NONE),
    "DPSlicedGenerator, smoothing": Case(
        partial(_generator, mechanism="smoothing", n_projections=8), _NONE, faint=True,
    ),
    "DPSlicedGenerator, gradient": Case(
        partial(_generator, mechanism="gradient", n_latents=64, batch_size=10_000, n_steps=3),
        partial(uniform_rows, 0, 32),
        FEWER,
        faint=True,
    ),
    "PrivateWassersteinDistance, sliced": Case(_distance, _NONE),
    "ClientContribution": Case(lambda epsilon: ClientContribution(_distance(epsilon)), _NONE),
    "DPTableSynthesizer": Case(_table, partial(chained_rows, 20_000), FEWER),
    "DPTableSynthesizer, private bounds": Case(
        partial(_table, schema=None), partial(chained_rows, 20_000, 64), FEWER,
    ),
    "PrivateTrajectorySampler, sketch": Case(
        partial(_paths, schedule=[(1.0, None, 2)], **_TABLES | {"n_projections": 64}), _TIMED,
    ),
    "PrivateTrajectorySampler, mfld": Case(_mfld, _TIMED),
    "PrivateTrajectorySampler, mfld from k-means": Case(
        partial(_mfld, warm_start="kmeans"), _TIMED,
    ),
    "PrivateScaler": Case(
        partial(_made, PrivateScaler),
        partial(uniform_rows, 3000, 32),
        epsilons=(1.0,),  # without noise it gives 32 exact medians
    ),
    "PrivateScaler, many features": Case(
        partial(_made, PrivateScaler),
        partial(uniform_rows, 0, 500),
        FEWER,
        refuted_with_a_tenth=False,  # the case above shows what histograms tell
        epsilons=(math.inf,),
    ),
    "PrivateSWAutoencoder": Case(_autoencoder, partial(uniform_rows, 0, 512), FEWER),
    "PrivateSWAutoencoder, Poisson batches": Case(
        partial(_autoencoder, batch_size=200, n_steps=4), _NONE, FEWER, faint=True,
    ),
    "PrivateSWAutoencoder, parity": Case(
        partial(_autoencoder, penalty="parity"),
        partial(grouped_rows, 4, 64),
        FEWER,
        faint=True,
    ),
    "FairPrivateTransformer": Case(
        partial(_made, FairPrivateTransformer), partial(grouped_rows, 4, 64), FEWER,
    ),
    "DPDomainAdapter": Case(_adapter, _two_domains, FEWER),
    "FairPrivateClassifier, sketch": Case(partial(_classifier, n_steps=2), _GROUPED, FEWER),
    "FairPrivateClassifier, sketch of Poisson batches": Case(
        partial(_classifier, n_steps=6, batch_fraction=0.3), _GROUPED, FEWER,
    ),
    "FairPrivateClassifier, equalised odds": Case(
        partial(_classifier, n_steps=2, fairness="equalized_odds"), _GROUPED, FEWER,
    ),
    "FairPrivateClassifier, ranks": Case(
        partial(_classifier, mechanism="ranks", alpha=0.2), _GROUPED, FEWER,
    ),
    "FairPrivateClassifier, bayes": Case(partial(_classifier, mechanism="bayes"), _GROUPED, FEWER),
    "FairPrivateClassifier, bayes that may use the group": Case(
        partial(_classifier, mechanism="bayes", group_aware=True), _GROUPED, FEWER,
    ),
    "FairPrivatePostProcessor": Case(_post_processor, _EIGHT, FEWER),
    "FairPrivatePostProcessor, the group by its estimator": Case(
        partial(_post_processor, group_estimator=_public_scores(2)), _EIGHT, FEWER,
    ),
    "FairPrivateRegressor, barycenter": Case(
        partial(_regressor, mechanism="barycenter"), _TARGETS, FEWER,
    ),
    "FairPrivateRegressor, sketch": Case(partial(_regressor, n_steps=2), _TARGETS, FEWER),
    "FairPrivateRegressor, ranks": Case(
        partial(_regressor, mechanism="ranks", alpha=0.2), _TARGETS, FEWER,
    ),
    "FairPrivateRegressor, private bounds": Case(
        partial(_regressor, n_steps=2, target_bounds="private"), _TARGETS, FEWER,
    ),
}  # fmt: skip

# Audited among the quick tests too, with few canaries: one release of each form.
QUICK = ("SlicedSketch", "DPSlicedFlowSampler, moments", "DPTableSynthesizer", "PrivateScaler")


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


def _parameters(
    chosen: Callable[[Case], bool], is_quick: Callable[[str], bool] = lambda name: False
) -> list[Any]:
    """Return the chosen cases, which are slow unless they are quick ones."""
    return [
        pytest.param(case, id=name, marks=() if is_quick(name) else pytest.mark.slow)
        for name, case in CASES.items()
        if chosen(case)
    ]


def stands(case: Case, **options: Any) -> None:
    result = audited(case, 1.0, **options)
    assert result.epsilon == pytest.approx(1.0, rel=1e-3)
    assert not result.refuted


@pytest.mark.parametrize("case", [pytest.param(CASES[name], id=name) for name in QUICK])
def test_the_claim_stands(case: Case) -> None:
    """With few canaries, so that one fit takes a moment."""
    stands(case, canaries=FEW_CANARIES)


@pytest.mark.parametrize("case", _parameters(lambda case: 1.0 in case.epsilons))
def test_the_claim_stands_against_many_canaries(case: Case) -> None:
    stands(case)


@pytest.mark.parametrize("case", _parameters(lambda case: case.faint or 1.0 not in case.epsilons))
def test_without_noise_the_audit_tells_the_canaries(case: Case) -> None:
    result = audited(case, math.inf)
    assert math.isinf(result.epsilon)
    assert result.epsilon_lower >= 3.0


@pytest.fixture
def a_tenth_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw ten times less noise than is charged, wherever noise is drawn.

    No leak is looked for: the noise alone must refute the claim.
    """

    def less(draw: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def drawn(*args: Any, **options: Any) -> np.ndarray:
            noise = draw(*args, **options)
            tenth = noise / 10
            return np.rint(tenth).astype(noise.dtype) if noise.dtype.kind == "i" else tenth

        return drawn

    monkeypatch.setattr(AuditTask, "leak", lambda task, heads: None)
    for name in ("lattice_noise", "gaussian_noise"):
        for module in [m for key, m in sys.modules.items() if key.startswith("skdpot.")]:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, less(getattr(module, name)))


@pytest.mark.parametrize(
    "case",
    _parameters(lambda case: case.refuted_with_a_tenth, lambda name: name == "SlicedSketch"),
)
@pytest.mark.usefixtures("a_tenth_of_the_noise")
def test_a_tenth_of_the_noise_refutes_the_claim(case: Case) -> None:
    result = audited(case, 1.0)
    assert result.refuted
    assert result.epsilon_lower > 0 or case.faint  # by guesses, with closed coins
