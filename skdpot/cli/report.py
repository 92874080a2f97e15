"""``skdpot report``: what a saved fit released and whom it protects."""

from argparse import Namespace
from typing import Any

from skdpot.audit.report import privacy_report
from skdpot.audit.report_words import percent_at_most, protected_in_words
from skdpot.cli.console import Console, OutputFile, verdict
from skdpot.cli.table_files import FileFormat, read_table_file
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.rounding import epsilon_text
from skdpot.tables.synthesizer import DPTableSynthesizer


def run_report(args: Namespace, console: Console) -> None:
    """Report on a model that ``skdpot synth --save`` has written."""
    outputs = OutputFile.of(args, ["output"], [args.model, args.holdout, args.ledger])
    synthesizer = DPTableSynthesizer.load(args.model)
    holdout: Any = None
    if args.holdout is not None:
        form = FileFormat(args.sep, args.missing, args.encoding)
        holdout = read_table_file(args.holdout, synthesizer.schema_, form)[0]
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
        *verdict(synthesizer)[0],
        *(f"{figure.name}: {figure.value:.4g} ({figure.meaning})" for figure in report.utility),
    ]
    if outputs:
        outputs["output"].write(report.to_html)
        lines.append(f"wrote {args.output}")
    facts = {"command": "report", "output": args.output} | report.to_dict()
    console.result(lines, facts, wanted=True)
