"""Tables as estimators are given them."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from skdpot._utils.validation import validate_frame, validate_rows
from skdpot.preprocessing.table_frames import Table

__all__ = ["read_table"]

_NO_TABLE = (
    "X must be a DataFrame of pandas or polars; of what is none, each argument must be a string "
    "of digits or a number. Pass a DataFrame, for instance pandas.DataFrame(X). The offending "
    "value is not shown because it may be private."
)


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
        The table. Tables of Arrow are read as polars reads them; what else is no DataFrame must
        be numbers, NaN where one is missing.
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
        _check_numbers(X)
        rows = validate_rows(
            estimator,
            X,
            reset=reset,
            min_samples=min_samples,
            dtype=(np.float64,),
            allow_nan=True,
            not_numeric=_NO_TABLE,
        )
        return Table.of(rows, names)
    table = Table.of(X)
    # What a schema leaves out of a fit need not be there afterwards.
    is_what_was_kept = not reset and names is not None and set(table.names) == set(names)
    if not is_what_was_kept or len(table.names) == estimator.n_features_in_:
        validate_frame(estimator, table.data, reset=reset)
    lacking = [] if reset or names is None else [n for n in names if n not in table.names]
    if lacking:  # of one that was fitted to an array
        raise ValueError(f"The table has no columns {', '.join(map(repr, lacking))}.")
    if table.n_rows < min_samples or not table.names:
        raise ValueError(
            f"Found a table of {table.n_rows} rows and {len(table.names)} columns while a minimum "
            f"of {min_samples} rows and one column is required by {type(estimator).__name__}."
        )
    return table


def _check_numbers(X: Any) -> None:
    """Refuse what is often passed for a table and is none, before it is read as numbers."""
    if isinstance(X, str | bytes | PathLike):
        raise TypeError(
            f"X must be a table, not the {type(X).__name__} that names one: read it first, for "
            "instance with pandas.read_csv, and pass the DataFrame."
        )
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a LazyFrame: call collect() first, and pass the DataFrame.")
    dicts = isinstance(X, list) and len(X) > 0 and isinstance(X[0], Mapping)
    if dicts or (isinstance(X, Mapping) and not hasattr(X, "shape")):
        raise TypeError(_NO_TABLE)
