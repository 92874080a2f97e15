"""Values of training rows, and contributions of clients: what the distances are compared with.

All see raw rows, or what models trained on them weigh, and labels. Higher values are better.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone

__all__ = [
    "Federation",
    "data_shapley",
    "exact_shapley",
    "gtg_shapley",
    "knn_shapley",
    "leave_one_client_out",
    "leave_one_out",
    "multi_rounds",
    "shapley",
]


def knn_shapley(X, y, X_test, y_test, *, n_neighbors=5):
    """Return the exact Shapley values of rows for a nearest-neighbour vote.

    The recursion of Jia et al., "Efficient task-specific data valuation for nearest neighbor
    algorithms", VLDB 2019, Theorem 1: from the farthest row to the nearest.
    """
    order = np.argsort(cdist(X_test, X), axis=1, kind="stable")
    agrees = (y[order] == y_test[:, None]).astype(float)
    n_rows = len(X)
    ranks = np.arange(1, n_rows)
    gains = (agrees[:, :-1] - agrees[:, 1:]) / n_neighbors * np.minimum(n_neighbors, ranks) / ranks
    last = agrees[:, -1:] / n_rows
    by_rank = np.concatenate([np.cumsum(gains[:, ::-1], axis=1)[:, ::-1] + last, last], axis=1)
    values = np.zeros(n_rows)
    np.add.at(values, order.ravel(), by_rank.ravel())
    return values / len(X_test)


def leave_one_out(model, X, y, X_test, y_test):
    """Return how much the test log-likelihood falls when a row is left out, model refitted."""
    whole = _log_likelihood(clone(model).fit(X, y), X_test, y_test)
    values = np.empty(len(X))
    for i in range(len(X)):
        kept = np.arange(len(X)) != i
        without = clone(model).fit(X[kept], y[kept])
        values[i] = whole - _log_likelihood(without, X_test, y_test)
    return values


def _log_likelihood(model, X, y):
    probabilities = model.predict_proba(X)[np.arange(len(X)), np.searchsorted(model.classes_, y)]
    return float(np.mean(np.log(np.maximum(probabilities, 1e-12))))


# Contributions of clients to a model that they train together.


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients who train softmax regression by federated averaging, and a server that judges it.

    Every round each client takes `n_steps` steps of gradient descent on all of its rows from the
    server's weights, and the server takes the mean of theirs.
    """

    clients: tuple  # pairs of rows and digits
    server: tuple
    n_rounds: int = 5
    n_steps: int = 5
    step: float = 5.0

    def train(self, members):
        """Return the weights before each round and at last, and the updates of every round."""
        weights = [np.zeros((self.server[0].shape[1] + 1, 10))]
        updates = []
        for _ in range(self.n_rounds if len(members) else 0):
            updates.append({k: self._update(weights[-1], *self.clients[k]) for k in members})
            weights.append(weights[-1] + np.mean(list(updates[-1].values()), axis=0))
        return weights, updates

    def worth(self, weights):
        """Return the accuracy on the server's rows."""
        X, y = self.server
        return float(np.mean((_with_one(X) @ weights).argmax(axis=1) == y))

    def retrained(self, members):
        """Return the accuracy of a model of these clients alone."""
        return self.worth(self.train(members)[0][-1])

    def _update(self, weights, X, y):
        rows, targets, found = _with_one(X), np.eye(10)[y], weights
        for _ in range(self.n_steps):
            scores = rows @ found
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            found = found - self.step * rows.T @ (shares - targets) / len(rows)
        return found - weights


def _with_one(X):
    return np.column_stack([X, np.ones(len(X))])


def shapley(n_clients, worth):
    """Return Shapley values from the worth of every set of clients, a function of a tuple."""
    sets = [s for size in range(n_clients + 1) for s in combinations(range(n_clients), size)]
    known = {s: worth(s) for s in sets}
    values = np.zeros(n_clients)
    for members in sets[1:]:
        share = 1 / (n_clients * comb(n_clients - 1, len(members) - 1))
        for k in members:
            rest = tuple(m for m in members if m != k)
            values[k] += share * (known[members] - known[rest])
    return values


def exact_shapley(federation):
    """Train a model for every set of clients (ExactFed)."""
    return shapley(len(federation.clients), federation.retrained)


def leave_one_client_out(federation):
    """Train a model without each client."""
    everybody = range(len(federation.clients))
    whole = federation.retrained(everybody)
    return np.array(
        [whole - federation.retrained([m for m in everybody if m != k]) for k in everybody]
    )


def multi_rounds(federation):
    """Make models of all sets from the updates of each round (MR, Song et al. 2019)."""
    n_clients = len(federation.clients)
    weights, updates = federation.train(range(n_clients))

    def of_round(before, given):
        def worth(members):
            moved = np.mean([given[k] for k in members], axis=0) if members else 0.0
            return federation.worth(before + moved)

        return shapley(n_clients, worth)

    return sum(of_round(before, given) for before, given in zip(weights, updates, strict=False))


def gtg_shapley(federation, seed=0, *, within=0.01, between=0.005, n_orders=None):
    """Sample orders of the clients in each round, with truncation (GTG-Shapley, Liu et al. 2022).

    A round that changes the worth by less than `between` counts for nothing; an order ends where
    the worth of all is reached up to `within`. Every client is first equally often.
    """
    rng, n_clients = np.random.default_rng(seed), len(federation.clients)
    weights, updates = federation.train(range(n_clients))
    values = np.zeros(n_clients)
    n_orders = n_orders or 2 * n_clients
    for before, after, given in zip(weights, weights[1:], updates, strict=False):
        start, end = federation.worth(before), federation.worth(after)
        if abs(end - start) < between:
            continue
        for number in range(n_orders):
            first = number % n_clients
            others = rng.permutation(np.delete(np.arange(n_clients), first))
            last, total = start, 0.0
            for size, k in enumerate([first, *others], start=1):
                if abs(end - last) < within:
                    break
                total = total + given[k]
                reached = federation.worth(before + total / size)
                values[k] += (reached - last) / n_orders
                last = reached
    return values


def data_shapley(federation, seed=0, *, n_orders=None, within=0.01):
    """Sample orders of the clients and train anew for each prefix (Ghorbani and Zou 2019)."""
    rng, n_clients = np.random.default_rng(seed), len(federation.clients)
    values, whole = np.zeros(n_clients), federation.retrained(range(n_clients))
    empty, n_orders = federation.retrained(()), n_orders or 2 * n_clients
    for _ in range(n_orders):
        order, last = rng.permutation(n_clients), empty
        for size, k in enumerate(order, start=1):
            if abs(whole - last) < within:
                break
            reached = federation.retrained(order[:size])
            values[k] += (reached - last) / n_orders
            last = reached
    return values
