"""The program ``skdpot``."""

import argparse
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import skdpot
from skdpot.cli.console import OK, Console, explain, where_it_happened
from skdpot.exceptions import FairnessWarning, NotPrivateWarning, PrivacyWarning

__all__ = ["main", "make_parser"]

_DESCRIPTION = "Synthetic tables and distances under differential privacy."
_EPILOG = """\
from a private table to a synthetic one:
  skdpot schema data.csv -o schema.json
  skdpot synth data.csv --schema schema.json --epsilon 1 -o synthetic.csv \\
      --report report.html --ledger study.db
  skdpot budget study.db
for the person who answers for data protection:
  skdpot synth data.csv --schema schema.json --epsilon 1 -o synthetic.csv --save fit.safetensors
  skdpot report fit.safetensors --ledger study.db -o privacy.html

exit status:
  0  done
  1  refused or failed; nothing was charged unless a warning says so
  2  the command line is not right
  3  the budget has too little left; nothing was charged
  130  interrupted
"""
_SCHEMA = """\
Guess from a table what is public about it, show the guess, and write what you confirm.

The guess READS THE VALUES: bounds, categories and kinds of columns are copied from them, and
whatever you confirm counts as public from then on. No privacy budget covers it.
"""
_SYNTH = """\
Learn a private table once, at the price of epsilon, and draw synthetic rows from what was learned.

Charged before the table is used, and refused whole if the ledger cannot pay. With --model, rows
are drawn from a fit that was saved, which costs no privacy however often.
"""
_SYNTH_EPILOG = """\
conditions, all of which every row satisfies:
  --where sex=Female  --where race=Black,Other  --where age=30..40  --where 'hours>=20'
  --where job=  (missing)  --where '{"age": [30, null], "sex": "Female"}'

A new ledger has the cap of --epsilon-cap, or of --epsilon if that is not given, and keeps it.
"""
_REPORT = """\
Say what a fit that --save has kept has released and what that protects, and attack a copy of it.

No private row is touched, and nothing is charged. With --holdout, public rows of the same
population, it also says how useful the synthetic rows are, and tries whether they tell who was in.
"""
_BUDGET = "Show the cap of a ledger, what is spent, what is left, and all charges."
_DISTANCE = """\
Estimate the sliced Wasserstein distance of two tables from one private sketch of each.

Who learns what: this program reads both files, so run it where both may be read. Of the tables,
only the two sketches enter the result: whoever is told the distance and its interval learns at
most epsilon about any person of either table (twice that about somebody who is in both). Names of
columns, which of them hold numbers and miss none, and numbers of rows count as public: without
--schema, one text among numbers leaves its column out, or is refused. Parties who cannot bring
their files to one place use PrivateWassersteinDistance from Python, which sends sketches.
"""
_DISTANCE_EPILOG = """\
Without --schema the columns of numbers that both files have are compared. Their bounds are
estimated privately from the first table, within its epsilon, or stated by --bounds. With --schema
all columns are compared, encoded as it says.
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    Returns
    -------
    ArgumentParser
        Its result has the name of the command in ``command``.
    """
    parser = argparse.ArgumentParser(
        prog="skdpot",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"skdpot {skdpot.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_schema(_command(commands, "schema", "guess and confirm what is public", _SCHEMA))
    _add_synth(_command(commands, "synth", "a synthetic table", _SYNTH, _SYNTH_EPILOG))
    _add_report(_command(commands, "report", "what a fit has released and protects", _REPORT))
    _add_budget(_command(commands, "budget", "what a ledger holds", _BUDGET))
    distance = "how different two tables are"
    _add_distance(_command(commands, "distance", distance, _DISTANCE, _DISTANCE_EPILOG))
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    description: str,
    epilog: str = "",
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    shared = parser.add_argument_group("what is shown")
    shared.add_argument("--json", action="store_true", help="one JSON object on standard output")
    shared.add_argument("--quiet", "-q", action="store_true", help="warnings and errors only")
    shared.add_argument(
        "--verbose", "-v", action="store_true", help="after an error, where it happened"
    )
    return parser


def _add_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="private table: .csv, .tsv, .gz or .parquet")
    parser.add_argument("--output", "-o", metavar="JSON", help="default: standard output")
    parser.add_argument(
        "--private",
        action="append",
        default=[],
        metavar="COLUMN",
        help="leave the bounds or categories of a column to private estimation (repeatable)",
    )
    parser.add_argument(
        "--private-all",
        action="store_true",
        help="the same for all columns that no --range is given for",
    )
    parser.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="COLUMN=LOW..HIGH",
        help="state the bounds of a column (repeatable)",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="COLUMN",
        help="leave a column out (repeatable)",
    )
    parser.add_argument("--yes", action="store_true", help="confirm the guess without being asked")
    parser.add_argument("--force", action="store_true", help="replace an existing output file")
    _add_format(parser)


def _add_synth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", nargs="?", metavar="DATA", help="private table: .csv, .tsv, .gz or .parquet"
    )
    parser.add_argument("--model", metavar="NPZ", help="draw from a fit that --save has written")
    parser.add_argument(
        "--output", "-o", required=True, metavar="FILE", help="synthetic table, by its suffix"
    )
    fit = parser.add_argument_group("the fit")
    fit.add_argument("--schema", metavar="JSON", help="what is public, see `skdpot schema`")
    fit.add_argument("--epsilon", type=_positive, help="what the fit may cost")
    _add_delta(fit)
    fit.add_argument("--target", metavar="COLUMN", help="the column that others shall predict")
    fit.add_argument("--ledger", metavar="DB", help="charge this file; made if it does not exist")
    _add_cap(fit)
    fit.add_argument("--save", metavar="NPZ", help="keep the fit, to draw from it again for free")
    rows = parser.add_argument_group("the rows")
    rows.add_argument("--rows", type=_count, metavar="N", help="default: as many as the table has")
    rows.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="such as sex=Female or age=30..40 (repeatable)",
    )
    rows.add_argument(
        "--seed",
        type=_seed,
        metavar="N",
        help="makes the drawing repeatable; the noise stays secret",
    )
    parser.add_argument("--report", metavar="HTML", help="how good the rows are, by noisy counts")
    parser.add_argument("--force", action="store_true", help="replace existing output files")
    _add_format(parser)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="NPZ", help="a fit that `skdpot synth --save` has written")
    parser.add_argument("--output", "-o", metavar="HTML", help="write the whole report")
    parser.add_argument(
        "--holdout", metavar="FILE", help="PUBLIC rows that the fit was not made on, as a table"
    )
    parser.add_argument("--ledger", metavar="DB", help="whose charges to show")
    parser.add_argument("--no-audit", action="store_true", help="do not attack a copy of the fit")
    parser.add_argument("--force", action="store_true", help="replace an existing output file")
    _add_format(parser)


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ledger", metavar="DB", help="the file that --ledger has made")


def _add_distance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "first", metavar="A", help="table of one party: .csv, .tsv, .gz or .parquet"
    )
    parser.add_argument("second", metavar="B", help="table of the other party")
    parser.add_argument("--epsilon", type=_positive, required=True, help="what each sketch costs")
    _add_delta(parser)
    parser.add_argument(
        "--schema", metavar="JSON", help="encode both tables by it; it must be complete"
    )
    parser.add_argument(
        "--columns", action="append", metavar="COLUMN", help="compare this column (repeatable)"
    )
    parser.add_argument(
        "--bounds",
        nargs=2,
        type=_number,
        metavar=("LOW", "HIGH"),
        help="known range of all columns",
    )
    parser.add_argument(
        "--ledgers", nargs=2, metavar=("DB_A", "DB_B"), help="charge each party's own file"
    )
    _add_cap(parser)
    _add_format(parser)


def _add_delta(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--delta", type=_share, help="default: that of the ledger, or 1e-5")


def _add_cap(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--epsilon-cap",
        type=_positive,
        metavar="EPSILON",
        help="cap of a ledger that is made, on all charges together (default: --epsilon)",
    )


def _add_format(parser: argparse.ArgumentParser) -> None:
    form = parser.add_argument_group("text files")
    form.add_argument("--sep", type=_separator, metavar="CHAR", help="default: comma, tab in .tsv")
    form.add_argument(
        "--missing",
        action="append",
        metavar="TEXT",
        help="this means a missing value, besides an empty field (repeatable; default: those of "
        "pandas, such as NA, NaN, null and None)",
    )
    form.add_argument("--encoding", default="utf-8", help="default: utf-8")


def _positive(text: str) -> float:
    value = _number(text)
    if not value > 0.0:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError("must lie between 0 and 1")
    return value


def _count(text: str) -> int:
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _seed(text: str) -> int:
    value = _integer(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError("must lie between 0 and 2^32 - 1")
    return value


def _separator(text: str) -> str:
    value = "\t" if text in ("\\t", "tab") else text
    if len(value) != 1 or value in '"\r\n':
        raise argparse.ArgumentTypeError("must be one character")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, by default those of the process.

    Returns
    -------
    int
        Exit status: 0 done, 1 refused or failed, 2 the arguments are not right, 3 the budget has
        too little left, 130 interrupted.

    Privacy
    -------
    Errors and warnings quote no private value: texts of other libraries, which may, are withheld.

    Examples
    --------
    >>> from skdpot.cli.main import main
    >>> main(["--version"])
    skdpot ...
    0
    """
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as stop:  # after --help, --version, or an error of usage
        return stop.code if isinstance(stop.code, int) else OK
    console = Console(sys.stdout, sys.stderr, as_json=args.json, quiet=args.quiet)
    try:
        code = _run(args, console)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the result has seen enough
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (Exception, KeyboardInterrupt) as error:
        text, code = explain(error)
        if args.verbose:
            console.trace(where_it_happened(error))
        console.fail(text)
    return code


def _run(args: Namespace, console: Console) -> int:
    """Load a command, which may take a second, and run it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        console.warn(str(message))

    with warnings.catch_warnings():
        # Warnings of other libraries may quote values, and are none of the user's business.
        warnings.simplefilter("ignore")
        for category in (FairnessWarning, NotPrivateWarning, PrivacyWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        command: Any = import_module(f"skdpot.cli.{args.command}")
        code: int = command.run(args, console)
        return code


if __name__ == "__main__":
    sys.exit(main())
