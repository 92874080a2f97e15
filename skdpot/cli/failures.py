"""What a command says when it fails: never a private value, and no traceback unless asked for."""

import dis
import traceback
from types import TracebackType

from skdpot.exceptions import BudgetExceededError, SkdpotError

__all__ = [
    "BUDGET_EXCEEDED",
    "FAILED",
    "INTERRUPTED",
    "OK",
    "USAGE",
    "CommandError",
    "explain",
    "where_it_happened",
]

OK, FAILED, USAGE, BUDGET_EXCEEDED, INTERRUPTED = 0, 1, 2, 3, 130

_OF_PYTHON = " In GridSearchCV"  # where advice begins that no command line has a use for


class CommandError(SkdpotError):
    """A command cannot do what it was asked for.

    Parameters
    ----------
    message : str
        What is wrong and what to do, without a private value.
    code : int, default=FAILED
        The exit status.
    """

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def explain(error: BaseException) -> tuple[str, int]:
    """Return the line to print for an error, and the exit status.

    Parameters
    ----------
    error : BaseException
        What a command raised.

    Returns
    -------
    message : str
        Its text if this package wrote it: such texts quote no private value. Other libraries may
        quote what they could not read, so that of their errors the kind alone is told.
    code : int
    """
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, BudgetExceededError):
        return str(error).partition(_OF_PYTHON)[0], BUDGET_EXCEEDED
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; what the ledger was charged before stays charged", INTERRUPTED
    if isinstance(error, MemoryError):
        return "there is not enough memory for this table", FAILED
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return f"{place}{error.strerror}", FAILED
    if _is_ours(error.__traceback__):
        return str(error), FAILED
    return (
        f"{type(error).__name__} inside of another library; its text is withheld, because it may "
        "quote private values. The option -v shows where it happened.",
        FAILED,
    )


def where_it_happened(error: BaseException) -> str:
    """Return the lines of code that led to an error, without the texts of any error."""
    lines = traceback.format_tb(error.__traceback__)
    return f"{''.join(lines)}{type(error).__name__}"


def _is_ours(trace: TracebackType | None) -> bool:
    """Whether a statement ``raise`` of this package made the error.

    An error of ``int(text)`` or ``known[text]`` ends in a line of ours as well, but its text is
    Python's own, and quotes.
    """
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    module = str(frame.f_globals.get("__name__", ""))
    ours = module.partition(".")[0] == "skdpot"
    return ours and frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
