"""Tables as estimators are given them."""

from typing import Any

import numpy as np

from skdpot._utils.validation import validate_frame, validate_rows
from skdpot.preprocessing.table_frames import Table

__all__ = ["read_table"]


def read_table(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    names: tuple[str, ...] | None,
    min_samples: int = 1,
) -> Table:
    """Validate a table and record its columns on an estimator.

    Parameters
    ----------
    estimator : BaseEstimator
        Receives ``n_features_in_`` and ``feature_names_in_`` when `reset`.
    X : DataFrame of pandas or polars, or array-like of shape (n_samples, n_columns)
        The table. What is no DataFrame must be numbers, NaN where one is missing.
    reset : bool
        True in ``fit``, False afterwards.
    names : tuple of str or None
        Names of the columns of what is no DataFrame, and that a DataFrame must have in any case.
    min_samples : int, default=1
        Smallest number of rows allowed.

    Returns
    -------
    Table

    Raises
    ------
    ValueError, TypeError
        With a message that quotes no value of X.
    """
    if not Table.is_frame(X):
        rows = validate_rows(
            estimator, X, reset=reset, min_samples=min_samples, dtype=(np.float64,), allow_nan=True
        )
        return Table.of(rows, names)
    table = Table.of(X)
    # What a schema leaves out of a fit need not be there afterwards.
    is_what_was_kept = not reset and names is not None and set(table.names) == set(names)
    if not is_what_was_kept or len(table.names) == estimator.n_features_in_:
        validate_frame(estimator, X, reset=reset)
    if table.n_rows < min_samples or not table.names:
        raise ValueError(
            f"Found a table of {table.n_rows} rows and {len(table.names)} columns while a minimum "
            f"of {min_samples} rows and one column is required by {type(estimator).__name__}."
        )
    return table
