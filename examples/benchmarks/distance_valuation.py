"""Which rows are noise, and which clients help: parts of ``bench_distance.py``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from distance_baselines import (
    Federation,
    data_shapley,
    exact_shapley,
    gtg_shapley,
    knn_shapley,
    leave_one_client_out,
    leave_one_out,
    multi_rounds,
    shapley,
)
from distance_tasks import Detection, client_rows, noisy_adult, noisy_mnist, training_market
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsRegressor

from skdpot import ClientContribution, PrivateWassersteinDistance
from skdpot.exceptions import NotPrivateWarning, PrivacyWarning
from skdpot.mechanisms import FedWad, Sliced, Triangle
from skdpot.ot.data_values import DataValues

__all__ = ["contribution", "detection", "noise_levels", "parties", "selection", "timing"]

N_ROWS = 500
INSPECTED = np.arange(1, 21) / 20
CLIENT_CASES = ("noisy pixels", "few classes")


def detection(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield the share of noisy rows found, by method, data set, seed and share inspected."""
    for seed in range(seeds):
        for name, load in (("MNIST", noisy_mnist), ("Adult", noisy_adult)):
            task = load(N_ROWS, seed, data)
            for method, values, seconds in _valued(task):
                inspected, found = DataValues(values).detection_curve(task.is_noisy)
                for share in INSPECTED:
                    yield {
                        "seed": seed,
                        "data": name,
                        "method": method,
                        "inspected": share,
                        "found": float(np.interp(share, inspected, found)),
                        "seconds": seconds,
                    }


def noise_levels(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield how well values tell noisy images from others, by the deviation of the noise."""
    for seed in range(seeds):
        for noise in (0.1, 0.3, 0.6, 1.0):
            task = noisy_mnist(N_ROWS, seed, data, noise)
            for method, values, _ in _valued(task, SKETCHES | {"TriangleWad, scale 1": TRIANGLE}):
                area = roc_auc_score(task.is_noisy, values)
                yield {"seed": seed, "noise": noise, "method": method, "area": area}


def selection(seeds: int, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the test error of a regressor trained on the rows of most value, without labels."""
    for seed in range(10 * seeds):
        X, y, X_test, y_test = training_market(seed)
        for name, parameters in {
            "TriangleWad, scale 0.1": {"protocol": Triangle(gamma_scale=0.1)},
            "TriangleWad, scale 5": {"protocol": Triangle(gamma_scale=5.0)},
            "sketch, ε = 3": {
                "protocol": Sliced(n_projections=10),
                "epsilon": 3.0,
                "bounds": (-8, 8),
            },
            "sketch, ε = ∞": {
                "protocol": Sliced(n_projections=10),
                "epsilon": np.inf,
                "bounds": (-8, 8),
            },
            "random": None,
        }.items():
            values = np.random.default_rng(seed).random(len(X))
            if parameters is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NotPrivateWarning)
                    warnings.simplefilter("ignore", PrivacyWarning)
                    fitted = PrivateWassersteinDistance(**parameters).fit(X_test)
                values = fitted.score_samples(X)
            for n_rows in (50, 100, 200, 400, len(X)):
                chosen = DataValues(values).most_valuable(n_rows)
                model = KNeighborsRegressor(5).fit(X[chosen], y[chosen])
                error = float(np.mean((model.predict(X_test) - y_test) ** 2))
                yield {"seed": seed, "method": name, "n_rows": n_rows, "error": error}


def contribution(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield rank correlations between contributions and exact Shapley values of five clients."""
    for seed in range(seeds):
        for case in CLIENT_CASES:
            clients, server = client_rows(case, seed, data)
            start = perf_counter()
            truth = _shapley(clients, server)
            facts = {"seed": seed, "case": case, "shapley_seconds": perf_counter() - start}
            for method, shares, seconds in _shares(clients, server[0]):
                found = list(truth.values()), [shares[name] for name in truth]
                yield facts | {
                    "method": method,
                    "rank_correlation": spearmanr(*found).statistic,
                    "correlation": float(np.corrcoef(*found)[0, 1]),
                    "least": min(shares.values()),
                    "largest": max(shares.values()),
                    "seconds": seconds,
                }


TRIANGLE: dict[str, Any] = {"protocol": Triangle(gamma_scale=1.0)}
SKETCHES: dict[str, Any] = {"sketch, ε = 1": {"epsilon": 1.0}, "sketch, ε = ∞": {"epsilon": np.inf}}
METHODS = {
    "TriangleWad, scale 1": TRIANGLE,
    "TriangleWad, scale 100, 20 points": {"protocol": Triangle(gamma_scale=100.0, n_support=20)},
    "FedWad (FedBary)": {"protocol": FedWad(n_rounds=10)},
    **SKETCHES,
}


def _valued(
    task: Detection, methods: dict[str, Any] = METHODS
) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield values of the rows, large for noise."""
    for name, parameters in methods.items():
        if "protocol" not in parameters:
            parameters = parameters | {"bounds": (-task.limit, task.limit)}
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            warnings.simplefilter("ignore", PrivacyWarning)  # noise drowns 500 rows
            fitted = PrivateWassersteinDistance(**parameters).fit(task.X_clean)
        values = fitted.score_samples(task.X)
        yield name, values, perf_counter() - start
    if methods is not METHODS:
        return
    rows = (task.X, task.y, task.X_clean, task.y_clean)
    start = perf_counter()
    yield "KNN-Shapley", -knn_shapley(*rows), perf_counter() - start
    start = perf_counter()
    model = LogisticRegression(C=0.1, max_iter=2000)
    yield "leave one out", -leave_one_out(model, *rows), perf_counter() - start


def _shares(
    clients: dict[str, tuple[np.ndarray, np.ndarray]], server: np.ndarray
) -> Iterator[tuple[str, dict[str, float], float]]:
    rows = {name: X for name, (X, _) in clients.items()}
    for name, parameters in {
        "sketch, ε = 1": {"epsilon": 1.0, "bounds": (-1, 1)},
        "sketch, ε = 3": {"epsilon": 3.0, "bounds": (-1, 1)},
        "TriangleWad": {"protocol": Triangle(gamma_scale=0.01, n_support=500)},
    }.items():
        distance = PrivateWassersteinDistance(**parameters)
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            judge = ClientContribution(distance).fit(server)
            table = judge.contributions(_published(judge, rows))
        seconds, distances = perf_counter() - start, table["distance"]
        yield name, table["contribution"].to_dict(), seconds
        of_the_paper = (1 - distances / distances.sum()) / (len(table) - 1)
        yield f"{name}, linear in the distance", of_the_paper.to_dict(), seconds


def _shapley(
    clients: dict[str, tuple[np.ndarray, np.ndarray]], server: tuple[np.ndarray, np.ndarray]
) -> dict[str, float]:
    """Return exact Shapley values of the clients for the accuracy on the server's rows."""
    data = list(clients.values())

    def worth(members: tuple[int, ...]) -> float:
        if not members:
            return float(np.bincount(server[1]).max() / len(server[1]))
        X, y = (np.concatenate([data[k][part] for k in members]) for part in (0, 1))
        return float(LogisticRegression(C=0.01, max_iter=1000).fit(X, y).score(*server))

    return dict(zip(clients, shapley(len(data), worth), strict=True))


def timing(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield processor seconds of contributions, and their correlation with exact Shapley values."""
    for seed in range(seeds):
        for n_clients, slowest in SLOWEST.items():
            clients, server = client_rows("few classes", seed, data, 500, n_clients)
            federation, truth = Federation(tuple(clients.values()), server), None
            for method, values, seconds in _timed(clients, server, federation, slowest):
                truth = values if method == "exact Shapley" else truth
                row = {"seed": seed, "clients": n_clients, "method": method, "seconds": seconds}
                if truth is not None:
                    row["correlation"] = float(np.corrcoef(values, truth)[0, 1])
                yield row


def parties(seeds: int, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the time of a matrix of private distances between parties of 10,000 x 16."""
    for seed in range(seeds):
        for n_parties in (6, 20, 100):
            rng = np.random.default_rng([seed, n_parties])
            data = {f"{k}": rng.normal(0.002 * k, 0.2, (10_000, 16)) for k in range(n_parties)}
            private = PrivateWassersteinDistance(bounds=(-1, 1))
            start, used = perf_counter(), process_time()
            private.pairwise_distances(data)
            seconds = perf_counter() - start
            processor = process_time() - used
            yield {"seed": seed, "parties": n_parties, "seconds": seconds, "processor": processor}


BASELINES = {  # by how much they take, most first
    "exact Shapley": exact_shapley,
    "MR": multi_rounds,
    "Data Shapley": data_shapley,
    "GTG-Shapley": gtg_shapley,
    "leave one out": leave_one_client_out,
}
SLOWEST = {5: 0, 10: 0, 20: 2, 50: 3, 100: 3}  # the first of these that is run, by clients


def _timed(clients: Any, server: Any, federation: Federation, slowest: int) -> Iterator[Any]:
    for name in list(BASELINES)[slowest:]:
        start = process_time()
        values = BASELINES[name](federation)
        yield name, values, process_time() - start
    rows = {name: X for name, (X, _) in clients.items()}
    methods: dict[str, dict[str, Any]] = {
        "sketch, ε = 1": {"epsilon": 1.0, "bounds": (-1, 1)},
        "sketch, ε = 3": {"epsilon": 3.0, "bounds": (-1, 1)},
        "TriangleWad": {"protocol": Triangle(gamma_scale=0.01)},
    }
    if len(clients) <= 10:
        methods["FedBary (FedWad)"] = {"protocol": FedWad(n_rounds=10)}
    for name, parameters in methods.items():
        start = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            warnings.simplefilter("ignore", PrivacyWarning)
            judge = ClientContribution(PrivateWassersteinDistance(**parameters)).fit(server[0])
            table = judge.contributions(_published(judge, rows))
        yield name, table.loc[list(rows), "contribution"].to_numpy(), process_time() - start


def _published(judge: ClientContribution, rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Let clients publish, if the protocol is private; the other ones take rows."""
    if not judge.estimator_.protocol_.is_private:
        return rows
    return {client: judge.estimator_.publish(X) for client, X in rows.items()}
