"""The program ``skdpot``."""

import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from skdpot.cli.arguments import make_parser
from skdpot.cli.console import Console
from skdpot.cli.failures import OK, explain, where_it_happened
from skdpot.exceptions import FairnessWarning, NotPrivateWarning, PrivacyWarning

__all__ = ["main"]


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
