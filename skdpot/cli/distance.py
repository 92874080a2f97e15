"""``skdpot distance``: how different the tables of two parties are, from two private sketches."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from skdpot.cli.budget import budget_facts, check_cap, delta_for, open_budget, summary
from skdpot.cli.console import BUDGET_EXCEEDED, OK, USAGE, CommandError, Console
from skdpot.cli.synth import confirmed_schema, warn_of_epsilon
from skdpot.cli.table_files import FileFormat, read_guessable, read_table
from skdpot.estimators.wasserstein_distance import PrivateWassersteinDistance
from skdpot.preprocessing.table_encoder import TableEncoder
from skdpot.preprocessing.table_frames import Table
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import PrivacyTarget
from skdpot.privacy.display import rounded_down, rounded_up

__all__ = ["run"]


# One text in a column of numbers leaves it out, or has the command refused.
_INFERRED = (
    "the names of the columns, which of them hold numbers, and that none of these misses a value",
)
_ENCODED = ("what the schema says, and that every value is of the kind that it says",)


@dataclass(frozen=True)
class _Rows:
    """The rows of both parties as numbers, and what is public about their range."""

    parties: tuple[Any, Any]
    bounds: dict[str, Any]
    unit: str
    names: tuple[str, ...]
    assumptions: tuple[str, ...] = ()


def run(args: Namespace, console: Console) -> int:
    """Publish a sketch of either table and compare the two.

    Parameters
    ----------
    args : Namespace
        The arguments.
    console : Console
        Where to write.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    CommandError, ValueError, BudgetExceededError, LedgerError
        If something is refused; before anything is charged.
    """
    form = FileFormat(args.sep, args.missing, args.encoding)
    if args.schema is not None and (args.columns or args.bounds):
        raise CommandError("--columns and --bounds are for tables without --schema.", USAGE)
    rows = _numbers(args, form) if args.schema is None else _encoded(args, form)
    _check_rows(args, rows)
    ledgers = args.ledgers or (None, None)
    for path in ledgers:
        check_cap(path, args.epsilon_cap, args.epsilon)
    deltas = [delta_for(path, args.delta) for path in ledgers]
    warn_of_epsilon(args.epsilon, console)
    budgets = [
        open_budget(path, args.epsilon_cap, args.epsilon, delta)
        for path, delta in zip(ledgers, deltas, strict=True)
    ]
    _check_affordable(list(zip(ledgers, budgets, deltas, strict=True)), args.epsilon)
    ours = PrivateWassersteinDistance(
        epsilon=args.epsilon, delta=deltas[0], budget=budgets[0], **rows.bounds
    ).fit(rows.parties[0])
    # The other party scales its rows by the bounds that the first one has published.
    theirs = PrivateWassersteinDistance(
        epsilon=args.epsilon, delta=deltas[1], budget=budgets[1], bounds=ours.bounds_
    ).fit(rows.parties[1])
    found = ours.compare(theirs)
    low, high = found.interval()
    unit = rows.unit or found.unit
    facts: dict[str, Any] = {
        "command": "distance",
        "distance": found.distance,
        "interval": [low, high],
        "confidence": 0.95,
        "squared": found.squared,
        "standard_error": found.standard_error,
        "noise_floor": found.noise_floor,
        "unit": unit,
        "columns": list(rows.names),
        "rows": [len(party) for party in rows.parties],
        "epsilon": args.epsilon,
        "deltas": deltas,
        "assumptions": [*rows.assumptions, *_assumptions(ours, theirs)],
    }
    apart = "" if low > 0.0 else "; not told apart from 0"
    lines = [
        f"sliced Wasserstein distance {found.distance:.4g} "
        f"(95 %: {low:.4g} to {high:.4g}{apart}), in {unit}",
        f"{len(rows.names)} columns, {len(rows.parties[0]):,} and {len(rows.parties[1]):,} rows; "
        f"each person spent epsilon = {rounded_up(args.epsilon)}",
    ]
    charged = [
        (path, budget) for path, budget in zip(ledgers, budgets, strict=True) if path and budget
    ]
    facts["budgets"] = [budget_facts(path, budget) for path, budget in charged]
    lines += [summary(path, budget) for path, budget in charged]
    console.result(lines, facts, wanted=True)
    return OK


def _assumptions(*parties: PrivateWassersteinDistance) -> list[str]:
    """Return what the statements of all parties take as public."""
    stated = (text for party in parties for text in party.privacy_spent_.assumptions)
    return list(dict.fromkeys(stated))


def _check_rows(args: Namespace, rows: _Rows) -> None:
    """Refuse what a sketch would refuse, before the first of two is paid for."""
    for path, party in zip((args.first, args.second), rows.parties, strict=True):
        if len(party) < 2:
            raise CommandError(f"{path} must hold a minimum of 2 rows.")
        if not np.isfinite(np.asarray(party, dtype=np.float64)).all():
            raise CommandError(f"{path} holds infinity; every number must be finite.")


def _encoded(args: Namespace, form: FileFormat) -> _Rows:
    """Return both tables as a schema encodes them: points of the unit ball."""
    given = confirmed_schema(args.schema)
    if not given.is_resolved:
        open_columns = [column.name for column in given if not column.is_resolved]
        raise CommandError(
            f"{args.schema} leaves {', '.join(map(repr, open_columns))} to be estimated from one "
            "table, and two tables must be encoded alike. State the bounds and categories, or "
            'name the columns under "excluded".'
        )
    tables = [read_table(path, given, form) for path in (args.first, args.second)]
    parties = []
    for table, schema in tables:
        # In the order of the schema: the files need not have the same.
        parties.append(TableEncoder(schema).fit_transform(table[list(schema.names)]))
    unit = "the unit ball that the schema encodes rows in"
    bounds = {"norm_bound": 1.0}
    return _Rows((parties[0], parties[1]), bounds, unit, given.names, _ENCODED)


def _numbers(args: Namespace, form: FileFormat) -> _Rows:
    """Return the columns of numbers that both tables have."""
    tables = [read_guessable(path, form) for path in (args.first, args.second)]
    found = [_numeric_columns(table) for table in tables]
    names = args.columns or [name for name in found[0] if name in found[1]]
    for path, numeric in zip((args.first, args.second), found, strict=True):
        lacking = [name for name in names if name not in numeric]
        if lacking:
            raise CommandError(
                f"{path} has no column of numbers named {', '.join(map(repr, lacking))}."
            )
    if not names or (not args.columns and set(found[0]) != set(found[1])):
        raise CommandError(
            "The two files do not have the same columns of numbers (their names are not shown: "
            "without a header they are somebody's values). Choose some by --columns, or pass "
            "--schema to compare all kinds of columns."
        )
    parties = [
        _complete(path, table, names)
        for path, table in zip((args.first, args.second), tables, strict=True)
    ]
    bounds = {"bounds": "private" if args.bounds is None else tuple(args.bounds)}
    return _Rows((parties[0], parties[1]), bounds, "", tuple(names), _INFERRED)


def _numeric_columns(table: Any) -> list[str]:
    frame = Table.of(table)
    kinds = {name: frame.column(name).values.dtype.kind for name in frame.names}
    return [name for name, kind in kinds.items() if kind in "iuf"]


def _complete(path: str, table: Any, names: list[str]) -> pd.DataFrame:
    columns = {name: Table.of(table).column(name) for name in names}
    for name, column in columns.items():
        if column.missing.any():
            raise CommandError(
                f"{path}: values of {name!r} are missing. Leave the column out by --columns, or "
                "pass --schema, which encodes missing values."
            )
    return pd.DataFrame({name: c.values.astype("float64") for name, c in columns.items()})


def _check_affordable(
    parties: list[tuple[str | None, PrivacyBudget | None, float]], epsilon: float
) -> None:
    """Refuse before one party is charged for a distance that the other cannot pay."""
    places = [None if budget is None else budget.ledger for _, budget, _ in parties]
    for place, (path, budget, delta) in zip(places, parties, strict=True):
        if budget is None:
            continue
        asked = PrivacyTarget(epsilon, delta).mu_squared_units * places.count(place)
        left = budget.remaining()
        if left <= 0.0 or PrivacyTarget(left, budget.delta).mu_squared_units < asked:
            twice = " for both parties" if places.count(place) > 1 else ""
            raise CommandError(
                f"{path} has epsilon = {rounded_down(left)} left for one more fit, which does not "
                f"pay for epsilon = {epsilon:g}{twice}. Nothing was charged.",
                BUDGET_EXCEEDED,
            )
