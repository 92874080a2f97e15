"""TriangleWad between one party and the union of several. Not private."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.exchange import Exchange
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.participants import as_reference, check_participants
from skdpot.federated.party import Party
from skdpot.federated.plain_messages import CostMatrices, FractionRequest, as_fraction, as_fractions
from skdpot.federated.plans import Coupling, plan_from_costs
from skdpot.federated.results import ProtocolResult
from skdpot.federated.triangle import FRACTIONS, rescaled
from skdpot.federated.triangle_steps import (
    announce,
    asked,
    check_fractions,
    from_parabola,
    parabola_fractions,
)

__all__ = ["triangle_to_union"]


def triangle_to_union(
    buyer: Party,
    sellers: Sequence[Party],
    *,
    t: float = 0.5,
    disclose_t: bool = False,
    fractions: ArrayLike = FRACTIONS,
    shares: ArrayLike | None = None,
    reference: DiscreteMeasure | ArrayLike | None = None,
    n_support: int | None = None,
    gamma_mean: ArrayLike = 0.0,
    gamma_scale: float = 1.0,
    interpolation: str = "barycentric",
    solver: str = "auto",
    rng: np.random.Generator | None = None,
) -> ProtocolResult:
    """Estimate W₂ between one party and the union of several. **Not private**.

    The buyer sends its moved rows to all sellers; each answers with the squared distances
    between their moved rows and its own; the buyer stacks these matrices and solves one transport
    problem for all.

    Parameters
    ----------
    buyer : Party
        Must allow "triangle".
    sellers : sequence of Party
        At least one, who allow "triangle".
    t : float, default=0.5
        How far the buyer moves, in (0, 1).
    disclose_t : bool, default=False
        Whether the buyer asks at t itself, which tells it; otherwise at `fractions`.
    fractions : array-like of shape (n_fractions,), default=(0.25, 0.5, 0.75)
        Where the sellers answer when t is secret; three or more.
    shares : array-like of shape (n_sellers,), optional
        Mass of each seller in the union; by default proportional to its number of rows.
    reference, n_support, gamma_mean, gamma_scale, interpolation, rng
        As in `triangle`.
    solver : {"auto", "exact", "entropic"}, default="auto"
        How the buyer computes plans.

    Returns
    -------
    ProtocolResult
        Estimate and transcript. The details are the `Coupling` with the union when t is
        disclosed, and a `FractionQuadratic` otherwise.

    Raises
    ------
    ProtocolRefusedError, MessageError, ValueError
        As in `triangle`.

    Privacy
    -------
    None: see `FractionRequest` for the buyer's rows and `CostMatrices` for those of the sellers.

    References
    ----------
    Li, Pang, "Private Wasserstein distance", 2024, section 3.4.3.
    """
    parties = (buyer, *sellers)
    names = check_participants(parties)
    fraction = as_fraction("t", t)
    due = as_fractions([fraction]) if disclose_t else parabola_fractions(fractions)
    weights = _union_shares(shares, sellers)
    gamma = as_reference(
        reference, parties, n_support=n_support, mean=gamma_mean, scale=gamma_scale, rng=rng
    )
    exchange = Exchange()
    sent = announce(exchange, names, gamma, None, interpolation)
    request = asked(exchange, buyer, names[1:], sent, fraction, due)
    matrices = [
        exchange.ask(
            2,
            seller.name,
            (buyer.name,),
            partial(seller.cost_matrices, request, sent),
            CostMatrices,
            check=partial(_check_matrices, request),
        )
        for seller in sellers
    ]
    couplings = _union_couplings(request, matrices, weights, solver)
    distances = [coupling.squared_distance for coupling in couplings]
    if disclose_t:
        squared, details = rescaled(distances[0], fraction), couplings[0]
        return ProtocolResult("triangle", squared, exchange.transcript, details)
    return from_parabola(exchange, request, distances, fraction)


def _union_shares(shares: ArrayLike | None, sellers: Sequence[Party]) -> np.ndarray:
    """Return the mass of each seller in the union."""
    if shares is None:
        shares = [seller.n_samples for seller in sellers]
    weights = np.asarray(shares, dtype=np.float64)
    fits = weights.shape == (len(sellers),) and bool((weights >= 0).all())
    total = float(weights.sum())
    if not (fits and 0 < total < np.inf):
        raise ValueError("shares must hold one non-negative number a seller, not all of them 0.")
    shared: np.ndarray = weights / total
    return shared


def _union_couplings(
    request: FractionRequest, matrices: Sequence[CostMatrices], weights: np.ndarray, solver: str
) -> list[Coupling]:
    """Solve, at each fraction, the transport between the buyer and all sellers together."""
    masses = np.concatenate(
        [share * _masses_of(matrix) for share, matrix in zip(weights, matrices, strict=True)]
    )
    return [
        plan_from_costs(
            np.concatenate([matrix.costs[k] for matrix in matrices]),
            masses,
            request.masses,
            solver=solver,
        )
        for k in range(len(request.fractions))
    ]


def _masses_of(matrix: CostMatrices) -> np.ndarray:
    n_rows = matrix.costs.shape[1]
    return np.full(n_rows, 1.0 / n_rows) if matrix.masses is None else matrix.masses


def _check_matrices(request: FractionRequest, answer: CostMatrices) -> None:
    check_fractions(request, answer)
    n_points = answer.costs.shape[2]
    if n_points != len(request.points):
        raise MessageError(f"Its costs are of {n_points} points; {len(request.points)} were sent.")
