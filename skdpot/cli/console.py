"""Results on standard output, everything else on standard error."""

import json
import math
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

__all__ = ["Console", "printable"]

_NARROWEST, _WIDEST = 60, 110


class Console:
    """Where a command writes.

    Parameters
    ----------
    out, err : text stream
        Standard output and standard error.
    as_json : bool
        Whether results are one JSON object.
    quiet : bool
        Whether to keep notes, progress bars and summaries to oneself. Warnings and errors are
        written all the same.
    """

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool, quiet: bool) -> None:
        self._out, self._err = out, err
        self._as_json, self.quiet = as_json, quiet

    @property
    def shows_progress(self) -> bool:
        """Whether somebody looks at a progress bar."""
        return not self.quiet and self._err.isatty()

    def note(self, text: str) -> None:
        """Say something on the way."""
        if not self.quiet:
            self._err.write(f"{printable(text)}\n")

    def warn(self, text: str) -> None:
        """Say something that must not be missed."""
        self._err.write(f"skdpot: warning: {printable(text)}\n")

    def fail(self, text: str) -> None:
        """Say why a command failed."""
        self._err.write(f"skdpot: error: {printable(text)}\n")

    def trace(self, text: str) -> None:
        """Show the lines of code that led to an error."""
        self._err.write(f"{text}\n")

    def ask(self, question: str) -> None:
        """Write a question whose answer is typed behind it."""
        self._err.write(question)
        self._err.flush()

    def result(self, lines: Sequence[str], facts: Mapping[str, Any], *, wanted: bool) -> None:
        """Write a result.

        Parameters
        ----------
        lines : sequence of str
            For people.
        facts : mapping
            For programs; infinity becomes null.
        wanted : bool
            Whether these lines are what the command is for, so that `quiet` does not hide them.
        """
        if self._as_json:
            content = json.dumps(_plain(facts), indent=2, ensure_ascii=False, allow_nan=False)
            self._out.write(f"{content}\n")
        elif wanted or not self.quiet:
            self._out.writelines(f"{printable(line)}\n" for line in lines)

    def text(self, text: str) -> None:
        """Write a result that is a text already."""
        self._out.write(text)

    def paragraph(self, text: str) -> str:
        """Return a text in lines of the width of the terminal."""
        return textwrap.fill(printable(text), _width(), break_on_hyphens=False)

    def columns(self, rows: Sequence[tuple[str, str]]) -> str:
        """Return names with descriptions beside them, in the width of the terminal."""
        room = max((len(printable(name)) for name, _ in rows), default=0)
        room = min(room, _width() // 3) + 4
        lines = []
        for name, text in rows:
            lines += textwrap.wrap(
                printable(text),
                _width(),
                initial_indent=f"  {printable(name)}".ljust(room),
                subsequent_indent=" " * room,
                break_on_hyphens=False,
            )
        return "\n".join(lines)


def _width() -> int:
    return min(max(shutil.get_terminal_size((96, 24)).columns, _NARROWEST), _WIDEST)


def printable(text: str) -> str:
    """Return a text in which nothing can move the cursor or change colours of a terminal."""
    shown = (c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return "".join(shown)


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
