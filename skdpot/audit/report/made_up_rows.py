"""Rows that look like those an estimator was fitted on, made of what it has released."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skdpot.audit.evidence.tables import numbered

__all__ = ["MadeUpRows", "make_up_rows"]


@dataclass(frozen=True, eq=False, kw_only=True)
class MadeUpRows:
    """Rows for a fit that says nothing about anybody.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Rows.
    y : ndarray of shape (n_rows,) or None
        What `fit` takes beside them.
    fit_params : mapping of str to ndarray of shape (n_rows,), default={}
        What it takes by keyword.
    parameters : mapping of str to object, default={}
        Parameters that a copy of the estimator needs for these rows.
    """

    X: np.ndarray
    y: np.ndarray | None = None
    fit_params: Mapping[str, np.ndarray] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


def make_up_rows(estimator: Any, n_rows: int, rng: np.random.Generator) -> MadeUpRows:
    """Make rows from fitted attributes and public parameters.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    n_rows : int
        About how many; trajectories round it up to equally many at each time.
    rng : numpy.random.Generator
        Draws them.

    Returns
    -------
    MadeUpRows
        Synthetic rows of a sampler, else random points in the released bounds. Labels and groups
        are drawn from the public sets of them. Rows of a table are numbered by the cells that it
        counts in, because the rows of an audit are numbers.

    Privacy
    -------
    Post-processing of what was released: it costs nothing, and no private row is looked at.
    """
    seed = int(rng.integers(2**31))
    if hasattr(estimator, "sample_marginal"):
        each = -(-n_rows // len(estimator.times_))
        rows = [np.asarray(estimator.sample_marginal(t, each, seed)) for t in estimator.times_]
        return MadeUpRows(X=np.concatenate(rows), y=np.repeat(estimator.times_, each))
    if hasattr(estimator, "sample_labeled") and hasattr(estimator, "classes_"):
        rows, labels = estimator.sample_labeled(n_rows, random_state=seed)
        return MadeUpRows(X=np.asarray(rows), y=np.asarray(labels))
    if hasattr(estimator, "schema_") and hasattr(estimator, "sample"):
        schema, X = numbered(estimator, estimator.sample(n_rows, random_state=seed))
        return MadeUpRows(X=X, parameters={"schema": schema})
    if hasattr(estimator, "sample"):
        X = np.asarray(estimator.sample(n_rows, random_state=seed))
    else:
        X = _points(estimator, n_rows, rng)
    return MadeUpRows(X=X, y=_labels(estimator, n_rows, rng), fit_params=_groups(estimator, n_rows))


def _points(estimator: Any, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw points from the released range of each feature."""
    cube = rng.uniform(-1.0, 1.0, size=(n_rows, estimator.n_features_in_))
    bounds = getattr(estimator, "bounds_", None)
    if bounds is not None:
        points: np.ndarray = bounds.from_ball(cube * bounds.radius / np.sqrt(cube.shape[1]))
        return points
    if hasattr(estimator, "center_") and hasattr(estimator, "scale_"):  # a scaler
        center = 0.0 if estimator.center_ is None else estimator.center_
        scale = 1.0 if estimator.scale_ is None else estimator.scale_
        return center + 2.0 * scale * cube
    return cube


def _labels(estimator: Any, n_rows: int, rng: np.random.Generator) -> np.ndarray | None:
    """Draw classes or targets."""
    if is_regressor(estimator) and hasattr(estimator, "target_bounds_"):
        bounds = estimator.target_bounds_
        cube = rng.uniform(-1.0, 1.0, size=(n_rows, bounds.n_features))
        targets: np.ndarray = bounds.from_ball(cube * bounds.radius / np.sqrt(bounds.n_features))
        return targets[:, 0] if bounds.n_features == 1 else targets
    if is_classifier(estimator) or hasattr(estimator, "classes_"):
        # In turn, so that every class has its rows.
        return rng.permutation(np.resize(estimator.classes_, n_rows))
    return None


def _groups(estimator: Any, n_rows: int) -> Mapping[str, np.ndarray]:
    """Deal out groups in blocks, so that every class meets every group."""
    groups = getattr(estimator, "groups_", None)
    if groups is None and getattr(estimator, "penalty", None) == "parity":
        groups = np.arange(2)
    if groups is None:
        return {}
    return {"sensitive_features": np.resize(np.asarray(groups), n_rows)}
