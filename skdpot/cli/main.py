"""The program ``skdpot``."""

import argparse
import inspect
import math
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

import skdpot
from skdpot.cli.console import OK, Console, explain, where_it_happened
from skdpot.exceptions import FairnessWarning, NotPrivateWarning, PrivacyWarning, charges_before

_Number = TypeVar("_Number", int, float)

_PRIVATE_TABLE = "private table: .csv, .tsv, .gz or .parquet"
_DESCRIPTION = "Synthetic tables and distances under differential privacy."
_EPILOG = """\
from a private table to a synthetic one:
  skdpot schema data.csv -o schema.json
  skdpot synth data.csv --schema schema.json --epsilon 1 -o synthetic.csv \\
      --report report.html --ledger study.db
  skdpot budget study.db
for the data-protection officer:
  skdpot synth data.csv --schema schema.json --epsilon 1 -o synthetic.csv --save fit.safetensors
  skdpot report fit.safetensors --ledger study.db -o privacy.html

exit status:
  0  done
  1  refused or failed; nothing was charged unless a warning says so
  2  invalid command line
  3  insufficient budget; nothing was charged
  130  interrupted; nothing was charged unless a warning says so
"""
_SYNTH_EPILOG = """\
conditions (every row satisfies all of them):
  --where sex=Female  --where race=Black,Other  --where age=30..40  --where 'hours>=20'
  --where job=  (missing)  --where '{"age": [30, null], "sex": "Female"}'

A new ledger gets the cap --epsilon-cap (default: --epsilon). The cap cannot be changed later.
A ledger keeps what a fit releases until all files are written. After a failure, an interrupt or a
power cut, the same command with --resume goes on from there, and the ledger is not charged again.
"""
_DISTANCE_EPILOG = """\
Without --schema, the numeric columns that all files share are compared. Their bounds are given by
--bounds, or estimated privately from the first table within its epsilon. With --schema, all columns
are compared, encoded as the schema says, with missing values.
"""
_DELTA = (
    "default: that of the ledger, and of a new one the largest power of ten that is at most 1e-5 "
    "and below a tenth of 1/n (1e-5 with --unit)"
)
_STYLE: dict[str, Any] = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser("skdpot", None, _DESCRIPTION, _EPILOG, **_STYLE)
    parser.add_argument("--version", action="version", version=f"skdpot {skdpot.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _command(commands, _add_schema, "guess what is public about a table, and confirm it")
    _command(commands, _add_synth, "make a synthetic table", _SYNTH_EPILOG)
    _command(commands, _add_report, "report what a fit released and whom it protects")
    _command(commands, _add_budget, "show the charges in a ledger")
    _command(commands, _add_distance, "estimate how different tables are", _DISTANCE_EPILOG)
    _command(commands, _add_ui, "do all this on a web page of this computer")
    return parser


def _command(
    commands: Any, add: Callable[[argparse.ArgumentParser], None], summary: str, epilog: str = ""
) -> None:
    """Add a command; the docstring of `add` is its description."""
    texts = {"help": summary, "description": inspect.getdoc(add), "epilog": epilog}
    parser = commands.add_parser(add.__name__.removeprefix("_add_"), **texts, **_STYLE)
    shared = parser.add_argument_group("output to the terminal")
    _flag(shared, "write one JSON object to standard output", "--json")
    _flag(shared, "show only warnings and errors", "--quiet", "-q")
    _flag(shared, "show progress even if standard error is no terminal", "--progress")
    _flag(shared, "show where an error occurred", "--verbose", "-v")
    add(parser)


def _add_schema(parser: argparse.ArgumentParser) -> None:
    """Guess what is public about a table, show the guess, and write what you confirm.

    The guess READS THE VALUES: bounds, categories and column types are copied from them. Everything
    you confirm is treated as public from then on. No privacy budget covers it.
    """
    parser.add_argument("data", metavar="DATA", help=_PRIVATE_TABLE)
    parser.add_argument("--output", "-o", metavar="JSON", help="default: standard output")
    _list(parser, "estimate its bounds or categories privately", "--private", "COLUMN")
    private = "the same for all columns; kinds and spellings are still read from the values"
    _flag(parser, private, "--private-all")
    unread = (
        "read no value: options say what each column holds, and all else is estimated privately"
    )
    _flag(parser, unread, "--no-values")
    _list(parser, "state the bounds of a column", "--range", "COLUMN=LOW..HIGH")
    _list(parser, "read its texts as dates, such as %%d/%%m/%%Y", "--date", "COLUMN=FORMAT")
    how = "read its texts as numbers, written like 1234, 1234.50, 1,234.50 or '1.234,50 EUR'"
    _list(parser, how, "--number", "COLUMN=HOW")
    _list(parser, "read its texts as True and False, such as yes and no", "--boolean", "COLUMN")
    listed = "list all its values as categories; with --no-values they are selected privately"
    _list(parser, listed, "--category", "COLUMN")
    _list(parser, "leave a column out", "--leave-out", "COLUMN")
    rule = "what holds in every row, such as 'admitted <= discharged'; kept in synthetic rows"
    _list(parser, rule, "--rule", "RULE")
    _flag(parser, "show the guess and stop: nothing is asked or written", "--show")
    _flag(parser, "confirm the guess without a prompt", "--yes")
    _add_files(parser)


def _add_synth(parser: argparse.ArgumentParser) -> None:
    """Fit a private table once, at the cost of epsilon, and draw synthetic rows.

    The fit is charged before the table is used. It is refused if the ledger cannot pay for all of
    it. With --model, rows are drawn from a saved fit, any number of times, at no privacy cost.
    """
    parser.add_argument("data", nargs="?", metavar="DATA", help=_PRIVATE_TABLE)
    _value(parser, "draw from a fit written by --save", "--model", "FILE")
    output = "file of the synthetic table; the suffix sets its format"
    parser.add_argument("--output", "-o", required=True, metavar="FILE", help=output)
    fit = parser.add_argument_group("the fit")
    _value(fit, "what is public; see `skdpot schema`", "--schema", "JSON")
    fit.add_argument("--epsilon", type=_positive, help="privacy cost of the fit")
    _value(fit, "the column to be predicted from the others", "--target", "COLUMN")
    _value(fit, "the column that identifies persons, if they have several rows", "--unit", "COLUMN")
    _value(fit, "how many rows of a person count, at most", "--max-rows", "N", type=_count)
    weigh = "rows of a person weigh as much as one row together (default), or one each"
    _value(fit, weigh, "--weighting", "WHAT", choices=("person", "row"))
    _value(fit, "charge this file; created if missing", "--ledger", "DB")
    _add_terms(fit)
    resume = (
        "go on with the fit that failed after the ledger was charged, at no further cost; N is the "
        "number of the charge, if several have not ended"
    )
    fit.add_argument("--resume", nargs="?", const=True, type=_count, metavar="N", help=resume)
    _value(fit, "save the fit, to draw from it later at no cost", "--save", "FILE")
    rows = parser.add_argument_group("the rows")
    _value(rows, "default: as many as in the table", "--rows", "N", type=_count)
    _list(rows, "such as sex=Female or age=30..40", "--where", "CONDITION")
    guard = "write ' before texts of a CSV file that a spreadsheet would run as formulas"
    _flag(rows, guard, "--guard-formulas")
    seed = "seed of the sampling; the privacy noise stays secret"
    _value(rows, seed, "--seed", "N", type=_seed)
    _value(parser, "quality of the rows, measured against the noisy counts", "--report", "HTML")
    _add_files(parser)


def _add_report(parser: argparse.ArgumentParser) -> None:
    """Report what a saved fit released and whom it protects, and attack a copy of the fit.

    No private row is touched, and nothing is charged. With --holdout, which takes public rows of
    the same population, the report also measures how useful the synthetic rows are and attacks
    them by membership inference.
    """
    _value(parser, "a fit written by `skdpot synth --save`", "model", "FILE")
    parser.add_argument("--output", "-o", metavar="HTML", help="write the whole report")
    _value(parser, "table of PUBLIC rows that were not used in the fit", "--holdout", "FILE")
    _value(parser, "ledger whose charges to show", "--ledger", "DB")
    _flag(parser, "do not attack a copy of the fit", "--no-audit")
    _add_files(parser)


def _add_budget(parser: argparse.ArgumentParser) -> None:
    """Show the cap of a ledger, what is spent, what is left, and all charges."""
    _value(parser, "file created by --ledger", "ledger", "DB")
    parser.add_argument("--output", "-o", metavar="HTML", help="write it as a page")
    _flag(parser, "replace existing output files", "--force")


def _add_distance(parser: argparse.ArgumentParser) -> None:
    """Estimate the sliced Wasserstein distances between tables from a private sketch of each.

    Run this program where all files may be read. The result depends on the tables only through
    their sketches: the distances and intervals are epsilon-private for each person in one of the
    tables, and twice that for a person in two. Column names, the numbers of rows, and which
    columns are numeric without missing values are treated as public. Without --schema, a column of
    numbers that contains a text is left out or refused. Parties who cannot bring their files to one
    place can exchange sketches instead: see PrivateWassersteinDistance in Python.
    """
    parser.add_argument("tables", metavar="DATA", nargs="+", help=_PRIVATE_TABLE)
    cost = "privacy cost of each sketch"
    parser.add_argument("--epsilon", type=_positive, required=True, help=cost)
    _value(parser, "encode all tables by this schema, which must be complete", "--schema", "JSON")
    _list(parser, "compare this column", "--columns", "COLUMN")
    bounds = "public range of all columns"
    _value(parser, bounds, "--bounds", ("LOW", "HIGH"), nargs=2, type=_finite)
    _value(parser, "charge the ledger of each party", "--ledgers", "DB", nargs="+")
    _add_terms(parser)
    _add_files(parser, writes=False)


def _add_ui(parser: argparse.ArgumentParser) -> None:
    """Open a web page that this computer serves to itself: schema, synth, report and budget.

    The page reads tables of one folder, and what it makes lies in a new folder there. It loads
    nothing from elsewhere and reports to nobody. Its address holds a secret: whoever knows it can
    do what you can do on the page.
    """
    parser.add_argument("data", nargs="?", metavar="DATA", help=_PRIVATE_TABLE)
    _value(parser, "default: any free port", "--port", "N", type=_count, default=0)
    parser.add_argument("--host", default="127.0.0.1", help="IP address (default: 127.0.0.1)")
    _flag(parser, "let other computers reach the page at --host", "--allow-network")
    folder = "folder that the page reads and writes in (default: the working directory)"
    _value(parser, folder, "--folder", "DIR", default=".")
    _flag(parser, "only print the address of the page", "--no-browser")


_Group: TypeAlias = argparse._ActionsContainer


def _value(
    group: _Group, text: str, name: str, metavar: str | tuple[str, str], **options: Any
) -> None:
    group.add_argument(name, metavar=metavar, help=text, **options)


def _list(group: _Group, text: str, name: str, metavar: str) -> None:
    _value(group, f"{text} (repeatable)", name, metavar, action="append", default=[])


def _flag(group: _Group, text: str, *names: str) -> None:
    group.add_argument(*names, action="store_true", help=text)


def _add_terms(group: _Group) -> None:
    group.add_argument("--delta", type=_share, help=_DELTA)
    cap = "cap on all charges together, for a new ledger (default: --epsilon)"
    _value(group, cap, "--epsilon-cap", "EPSILON", type=_positive)


def _add_files(parser: argparse.ArgumentParser, writes: bool = True) -> None:
    if writes:
        _flag(parser, "replace existing output files", "--force")
    form = parser.add_argument_group("text files")
    _value(form, "default: comma, tab in .tsv", "--sep", "CHAR", type=_separator)
    missing = (
        "text that means a missing value, besides an empty field (repeatable; default: as in "
        "pandas, such as NA, NaN, null and None)"
    )
    _value(form, missing, "--missing", "TEXT", action="append")
    form.add_argument("--encoding", default="utf-8", help="default: utf-8")


def _where(
    kind: Callable[[str], _Number], admits: Callable[[_Number], bool], demand: str
) -> Callable[[str], _Number]:
    """Return a parser of numbers that `admits` accepts."""

    def read(text: str) -> _Number:
        with suppress(ValueError):
            value = kind(text)
            if admits(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {demand}")

    return read


_finite = _where(float, math.isfinite, "a finite number")
_positive = _where(float, lambda value: value > 0.0, "a number greater than 0")
_share = _where(float, lambda value: 0.0 < value < 1.0, "a number between 0 and 1")
_count = _where(int, lambda value: value >= 1, "a whole number of at least 1")
_seed = _where(int, lambda value: 0 <= value < 2**32, "a whole number from 0 to 2^32 - 1")


def _separator(text: str) -> str:
    value = "\t" if text in ("\\t", "tab") else text
    if len(value) != 1 or value in '"\r\n':
        raise argparse.ArgumentTypeError("must be one character")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Privacy
    -------
    Errors and warnings quote no private value: texts of other libraries, which may, are withheld.
    """
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as stop:  # after --help, --version, or an error of usage
        return stop.code if isinstance(stop.code, int) else OK
    console = Console(sys.stdout, sys.stderr, as_json=args.json, quiet=args.quiet)
    console.shows_progress |= args.progress
    try:
        _run(args, console)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has stopped
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Exception, KeyboardInterrupt) as error:
        text, code = explain(error)
        if args.verbose:
            console.say(f"{where_it_happened(error)}\n")
        for note in charges_before(error):
            console.warn(note)
        console.fail(text)
        return code
    return OK


def _run(args: Namespace, console: Console) -> None:
    """Load the module of a command, and run it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        console.warn(str(message))

    with warnings.catch_warnings():
        # Warnings of other libraries may quote values.
        warnings.simplefilter("ignore")
        for category in (FairnessWarning, NotPrivateWarning, PrivacyWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        module: Any = import_module(f"skdpot.cli.{args.command}")
        getattr(module, f"run_{args.command}")(args, console)


if __name__ == "__main__":
    sys.exit(main())
