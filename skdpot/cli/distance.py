"""``skdpot distance``: distances between tables from a private sketch of each."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from skdpot.cli.console import (
    BUDGET_EXCEEDED,
    USAGE,
    CommandError,
    Console,
    counted_columns,
    verdict,
)
from skdpot.cli.payment import Payment, budget_facts, summary, warn_of_epsilon
from skdpot.cli.schemas import confirmed_schema
from skdpot.cli.table_files import FileFormat, read_guessable, read_table_file
from skdpot.distance.estimates import DistanceEstimate
from skdpot.distance.wasserstein_distance import PrivateWassersteinDistance
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.rounding import rounded_down, rounded_up
from skdpot.privacy.targets import PrivacyTarget
from skdpot.tables.encoder import TableEncoder
from skdpot.tables.frames import Table

# A text in a column of numbers excludes the column, or the command is refused.
_INFERRED = (
    "the names of the columns, which of them hold numbers, and that none of these misses a value",
)
_ENCODED = ("what the schema says, and that every value is of the kind that it says",)


def run_distance(args: Namespace, console: Console) -> None:
    """Publish a sketch of each table, and compare all pairs."""
    form = FileFormat(args.sep, args.missing, args.encoding)
    if args.schema is not None and (args.columns or args.bounds):
        raise CommandError("--columns and --bounds are for tables without --schema.", USAGE)
    read = _numbers if args.schema is None else _encoded
    if len(args.tables) < 2 or len(args.ledgers or args.tables) != len(args.tables):
        raise CommandError("name two or more tables, and as many --ledgers if any.", USAGE)
    rows, names, bounds, unit, assumptions = read(args, form)
    for path, party in zip(args.tables, rows, strict=True):
        # Refuse before the first charge what a sketch would refuse.
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
    for table, delta, budget in zip(rows, deltas, budgets, strict=True):
        # All parties use the bounds that the first one has published.
        stated = {"bounds": parties[0].bounds_} if parties else bounds
        party = PrivateWassersteinDistance(
            epsilon=args.epsilon, delta=delta, budget=budget, **stated
        )
        parties.append(party.fit(table))
    pairs = list(combinations(range(len(rows)), 2))
    estimates = {(i, j): parties[i].compare(parties[j]) for i, j in pairs}
    unit = unit or estimates[0, 1].unit
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
                "distance": estimate.distance,
                "interval": list(estimate.interval()),
                "high_if_noise_hides_mass": estimate.interval(hidden=True)[1],
                "squared": estimate.squared_distance,
                "standard_error": estimate.standard_error,
                "noise_floor": estimate.noise_floor,
            }
            for (i, j), estimate in estimates.items()
        ],
    }
    lines = [*_distances(args.tables, estimates, unit)]
    counts = " and ".join(f"{len(party):,}" for party in rows)
    lines.append(
        f"{counted_columns(len(names))}, {counts} rows; "
        f"each person spent epsilon = {rounded_up(args.epsilon)}"
    )
    verdicts = [(path, *verdict(party)) for path, party in zip(args.tables, parties, strict=True)]
    lines += [f"{path}: {line}" for path, hidden, _ in verdicts for line in hidden]
    facts["reliability"] = [known.get("reliability") for _, _, known in verdicts]
    charged = [
        (path, budget) for path, budget in zip(ledgers, budgets, strict=True) if path and budget
    ]
    facts["budgets"] = [budget_facts(path, budget) for path, budget in charged]
    lines += [summary(path, budget) for path, budget in charged]
    console.result(lines, facts, wanted=True)


def _distances(
    paths: list[str], estimates: dict[tuple[int, int], DistanceEstimate], unit: str
) -> Iterator[str]:
    """Yield a matrix of distances if there are several, and each with its interval."""
    if len(paths) > 2:
        texts = [["sliced Wasserstein distance", *paths]]
        for i, path in enumerate(paths):
            row = [estimates.get((min(i, j), max(i, j))) for j in range(len(paths))]
            texts.append([path, *("0" if e is None else f"{e.distance:.4g}" for e in row)])
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        for cells in texts:
            yield "  ".join(text.ljust(n) for text, n in zip(cells, widths, strict=True)).rstrip()
    for (i, j), estimate in estimates.items():
        low, high = estimate.interval()
        apart = "" if low > 0.0 else "; not told apart from 0"
        if (most := estimate.interval(hidden=True)[1]) > high:
            apart += f"; up to {most:.4g} if noise hides mass far away"
        what = "sliced Wasserstein distance" if len(paths) == 2 else f"{paths[i]} and {paths[j]}:"
        yield f"{what} {estimate.distance:.4g} (95 %: {low:.4g} to {high:.4g}{apart}), in {unit}"


class _Parties(NamedTuple):
    """The tables of all parties as numbers, with public facts."""

    rows: list[Any]
    names: Sequence[str]  # of columns
    bounds: dict[str, Any]  # public range, as parameters of the estimator
    unit: str  # of distances, "" if it has no name
    assumptions: Sequence[str]


def _encoded(args: Namespace, form: FileFormat) -> _Parties:
    """Return the tables as points of the unit ball, encoded by a schema."""
    schema = confirmed_schema(args.schema)
    if not schema.is_resolved:
        open_columns = [column.name for column in schema if not column.is_resolved]
        raise CommandError(
            f"{args.schema} leaves {', '.join(map(repr, open_columns))} to be estimated from one "
            "table, but all tables must be encoded alike. State the bounds and categories, or "
            'list the columns under "excluded".'
        )
    tables = [read_table_file(path, schema, form) for path in args.tables]
    # Columns in the order of the schema, whatever that of the files.
    parties = [TableEncoder(s).fit_transform(table[list(s.names)]) for table, s in tables]
    unit = "the unit ball that the schema encodes rows in"
    return _Parties(parties, schema.names, {"norm_bound": 1.0}, unit, _ENCODED)


def _numbers(args: Namespace, form: FileFormat) -> _Parties:
    """Return the numeric columns that all tables share."""
    paths = args.tables
    tables = [Table.of(read_guessable(path, form)) for path in paths]
    columns = [{name: table.column(name) for name in table.names} for table in tables]
    numbers = [{n: c for n, c in each.items() if c.values.dtype.kind in "iuf"} for each in columns]
    names = args.columns or [n for n in numbers[0] if all(n in table for table in numbers)]
    for path, numeric in zip(paths, numbers, strict=True):
        if lacking := [repr(name) for name in names if name not in numeric]:
            raise CommandError(f"{path} has no column of numbers named {', '.join(lacking)}.")
    if not names or (not args.columns and any(set(table) != set(numbers[0]) for table in numbers)):
        raise CommandError(
            "The files do not have the same numeric columns (not named here: without a header "
            "their names are private values). Choose columns with --columns, or pass --schema to "
            "compare all kinds of columns."
        )
    for path, numeric in zip(paths, numbers, strict=True):
        if lacking := [repr(name) for name in names if numeric[name].missing.any()]:
            raise CommandError(
                f"{path}: values of {', '.join(lacking)} are missing. Leave out such columns with "
                "--columns, or pass --schema, which encodes missing values."
            )
    parties = [
        pd.DataFrame({name: numeric[name].values.astype("float64") for name in names})
        for numeric in numbers
    ]
    bounds = {"bounds": "private" if args.bounds is None else tuple(args.bounds)}
    return _Parties(parties, names, bounds, "", _INFERRED)


def _check_affordable(
    parties: list[tuple[str | None, PrivacyBudget | None, float]], epsilon: float
) -> None:
    """Refuse before any charge if one party cannot pay."""
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
