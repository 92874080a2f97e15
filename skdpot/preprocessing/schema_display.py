"""Schemas as tables that people read."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from skdpot._utils.pages import html_card
from skdpot.preprocessing.column_base import TableColumn

__all__ = ["schema_card", "schema_frame"]


def schema_frame(columns: Sequence[TableColumn]) -> pd.DataFrame:
    """Return one row a column.

    Parameters
    ----------
    columns : sequence of TableColumn
        The columns of a schema.

    Returns
    -------
    DataFrame
        Indexed by name.
    """
    rows = [
        {
            "kind": column.kind,
            "values": column.describe(),
            "missing": "allowed" if column.missing else "no",
            "dtype": column.dtype or "as in the table",
        }
        for column in columns
    ]
    return pd.DataFrame(rows, index=pd.Index([column.name for column in columns], name="column"))


def schema_card(schema: Any) -> str:
    """Return a schema as HTML for notebooks.

    Parameters
    ----------
    schema : TableSchema
        The schema.

    Returns
    -------
    str
    """
    shown = schema.to_frame().itertuples(index=False)
    rows = [(name, *row[:3]) for name, row in zip(schema.names, shown, strict=True)]
    options = {"template": "schema.html", "schema": schema, "rows": rows}
    return html_card("Table schema", f"{len(schema)} columns", **options)
