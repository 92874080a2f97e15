"""Schemas as tables that people read."""

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from skdpot.preprocessing.column_base import TableColumn
from skdpot.privacy.display import html_card

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
    head = "".join(f"<td>{title}</td>" for title in ("column", "kind", "values", "missing"))
    rows = [f'<tr class="part">{head}</tr>']
    for name, row in zip(schema.names, schema.to_frame().itertuples(index=False), strict=True):
        cells = "".join(f"<td>{escape(str(cell))}&ensp;</td>" for cell in (name, *row[:3]))
        rows.append(f"<tr>{cells}</tr>")
    parts = [f"<table><tbody>{''.join(rows)}</tbody></table>"]
    if schema.guessed:
        parts.insert(0, _part("Guessed from the values: whatever is confirmed becomes public."))
    if schema.excluded:
        parts.append(_part(f"Left out: {', '.join(schema.excluded)}"))
    parts.extend(_part(note) for note in schema.notes)
    return html_card("Table schema", f"{len(schema)} columns", *parts)


def _part(text: str) -> str:
    return f'<div class="part">{escape(text)}</div>'
