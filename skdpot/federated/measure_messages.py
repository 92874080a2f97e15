"""Messages that are measures. None of them is private: rows follow from them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from skdpot.exceptions import MessageError
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.message_base import (
    Content,
    Message,
    as_fraction,
    as_fractions,
    as_masses,
    as_points,
    present,
)

__all__ = ["FractionRequest", "GeodesicMeasure", "InterpolatingMeasure", "ReferenceMeasure"]

INTERPOLATIONS = ("barycentric", "exact")


class _Measure(Message):
    """A message that is a measure: points, and masses unless these are equal."""

    points: np.ndarray
    masses: np.ndarray | None
    _ARRAYS = frozenset({"points", "masses"})
    _OPTIONAL = frozenset({"masses"})

    def __post_init__(self) -> None:
        """Check the points and their masses, and keep read-only copies."""
        points = as_points("points", self.points)
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "masses", as_masses(self.masses, len(points)))

    @property
    def measure(self) -> DiscreteMeasure:
        """The measure that is sent."""
        return DiscreteMeasure(self.points, self.masses)

    def _content(self) -> Content:
        return {}, present(points=self.points, masses=self.masses)


class _Target(_Measure):
    """A measure that parties are asked to move theirs towards."""

    t: float | None
    interpolation: str
    _FACTS = frozenset({"t", "interpolation"})

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        object.__setattr__(self, "t", None if self.t is None else as_fraction("t", self.t))
        if self.interpolation not in INTERPOLATIONS:
            raise MessageError('interpolation must be "barycentric" or "exact".')

    def _content(self) -> Content:
        _, arrays = super()._content()
        return {"t": self.t, "interpolation": self.interpolation}, arrays


@dataclass(frozen=True, eq=False, repr=False)
class ReferenceMeasure(_Target):
    """The reference γ that all parties interpolate towards, from the server to each party.

    Reveals nothing: γ is drawn without looking at anybody's rows. But γ is what makes an
    `InterpolatingMeasure` readable, and every participant has it.

    Parameters
    ----------
    points : array-like of shape (n_support, n_features)
        Points of the reference.
    masses : array-like of shape (n_support,), optional
        Their shares; None for equal ones.
    t : float, optional
        How far of the way to γ each party shall go, in (0, 1). None when one party keeps that
        for itself.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        Which interpolating measure is asked for.

    Raises
    ------
    MessageError
        If a value is out of range.
    """

    points: np.ndarray
    masses: np.ndarray | None = None
    t: float | None = None
    interpolation: str = "barycentric"

    kind: ClassVar[str] = "reference"
    _REVEALS = "Nothing: it is drawn without looking at anybody's rows."


@dataclass(frozen=True, eq=False, repr=False)
class InterpolatingMeasure(_Measure):
    """A party's measure moved a fraction t of the way to the reference, to the server.

    **Reveals every row, exactly, to whoever knows the reference and t**: the server, and every
    party that is shown the message. It is no more private than the rows.

    - As many rows as reference points, equal masses: the message holds
      ``η_i = (1 - t) x_i + t γ_σ(i)``, one point a row, in the order of the rows. The optimal
      plan between η and γ is again the secret matching σ, because σ maximises both terms of
      ``sum ⟨η_i, γ_s(i)⟩ = (1 - t) sum ⟨x_i, γ_s(i)⟩ + t sum ⟨γ_σ(i), γ_s(i)⟩``. So one optimal
      transport gives ``x_i = (η_i - t γ_σ(i)) / (1 - t)``: a second for a thousand rows, whatever
      the scale of the reference and t. That finding the plan is hard, as the paper says, is
      not so.
    - Other sizes: the secret plan minimises the convex ``‖η - t diag(1/a) Q γ‖²`` over all
      couplings Q, which solvers find.
    - The exact interpolation holds one point for each entry of the plan that is not zero:
      every row occurs, some of them several times.
    - t unknown: the plan does not depend on t, so only that one number is missing. Any feature
      that is constant in the data, such as a pixel that is always black, gives it away.

    **Also reveals differences of rows to a server that sees two of them**, made with the same
    reference and t, even if it does not know these. Rows that were matched with the same
    reference point differ by ``(1 - t) (x_i - y_j)``, exactly, and where the reference spreads
    wide enough to hide rows, such pairs are the ones that lie close together. Whoever knows one
    side's rows then knows the other's.

    Parameters
    ----------
    points : array-like of shape (n_points, n_features)
        Points of the measure.
    masses : array-like of shape (n_points,), optional
        Their shares; None for equal ones.

    Raises
    ------
    MessageError
        If a value is out of range.

    References
    ----------
    Li, Pang, "Private Wasserstein distance", 2024 (TriangleWad).
    """

    points: np.ndarray
    masses: np.ndarray | None = None

    kind: ClassVar[str] = "interpolating measure"
    _REVEALS = (
        "Every row of the sender, exactly, to whoever knows the reference and t; to who sees two "
        "such messages also the differences (1 - t)(x_i - y_j) of paired rows."
    )


@dataclass(frozen=True, eq=False, repr=False)
class GeodesicMeasure(_Target):
    """The measure ξ between two parties that FedWad improves round by round, to both of them.

    The first one is drawn at random and reveals nothing. **Every later one is made of both
    parties' interpolating measures, and reveals each party's rows to the other.** Each ξ lies
    at the known fraction t between the two: a party that knows its own reads the other's
    from ξ, like a row from an `InterpolatingMeasure`, and from that the other's rows. Nor does it
    take such care: as the rounds go on ξ settles on the geodesic between μ and ν, and
    who holds μ extends the segments from its own rows through the last ξ to where ν must be. The
    server, which has all of ξ and η, reads the rows of both from the first η that it gets.

    Parameters
    ----------
    points : array-like of shape (n_support, n_features)
        Points of the measure.
    masses : array-like of shape (n_support,), optional
        Their shares; None for equal ones.
    t : float, optional
        How far of the way to ξ each party shall go in this round, in (0, 1). None when only
        the distance to ξ is asked for.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        Which interpolating measure is asked for.

    Raises
    ------
    MessageError
        If a value is out of range.

    References
    ----------
    Rakotomamonjy, Nadjahi, Ralaivola, "Federated Wasserstein distance", ICLR 2024.
    """

    points: np.ndarray
    masses: np.ndarray | None = None
    t: float | None = None
    interpolation: str = "barycentric"

    kind: ClassVar[str] = "geodesic measure"
    _REVEALS = (
        "From the second round on the rows of each party to the other, which extends the segments "
        "from its own points through these."
    )


@dataclass(frozen=True, eq=False, repr=False)
class FractionRequest(_Measure):
    """A party's interpolating measure, with the question how far another party's are from it.

    **Reveals to the recipient, who knows the reference, every row of the sender up to one
    unknown number**, its fraction t: everything that `InterpolatingMeasure` says holds here too.
    Keeping t back is what the protocol calls private; see there why it is not.

    Parameters
    ----------
    points : array-like of shape (n_points, n_features)
        The sender's interpolating measure.
    masses : array-like of shape (n_points,), optional
        Shares of its points; None for equal ones.
    fractions : array-like of shape (n_fractions,), default=(0.25, 0.5, 0.75)
        How far of the way to the reference the recipient shall go for each of its answers.

    Raises
    ------
    MessageError
        If a value is out of range.
    """

    points: np.ndarray
    masses: np.ndarray | None = None
    fractions: Any = (0.25, 0.5, 0.75)

    kind: ClassVar[str] = "fraction request"
    _ARRAYS = frozenset({"points", "masses", "fractions"})
    _REVEALS = (
        "Every row of the sender, up to its one unknown fraction t, to whoever knows the reference."
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        object.__setattr__(self, "fractions", as_fractions(self.fractions))

    def _content(self) -> Content:
        facts, arrays = super()._content()
        return facts, arrays | {"fractions": self.fractions}
