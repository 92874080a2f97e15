"""What all events share: the base class and the checks of their fields."""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

from skdpot.privacy.lattice_sampler import required_bits, rounding_width
from skdpot.privacy.relation import Relation

__all__ = [
    "Event",
    "lattice_spacing",
    "positive_float",
    "positive_int",
    "positive_ints",
    "sampled_step_mu",
    "step_mu",
]


def positive_float(owner: object, name: str, value: SupportsFloat) -> float:
    """Return `value` as a finite positive float or name the field that is wrong."""
    if isinstance(value, bool | str):
        number = math.nan
    else:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(
            f"{type(owner).__name__}: `{name}` must be a finite number > 0, got {value!r}."
        )
    return number


def positive_int(owner: object, name: str, value: SupportsIndex) -> int:
    """Return `value` as an integer of at least one or name the field that is wrong."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(
            f"{type(owner).__name__}: `{name}` must be an integer >= 1, got {value!r}."
        )
    return number


def positive_ints(owner: object, name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return `values` as a non-empty tuple of integers of at least one."""
    try:
        numbers = tuple(positive_int(owner, name, value) for value in values)
    except TypeError:
        numbers = ()
    if not numbers:
        raise ValueError(
            f"{type(owner).__name__}: `{name}` must hold one or more integers >= 1, got {values!r}."
        )
    return numbers


def as_relation(owner: object, value: Relation | str) -> Relation:
    """Return `value` as a `Relation` or say which relations there are."""
    try:
        return Relation(value)
    except ValueError:
        allowed = ", ".join(repr(str(relation)) for relation in Relation)
        raise ValueError(
            f"{type(owner).__name__}: `relation` must be one of {allowed}, got {value!r}."
        ) from None


def lattice_spacing(owner: object, lattice: SupportsFloat | None, sigma: float) -> float | None:
    """Return the spacing of the noise's lattice, no coarser than sigma, or None."""
    if lattice is None:
        return None
    spacing = positive_float(owner, "lattice", lattice)
    if sigma < spacing:
        raise ValueError(
            f"{type(owner).__name__}: `lattice` must not exceed sigma, got lattice={spacing!r} "
            f"and sigma={sigma!r}; use a finer lattice or more noise."
        )
    return spacing


def step_mu(sigma: float, sensitivity: float, lattice: float | None) -> float:
    """Return mu of one Gaussian release on all the records that it sees.

    On a lattice the ratio ``sensitivity / sigma`` grows by 1 + 1 / (20 s^2), s = sigma / g: a
    discrete Gaussian is not dominated by the continuous one, its excess is about 1 / (24 s^2).
    """
    mu = sensitivity / sigma
    return mu if lattice is None else mu * (1.0 + (lattice / sigma) ** 2 / 20.0)


def sampled_step_mu(sigma: float, sensitivity: float, lattice: float | None) -> float:
    """Return mu of one Gaussian release of which records take part by secret coins.

    On a lattice the release is a random rounding of a continuous one that has the variance
    ``sigma**2 - (rho * g)**2`` (`skdpot.privacy.lattice_sampler`), in any mixture.
    """
    mu = sensitivity / sigma
    if lattice is None:
        return mu
    rho = rounding_width(required_bits(sigma / lattice, mu)) * lattice
    if sigma < 2.0 * rho:
        raise ValueError(
            f"`lattice` must not exceed sigma / {2.0 * rho / lattice:.3g} for Poisson samples, got "
            f"lattice={lattice!r} and sigma={sigma!r}; use a finer lattice or more noise."
        )
    return mu / math.sqrt((1.0 - rho / sigma) * (1.0 + rho / sigma)) * (1.0 + 1e-15)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of the events.

    Parameters
    ----------
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation under which `sensitivity` was derived.

    Raises
    ------
    ValueError
        If a field is out of range; the message names the field.
    """

    relation: Relation = Relation.REPLACE_ONE

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        self._store("relation", as_relation(self, self.relation))

    def _store(self, name: str, value: object) -> None:
        """Set a field of the frozen instance while it is being made."""
        object.__setattr__(self, name, value)
