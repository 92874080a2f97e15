"""``skdpot synth``: fit a private table once, and draw synthetic rows."""

import os
import time
from argparse import Namespace
from contextlib import nullcontext, suppress
from typing import Any

from skdpot.cli.conditions import check_conditions, read_conditions
from skdpot.cli.console import (
    USAGE,
    CommandError,
    Console,
    OutputFile,
    counted_columns,
    verdict,
)
from skdpot.cli.payment import Payment, budget_facts, summary, warn_of_epsilon
from skdpot.cli.schemas import confirmed_schema, known_column
from skdpot.cli.table_files import (
    FileFormat,
    check_writable_format,
    is_formula,
    read_table_file,
    write_table_file,
)
from skdpot.exceptions import LedgerError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.journal import keeping
from skdpot.privacy.rounding import rounded_up
from skdpot.release.contributions import Unit
from skdpot.tables.frames import Table
from skdpot.tables.schema import TableSchema
from skdpot.tables.synthesizer import DPTableSynthesizer

# Options of a fit, which are refused beside a saved fit.
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
    """Fit or load a synthesizer, draw rows, and write all output files."""
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
    hidden, known = verdict(synthesizer)
    lines, facts = [*lines, *hidden], facts | known
    rows = (
        f"wrote {args.output}: {facts['rows']:,} rows, {counted_columns(len(synthesizer.schema_))}"
    )
    left_out = ", ".join(synthesizer.schema_.excluded)
    if left_out:
        lines.append(f"left out by the schema: {left_out}")
    named = [f"{name}: {facts[name]}" for name in ("report", "model") if name in facts]
    console.result([rows, *lines, *named, f"{facts['seconds']:.1f} s"], facts, wanted=False)


def _with_formulas(schema: TableSchema) -> list[str]:
    """Return the columns whose public names or categories look like formulas."""
    levels = {column.name: getattr(column, "levels", ()) for column in schema}
    return [name for name, known in levels.items() if any(map(is_formula, (name, *known)))]


def _what_keeps(args: Namespace, facts: dict[str, Any]) -> str:
    """Return what keeps a fit whose files could not be written."""
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
    """Fit a synthesizer; everything that can be refused is refused before the charge."""
    weighting = args.weighting or "person"
    Unit.of_parameters(args.unit, args.max_rows, weighting)
    frame, schema = read_table_file(args.data, confirmed_schema(args.schema), form, args.unit)
    table = Table.of(frame)
    check_writable_format(args.output, table.kind)
    if args.target is not None:
        known_column(schema, args.target, "--target")
    conditions = read_conditions(args.where, schema)
    check_conditions(conditions, schema, kept=args.save is not None)
    payment = Payment(args.ledger, args, _public_n_rows(args, table))
    warn_of_epsilon(args, console)
    schema.bind(table).read(table)  # the fit reuses what was read
    budget = payment.open()
    synthesizer = DPTableSynthesizer(
        schema,
        epsilon=args.epsilon,
        delta=payment.delta,
        target=args.target,
        unit=args.unit,
        max_rows=args.max_rows,
        weighting=weighting,
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


def _public_n_rows(args: Namespace, table: Table) -> int | None:
    """Return the number of rows, None if it is private because persons have several."""
    return None if args.unit else table.n_rows


def _write(
    args: Namespace,
    form: FileFormat,
    outputs: dict[str, OutputFile],
    synthesizer: DPTableSynthesizer,
    facts: dict[str, Any],
) -> None:
    """Write the fit, then synthetic rows and the report, which follow from the fit."""
    if "save" in outputs:
        outputs["save"].write(synthesizer.save)
        facts["model"] = args.save
    conditions = read_conditions(args.where, synthesizer.schema_)
    n_rows = synthesizer.n_samples_ if args.rows is None else args.rows
    rows = synthesizer.sample(n_rows, conditions=conditions or None, random_state=args.seed)
    guard = args.guard_formulas
    outputs["output"].write(lambda path: write_table_file(path, rows, form, guard=guard))
    facts |= {"output": args.output, "rows": n_rows, "columns": list(synthesizer.schema_.names)}
    if "report" in outputs:
        outputs["report"].write(synthesizer.quality_report().to_html)
        facts["report"] = args.report
