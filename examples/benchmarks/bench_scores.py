"""
How good private scores are before anything is done with them
=============================================================

Trains linear scores on Adult or COMPAS (``fair_tasks.py``) with `skdpot.fair.scores` and
judges them on the test rows: accuracy, log loss, expected calibration error (15 bins of the
probability of the more probable class) and seconds of the fit, means over splits. Beside them are
logistic regression of scikit-learn without privacy, and DP-SGD as in the mechanism "sketch" of
`FairPrivateClassifier` with nothing to compare. "joint" is one softmax over the cells (group,
class), of which the probabilities of the class are sums. "noisy moments" is least squares from
second moments with Gaussian noise and a ridge, as in AdaSSP (Wang 2018), and "noisy objective" is
logistic regression by objective perturbation (Kifer, Smith, Thakurta 2012); of four ridges the one
that is best on the test rows, in their favour. Both need short rows: on Adult alone, with
indicators 0 and 1.
"ranking" scores are to be recalibrated afterwards. δ = 1e-5, replace-one.

Run ``python bench_scores.py [--data adult] [--epsilons 0.3 1 3] [--splits 3]``; a minute on one
core.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch
from fair_tasks import DATA_SETS, DEFAULT_DATA, FairTask, load_task
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import skdpot
from skdpot._utils.streams import spawn_streams
from skdpot.exceptions import PrivacyWarning
from skdpot.fair.scores import plan_scores
from skdpot.nets.networks import build_predictor, evaluate
from skdpot.privacy.gdp import gdp_mu

DELTA = 1e-5
N_BINS = 15
LONGEST = np.sqrt(12.0)


def by_sklearn(task: FairTask, epsilon: float, seed: int) -> np.ndarray:
    """Return probabilities of class 1 without privacy."""
    return (
        LogisticRegression(solver="newton-cholesky")
        .fit(task.X, task.y)
        .predict_proba(task.X_test)[:, 1]
    )


def by_dpsgd(task: FairTask, epsilon: float, seed: int) -> np.ndarray:
    """Return probabilities of class 1 by DP-SGD with Adam, secret batches of a fifth."""
    mechanism = skdpot.mechanisms.SketchedOutputs(alpha=0.0)
    settings = {"epsilon": epsilon, "delta": DELTA, "random_state": seed}
    classifier = skdpot.FairPrivateClassifier(mechanism=mechanism, **settings)
    return classifier.fit(task.X, task.y).predict_proba(task.X_test)[:, 1]


def short_rows(task: FairTask) -> list[np.ndarray]:
    """Return training and test rows of Adult with an intercept, of norm `LONGEST` at most."""
    found = [np.column_stack([np.ones(len(X)), X]) for X in (task.X, task.X_test)]
    for X in found:
        X[:, 6:] = (X[:, 6:] + 1.0) / 2.0  # after the intercept and five numbers in [-1, 1]
        X *= np.minimum(1.0, LONGEST / np.linalg.norm(X, axis=1, keepdims=True))
    return found


def by_moments(task: FairTask, epsilon: float, seed: int) -> np.ndarray:
    """Return probabilities of class 1 by ridge regression on noisy second moments."""
    rows, rows_test = short_rows(task)
    d, rng = rows.shape[1], np.random.default_rng(seed)
    mu = gdp_mu(epsilon, DELTA) / np.sqrt(2.0)  # half of the squared mu each
    of_products, of_targets = np.sqrt(2.0) * LONGEST**2 / mu, 2.0 * LONGEST / mu
    noise = np.triu(of_products * rng.normal(size=(d, d)))
    products = rows.T @ rows + noise + np.triu(noise, 1).T
    targets = rows.T @ (2.0 * task.y - 1.0) + of_targets * rng.normal(size=d)
    found = []
    for ridge in of_products * np.sqrt(d) * np.array([0.5, 1.0, 2.0, 4.0]):
        slopes = np.linalg.solve(products + ridge * np.eye(d), targets)
        found.append(np.clip((rows_test @ slopes + 1.0) / 2.0, 0.0, 1.0))
    return max(found, key=lambda p: np.mean((p > 0.5) == task.y_test))


def by_objective(task: FairTask, epsilon: float, seed: int) -> np.ndarray:
    """Return probabilities of class 1 by logistic regression with a perturbed objective.

    The minimum of the sum of losses plus <b, theta> plus a ridge, with Gaussian b of deviation s.
    Gradients are at most R long and curvatures at most R^2 / 4. A minimum determines b. Replacing a
    row moves it by at most 2 R in a plane that the two rows span, where b is shorter than t s but
    for a probability of exp(-t^2 / 2) = delta, and changes the determinant of the map by a factor
    of at most 1 + R^2 / (4 ridge). So the minimum is (epsilon, delta)-private if epsilon is
    log(1 + R^2 / (4 ridge)) + 2 R t / s + 2 R^2 / s^2.
    """
    rows, rows_test = short_rows(task)
    signs, rng = 2.0 * task.y - 1.0, np.random.default_rng(seed)
    t, normal = np.sqrt(2.0 * np.log(1.0 / DELTA)), rng.normal(size=rows.shape[1])

    def objective(theta: np.ndarray, ridge: float, b: np.ndarray) -> tuple[float, np.ndarray]:
        margins = signs * (rows @ theta)
        value = np.logaddexp(0.0, -margins).sum() + b @ theta + 0.5 * ridge * theta @ theta
        return float(value), rows.T @ (-signs * expit(-margins)) + b + ridge * theta

    found = []
    for share in (0.02, 0.05, 0.1, 0.2):  # of epsilon, for the ridge
        ridge = LONGEST**2 / 4.0 / np.expm1(share * epsilon)
        sigma = 2.0 * LONGEST / (np.sqrt(t**2 + 2.0 * (1.0 - share) * epsilon) - t)
        given = (ridge, sigma * normal)
        theta = minimize(objective, 0.0 * normal, given, jac=True, method="L-BFGS-B").x
        found.append(expit(rows_test @ theta))
    return max(found, key=lambda p: np.mean((p > 0.5) == task.y_test))


def by_scores(
    task: FairTask,
    epsilon: float,
    seed: int,
    *,
    joint: bool = False,
    module: str = "linear",
    recalibrated: bool = False,
) -> np.ndarray:
    """Return probabilities of class 1 by private scores, of the class or of the cells."""
    names, groups = np.unique(task.groups, return_inverse=True)
    n_outputs = 2 * len(names) if joint else 1
    torch.manual_seed(seed)
    network = build_predictor(module, task.X.shape[1], n_outputs)
    loss, targets = ("softmax", 2 * groups + task.y) if joint else ("logistic", task.y)
    mu, n = gdp_mu(epsilon, DELTA), len(task.y)
    plan = plan_scores(mu, network, n, loss, recalibrated=recalibrated)
    streams = spawn_streams(seed, "bench")
    outputs = evaluate(
        plan.train(network, task.X, targets, streams, caller="bench"), task.X_test, None
    )
    return softmax(outputs, axis=1)[:, 1::2].sum(1) if joint else expit(outputs[:, 0])


METHODS = {
    "logistic regression": by_sklearn,
    "DP-SGD": by_dpsgd,
    "noisy moments": by_moments,
    "noisy objective": by_objective,
    "scores": by_scores,
    "scores, ranking": lambda *cell: by_scores(*cell, recalibrated=True),
    "scores, joint": lambda *cell: by_scores(*cell, joint=True),
    "scores, mlp": lambda *cell: by_scores(*cell, module="mlp"),
}


def calibration_error(y: np.ndarray, p: np.ndarray) -> float:
    """Return the expected calibration error of decisions at one half."""
    decided = p > 0.5
    confidence, right = np.maximum(p, 1.0 - p), decided == y
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    gaps = np.bincount(bins, right - confidence, N_BINS)
    return float(np.abs(gaps).sum() / len(y))


def judged(task: FairTask, method: str, epsilon: float, seed: int) -> dict[str, float]:
    """Fit and judge one method on one split."""
    start = time.perf_counter()
    p = METHODS[method](task, epsilon, seed)
    return {
        "accuracy": float(np.mean((p > 0.5) == task.y_test)),
        "log loss": log_loss(task.y_test, p),
        "calibration error": calibration_error(task.y_test, p),
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--data", choices=sorted(DATA_SETS), default="adult")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS)[:-1])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.3, 1.0, 3.0])
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", PrivacyWarning)  # seeds are for benchmarks, too
    rows = []
    for seed in range(options.splits):
        task = load_task(options.data, DEFAULT_DATA, group_feature=False, seed=seed)
        for method in options.methods:
            for epsilon in [np.inf] if method == "logistic regression" else options.epsilons:
                rows.append({"method": method, "epsilon": epsilon})
                rows[-1] |= judged(task, method, epsilon, seed)
    table = pd.DataFrame(rows).groupby(["method", "epsilon"], sort=False).mean()
    print(table.round(4).to_string())


if __name__ == "__main__":
    main()
