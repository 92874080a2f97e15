"""Atomic writing of files: a full disk or a crash leaves no partial file."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST = 40  # characters of the name that the name of a draft repeats


@contextmanager
def draft_beside(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield a new, empty file in the directory of `path`, readable by its owner only.

    The file is removed at the end unless it has been renamed.
    """
    handle, name = tempfile.mkstemp(
        prefix=f".{path.name[:_LONGEST]}.", suffix=suffix, dir=path.parent
    )
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def write_file(path: str | Path, fill: Callable[[Path], object], *, replace: bool = True) -> None:
    """Let `fill` write a draft beside `path`, and rename it when it is on the disk.

    An error leaves an existing file unchanged. A new file gets the default permissions.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():  # a pipe or a device
        fill(place)
        return
    with draft_beside(place, "".join(place.suffixes)) as draft:
        fill(draft)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())  # some systems report a full disk here
        if place.exists():
            shutil.copymode(place, draft)
        else:
            mask = os.umask(0)
            os.umask(mask)
            draft.chmod(0o666 & ~mask)
        if not replace:
            place.touch(exist_ok=False)  # reserves the name, or fails if it exists
        draft.replace(place)
