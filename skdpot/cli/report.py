"""``skdpot report``: what a saved synthesizer has released, what that protects, and tests of it."""

from argparse import Namespace
from typing import Any

from skdpot.audit.report.privacy_report import privacy_report
from skdpot.audit.report.words import percent_at_most, protected_in_words
from skdpot.cli.console import OK, Console, OutputFile, check_outputs
from skdpot.cli.table_files import FileFormat, read_table
from skdpot.estimators.table_synthesizer import DPTableSynthesizer
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.display import epsilon_text

__all__ = ["run"]


def run(args: Namespace, console: Console) -> int:
    """Report on a model that ``skdpot synth --save`` has written."""
    output = None if args.output is None else OutputFile(args.output, force=args.force)
    check_outputs([output], [args.model, args.holdout, args.ledger])
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
        f"{report.estimator} on {report.n_samples:,} rows: {epsilon_text(report.spent.epsilon)}, "
        f"δ = {report.spent.delta:g}. {protected_in_words(report.spent)}",
        "Who guesses which of two equally likely records was used is right with a probability of "
        f"at most {percent_at_most(report.meaning.right_by_noise)}.",
        *(f"{caution.level}: {caution.text}" for caution in report.cautions),
        *(part.verdict for part in report.audits),
        *(f"{figure.name}: {figure.value:.4g} ({figure.meaning})" for figure in report.utility),
    ]
    if output is not None:
        output.write(report.to_html)
        lines.append(f"wrote {args.output}")
    facts = {"command": "report", "output": args.output} | report.to_dict()
    console.result(lines, facts, wanted=True)
    return OK
