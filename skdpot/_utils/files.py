"""Files that appear complete or not at all: a full disk or a crash leaves no part of one."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST = 40  # characters of a name that its draft repeats


@contextmanager
def draft_beside(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield a new, empty file in the directory of `path`, which its owner alone may read.

    Whatever still has that name in the end is removed.
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
    """Let `fill` write a draft beside `path`, and give it the name when it is on the disk.

    An error leaves an existing file as it was. Any new file may be read by others.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():  # a pipe or a device, which keeps nothing
        fill(place)
        return
    with draft_beside(place, "".join(place.suffixes)) as draft:
        fill(draft)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())  # some systems find here that the disk is full
        if place.exists():
            shutil.copymode(place, draft)
        else:
            mask = os.umask(0)
            os.umask(mask)
            draft.chmod(0o666 & ~mask)
        if not replace:
            place.touch(exist_ok=False)  # takes the name, unless somebody else has
        draft.replace(place)
