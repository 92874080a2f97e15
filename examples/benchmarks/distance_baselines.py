"""Values of training rows for a classifier of test rows: what data valuation is compared with.

Both see the raw rows and the labels of everybody. Higher values are better rows.
"""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone

__all__ = ["knn_shapley", "leave_one_out"]


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
