"""Releases of mechanisms: noisy value, noise, event, and the contribution of each record."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from skdpot.privacy.events import Event

Records: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Vectors:
    """Contributions of single records to a release: the rows of a dense or sparse array."""

    array: Any

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """Return the sum over records, each multiplied by its weight."""
        return np.asarray(weights @ self.array)

    def inner(self, value: np.ndarray) -> np.ndarray:
        """Return the inner products with a value."""
        return np.asarray(self.array @ value)

    def gram(self) -> np.ndarray:
        """Return the inner products of all pairs of records."""
        products = self.array @ self.array.T
        return products if isinstance(products, np.ndarray) else products.toarray()

    def minus(self, first: np.ndarray, second: np.ndarray) -> "Vectors":
        """Return the differences between two lists of records."""
        return Vectors(self.array[first] - self.array[second])


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    r"""Some numbers of a release, and the contribution of each record to them.

    The mean of the numbers over batches and candidates is :math:`\sum_j q_j p_j g_j`. Record j
    contributes :math:`q_j g_j`; p is given (the shares), and q is 1 unless batches are drawn.
    """

    value: np.ndarray
    sigma: float
    rows: Any = None  # `Vectors`, or an object with the same sum, inner and gram
    members: np.ndarray | None = None
    rates: np.ndarray | None = None
    center: np.ndarray | None = None
    exact: bool = True
    missed: float = 0.0


@dataclass(frozen=True, eq=False)
class Release:
    """One noisy quantity that leaves a mechanism, created by the function that adds the noise.

    Parameters
    ----------
    kind : str
        Name of the quantity, such as ``"gradient"``.
    value : ndarray, tensor, number, or tuple or list of these
        The noisy value. The length of a list is part of the value; shapes of arrays and lengths of
        tuples are public.
    event : Event
        The event that was charged for it, alone or with other releases.
    facts : mapping, default={}
        Public facts that a replay compares and the linear map needs. Arrays and tensors are copied
        when the release is recorded.
    sigma : float or tuple of float, default=0.0
        Standard deviation of the noise on each number, or on the numbers of each part of the value.
    lattice : float, optional
        Spacing of the noise. None means floating-point noise.
    sensitivity : float, optional
        L2 sensitivity that the noise hides.
    linear : callable, optional
        Map from records to their contributions, for releases that are (nearly) sums over records:
        ``linear(release, records, shares)`` yields a `Part` for each part of the release. Records
        are the rows and labels of `fit`, as the estimator passes them to the mechanism
        (`_seen_by`); ``shares`` holds the expected number of each in the data: 1, or 1/2 for the
        two candidates of a slot. Records that are certainly present come first, then all first and
        then all second candidates.
    """

    kind: str
    value: Any
    event: Event = field(kw_only=True)
    facts: Mapping[str, Any] = field(default_factory=dict)
    sigma: float | tuple[float, ...] = 0.0
    lattice: float | None = None
    sensitivity: float | None = None
    linear: Callable[["Release", Records, np.ndarray], Iterable[Part]] | None = None

    def as_part(self, added: Any) -> Part:
        """Return all numbers as one part; row j of an array is the contribution of record j."""
        return Part(value=self.value.ravel(), sigma=float(np.max(self.sigma)), rows=Vectors(added))

    def parts(self, records: Records, shares: np.ndarray) -> Iterable[Part]:
        """Return the contributions of records to each part of the value; empty if unknown."""
        return () if self.linear is None else self.linear(self, records, shares)

    def __repr__(self) -> str:
        return f"Release({self.kind!r}, sigma={self.sigma}, facts={sorted(self.facts)})"


def candidates(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the first and the second candidate of each slot of the data."""
    n_pairs = int(np.count_nonzero(shares < 1.0)) // 2
    first = np.arange(len(shares) - n_pairs)
    return first, np.where(shares[first] < 1.0, first + n_pairs, first)


def of_candidates(facts: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Extend public facts of the rows to all records; both candidates of a slot have the same."""
    n_pairs = int(np.count_nonzero(shares < 1.0)) // 2
    return np.concatenate([facts, facts[len(facts) - n_pairs :]])


def public_facts(release: Release) -> dict[str, Any]:
    """Return the public part of a release: its facts and its noise."""
    return {**release.facts, "sigma": release.sigma, "lattice": release.lattice}
