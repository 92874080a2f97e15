"""Pieces of a privacy report, as HTML: paragraphs, lists, boxes, pictures and tables."""

from collections.abc import Iterable
from html import escape

__all__ = ["box", "bullets", "escaped", "paragraphs", "picture", "table"]


def escaped(text: str) -> str:
    """Escape text, and keep numbers and the signs after them on one line."""
    return escape(text).replace(" %", "&nbsp;%").replace("ε ≥ ", "ε&nbsp;≥&nbsp;")


def paragraphs(*texts: str) -> str:
    """Return a paragraph for each text."""
    return "".join(f"<p>{escaped(text)}</p>" for text in texts)


def bullets(items: Iterable[str]) -> str:
    """Return a list; texts that begin with a small letter elsewhere get a large one."""
    return (
        f"<ul>{''.join(f'<li>{escape(item[:1].upper() + item[1:])}</li>' for item in items)}</ul>"
    )


def box(kind: str, text: str) -> str:
    """Return a coloured box: good, neutral, caution or stop."""
    return f'<div class="box {kind}">{escaped(text)}</div>'


def picture(address: str, words: str) -> str:
    """Return a picture with words for those who do not see it."""
    return f'<img src="{address}" alt="{escape(words)}">'


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table with a head; all columns but the first hold numbers.

    Cells name their column for narrow screens, where a row becomes a block of lines.
    """
    columns = list(columns)
    heads = "".join(
        f"<th{' class=n' if i else ''}>{escape(column)}</th>" for i, column in enumerate(columns)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td{" class=n" if i else ""} data-label="{escape(column)}">{escaped(cell)}</td>'
            for i, (column, cell) in enumerate(zip(columns, row, strict=True))
        )
        + "</tr>"
        for row in rows
    )
    return f'<table class="stack"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>'
