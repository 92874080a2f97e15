"""The fraction t when it is kept secret: any regularity of the data tells it."""

from dataclasses import dataclass

import numpy as np

from skdpot.audit.reconstruction.seen_measure import SeenMeasure, as_measure
from skdpot.federated.plans import optimal_plan

__all__ = ["FractionGuess", "fraction_from_ties", "fractions_from_two_messages"]

_WINDOW = 1e-10  # width in which quotients count as equal
_FEWEST = 12  # equal quotients that chance does not bring about


@dataclass(frozen=True, kw_only=True)
class FractionGuess:
    """A fraction and what speaks for it.

    Parameters
    ----------
    t : float
        The fraction.
    n_agreeing : int
        Comparisons that gave this value, to ten digits.
    n_compared : int
        Comparisons that gave a value between 0 and 1.
    """

    t: float
    n_agreeing: int
    n_compared: int


def fraction_from_ties(
    message: SeenMeasure,
    reference: SeenMeasure,
    *,
    max_comparisons: int = 2_000_000,
    rng: np.random.Generator | None = None,
) -> FractionGuess:
    """Find t from values that occur more than once in a column of the secret rows.

    The message η and the reference γ alone do not tell t: for every smaller t' there is a data
    set with that message, on the segments between the rows and their reference points. But the
    plan is the same for all of them (`rows_from_interpolation`), and where two rows have the
    same value of a feature, known to the attacker or not, the message tells t:

        ``x_ij = x_lj  ⟹  (η_ij − η_lj) / (γ_σ(i)j − γ_σ(l)j) = t``.

    So t is the quotient that comes up again and again: in images with a background, in
    counts, codes and rounded measurements. Columns of pairwise different real numbers keep it.

    Parameters
    ----------
    message : DiscreteMeasure or message
        The interpolating measure, of rows that moved towards one reference point each: as many
        rows as points, a multiple of it, or the exact interpolation.
    reference : DiscreteMeasure or message
        The measure that they were moved towards.
    max_comparisons : int, default=2_000_000
        Pairs of values to compare.
    rng : numpy.random.Generator, optional
        Draws pairs of rows; seeded with 0 by default, so that attacks can be repeated.

    Returns
    -------
    FractionGuess
        The fraction.

    Raises
    ------
    ValueError
        If no quotient comes up again and again.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit.reconstruction import fraction_from_ties
    >>> from skdpot.federated.interpolation import interpolate
    >>> from skdpot.federated.measures import DiscreteMeasure, gaussian_reference
    >>> from skdpot.federated.plans import optimal_plan
    >>> secret = np.random.default_rng(0).integers(0, 9, size=(50, 3))  # grades, say
    >>> gamma = gaussian_reference(50, 3, rng=np.random.default_rng(1))
    >>> eta = interpolate(optimal_plan(DiscreteMeasure(secret), gamma), 0.37)
    >>> round(fraction_from_ties(eta, gamma).t, 12)
    0.37
    """
    rng = np.random.default_rng(0) if rng is None else rng
    targets = _targets(message, reference)
    rises, runs = _differences(message.points, targets, max_comparisons, rng)
    wide = np.abs(runs) > 1e-3 * float(np.abs(runs).max(initial=0.0))
    rises, runs = rises[wide], runs[wide]
    quotients = rises / runs
    order = np.argsort(quotients)
    order = order[(quotients[order] > 0) & (quotients[order] < 1)]
    ordered = quotients[order]
    agreeing = np.searchsorted(ordered, ordered + _WINDOW, side="right") - np.arange(len(ordered))
    if len(ordered) == 0 or agreeing.max() < _FEWEST:
        raise ValueError(
            "t cannot be found: no quotient comes up again and again, so the rows have few "
            "equal values, or were divided among several reference points. Give t."
        )
    start = int(np.argmax(agreeing))
    mode = order[start : start + int(agreeing[start])]
    t = float(rises[mode] @ runs[mode] / (runs[mode] @ runs[mode]))
    return FractionGuess(t=t, n_agreeing=len(mode), n_compared=len(ordered))


def fractions_from_two_messages(
    first: SeenMeasure,
    first_reference: SeenMeasure,
    second: SeenMeasure,
    second_reference: SeenMeasure,
) -> tuple[float, float]:
    """Find both secret fractions from two messages of one party about the same rows.

    In FedWad a party sends the same rows in every round, moved towards another ξ. Then
    ``x = γ_σ + u (η − γ_σ)`` with ``u = 1 / (1 − t)`` holds in both rounds: n d linear
    equations for the two unknown u, solved by least squares. Nothing about the rows has to be
    known.

    Parameters
    ----------
    first, second : DiscreteMeasure or message
        The messages, rows in the same order.
    first_reference, second_reference : DiscreteMeasure or message
        What the rows were moved towards; as many points as rows.

    Returns
    -------
    tuple of two floats
        The fractions of the two messages.

    Raises
    ------
    ValueError
        If the messages have different shapes or are not about the same rows.
    """
    if first.points.shape != second.points.shape:
        raise ValueError("Both messages must hold the same rows, in the same order.")
    start = _targets(first, first_reference)
    other_start = _targets(second, second_reference)
    design = np.stack([(first.points - start).ravel(), -(second.points - other_start).ravel()])
    (u, v), _, rank, _ = np.linalg.lstsq(design.T, (other_start - start).ravel(), rcond=None)
    if rank < 2 or min(u, v) < 1:
        raise ValueError("These messages do not show the same rows, moved to different places.")
    return 1 - 1 / float(u), 1 - 1 / float(v)


def _targets(message: SeenMeasure, reference: SeenMeasure) -> np.ndarray:
    """Return the reference point that each row was moved towards."""
    return optimal_plan(as_measure(message), as_measure(reference)).barycenters()


def _differences(
    points: np.ndarray, targets: np.ndarray, max_comparisons: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return differences between random pairs of rows of the message, and of their targets."""
    n, d = points.shape
    n_pairs = max(1, max_comparisons // d)
    one, other = rng.integers(0, n, size=(2, min(n_pairs, n * (n - 1) // 2 + 1)))
    rises = (points[one] - points[other]).ravel()
    runs = (targets[one] - targets[other]).ravel()
    return rises, runs
