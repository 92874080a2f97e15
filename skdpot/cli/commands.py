"""What each command does: synth, report, budget and distance."""

import math
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import chain, combinations
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from skdpot._utils.pages import html_card, render
from skdpot.cli.console import (
    BUDGET_EXCEEDED,
    USAGE,
    CommandError,
    Console,
    OutputFile,
    counted_columns,
)
from skdpot.cli.inputs import (
    FileFormat,
    check_conditions,
    check_writable_format,
    is_formula,
    known_column,
    read_conditions,
    read_guessable,
    read_table,
    write_table,
)
from skdpot.cli.schemas import confirmed_schema
from skdpot.distance.wasserstein_distance import PrivateWassersteinDistance
from skdpot.exceptions import LedgerError
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.budget import PrivacyBudget, epsilon_text, rounded_down, rounded_up
from skdpot.privacy.journal import keeping
from skdpot.release.contributions import Unit
from skdpot.tables.encoder import TableEncoder
from skdpot.tables.frames import Table
from skdpot.tables.schema import TableSchema
from skdpot.tables.synthesizer import DPTableSynthesizer

DEFAULT_DELTA = 1e-5


def fitting_delta(n_rows: int | None) -> float:
    """Return a power of ten below a tenth of 1/n: publishing a random row must not be private."""
    if n_rows is None:
        return DEFAULT_DELTA
    return min(DEFAULT_DELTA, 10.0 ** -math.floor(math.log10(10 * n_rows) + 1))


class Payment:
    """Who pays for a fit: the ledger at `path`, if given; nothing is created before `open`."""

    def __init__(self, path: str | None, args: Namespace, n_rows: int | None) -> None:
        epsilon, cap = args.epsilon, args.epsilon_cap
        if path is None and cap is not None:
            raise CommandError("--epsilon-cap needs --ledger: it is the cap of a new ledger.", 2)
        self.path, self._cap = path, epsilon if cap is None else cap
        exists = path is not None and os.path.lexists(os.path.expanduser(path))
        self._kept = kept = PrivacyBudget.from_ledger(path) if path and exists else None
        if kept is not None and cap not in (None, kept.epsilon):
            raise CommandError(
                f"{path} was created with the cap epsilon = {kept.epsilon:g}, which cannot be "
                "changed. Omit --epsilon-cap."
            )
        if path is not None and kept is None and cap is None and math.isinf(epsilon):
            raise CommandError(f"{path} does not exist yet: state its cap with --epsilon-cap.")
        default = fitting_delta(n_rows) if kept is None else kept.delta
        self.delta = default if args.delta is None else args.delta

    def open(self) -> PrivacyBudget | None:
        """Return the budget; its ledger is made if it does not exist."""
        if self.path is None:
            return None
        return self._kept or PrivacyBudget(self._cap, self.delta, ledger=self.path)


def budget_facts(path: str, budget: PrivacyBudget) -> dict[str, Any]:
    """Return what a ledger holds, for programs."""
    history = budget.history()[["time", "label", "event", "mu", "leak", "epsilon", "open"]]
    charges = [row | {"time": row["time"].isoformat()} for row in history.to_dict("records")]
    return {
        "ledger": path,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "relation": str(budget.relation),
        "spent": budget.epsilon_spent(),
        "remaining": budget.remaining(),
        "charges": charges,
    }


def summary(path: str, budget: PrivacyBudget) -> str:
    """Return the state of a ledger in a line."""
    left = budget.remaining()
    spent, cap = rounded_up(budget.epsilon_spent()), rounded_down(budget.epsilon)
    return f"{path} has spent epsilon = {spent} of {cap} at delta = {budget.delta:g}; " + (
        f"one more fit may have {rounded_down(left)}" if left > 0.0 else "nothing is left"
    )


_BAR = 30


def run_budget(args: Namespace, console: Console) -> None:
    """Show the cap of a ledger, what is spent and left, and the history."""
    outputs = OutputFile.of(args, ["output"], [args.ledger])
    budget = PrivacyBudget.from_ledger(args.ledger)
    facts = budget_facts(args.ledger, budget)
    charges = facts["charges"]
    finite = math.isfinite(budget.epsilon) and budget.epsilon > 0
    share = min(facts["spent"] / budget.epsilon, 1.0) if finite else 0.0
    filled = math.ceil(share * _BAR)
    relation = str(budget.relation).replace("_", " ")
    counted = "1 charge" if len(charges) == 1 else f"{len(charges)} charges"
    lines = [
        summary(args.ledger, budget),
        f"[{'#' * filled}{'-' * (_BAR - filled)}] {counted}, {relation}",
    ]
    if charges:
        lines += ["", f"{'time (UTC)':<21}{'epsilon alone':<15}what"]
    for number, charge in enumerate(charges, start=1):
        time = charge["time"][:19].replace("T", " ")
        ended = f" (not ended; --resume {number} goes on)" if charge["open"] else ""
        label = f"{charge['label'] or '-'}{ended}"
        lines.append(f"{time:<21}{rounded_up(charge['epsilon']):<15}{label}")
    if outputs:
        named = ((f"{c['time'][:10]} {c['label'] or 'no label'}", c["epsilon"]) for c in charges)
        costs = [(name, epsilon_text(epsilon)) for name, epsilon in named]
        card = html_card(
            f"Privacy budget: {epsilon_text(budget.epsilon)}",
            f"δ = {budget.delta:g} · {relation}",
            [("Ledger", args.ledger), ("State", summary("The ledger", budget))],
            meter=(share, f"{epsilon_text(facts['spent'])} spent", counted),
            rankings=[("All charges, and what each would cost alone", costs)],
        )
        page = render("page.html", title="Privacy budget", fragment=card)
        outputs["output"].write(lambda path: path.write_text(page, encoding="utf-8"))
        lines.append(f"wrote {args.output}")
    console.result(lines, facts, wanted=True)


# What belongs to a fit, and means nothing where a model is loaded.
_OF_A_FIT = (
    "epsilon",
    "delta",
    "schema",
    "target",
    "ledger",
    "epsilon_cap",
    "resume",
    "save",
    "missing",
    "unit",
    "max_rows",
    "weighting",
)
_NEEDED = {"epsilon": "", "schema": ": create one with `skdpot schema`"}
_FORMULAS = (
    "a spreadsheet would run the name or a category of {} as a formula; --guard-formulas writes a "
    "' before such texts."
)
_CHARGED = "the fit was made and charged before the error below; {}."


def run_synth(args: Namespace, console: Console) -> None:
    """Fit or load a synthesizer, draw rows, and write what was asked for."""
    started = time.monotonic()
    _check_usage(args)
    inputs = args.data, args.model, args.schema, args.ledger
    outputs = OutputFile.of(args, ("output", "report", "save"), inputs)
    form = FileFormat(args.sep, args.missing, args.encoding)
    facts: dict[str, Any] = {"command": "synth"}
    try:
        with keeping():
            synthesizer, lines = _loaded(args) if args.model else _fit(args, form, console, facts)
            _write(args, form, outputs, synthesizer, facts)
    except BaseException:
        if "privacy" in facts:
            console.warn(_CHARGED.format(_what_keeps(args, facts)))
        raise
    if args.ledger is not None:
        budget = PrivacyBudget.from_ledger(args.ledger)
        facts["budget"] = budget_facts(args.ledger, budget)
        lines.append(summary(args.ledger, budget))
    if not args.guard_formulas and (risky := _with_formulas(synthesizer.schema_)):
        console.warn(_FORMULAS.format(", ".join(map(repr, risky))))
    facts["seconds"] = round(time.monotonic() - started, 3)
    rows = (
        f"wrote {args.output}: {facts['rows']:,} rows, {counted_columns(len(synthesizer.schema_))}"
    )
    left_out = ", ".join(synthesizer.schema_.excluded)
    if left_out:
        lines.append(f"left out by the schema: {left_out}")
    named = [f"{name}: {facts[name]}" for name in ("report", "model") if name in facts]
    console.result([rows, *lines, *named, f"{facts['seconds']:.1f} s"], facts, wanted=False)


def _with_formulas(schema: TableSchema) -> list[str]:
    """Return the columns whose names or categories, which are public, look like formulas."""
    of = {column.name: getattr(column, "levels", ()) for column in schema}
    return [name for name, levels in of.items() if any(map(is_formula, (name, *levels)))]


def _what_keeps(args: Namespace, facts: dict[str, Any]) -> str:
    """Return what is left of a fit when its files could not be written."""
    if "model" in facts:
        return f"{args.save} keeps it"
    with suppress(LedgerError):
        history = PrivacyBudget.from_ledger(args.ledger).history() if args.ledger else None
        if history is not None and history["open"].iloc[-1]:
            return (
                f"{args.ledger} keeps it: the same command with --resume {len(history)} is not "
                "charged again"
            )
    return "it is lost"


def _loaded(args: Namespace) -> tuple[DPTableSynthesizer, list[str]]:
    synthesizer = DPTableSynthesizer.load(args.model)
    check_writable_format(args.output, Table.of(synthesizer.sample(1)).kind)
    return synthesizer, [f"drawn from {args.model}, which costs no privacy"]


def _warn_of_epsilon(args: Namespace, console: Console) -> None:
    if math.isinf(args.epsilon):
        console.warn("epsilon is infinite: no noise is added, and no one is protected.")


def _check_usage(args: Namespace) -> None:
    if (args.data is None) == (args.model is None):
        raise CommandError("name either a table or, with --model, a saved fit.", USAGE)
    if args.save is not None and not args.save.endswith(".safetensors"):
        raise CommandError(f"--save {args.save}: the name must end in .safetensors.", USAGE)
    for name in _OF_A_FIT:
        option, stated = f"--{name.replace('_', '-')}", getattr(args, name) is not None
        if stated and args.model is not None:
            raise CommandError(f"{option} belongs to a fit; --model draws from one.", USAGE)
        if not stated and args.model is None and name in _NEEDED:
            raise CommandError(f"{option} is required{_NEEDED[name]}.", USAGE)
    if args.resume and not (args.ledger and os.path.lexists(os.path.expanduser(args.ledger))):
        raise CommandError("--resume needs the --ledger that keeps releases of the fit.", USAGE)


def _fit(
    args: Namespace, form: FileFormat, console: Console, facts: dict[str, Any]
) -> tuple[DPTableSynthesizer, list[str]]:
    """Fit a synthesizer; whatever can be refused is refused before the charge."""
    persons = {n: getattr(args, n) for n in ("unit", "max_rows")}
    persons["weighting"] = args.weighting or "person"
    Unit.of_parameters(*persons.values())
    frame, schema = read_table(args.data, confirmed_schema(args.schema), form, args.unit)
    table = Table.of(frame)
    check_writable_format(args.output, table.kind)
    if args.target is not None:
        known_column(schema, args.target, "--target")
    conditions = read_conditions(args.where, schema)
    check_conditions(conditions, schema, kept=args.save is not None)
    # How many rows persons have is private.
    payment = Payment(args.ledger, args, None if args.unit else table.n_rows)
    _warn_of_epsilon(args, console)
    schema.bind(table).read(table)  # once: the fit finds what was read
    budget = payment.open()
    synthesizer = DPTableSynthesizer(
        schema,
        epsilon=args.epsilon,
        delta=payment.delta,
        target=args.target,
        **persons,
        budget=budget,
        verbose=int(console.shows_progress),
    )
    number = None if args.resume is True else args.resume
    with budget.resume(number) if budget is not None and args.resume else nullcontext():
        synthesizer.fit(table)
    spent = synthesizer.privacy_spent_
    told = ("epsilon", "delta", "relation", "mechanism", "assumptions")
    facts["privacy"] = {name: getattr(spent, name) for name in told}
    line = (
        f"spent epsilon = {rounded_up(spent.epsilon)} at delta = {spent.delta:g}, for replacing "
        f"one of {synthesizer.n_samples_:,} {'rows' if args.unit is None else 'persons'}"
    )
    return synthesizer, [line]


def _write(
    args: Namespace,
    form: FileFormat,
    outputs: dict[str, OutputFile],
    synthesizer: DPTableSynthesizer,
    facts: dict[str, Any],
) -> None:
    # First of all what the charge has bought: everything else can be made from it again.
    if "save" in outputs:
        outputs["save"].write(synthesizer.save)
        facts["model"] = args.save
    conditions = read_conditions(args.where, synthesizer.schema_)
    n_rows = synthesizer.n_samples_ if args.rows is None else args.rows
    rows = synthesizer.sample(n_rows, conditions=conditions or None, random_state=args.seed)
    guard = args.guard_formulas
    outputs["output"].write(lambda path: write_table(path, rows, form, guard=guard))
    facts |= {"output": args.output, "rows": n_rows, "columns": list(synthesizer.schema_.names)}
    if "report" in outputs:
        outputs["report"].write(synthesizer.quality_report().to_html)
        facts["report"] = args.report


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
    _warn_of_epsilon(args, console)
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
    tables = [read_table(path, given, form) for path in args.tables]
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


def run_report(args: Namespace, console: Console) -> None:
    """Report on a model that ``skdpot synth --save`` has written."""
    # Here, because the attacks load half of scikit-learn, and the other commands need none of it.
    from skdpot.audit.report import privacy_report
    from skdpot.audit.report_words import percent_at_most, protected_in_words

    outputs = OutputFile.of(args, ["output"], [args.model, args.holdout, args.ledger])
    synthesizer = DPTableSynthesizer.load(args.model)
    holdout: Any = None
    if args.holdout is not None:
        form = FileFormat(args.sep, args.missing, args.encoding)
        holdout = read_table(args.holdout, synthesizer.schema_, form)[0]
    report = privacy_report(
        synthesizer,
        holdout,
        budget=None if args.ledger is None else PrivacyBudget.from_ledger(args.ledger),
        audit=not args.no_audit,
        verbose=int(console.shows_progress),
    )
    lines = [
        f"{report.estimator} on {report.n_samples:,} records: "
        f"{epsilon_text(report.spent.epsilon)}, δ = {report.spent.delta:g}. "
        f"{protected_in_words(report.spent)}",
        "A guess which of two equally likely records was used is right with a probability of at "
        f"most {percent_at_most(report.meaning.right_by_noise)}.",
        *(f"{caution.level}: {caution.text}" for caution in report.cautions),
        *(part.verdict for part in report.audits),
        *(f"{figure.name}: {figure.value:.4g} ({figure.meaning})" for figure in report.utility),
    ]
    if outputs:
        outputs["output"].write(report.to_html)
        lines.append(f"wrote {args.output}")
    facts = {"command": "report", "output": args.output} | report.to_dict()
    console.result(lines, facts, wanted=True)
