"""``skdpot synth``: a synthetic table from a private one, or from a model that was saved."""

import math
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skdpot.cli.budget import budget_facts, check_cap, delta_for, open_budget, summary
from skdpot.cli.console import OK, USAGE, CommandError, Console, OutputFile, check_outputs, explain
from skdpot.cli.table_files import FileFormat, check_writable_format, read_table, write_table
from skdpot.cli.where import check_conditions, read_conditions
from skdpot.estimators.table_synthesizer import DPTableSynthesizer
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.display import rounded_up

__all__ = ["confirmed_schema", "run", "warn_of_epsilon"]

# What belongs to a fit, and means nothing where a model is loaded.
_OF_A_FIT = ("epsilon", "delta", "schema", "target", "ledger", "epsilon_cap", "save", "missing")
_CHARGED = "the fit was made and charged before what follows went wrong; {}."


@dataclass(frozen=True)
class _Outputs:
    table: OutputFile
    report: OutputFile | None
    model: OutputFile | None


def run(args: Namespace, console: Console) -> int:
    """Fit or load a synthesizer, draw rows, and write what was asked for.

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
        Before anything is charged, unless a file cannot be written in the end.
    """
    started = time.monotonic()
    _check_usage(args)
    outputs = _Outputs(
        table=OutputFile(args.output, force=args.force),
        report=_output(args, "report"),
        model=_output(args, "save"),
    )
    check_outputs(
        (outputs.table, outputs.report, outputs.model),
        (args.data, args.model, args.schema, args.ledger),
    )
    form = FileFormat(args.sep, args.missing, args.encoding)
    facts: dict[str, Any] = {"command": "synth"}
    if args.model is not None:
        synthesizer = DPTableSynthesizer.load(args.model)
        lines = [f"drawn from {args.model}, which costs no privacy"]
        check_writable_format(args.output, Table.of(synthesizer.sample(1)).kind)
    else:
        synthesizer, lines = _fit(args, form, outputs, console, facts)
    try:
        _write(args, form, outputs, synthesizer, facts)
    except BaseException:
        if args.model is None:
            console.warn(_CHARGED.format(f"{args.save} keeps it" if args.save else "it is lost"))
        raise
    facts["seconds"] = round(time.monotonic() - started, 3)
    n_columns = len(synthesizer.schema_)
    rows = f"wrote {args.output}: {facts['rows']:,} rows, {n_columns} column{'s'[: n_columns != 1]}"
    left_out = ", ".join(synthesizer.schema_.excluded)
    if left_out:
        lines.append(f"left out by the schema: {left_out}")
    named = [f"{name}: {facts[name]}" for name in ("report", "model") if name in facts]
    console.result([rows, *lines, *named, f"{facts['seconds']:.1f} s"], facts, wanted=False)
    return OK


def confirmed_schema(path: str) -> TableSchema:
    """Read a schema that somebody has confirmed to be public.

    Parameters
    ----------
    path : str
        A JSON file.

    Returns
    -------
    TableSchema

    Raises
    ------
    CommandError
        If it is no schema, or a guess that nobody has confirmed.
    """
    problem = ""
    try:
        schema = TableSchema.from_json(Path(path))
    except UnicodeDecodeError:
        problem = "this is no schema: it is no text in UTF-8."
    except ValueError as error:
        problem = explain(error)[0]
    if problem:
        raise CommandError(f"{path}: {problem}")
    if schema.guessed:
        raise CommandError(
            f"{path} was guessed from private values, and nobody has confirmed it. Make one with "
            '`skdpot schema`; or go through the file, replace what is not public, and set "guessed"'
            " to false."
        )
    return schema


def warn_of_epsilon(epsilon: float, console: Console) -> None:
    """Warn of an epsilon that protects nobody.

    Parameters
    ----------
    epsilon : float
        Of a fit.
    console : Console
        Where to write.
    """
    if math.isinf(epsilon):
        console.warn("epsilon is infinite: no noise is added, and nobody is protected.")


def _check_usage(args: Namespace) -> None:
    """Refuse options that do not go together."""
    if (args.data is None) == (args.model is None):
        raise CommandError("name either a table, or a saved one by --model.", USAGE)
    if args.save is not None and not args.save.endswith(".safetensors"):
        raise CommandError(f"--save {args.save}: the name must end in .safetensors.", USAGE)
    if args.model is not None:
        for name in _OF_A_FIT:
            if getattr(args, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise CommandError(f"{option} belongs to a fit; --model draws from one.", USAGE)
        return
    for name in ("epsilon", "schema"):
        if getattr(args, name) is None:
            raise CommandError(
                f"--{name} is needed"
                + (": make a schema with `skdpot schema`." if name == "schema" else "."),
                USAGE,
            )


def _output(args: Namespace, name: str) -> OutputFile | None:
    path = getattr(args, name)
    return None if path is None else OutputFile(path, force=args.force)


def _fit(
    args: Namespace, form: FileFormat, outputs: _Outputs, console: Console, facts: dict[str, Any]
) -> tuple[DPTableSynthesizer, list[str]]:
    """Fit a synthesizer; whatever can be refused is refused before the charge."""
    frame, schema = read_table(args.data, confirmed_schema(args.schema), form)
    table = Table.of(frame)
    check_writable_format(args.output, table.kind)
    if args.target is not None and args.target not in schema.names:
        raise CommandError(
            f"--target names {args.target!r}; there are {', '.join(schema.names)}.", USAGE
        )
    conditions = read_conditions(args.where, schema)
    check_conditions(conditions, schema, kept=outputs.model is not None)
    check_cap(args.ledger, args.epsilon_cap, args.epsilon)
    delta = delta_for(args.ledger, args.delta)
    warn_of_epsilon(args.epsilon, console)
    schema.bind(table).read(table)  # once: the fit finds what was read
    budget = open_budget(args.ledger, args.epsilon_cap, args.epsilon, delta)
    synthesizer = DPTableSynthesizer(
        schema,
        epsilon=args.epsilon,
        delta=delta,
        target=args.target,
        budget=budget,
        verbose=int(console.shows_progress),
    ).fit(table)
    # First of all what the charge has bought: everything else can be made from it again.
    if outputs.model is not None:
        outputs.model.write(synthesizer.save)
        facts["model"] = args.save
    spent = synthesizer.privacy_spent_
    facts["privacy"] = {
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "relation": str(spent.relation),
        "mechanism": spent.mechanism,
        "assumptions": list(spent.assumptions),
    }
    lines = [
        f"spent epsilon = {rounded_up(spent.epsilon)} at delta = {spent.delta:g}, for replacing "
        f"one of {synthesizer.n_samples_:,} rows"
    ]
    if budget is not None:
        facts["budget"] = budget_facts(args.ledger, budget)
        lines.append(summary(args.ledger, budget))
    return synthesizer, lines


def _write(
    args: Namespace,
    form: FileFormat,
    outputs: _Outputs,
    synthesizer: DPTableSynthesizer,
    facts: dict[str, Any],
) -> None:
    """Draw rows and write them, and then the report."""
    conditions = read_conditions(args.where, synthesizer.schema_)
    n_rows = synthesizer.n_samples_ if args.rows is None else args.rows
    rows = synthesizer.sample(n_rows, conditions=conditions or None, random_state=args.seed)
    outputs.table.write(lambda path: write_table(path, rows, form))
    facts |= {"output": args.output, "rows": n_rows, "columns": list(synthesizer.schema_.names)}
    if outputs.report is not None:
        outputs.report.write(synthesizer.quality_report().to_html)
        facts["report"] = args.report
