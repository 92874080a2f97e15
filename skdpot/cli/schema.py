"""``skdpot schema``: what is to be public about a table, guessed and then confirmed."""

import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from skdpot.cli.console import FAILED, OK, USAGE, CommandError, Console, OutputFile, check_outputs
from skdpot.cli.table_files import FileFormat, read_guessable
from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_schema import TableSchema

__all__ = ["run"]

_GUESSED = (
    "Guessed from the VALUES of {path}. Whatever you confirm below counts as public from then on: "
    "names and kinds of columns, which are left out, bounds, every category, whether numbers are "
    "whole and on which scale, how fine dates are, and whether values may be missing. No privacy "
    "budget covers it."
)
_ADVICE = (
    "A category that one person alone has, or bounds that only the oldest person reaches, are "
    "nobody's business: --private COLUMN has them estimated privately, --range COLUMN=LOW..HIGH "
    "states what everybody knows, --exclude COLUMN leaves the column out."
)
_NO_TERMINAL = (
    "a schema that is guessed from private values must be confirmed by somebody who has seen it, "
    "and there is no terminal to ask on. Run this in a terminal, or pass --yes if the whole guess "
    "may be public."
)


def run(args: Namespace, console: Console) -> int:
    """Guess a schema, show it, ask, and write what was confirmed.

    Parameters
    ----------
    args : Namespace
        The arguments.
    console : Console
        Where to write.

    Returns
    -------
    int
        Exit status: 1 if it was not confirmed.

    Raises
    ------
    CommandError
        If the table or the options do not allow it.
    """
    output = None if args.output is None else OutputFile(args.output, force=args.force)
    check_outputs([output], [args.data])
    if not args.yes and not sys.stdin.isatty():
        raise CommandError(_NO_TERMINAL)
    form = FileFormat(args.sep, args.missing, args.encoding)
    table = read_guessable(args.data, form)
    named = [*args.private, *(text.rpartition("=")[0] for text in args.range)]
    known = [name for name in named if name in Table.of(table).names]
    schema = TableSchema.guess(table, exclude=args.exclude, include=known)
    schema = _with_options(schema, args)
    if not (args.yes and console.quiet):
        _show(schema, args.data, console)
    if not args.yes and not _confirmed(console, args.output):
        console.fail("not confirmed; nothing was written.")
        return FAILED
    schema = schema.confirm()
    if output is None:
        console.text(schema.to_json())
        return OK
    output.write(schema.to_json)
    facts = {"command": "schema", "output": args.output, "columns": _kinds(schema)}
    line = (
        f"wrote {args.output}: {len(schema)} column{'s'[: len(schema) != 1]}, confirmed as public"
    )
    console.result([line], facts, wanted=False)
    return OK


def _with_options(schema: TableSchema, args: Namespace) -> TableSchema:
    """Return the guess with what the options say about columns."""
    schema = schema.replace(*(_ranged(schema, text) for text in args.range))
    names = args.private
    if args.private_all:
        stated = {text.partition("=")[0] for text in args.range}
        names = [name for name in schema.names if name not in stated]
    return schema.replace(*(_column(schema, name, "--private").left_open() for name in names))


def _column(schema: TableSchema, name: str, option: str) -> TableColumn:
    if name in schema.names:
        return schema[name]
    why = next((note for note in schema.notes if note.startswith(repr(name))), None)
    if why is not None:
        raise CommandError(f"{option} {name}: {why}")
    raise CommandError(
        f"{option} names the column {name!r}; there are {', '.join(schema.names)}.", USAGE
    )


def _ranged(schema: TableSchema, text: str) -> TableColumn:
    """Return a column with the bounds that COLUMN=LOW..HIGH states."""
    name, _, ends = text.rpartition("=")
    low, dots, high = ends.partition("..")
    if not (name and dots and low and high):
        raise CommandError(f"--range {text}: write COLUMN=LOW..HIGH.", USAGE)
    column = _column(schema, name, "--range")
    if not column.on_scale:
        raise CommandError(
            f"--range {text}: {name!r} is {column.kind}, without bounds. "
            "Numbers, dates and durations have bounds; convert texts to them first.",
            USAGE,
        )
    scale: Any = column
    try:
        bounds = [scale.typed_bound(end) for end in (low, high)]
    except ValueError as error:
        problem = str(error)
    else:
        return column.replace(lower=bounds[0], upper=bounds[1])
    raise CommandError(f"--range {text}: {problem}", USAGE)


def _show(schema: TableSchema, path: str, console: Console) -> None:
    """Write what would become public, every category of it."""
    rows = [
        (c.name, c.describe(in_full=True) + ("; may be missing" if c.missing else ""))
        for c in schema
    ]
    console.ask(f"{console.paragraph(_GUESSED.format(path=path))}\n\n{console.columns(rows)}\n\n")
    if schema.excluded:
        console.ask(f"{console.paragraph(f'Left out: {_listed(schema.excluded)}.')}\n\n")
    for note in schema.notes:
        console.ask(f"{console.paragraph(f'Note: {note}')}\n\n")
    console.ask(f"{console.paragraph(_ADVICE)}\n")


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(text if text.strip() else repr(text) for text in texts)


def _kinds(schema: TableSchema) -> list[dict[str, Any]]:
    return [
        {"name": column.name, "kind": column.kind, "open": not column.is_resolved}
        for column in schema
    ]


def _confirmed(console: Console, output: str | None) -> bool:
    console.ask(f"\nMay everybody know all of this? Write {output or 'the schema'}? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
