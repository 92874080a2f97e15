"""Schemas that commands read: confirmed ones, and their columns."""

from pathlib import Path

from skdpot.cli.console import USAGE, CommandError, explain
from skdpot.tables.column_base import TableColumn
from skdpot.tables.schema import TableSchema


def known_column(schema: TableSchema, name: str, option: str = "--where") -> TableColumn:
    """Return the column that an option names; the error says why the schema lacks it."""
    if name in schema.names:
        return schema[name]
    for note in schema.notes:
        if note.startswith(repr(name)):
            raise CommandError(f"{option} {name}: {note}")
    raise CommandError(
        f"{option} names the column {name!r}; there are {', '.join(schema.names)}.", USAGE
    )


def confirmed_schema(path: str) -> TableSchema:
    """Read a confirmed schema."""
    try:
        schema = TableSchema.from_json(Path(path))
    except UnicodeDecodeError:
        raise CommandError(f"{path}: this is not a schema: it is not UTF-8 text.") from None
    except ValueError as error:
        raise CommandError(f"{path}: {explain(error)[0]}") from None
    if schema.guessed:
        raise CommandError(
            f"{path} was guessed from private values and has not been confirmed. Create one with "
            '`skdpot schema`, or replace what is not public and set "guessed" to false.'
        )
    return schema
