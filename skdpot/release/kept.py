"""Releases of an unfinished fit, kept in a ledger so that the fit can be resumed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.records import Record
from skdpot.exceptions import LedgerError
from skdpot.privacy.journal import Journal
from skdpot.release.comparison import copied, digest, in_form_of, same_shape
from skdpot.release.releases import Release, public_facts

_OTHER_FACTS = (
    "The interrupted fit released {} given other public facts: its parameters, a library or the "
    "machine were others. Make the same fit, or leave budget.resume() to make a new one. Nothing "
    "was charged."
)
_UNREADABLE = "{} of the interrupted fit is damaged, so that the fit cannot be resumed."


@dataclass(frozen=True)
class KeptRelease(Record):
    """A release of an unfinished fit; `value` is JSON that refers to the arrays by number."""

    kind: ClassVar[str] = "skdpot.kept_release"
    noun: ClassVar[str] = "kept release"

    name: str
    facts: str
    value: str
    arrays: tuple[np.ndarray, ...]

    def restored(self, value: object, where: str) -> Any:
        """Return the kept value in the form of `value`, which the same release has now."""
        try:
            kept = _unpacked(json.loads(self.value), self.arrays)
            if not same_shape(kept, copied(value), np.ndim):  # batches are of random sizes
                raise ValueError("another form")
        except (TypeError, ValueError, LookupError, RecursionError) as error:
            raise LedgerError(_UNREADABLE.format(where)) from error
        return in_form_of(kept, value)


def kept_value(journal: Journal, release: Release) -> Any:
    """Return the value that an earlier attempt released, or keep and return the present one."""
    facts = digest(public_facts(release))
    due = journal.due()
    if due is not None:
        where = f"The release {release.kind!r}"
        try:
            known = KeptRelease.from_bytes(due)
        except ValueError as error:
            raise LedgerError(_UNREADABLE.format(where)) from error
        if (known.name, known.facts) != (release.kind, facts):
            raise LedgerError(_OTHER_FACTS.format(repr(release.kind)))
        return known.restored(release.value, where)
    arrays: list[np.ndarray] = []
    try:
        value = json.dumps(_packed(copied(release.value), arrays))
        data = KeptRelease(release.kind, facts, value, tuple(arrays)).to_bytes()
    except (TypeError, ValueError):  # a value that no file can hold
        journal.drop()
        return release.value
    journal.keep(data)
    return release.value


def _packed(value: object, arrays: list[np.ndarray]) -> Any:
    """Return a value as JSON; append its arrays to the list."""
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_packed(part, arrays) for part in value]}
    if isinstance(value, np.ndarray | np.generic):
        arrays.append(np.asarray(value))
        return {"array" if isinstance(value, np.ndarray) else "number": len(arrays) - 1}
    return value


def _unpacked(content: object, arrays: Sequence[np.ndarray]) -> Any:
    """Return the value that `_packed` has converted."""
    if not isinstance(content, dict):
        return content
    [(kind, held)] = content.items()
    if kind in ("tuple", "list"):
        parts = (_unpacked(part, arrays) for part in held)
        return tuple(parts) if kind == "tuple" else list(parts)
    array = arrays[held].copy()
    return array if kind == "array" else array[()]
