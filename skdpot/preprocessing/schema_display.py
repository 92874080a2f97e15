"""Schemas as tables that people read."""

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from skdpot.preprocessing.column_base import TableColumn
from skdpot.privacy.display import html_card

__all__ = ["schema_card", "schema_frame"]

_NARROW = "white-space:nowrap;padding-right:1rem;width:1%"


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
    rows = [f'<tr class="part">{_cells(("column", "kind", "values", "missing"))}</tr>']
    for name, row in zip(schema.names, schema.to_frame().itertuples(index=False), strict=True):
        rows.append(f"<tr>{_cells((name, *row[:3]))}</tr>")
    parts = [f"<table><tbody>{''.join(rows)}</tbody></table>"]
    if schema.guessed:
        parts.insert(0, _part("Guessed from the values: whatever is confirmed becomes public."))
    if schema.excluded:
        parts.append(_part(f"Left out: {', '.join(schema.excluded)}"))
    parts.extend(_part(note) for note in schema.notes)
    return html_card("Table schema", f"{len(schema)} columns", *parts)


def _cells(texts: Sequence[str]) -> str:
    """Return the cells of a row, of which only the long third one is broken into lines."""
    styles = [_NARROW, _NARROW, "padding-right:1rem", _NARROW]
    return "".join(
        f'<td style="{style}">{escape(text)}</td>'
        for style, text in zip(styles, texts, strict=True)
    )


def _part(text: str) -> str:
    return f'<div class="part">{escape(text)}</div>'
