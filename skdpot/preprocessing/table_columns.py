"""The kinds of columns that a schema can have."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from skdpot.preprocessing.boolean_column import BooleanColumn
from skdpot.preprocessing.categorical_column import CategoricalColumn
from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.datetime_column import DatetimeColumn
from skdpot.preprocessing.numeric_column import NumericColumn
from skdpot.preprocessing.table_dtypes import dtype_family

__all__ = [
    "BooleanColumn",
    "CategoricalColumn",
    "CodedColumn",
    "DatetimeColumn",
    "NumericColumn",
    "ScaledColumn",
    "TableColumn",
    "column_for_dtype",
    "column_from_dict",
]

# What is encoded as a number between two bounds, and what as one of several categories.
ScaledColumn: TypeAlias = NumericColumn | DatetimeColumn
CodedColumn: TypeAlias = CategoricalColumn | BooleanColumn

_KINDS: dict[str, type[TableColumn]] = {
    column.kind: column
    for column in (NumericColumn, DatetimeColumn, CategoricalColumn, BooleanColumn)
}
_OF_FAMILY: dict[str, type[TableColumn]] = {
    "integer": NumericColumn,
    "float": NumericColumn,
    "boolean": BooleanColumn,
    "datetime": DatetimeColumn,
    "text": CategoricalColumn,
    "category": CategoricalColumn,
}


def column_for_dtype(name: str, dtype: str, missing: bool) -> TableColumn:
    """Return the column that a data type suggests, with nothing else known.

    Parameters
    ----------
    name : str
        Name of the column.
    dtype : str
        Name of its data type.
    missing : bool
        Whether values may be missing.

    Returns
    -------
    TableColumn
    """
    return _OF_FAMILY[dtype_family(dtype)].from_dtype(name, dtype, missing)


def column_from_dict(entries: Any) -> TableColumn:
    """Rebuild a column from what its `to_dict` returned.

    Parameters
    ----------
    entries : mapping
        The kind and the fields of a column; somebody else may have written them.

    Returns
    -------
    TableColumn

    Raises
    ------
    ValueError
        If it is not the description of a column.
    """
    if not isinstance(entries, Mapping):
        raise ValueError("Every column of a schema must be an object with a kind and a name.")
    fields = dict(entries)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(
            f"A column has the unknown kind {kind!r:.40}; there are {', '.join(_KINDS)}."
        )
    return _KINDS[kind].from_dict(fields)
