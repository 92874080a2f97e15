"""Results on standard output, everything else on standard error."""

import json
import math
import os
import shutil
import textwrap
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self, TextIO

from skdpot._utils.files import draft_beside, write_file
from skdpot.exceptions import BudgetExceededError, SkdpotError, is_ours

_NARROWEST, _WIDEST = 60, 110

OK, FAILED, USAGE, BUDGET_EXCEEDED, INTERRUPTED = 0, 1, 2, 3, 130
_NAMED = 3  # hidden results in a line
_OF_PYTHON = " In GridSearchCV"  # start of advice for Python alone


class Console:
    """Output of a command: results, messages and progress."""

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool, quiet: bool) -> None:
        self._out, self._err = out, err
        self._as_json, self.quiet = as_json, quiet
        self.shows_progress = not quiet and err.isatty()  # on a terminal

    def warn(self, text: str) -> None:
        """Write a warning."""
        self._err.write(f"skdpot: warning: {printable(text)}\n")

    def fail(self, text: str) -> None:
        """Write the reason why a command failed."""
        self._err.write(f"skdpot: error: {printable(text)}\n")

    def say(self, text: str) -> None:
        """Write a text for the user at the terminal."""
        self._err.write(text)
        self._err.flush()

    def result(self, lines: Sequence[str], facts: Mapping[str, Any], *, wanted: bool) -> None:
        """Write a result."""
        if self._as_json:
            content = json.dumps(_plain(facts), indent=2, ensure_ascii=False, allow_nan=False)
            self._out.write(f"{content}\n")
        elif wanted or not self.quiet:
            self._out.writelines(f"{printable(line)}\n" for line in lines)

    def text(self, text: str) -> None:
        """Write a result that is text."""
        self._out.write(text)

    def paragraph(self, text: str) -> str:
        """Return a text wrapped to the width of the terminal."""
        return textwrap.fill(printable(text), _width(), break_on_hyphens=False)

    def columns(self, rows: Sequence[tuple[str, ...]]) -> str:
        """Return a table of five columns in the width of the terminal."""
        needed = [max(len(printable(row[j])) for row in rows) for j in range(5)]
        shares = (0.2, 0.12, 1.0, 0.17, 0.28)
        widths = [min(n, int(_width() * s)) for n, s in zip(needed, shares, strict=True)]
        widths[2] = _width() - sum(widths) + widths[2] - 8
        lines = []
        for row in rows:
            cells = [
                textwrap.wrap(printable(text), width, break_on_hyphens=False)
                for text, width in zip(row, widths, strict=True)
            ]
            for parts in zip_longest(*cells, fillvalue=""):
                line = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
                lines.append("  ".join(line).rstrip())
        return "\n".join(lines)


def _width() -> int:
    return min(max(shutil.get_terminal_size((96, 24)).columns, _NARROWEST), _WIDEST)


def printable(text: str) -> str:
    """Return a text without control characters of a terminal."""
    shown = (c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return "".join(shown)


def counted_columns(number: int) -> str:
    """Return a number of columns in words."""
    return "1 column" if number == 1 else f"{number} columns"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def verdict(fitted: Any) -> tuple[list[str], dict[str, Any]]:
    """Return what the noise of a fit hides, in a line and as facts, if the fit states it."""
    reliability = getattr(fitted, "reliability_", None)
    if reliability is None:
        return [], {}
    frame, hidden = reliability.to_frame(), list(reliability.unreliable)
    facts = {"unreliable": hidden, "outputs": frame.reset_index().to_dict("records")}
    if not hidden:
        return [f"noise hides none of {len(frame)} results as a whole"], {"reliability": facts}
    more = f" and {len(hidden) - _NAMED} more" if len(hidden) > _NAMED else ""
    names = f"{', '.join(hidden[:_NAMED])}{more}"
    line = f"noise hides {len(hidden)} of {len(frame)} results: {names}"
    return [line], {"reliability": facts}


class CommandError(SkdpotError):
    """A command that cannot be carried out."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def explain(error: BaseException) -> tuple[str, int]:
    """Return the message of an error, and the exit status."""
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, BudgetExceededError):
        return str(error).partition(_OF_PYTHON)[0], BUDGET_EXCEEDED
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; what the ledger was charged before stays charged", INTERRUPTED
    if isinstance(error, MemoryError):
        return "there is not enough memory for this table", FAILED
    if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "skorch"):
        return "this command needs torch and skorch: pip install torch skorch", FAILED
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return f"{place}{error.strerror}", FAILED
    if is_ours(error.__traceback__):
        return str(error), FAILED
    return (
        f"{type(error).__name__} inside of another library; its text is withheld because it may "
        "quote private values. The option -v shows where it happened.",
        FAILED,
    )


def where_it_happened(error: BaseException) -> str:
    """Return the traceback of an error without its message, which may quote values."""
    lines = traceback.format_tb(error.__traceback__)
    return f"{''.join(lines)}{type(error).__name__}"


class OutputFile:
    """An output file of a command."""

    def __init__(self, path: str, *, force: bool) -> None:
        self.path = Path(path).expanduser().absolute()
        self.name = path
        self._force = force

    @classmethod
    def of(
        cls, args: Namespace, options: Iterable[str], inputs: Iterable[str | None]
    ) -> dict[str, Self]:
        """Return the files of options; refuse files that are named twice or are inputs."""
        taken = {os.path.realpath(os.path.expanduser(path)) for path in inputs if path is not None}
        outputs = {}
        for option in options:
            if (name := getattr(args, option)) is None:
                continue
            outputs[option] = output = cls(name, force=args.force)
            place = os.path.realpath(output.path)
            if place in taken:
                raise CommandError(f"{name} is named twice; files must be distinct.")
            taken.add(place)
            output.check()
        return outputs

    def check(self) -> None:
        """Refuse a file that cannot be written, before the charge."""
        if self.path.is_dir():
            raise CommandError(f"{self.name} is a directory. Name a file.")
        if os.path.lexists(self.path) and not self._force:
            raise CommandError(f"{self.name} exists already. Name another file, or pass --force.")
        try:
            with draft_beside(self.path):
                pass
        except OSError as error:
            place = f"{self.name} cannot be written: {self.path.parent}"
            raise CommandError(f"{place}: {error.strerror}.") from None

    def write(self, fill: Callable[[Path], object]) -> None:
        """Write a draft beside the file, then rename it."""
        try:
            write_file(self.path, fill, replace=self._force)
        except FileExistsError:
            text = f"{self.name} came to exist while this was running; it was kept."
            raise CommandError(text) from None
        except OSError as error:  # the error of a full disk does not name the file
            raise CommandError(f"{self.name} cannot be written: {error.strerror}.") from None
