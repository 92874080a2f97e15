"""Files that appear under their names complete, or not at all."""

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from skdpot.cli.failures import CommandError

__all__ = ["OutputFile", "check_outputs"]


class OutputFile:
    """A file that a command is going to write.

    Parameters
    ----------
    path : str
        Its name.
    force : bool
        Whether it may replace a file.
    """

    def __init__(self, path: str, *, force: bool) -> None:
        self.path = Path(path).expanduser().absolute()
        self.name = path
        self._force = force

    def check(self) -> None:
        """Refuse what cannot be written, before anything is charged.

        Raises
        ------
        CommandError
            If there is something at the path and no --force, or the directory is not writable.
        """
        if self.path.is_dir():
            raise CommandError(f"{self.name} is a directory. Name a file.")
        if os.path.lexists(self.path) and not self._force:
            raise CommandError(f"{self.name} exists already. Name another file, or pass --force.")
        try:
            self._draft().unlink()
        except OSError as error:
            reason = error.strerror
        else:
            return
        raise CommandError(f"{self.name} cannot be written: {self.path.parent}: {reason}.")

    def write(self, fill: Callable[[Path], object]) -> None:
        """Write the file beside its place, then give it its name.

        Parameters
        ----------
        fill : callable
            Writes the contents, given a path with the same suffix.

        Raises
        ------
        CommandError
            If something came to be at the path in the meantime.
        """
        draft = self._draft()
        try:
            fill(draft)
            _let_others_read(draft)
            if self._force:
                draft.replace(self.path)
                return
            taken = not _take_name(draft, self.path)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
        if taken:
            raise CommandError(f"{self.name} came to exist while this was running; it was kept.")

    def _draft(self) -> Path:
        handle, draft = tempfile.mkstemp(
            prefix=f".{self.path.name}.", suffix="".join(self.path.suffixes), dir=self.path.parent
        )
        os.close(handle)
        return Path(draft)


def check_outputs(outputs: Iterable[OutputFile | None], inputs: Iterable[str | None]) -> None:
    """Refuse outputs that cannot be written, or that are one another or an input.

    Parameters
    ----------
    outputs : iterable of OutputFile or None
        None is a file that was not asked for.
    inputs : iterable of str or None
        Files that are read, and the ledger.

    Raises
    ------
    CommandError
        Naming the file.
    """
    taken = {os.path.realpath(os.path.expanduser(path)) for path in inputs if path is not None}
    for output in outputs:
        if output is None:
            continue
        place = os.path.realpath(output.path)
        if place in taken:
            raise CommandError(f"{output.name} is named twice; every file needs a name of its own.")
        taken.add(place)
        output.check()


def _take_name(draft: Path, path: Path) -> bool:
    """Rename a draft unless the name is taken; whether it was free."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # no hard links here: reserve the name, then replace our own reservation
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        draft.replace(path)
    return True


def _let_others_read(path: Path) -> None:
    """Give a draft, which is its owner's alone, the permissions of any new file."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)
