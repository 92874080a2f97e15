"""How often a private result is worse than the trivial answer, and says so or does not.

Every estimator is fitted to a panel of tables of 100 to 50,000 rows, 2 to 200 columns and 1 to 20
classes or groups, at ε of 0.3, 1, 3 and 10. A fit is *bad* if its output is worse than the trivial
answer by more than a margin, and *good* if its error is below half of that of the trivial answer.
The table counts bad fits that no warning named, and good fits that had a warning.

The kinds of data: ``laws`` (made-up; constants were tuned on them), ``shared`` (Adult, COMPAS and
pendigits; looked at while tuning) and ``sklearn`` (the sets that scikit-learn bundles; for the
report only). Run: ``python examples/benchmarks/bench_reliability.py --kinds sklearn``.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from reliability_panel import KINDS, PanelData, panel
from sklearn.metrics import r2_score
from sklearn.preprocessing import minmax_scale

from skdpot import (
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    FairPrivateTransformer,
    PrivateScaler,
    PrivateSWAutoencoder,
    PrivateTrajectorySampler,
    PrivateWassersteinDistance,
)
from skdpot.exceptions import FairnessWarning, PrivacyWarning
from skdpot.mechanisms import DPSGD, Moments, Resample, Sketch
from skdpot.metrics import disparate_impact, sliced_wasserstein_distance

EPSILONS = (0.3, 1.0, 3.0, 10.0)
_ABOUT_THE_SEED = "makes the privacy noise reproducible"


@dataclass(frozen=True)
class Judged:
    """The error of an output, that of the trivial answer, the margin, and that of named parts."""

    error: float
    trivial: float
    margin: float
    named_error: float = 0.0


def scaler(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Scales, as the largest ratio to those without noise among features that are not named."""
    fitted = PrivateScaler(epsilon, random_state=seed).fit(data.X)
    true = PrivateScaler(np.inf).fit(data.X).scale_
    told = getattr(getattr(fitted, "reliability_", None), "unreliable", ())
    ratios = np.abs(np.log(fitted.scale_ / true))
    is_named = np.array([f"the scale of feature {j}" in told for j in range(len(true))])
    unnamed, named = (float(np.max(ratios[part], initial=0.0)) for part in (~is_named, is_named))
    return fitted, Judged(unnamed, np.log(4.0), 0.0, named)


def sampler(mechanism: Any, bounds: str) -> Callable[..., tuple[Any, Judged]]:
    """Sliced distance of a copy to the rows, in ranges; trivial: uniform in the ranges."""

    def judge(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
        X = minmax_scale(data.X) if bounds == "public" else data.X
        options = {"bounds": (0.0, 1.0)} if bounds == "public" else {}
        chosen = mechanism() if callable(mechanism) else mechanism
        fitted = DPSlicedFlowSampler(chosen, epsilon=epsilon, random_state=seed, **options).fit(X)
        return fitted, _copies(X, fitted.sample(2000, random_state=seed), seed)

    return judge


def generator(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """As for the sampler."""
    X = minmax_scale(data.X)
    fitted = DPSlicedGenerator(epsilon=epsilon, bounds=(0.0, 1.0), n_steps=100, random_state=seed)
    return fitted.fit(X), _copies(X, fitted.sample(2000, random_state=seed), seed)


def autoencoder(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Squared error of reconstructions, in ranges; trivial: the mean."""
    X = minmax_scale(data.X)
    options: dict[str, Any] = {"bounds": (0.0, 1.0), "random_state": seed}
    options |= {"mechanism": DPSGD(n_steps=200)}
    fitted = PrivateSWAutoencoder(2, epsilon=epsilon, **options)
    made = fitted.fit(X).inverse_transform(fitted.transform(X))
    total = float(X.var(axis=0).mean())
    return fitted, Judged(float(((X - made) ** 2).mean()), total, 0.1 * total)


def classifier(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Error rate; trivial: the largest class."""
    X = 2.0 * minmax_scale(data.X) - 1.0
    fitted = FairPrivateClassifier(epsilon=epsilon, classes=np.unique(data.y), random_state=seed)
    fitted.fit(X, data.y, sensitive_features=data.groups)
    wrong = float(np.mean(fitted.predict(X) != data.y))
    return fitted, Judged(wrong, 1.0 - np.bincount(data.y).max() / len(data.y), 0.03)


def decisions(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Shortfall of the disparate impact of two classes; trivial: a constant, which has none."""
    if data.groups is None:
        return None, Judged(0.0, 0.0, 0.2)
    X, y = 2.0 * minmax_scale(data.X) - 1.0, (data.y > 0).astype(int)
    fitted = FairPrivateClassifier(epsilon=epsilon, level=0.8, random_state=seed)
    decided = fitted.fit(X, y, sensitive_features=data.groups).predict(X)
    if min(decided.mean(), 1.0 - decided.mean()) < 0.01:  # a constant decision is fair
        return fitted, Judged(0.0, 0.0, 0.25)
    impact = disparate_impact(decided, sensitive_features=data.groups)
    return fitted, Judged(max(0.8 - impact, 0.0), 0.0, 0.25)


def regressor(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """One minus R²; trivial: the mean."""
    X = 2.0 * minmax_scale(data.X) - 1.0
    fitted = FairPrivateRegressor(epsilon=epsilon, random_state=seed)
    fitted.fit(X, data.target, sensitive_features=data.groups)
    return fitted, Judged(1.0 - r2_score(data.target, fitted.predict(X)), 1.0, 0.1)


def transformer(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Distance between groups after the transform; trivial: the rows as they are."""
    if data.groups is None or data.X.shape[1] > 40:
        return None, Judged(0.0, 0.0, 1.0)
    X, groups = minmax_scale(data.X), data.groups == data.groups[0]
    fitted = FairPrivateTransformer(epsilon=epsilon, bounds=(0.0, 1.0), random_state=seed)
    made = fitted.fit(X, sensitive_features=groups).transform(X, sensitive_features=groups)
    error, trivial = (sliced_wasserstein_distance(Z[groups], Z[~groups]) for Z in (made, X))
    return fitted, Judged(error, trivial, 0.05)


def trajectories(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Root mean square error of the means of the times, in ranges; trivial: one mean."""
    X, times = minmax_scale(data.X[:, :6]), data.y
    sizes = np.bincount(times)
    if len(sizes) < 2 or sizes.min() < 2:
        return None, Judged(0.0, 0.0, 1.0)
    fitted = PrivateTrajectorySampler(epsilon=epsilon, bounds=(0.0, 1.0), random_state=seed)
    paths = fitted.fit(X, times).sample(2000, random_state=seed)
    true = np.array([X[times == t].mean(axis=0) for t in range(len(sizes))])
    named = getattr(getattr(fitted, "reliability_", None), "unreliable", ())
    kept = np.array([f"rows at time {t}" not in named for t in range(len(sizes))])
    errors = np.sqrt(((paths.mean(axis=0) - true) ** 2).mean(axis=1))
    trivials = np.sqrt(((X.mean(axis=0) - true) ** 2).mean(axis=1))
    hidden = (errors >= 0.5 * np.maximum(trivials, 0.1))[~kept].any()
    of_named = math.inf if hidden else 0.0
    if not kept.any():
        return fitted, Judged(0.0, 1.0, 0.1, of_named)
    errors, trivials = errors[kept], trivials[kept]
    worst = int(np.argmax(errors - trivials))
    return fitted, Judged(float(errors[worst]), float(trivials[worst]), 0.1, of_named)


def distance(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Distance between two halves, one of which is moved, in ranges; trivial: no distance."""
    X = 0.7 * minmax_scale(data.X)
    half = np.random.default_rng(seed).permutation(len(X)) < len(X) // 2
    here, there = X[half], X[~half] + 0.3 * (seed % 2)
    fitted = PrivateWassersteinDistance(epsilon=epsilon, bounds=(0.0, 1.0), random_state=seed)
    found = fitted.fit(here).distance(there)
    true = sliced_wasserstein_distance(here, there)
    return fitted, Judged(abs(float(found) - true), true, 0.1)


def table(data: PanelData, epsilon: float, seed: int) -> tuple[Any, Judged]:
    """Total variation of tenths of the range of the worst column; trivial: uniform."""
    frame = pd.DataFrame(data.X[:, :30]).add_prefix("c")
    fitted = DPTableSynthesizer(epsilon=epsilon, random_state=seed).fit(frame)
    made = fitted.sample(2000, random_state=seed)
    told = " ".join(getattr(getattr(fitted, "reliability_", None), "unreliable", ()))
    words, unnamed, named = told.replace(",", " ").split(), [], []
    for name in frame:
        edges = np.linspace(frame[name].min(), frame[name].max(), 11)
        true, copied = (
            np.histogram(np.clip(part[name].astype(float), edges[0], edges[-1]), edges)[0]
            for part in (frame, made)
        )
        true, copied = true / len(frame), copied / len(made)
        pair = np.abs(true - copied).sum() / 2.0, np.abs(true - 0.1).sum() / 2.0
        (named if name in words else unnamed).append(pair)
    error, trivial = max(unnamed, key=lambda pair: pair[0] - pair[1], default=(0.0, 1.0))
    hidden = any(of_named >= 0.5 * max(beside, 0.1) for of_named, beside in named)
    return fitted, Judged(error, trivial, 0.1, math.inf if hidden else 0.0)


JUDGES: dict[str, Callable[..., tuple[Any, Judged]]] = {
    "scaler": scaler,
    "flow, sketch, public bounds": sampler(Sketch, "public"),
    "flow, sketch, private bounds": sampler(Sketch, "private"),
    "flow, moments": sampler(Moments, "public"),
    "flow, resample": sampler(Resample, "public"),
    "generator": generator,
    "autoencoder": autoencoder,
    "classifier, accuracy": classifier,
    "classifier, disparate impact": decisions,
    "regressor": regressor,
    "transformer": transformer,
    "trajectories": trajectories,
    "distance": distance,
    "table": table,
}


def _copies(X: np.ndarray, made: np.ndarray, seed: int) -> Judged:
    low, span = X.min(axis=0), np.maximum(np.ptp(X, axis=0), 1e-300)
    true, copied = (X - low) / span, np.clip((made - low) / span, -3.0, 4.0)
    rng = np.random.default_rng(seed)
    uniform = rng.uniform(size=(2000, X.shape[1]))
    error, trivial = (sliced_wasserstein_distance(true, part) for part in (copied, uniform))
    return Judged(error, trivial, 0.05)


def fitted_once(name: str, data: PanelData, epsilon: float, seed: int) -> dict[str, Any] | None:
    """Fit once, and compare the error with what was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted, judged = JUDGES[name](data, epsilon, seed)
    if fitted is None:
        return None
    told = [
        str(warning.message)
        for warning in caught
        if issubclass(warning.category, PrivacyWarning | FairnessWarning)
        and _ABOUT_THE_SEED not in str(warning.message)
    ]
    bad = judged.error > judged.trivial + judged.margin
    worst = max(judged.error, judged.named_error)
    good = not bad and worst < max(0.5 * judged.trivial, 0.5 * judged.margin)
    return {
        "estimator": name,
        "data": data.name,
        "epsilon": epsilon,
        "seed": seed,
        "error": judged.error,
        "trivial": judged.trivial,
        "bad": bad,
        "good": good,
        "told": bool(told),
        "warning": told[0] if told else "",
    }


def _cells(options: argparse.Namespace) -> Iterator[tuple[str, PanelData, float, int]]:
    tables = [data for kind in options.kinds for data in panel(kind, options.data)]
    tables = [data for data in tables if len(data.X) <= options.most_rows]
    for name in options.estimators:
        for data in tables:
            for epsilon in options.epsilons:
                for seed in range(options.seeds):
                    yield name, data, epsilon, seed


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Count bad fits in silence, and good fits with a warning."""
    silent = results["bad"] & ~results["told"]
    alarmed = results["good"] & results["told"]
    counts = results.assign(silent=silent, alarmed=alarmed).groupby("estimator", sort=False)
    found = counts[["bad", "silent", "good", "alarmed"]].sum()
    found.insert(0, "fits", counts.size())
    return found


def main() -> None:
    """Run the panel, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--estimators", nargs="+", choices=[*JUDGES], default=[*JUDGES])
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--most-rows", type=int, default=50_000)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a CSV file of all fits")
    options = parser.parse_args()
    done = Parallel(options.jobs, verbose=1)(
        delayed(fitted_once)(*cell) for cell in _cells(options)
    )
    results = pd.DataFrame([item for item in done if item is not None])
    if options.out:
        results.to_csv(options.out, index=False)
    print(summary(results).to_string())


if __name__ == "__main__":
    main()
