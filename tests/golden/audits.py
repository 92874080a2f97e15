"""Audits of small seeded fits with seeded coins.

Coins of an audit come from the operating system. For a recording they come from
``numpy.random.default_rng()`` with a seed in the place of none; that is the only thing that is
replaced. Scores, right guesses, the bound and the residuals of the noise are recorded.
"""

from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np

from skdpot import (
    ClientContribution,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivateScaler,
    PrivateSWAutoencoder,
    PrivateWassersteinDistance,
    SlicedSketch,
)
from skdpot.audit import one_run_audit
from skdpot.audit.attacks import default_score
from skdpot.preprocessing import CategoricalColumn, TableSchema
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)
from tests.golden.fits import Exact, Found, Single

__all__ = ["AUDITS"]

BOX = {"bounds": (-1.0, 1.0)}
SEED = {"epsilon": 4.0, "delta": 1e-6, "random_state": 3}
TABLES = {"projections": "orthogonal", "n_projections": 16, "n_bins": 8}
FLOW = {"n_particles": 12, "n_projections": 4, "n_steps": 4}
PATHS = {"n_particles": 6} | BOX | SEED
WHOLE = {"n_steps": 2, "learning_rate": 1e-4}
FAIR = {"batch_fraction": 1.0, "n_projections": 4, **WHOLE} | SEED
NET = {"latent_dim": 2, "batch_size": 1000} | WHOLE | BOX | SEED


def rows(n_rows: int, n_features: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, size=(n_rows, n_features)).round(6)


def audit(
    estimator: Any,
    X: np.ndarray,
    y: np.ndarray | None = None,
    fit_params: Mapping[str, np.ndarray] | None = None,
    n_canaries: int = 60,
) -> Found:
    make, scores = np.random.default_rng, []

    def seeded(*seed: Any) -> np.random.Generator:
        return make(*(seed or (99,)))

    def score(audited: Any) -> np.ndarray:
        scores.append(default_score(audited))
        return scores[0]

    options = {"canaries": n_canaries, "fit_params": fit_params, "random_state": 1}
    with mock.patch.object(np.random, "default_rng", seeded):
        result = one_run_audit(estimator, X, y, **options)
        one_run_audit(estimator, X, y, score=score, **options)
    checks = [] if result.noise is None else result.noise.checks
    return {
        "scores": Single(scores[0]),
        "right guesses of all": int(result.right.sum()),
        "correct guesses": result.n_correct,
        "lower bound": result.epsilon_lower,
        "ceiling": result.ceiling,
        "claim": np.array([result.epsilon, result.delta]),
        "gaussian": result.gaussian,
        "leak": Exact(repr(result.leak)),
        "residuals: numbers": np.array([check.n_numbers for check in checks]),
        "residuals": Single([check.energy for check in checks]),
        "hidden": Single([check.hidden for check in checks]),
    }


TIMES = np.arange(64) % 4
GROUPED = {"sensitive_features": np.arange(64) % 2}
CLASSES = np.arange(64) // 2 % 2
CODES = np.random.default_rng(0).integers(4, size=(60, 3)).astype(float)
NUMBERED = TableSchema([CategoricalColumn(f"x{j}", categories=range(4)) for j in range(3)])


def flow(mechanism: str, **options: Any) -> Found:
    return audit(flow_sampler(mechanism, **(FLOW | BOX | SEED | options)), np.empty((0, 8)))


def generator(mechanism: str, **options: Any) -> Found:
    settings = {"n_steps": 3, "latent_dim": 2, "n_projections": 4} | BOX | SEED | options
    return audit(sliced_generator(mechanism, **settings), np.empty((0, 8)))


def paths(mechanism: str, **options: Any) -> Found:
    sampler = trajectory_sampler(mechanism, **(PATHS | options))
    return audit(sampler, rows(64, 6), TIMES)


def classifier(**options: Any) -> Found:
    return audit(made(FairPrivateClassifier, **(FAIR | options)), rows(64, 6), CLASSES, GROUPED)


def regressor(**options: Any) -> Found:
    targets = np.linspace(-1, 1, 64)
    estimator = made(FairPrivateRegressor, **({"target_bounds": (-1, 1)} | FAIR | options))
    return audit(estimator, rows(64, 6), targets, GROUPED)


def sketch(X: np.ndarray, y: np.ndarray | None = None, **options: Any) -> Found:
    return audit(SlicedSketch(conditional=y is not None, **TABLES, **SEED, **options), X, y)


def distance() -> PrivateWassersteinDistance:
    return private_distance(n_bins=8, n_projections=16, **BOX, **SEED)


NOBODY = np.empty((0, 16))


def autoencoder(X: np.ndarray = NOBODY, given: Any = None, **options: Any) -> Found:
    return audit(made(PrivateSWAutoencoder, **(NET | options)), X, None, given)


def table(**options: Any) -> Found:
    return audit(DPTableSynthesizer(n_particles=100, **SEED, **options), CODES)


THIRDS = np.arange(20) % 3
AUDITS: dict[str, Callable[[], Found]] = {
    "scaler": lambda: audit(PrivateScaler(**SEED), rows(400, 4)),
    "sketch": lambda: sketch(NOBODY, **BOX),
    "sketch, classes": lambda: sketch(rows(20, 16), THIRDS, **BOX),
    "sketch, public classes": lambda: sketch(rows(20, 16), THIRDS, public_labels=True, **BOX),
    "sketch, private bounds": lambda: sketch(rows(600, 8)),
    "flow, sketch": lambda: flow("sketch", n_bins=8),
    "flow, resample": lambda: flow("resample"),
    "flow, resample, batches": lambda: flow("resample", batch_size=20, n_steps=2),
    "flow, resample, poisson": lambda: flow("resample", sampling="poisson", n_steps=2),
    "flow, presample": lambda: flow("presample"),
    "flow, moments": lambda: flow("moments"),
    "generator, sketch": lambda: generator("sketch", n_bins=8),
    "generator, smoothing": lambda: generator("smoothing"),
    "generator, gradient": lambda: generator("gradient", n_latents=16, batch_size=1000),
    "distance": lambda: audit(distance(), np.empty((0, 8))),
    "contribution": lambda: audit(ClientContribution(distance()), np.empty((0, 8))),
    "autoencoder": autoencoder,
    "autoencoder, prior": lambda: autoencoder(penalty="prior", alpha=0.1),
    "autoencoder, parity": lambda: autoencoder(rows(64, 16), GROUPED, penalty="parity"),
    "autoencoder, convolutions": lambda: autoencoder(
        np.empty((0, 64)), architecture="conv", image_shape=(8, 8)
    ),
    "autoencoder, batches": lambda: autoencoder(batch_size=20),
    "classifier": classifier,
    "classifier, threshold": lambda: classifier(tune_threshold=True),
    "classifier, odds": lambda: classifier(fairness="equalized_odds"),
    "classifier, ranks": lambda: classifier(mechanism="ranks", alpha=0.2),
    "classifier, ranks, odds": lambda: classifier(
        mechanism="ranks", alpha=0.2, fairness="equalized_odds"
    ),
    "regressor": regressor,
    "regressor, ranks": lambda: regressor(mechanism="ranks", alpha=0.2),
    "regressor, private bounds": lambda: regressor(target_bounds="private", epsilon=40.0),
    "paths, sketch": lambda: paths("sketch", n_projections=8, n_bins=8, schedule=[(1.0, None, 2)]),
    "paths, mfld": lambda: paths("mfld", schedule=[(1e-4, None, 3)]),
    "paths, mfld, mean": lambda: paths("mfld", schedule=[(1e-4, None, 2)], warm_start="mean"),
    "paths, mfld, kmeans": lambda: paths("mfld", schedule=[(1e-4, None, 2)], warm_start="kmeans"),
    "paths, mfld, batches": lambda: paths(
        "mfld", schedule=[(1e-4, None, 2)], batch_fraction=0.5, noise_multiplier=8.0
    ),
    "table": lambda: table(schema=NUMBERED),
    "table, target": lambda: table(schema=NUMBERED, target="x0"),
    "table, nothing known": table,
}
