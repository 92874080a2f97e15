"""``skdpot schema``: guess or state a schema, show it, and write it once it is confirmed."""

import json
import math
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import permutations, starmap
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.cli.console import USAGE, CommandError, Console, OutputFile, counted_columns
from skdpot.cli.schemas import known_column
from skdpot.cli.table_files import FileFormat, is_parquet, read_guessable, read_header
from skdpot.tables.column_base import TableColumn
from skdpot.tables.frames import Table
from skdpot.tables.identifiers import tells_who
from skdpot.tables.proposals import CATEGORIES, DURATIONS, TRUTHS, Proposal, propose, told_column
from skdpot.tables.rules import LessEqual, numbers_of
from skdpot.tables.schema import TableSchema
from skdpot.tables.texts import plain_number
from skdpot.tables.timedelta_column import TimedeltaColumn

_GUESSED = (
    "Guessed from the VALUES of {}. Everything that you confirm below becomes public: names and "
    "kinds of columns, which columns are left out, bounds, every category, whether numbers are "
    "integers and on which scale, how numbers and dates are written, the resolution and the time "
    "zone of dates, and whether values may be missing. No privacy budget covers it."
)
_STATED = (
    "No value of {} was read. What you confirm below, which becomes public, follows from the names "
    "of its columns, the data types of a Parquet file, and the options. Bounds and categories that "
    "are left open are estimated by the fit, which pays for them."
)
_UNSTATED = (
    "--no-values reads no value: say what {} hold. --number COLUMN=1234 has whole numbers, "
    "=1234.50 others, '=1.234,50 EUR' amounts, --date COLUMN=%d/%m/%Y dates, --boolean COLUMN yes "
    "and no, --range COLUMN=LOW..HIGH any of these on a scale, and --category COLUMN texts, of "
    "which frequent ones are selected privately. --leave-out COLUMN leaves one out, and "
    "--category '*' makes categories of all others."
)
_ADVICE = (
    "A category that only one person has, or a bound that only the oldest person reaches, must not "
    "become public: --private COLUMN estimates bounds or categories privately, --range "
    "COLUMN=LOW..HIGH states known bounds, --leave-out COLUMN leaves the column out."
)
_SHOWN = ("column", "kind", "read as", "why", "note")
_NO_TERMINAL = (
    "a schema must be confirmed by someone who has read it, and there "
    "is no terminal to ask on. Run this in a terminal, or pass --yes if all of it may be public."
)

_DAY = 10  # characters of a date without a time
_FEWEST_IN_ORDER = 100  # rows with both dates


def run_schema(args: Namespace, console: Console) -> None:
    """Propose a schema, show it, ask for confirmation, and write it."""
    outputs = OutputFile.of(args, ["output"], [args.data])
    if not (args.yes or args.show) and not sys.stdin.isatty():
        raise CommandError(_NO_TERMINAL)
    form = FileFormat(args.sep, args.missing, args.encoding)
    told = _told(args)
    if args.no_values:
        table = read_header(args.data, form)
        told = _told_of_all(args, told, Table.of(table).names)
    else:
        table = read_guessable(args.data, form, told)
    named = [*args.private, *(text.rpartition("=")[0] for text in args.range)]
    known = [name for name in named if name in Table.of(table).names]
    proposals = propose(table, args.leave_out, known, told, by_values=not args.no_values)
    schema = TableSchema.of_proposals(proposals)
    schema = schema.replace(*(_ranged(schema, text) for text in args.range))
    schema = _with_rules(schema.replace(*_left_open(schema, args)), args)
    orders = {} if args.no_values else _orders(schema, Table.of(table))
    shown = _shown(schema, proposals, orders)
    facts = {
        "command": "schema",
        "output": args.output,
        "rows": None if args.no_values else len(table),
        "columns": [dict(zip(_SHOWN, row, strict=True)) for row in shown[1:]],
        "orders": [one.to_dict() for one in starmap(LessEqual, orders) if one not in schema.rules],
        "schema": json.loads(schema.to_json()),
    }
    lines = [console.columns(shown), *(f"rule: {rule.in_words}" for rule in schema.rules)]
    if args.show:
        console.result(lines, facts, wanted=True)
        return
    if not (args.yes and console.quiet):
        title = (_STATED if args.no_values else _GUESSED).format(args.data)
        advice = "" if args.no_values else f"\n{console.paragraph(_ADVICE)}\n"
        console.say("\n".join([console.paragraph(title), "", *lines, advice]))
    if not args.yes:
        place = args.output or "the schema"
        console.say(f"\nMay all of this become public? Write {place}? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("not confirmed; nothing was written.")
    schema = schema.confirm()
    if not outputs:
        console.text(schema.to_json())
        return
    outputs["output"].write(schema.to_json)
    line = f"wrote {args.output}: {counted_columns(len(schema))}, confirmed as public"
    console.result([line], facts, wanted=False)


def _told(args: Namespace) -> dict[str, Any]:
    """Return how options say that texts of columns are read."""
    told: dict[str, Any] = dict.fromkeys(args.category, CATEGORIES)
    told |= dict.fromkeys(args.boolean, TRUTHS)
    for option, is_date in (("date", True), ("number", False)):
        for text in getattr(args, option):
            name, _, how = text.rpartition("=")
            if ("%y" in how.lower()) != is_date or not (name and how):
                example = "visit=%d/%m/%Y" if is_date else "'cost=1.234,50 EUR'"
                raise CommandError(f"--{option} {text}: write it like {example}.", USAGE)
            before = told.get(name)
            formats = before if isinstance(before, tuple) else ()
            told[name] = (*formats, how) if is_date else how
            try:
                told_column(name, told[name], True)
            except ValueError as error:
                raise CommandError(f"--{option} {text}: {error}", USAGE) from None
    return told


def _told_of_all(args: Namespace, told: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return how all columns are read, by options for single columns and for all others."""
    is_typed, rest = is_parquet(args.data), None if "*" in names else told.get("*")
    ways = {name: how for name, how in told.items() if name != "*" or rest is None}
    if not is_typed:
        for name, _, ends in (text.rpartition("=") for text in args.range):
            ways.setdefault(name, _kind_of(*(end.strip() for end in ends.partition("..")[::2])))
    others = [
        name
        for name in names
        if name not in (*ways, *args.leave_out) and (name in args.private or not tells_who(name))
    ]
    if others and rest is None and not is_typed:
        raise CommandError(_UNSTATED.format(", ".join(map(repr, others))))
    return ways if rest is None else ways | dict.fromkeys(others, rest)


def _kind_of(low: str, high: str) -> Any:
    """Return the kind of values between two ends, by how the ends are written."""
    numbers = [plain_number(end) for end in (low, high)]
    if None not in numbers:
        return "1234" if all(isinstance(number, int) for number in numbers) else "1234.50"
    with suppress(ValueError):
        for end in (low, high):
            TimedeltaColumn("range").condition(end)
        return DURATIONS
    clock = "T%H:%M:%S" if max(len(low), len(high)) > _DAY else ""
    with suppress(ValueError):
        clock += "%z" * (datetime.fromisoformat(low).tzinfo is not None)
    return (f"%Y-%m-%d{clock}",)


def _with_rules(schema: TableSchema, args: Namespace) -> TableSchema:
    """Return the schema with the rules of the options, and of the file that it replaces."""
    path = args.output
    try:
        rules = () if path is None else TableSchema.from_json(Path(path).expanduser()).rules
    except (ValueError, OSError):
        rules = ()
    orders = [LessEqual(*_order(text, schema)) for text in args.rule]
    try:
        return replace(schema, rules=(*rules, *(rule for rule in orders if rule not in rules)))
    except ValueError as error:
        where = f"in {path} " if rules else ""
        raise CommandError(f"The rules {where}do not fit the table. {error}") from None


def _order(text: str, schema: TableSchema) -> tuple[str, str]:
    """Return the columns of a rule such as ``admitted <= discharged``."""
    places = [place for place in range(len(text)) if text.startswith("<=", place)]
    pairs = [(text[:place].strip(), text[place + 2 :].strip()) for place in places]
    for pair in pairs:
        if set(pair) <= set(schema.names):
            return pair
    if len(pairs) == 1:
        for name in pairs[0]:
            known_column(schema, name, "--rule")
    raise CommandError(f"--rule {text}: write it like 'admitted <= discharged'.", USAGE)


def _orders(schema: TableSchema, table: Table) -> dict[tuple[str, str], str]:
    """Return pairs of dates that have one order in all rows, with a note for each.

    The values are read without privacy, like those of a guess.
    """
    dates: list[Any] = [c for c in schema if c.kind == "datetime" and c.is_resolved]
    if len(dates) < 2:
        return {}
    names = {column.name for column in dates}
    others = tuple(name for name in table.names if name not in names)
    values = TableSchema(tuple(dates), excluded=others).bind(table).read(table)
    numbers = {column.name: numbers_of(column, values[column.name]) for column in dates}
    earlier: dict[str, tuple[float, str]] = {}
    for first, second in permutations(dates, 2):
        apart = numbers[second.name] - numbers[first.name]
        apart = apart[~np.isnan(apart)]
        # Not if the bounds imply it, few rows have both dates, or all are equal.
        if first.span[1] <= second.span[0] or len(apart) < _FEWEST_IN_ORDER:
            continue
        if apart.min() < 0.0 or apart.max() == 0.0:
            continue
        order = LessEqual(first.name, second.name)
        try:
            replace(schema, rules=(*(rule for rule in schema.rules if rule != order), order))
        except ValueError:
            continue
        nearest = earlier.get(second.name, (math.inf, ""))
        earlier[second.name] = min(nearest, (float(apart.mean()), first.name))
    note = "never before {0!r} in any row; --rule '{0} <= {1}' keeps it so."
    return {(first, name): note.format(first, name) for name, (_, first) in earlier.items()}


def _left_open(schema: TableSchema, args: Namespace) -> Iterator[TableColumn]:
    """Return the columns whose bounds or categories the fit will estimate."""
    names = args.private
    if args.private_all:
        stated = {text.rpartition("=")[0] for text in args.range}
        names = [name for name in schema.names if name not in stated]
    return (known_column(schema, name, "--private").left_open() for name in names)


def _ranged(schema: TableSchema, text: str) -> TableColumn:
    name, _, ends = text.rpartition("=")
    low, dots, high = ends.partition("..")
    if not (name and dots and low and high):
        raise CommandError(f"--range {text}: write COLUMN=LOW..HIGH.", USAGE)
    column = known_column(schema, name, "--range")
    if not column.on_scale:
        raise CommandError(
            f"--range {text}: {name!r} is {column.kind} and has no bounds. "
            "Numbers, dates and durations have bounds; convert text first.",
            USAGE,
        )
    try:
        lower, upper = (column.condition(end) for end in (low, high))
    except ValueError as error:
        raise CommandError(f"--range {text}: {error}", USAGE) from None
    return column.replace(lower=lower, upper=upper)


def _shown(
    schema: TableSchema, proposals: list[Proposal], orders: dict[tuple[str, str], str]
) -> list[tuple[str, ...]]:
    """Return a table of all facts that would become public, with reasons."""
    rows: list[tuple[str, ...]] = [_SHOWN]
    for name, column, why, note in proposals:
        if column is None:
            rows.append((name, "left out", "", why, note.removeprefix("left out: ")))
            continue
        kept = schema[name]  # with the changes of options
        said = (text for (_, later), text in orders.items() if later == name)
        note = " ".join(filter(None, (note, *said)))
        missing = "; may be missing" if kept.missing else ""
        rows.append((name, kept.kind, f"{kept.describe(in_full=True)}{missing}", why, note))
    return rows
