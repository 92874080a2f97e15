"""``skdpot distance``: distances between tables from a private sketch of each."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from skdpot.cli.console import (
    BUDGET_EXCEEDED,
    USAGE,
    CommandError,
    Console,
    counted_columns,
)
from skdpot.cli.payment import Payment, budget_facts, summary, warn_of_epsilon
from skdpot.cli.schemas import confirmed_schema
from skdpot.cli.table_files import FileFormat, read_guessable, read_table_file
from skdpot.distance.wasserstein_distance import PrivateWassersteinDistance
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.budget import PrivacyBudget, rounded_down, rounded_up
from skdpot.tables.encoder import TableEncoder
from skdpot.tables.frames import Table

# One text in a column of numbers leaves it out, or has the command refused.
_INFERRED = (
    "the names of the columns, which of them hold numbers, and that none of these misses a value",
)
_ENCODED = ("what the schema says, and that every value is of the kind that it says",)


def run_distance(args: Namespace, console: Console) -> None:
    """Publish a sketch of each table and compare each two."""
    form = FileFormat(args.sep, args.missing, args.encoding)
    if args.schema is not None and (args.columns or args.bounds):
        raise CommandError("--columns and --bounds are for tables without --schema.", USAGE)
    read = _numbers if args.schema is None else _encoded
    if len(args.tables) < 2 or len(args.ledgers or args.tables) != len(args.tables):
        raise CommandError("name two or more tables, and as many --ledgers if any.", USAGE)
    rows, names, bounds, unit, assumptions = read(args, form)
    for path, party in zip(args.tables, rows, strict=True):
        # What a sketch would refuse, before the first of them is paid for.
        if len(party) < 2:
            raise CommandError(f"{path} must have a minimum of 2 rows.")
        if not np.isfinite(np.asarray(party, dtype=np.float64)).all():
            raise CommandError(f"{path} holds infinity; every number must be finite.")
    ledgers = args.ledgers or [None] * len(rows)
    sizes = map(len, rows)
    payments = [Payment(path, args, n) for path, n in zip(ledgers, sizes, strict=True)]
    deltas = [payment.delta for payment in payments]
    warn_of_epsilon(args, console)
    budgets = [payment.open() for payment in payments]
    _check_affordable(list(zip(ledgers, budgets, deltas, strict=True)), args.epsilon)
    parties: list[PrivateWassersteinDistance] = []
    for own, delta, budget in zip(rows, deltas, budgets, strict=True):
        # The others scale their rows by the bounds that the first one has published.
        stated = {"bounds": parties[0].bounds_} if parties else bounds
        terms = {"epsilon": args.epsilon, "delta": delta, "budget": budget}
        parties.append(PrivateWassersteinDistance(**terms, **stated).fit(own))
    pairs = list(combinations(range(len(rows)), 2))
    found = {(i, j): parties[i].compare(parties[j]) for i, j in pairs}
    unit = unit or found[0, 1].unit
    assumed = chain(assumptions, *(party.privacy_spent_.assumptions for party in parties))
    facts: dict[str, Any] = {
        "command": "distance",
        "confidence": 0.95,
        "unit": unit,
        "columns": list(names),
        "rows": [len(party) for party in rows],
        "epsilon": args.epsilon,
        "deltas": deltas,
        "assumptions": list(dict.fromkeys(assumed)),
        "distances": [
            {
                "tables": [args.tables[i], args.tables[j]],
                "distance": one.distance,
                "interval": list(one.interval()),
                "high_if_noise_hides_mass": one.interval(hidden=True)[1],
                "squared": one.squared_distance,
                "standard_error": one.standard_error,
                "noise_floor": one.noise_floor,
            }
            for (i, j), one in found.items()
        ],
    }
    lines = [*_distances(args.tables, found, unit)]
    counts = " and ".join(f"{len(party):,}" for party in rows)
    lines.append(
        f"{counted_columns(len(names))}, {counts} rows; "
        f"each person spent epsilon = {rounded_up(args.epsilon)}"
    )
    charged = [
        (path, budget) for path, budget in zip(ledgers, budgets, strict=True) if path and budget
    ]
    facts["budgets"] = [budget_facts(*pair) for pair in charged]
    lines += [summary(*pair) for pair in charged]
    console.result(lines, facts, wanted=True)


def _distances(paths: list[str], found: dict[tuple[int, int], Any], unit: str) -> Iterator[str]:
    """Yield the distance of two tables, or a matrix of several, and each interval."""
    if len(paths) > 2:
        texts = [["sliced Wasserstein distance", *paths]]
        for i, path in enumerate(paths):
            of = (found.get((min(i, j), max(i, j))) for j in range(len(paths)))
            texts.append([path, *("0" if one is None else f"{one.distance:.4g}" for one in of)])
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        for row in texts:
            yield "  ".join(text.ljust(n) for text, n in zip(row, widths, strict=True)).rstrip()
    for (i, j), one in found.items():
        low, high = one.interval()
        apart = "" if low > 0.0 else "; not told apart from 0"
        if (most := one.interval(hidden=True)[1]) > high:
            apart += f"; up to {most:.4g} if noise hides mass far away"
        what = "sliced Wasserstein distance" if len(paths) == 2 else f"{paths[i]} and {paths[j]}:"
        yield f"{what} {one.distance:.4g} (95 %: {low:.4g} to {high:.4g}{apart}), in {unit}"


# The rows of all parties as numbers; their columns; what is public about their range; the unit of
# distances, if it has a name; and what is taken as public besides.
_Rows: TypeAlias = tuple[list[Any], Sequence[str], dict[str, Any], str, Sequence[str]]


def _encoded(args: Namespace, form: FileFormat) -> _Rows:
    """Return the tables as a schema encodes them: points of the unit ball."""
    given = confirmed_schema(args.schema)
    if not given.is_resolved:
        open_columns = [column.name for column in given if not column.is_resolved]
        raise CommandError(
            f"{args.schema} leaves {', '.join(map(repr, open_columns))} to be estimated from one "
            "table, but all tables must be encoded alike. State the bounds and categories, or "
            'list the columns under "excluded".'
        )
    tables = [read_table_file(path, given, form) for path in args.tables]
    # In the order of the schema: the files need not have the same.
    parties = [TableEncoder(s).fit_transform(table[list(s.names)]) for table, s in tables]
    unit = "the unit ball that the schema encodes rows in"
    return parties, given.names, {"norm_bound": 1.0}, unit, _ENCODED


def _numbers(args: Namespace, form: FileFormat) -> _Rows:
    paths = args.tables
    tables = [Table.of(read_guessable(path, form)) for path in paths]
    columns = [{name: table.column(name) for name in table.names} for table in tables]
    found = [{n: c for n, c in each.items() if c.values.dtype.kind in "iuf"} for each in columns]
    names = args.columns or [name for name in found[0] if all(name in own for own in found)]
    for path, numeric in zip(paths, found, strict=True):
        if lacking := [repr(name) for name in names if name not in numeric]:
            raise CommandError(f"{path} has no column of numbers named {', '.join(lacking)}.")
    if not names or (not args.columns and any(set(own) != set(found[0]) for own in found)):
        raise CommandError(
            "The files do not have the same numeric columns (not named here: without a header "
            "their names are private values). Choose columns with --columns, or pass --schema to "
            "compare all kinds of columns."
        )
    for path, numeric in zip(paths, found, strict=True):
        if lacking := [repr(name) for name in names if numeric[name].missing.any()]:
            raise CommandError(
                f"{path}: values of {', '.join(lacking)} are missing. Leave out such columns with "
                "--columns, or pass --schema, which encodes missing values."
            )
    parties = [
        pd.DataFrame({name: numeric[name].values.astype("float64") for name in names})
        for numeric in found
    ]
    bounds = {"bounds": "private" if args.bounds is None else tuple(args.bounds)}
    return parties, names, bounds, "", _INFERRED


def _check_affordable(
    parties: list[tuple[str | None, PrivacyBudget | None, float]], epsilon: float
) -> None:
    """Refuse before one party is charged for a distance that another cannot pay."""
    places = [None if budget is None else budget.ledger for _, budget, _ in parties]
    for place, (path, budget, delta) in zip(places, parties, strict=True):
        if budget is None:
            continue
        asked = PrivacyTarget(epsilon, delta).mu_squared_units * places.count(place)
        left = budget.remaining()
        if left <= 0.0 or PrivacyTarget(left, budget.delta).mu_squared_units < asked:
            twice = " for each party that it pays for" if places.count(place) > 1 else ""
            raise CommandError(
                f"{path} has epsilon = {rounded_down(left)} left for one more fit, which does not "
                f"pay for epsilon = {epsilon:g}{twice}. Nothing was charged.",
                BUDGET_EXCEEDED,
            )
