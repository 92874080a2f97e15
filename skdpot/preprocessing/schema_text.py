"""Schemas as text in JSON."""

import json
from typing import Any

from skdpot.preprocessing.table_columns import column_from_dict

__all__ = ["schema_fields", "schema_text"]

_FORMAT = "skdpot.TableSchema"
_VERSION = 1
_KEYS = frozenset(("guessed", "excluded", "notes", "columns"))


def schema_text(schema: Any) -> str:
    """Return a schema as JSON.

    Parameters
    ----------
    schema : TableSchema
        The schema.

    Returns
    -------
    str
    """
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "guessed": schema.guessed,
        "excluded": schema.excluded,
        "notes": schema.notes,
        "columns": [column.to_dict() for column in schema.columns],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def schema_fields(text: str) -> dict[str, Any]:
    """Read what `schema_text` wrote.

    Parameters
    ----------
    text : str
        JSON that somebody else may have written.

    Returns
    -------
    dict
        What `TableSchema` takes.

    Raises
    ------
    ValueError
        If it is not a schema, or of an unknown version.
    """
    try:
        content = json.loads(text, object_pairs_hook=_said_once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"This is no schema: it is not valid JSON ({error}).") from None
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise ValueError(f'This is no schema: it does not say "format": "{_FORMAT}".')
    version = content.pop("version", None)
    if type(version) is not int or version != _VERSION:
        raise ValueError(
            f"The schema has version {version!r:.40}; this release reads version {_VERSION}."
        )
    if unknown := set(content) - _KEYS:
        raise ValueError(f"The schema has an unknown entry {min(unknown)!r:.40}.")
    columns = content.pop("columns", None)
    if not isinstance(columns, list):
        raise ValueError("The schema has no list of columns.")
    return {"columns": tuple(column_from_dict(entries) for entries in columns), **content}


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("This is no schema: an entry is said twice.")
    return entries
