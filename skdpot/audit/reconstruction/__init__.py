"""Reconstruction: rows of others, from nothing but what a participant of a protocol saw.

TriangleWad and FedWad send no rows, but what they send determines the rows. With
``protocol="triangle"`` whoever sees a party's η and knows the shared reference and t, as
the server does, recovers every row of that party exactly; with ``protocol="fedwad"`` each party
recovers the other's rows besides. Neither the size or scale of the reference nor t protects.

Attacks on measures: `rows_from_interpolation`, `paired_differences`,
`rows_from_cost_matrices`, `rows_from_one_round`, `rows_along_geodesic`; for a secret t
`fraction_from_ties` and `fractions_from_two_messages`. Attacks on a sketch, which is private,
get no further than its ε allows: `row_from_sketch` and `rows_from_sketch`. `reconstruct` does
what a participant of a recorded protocol can do.
"""

from skdpot.audit.reconstruction.interpolation import (
    FractionGuess,
    Reconstruction,
    fraction_from_ties,
    fraction_on_geodesic,
    fractions_from_two_messages,
    rows_along_geodesic,
    rows_from_interpolation,
    rows_from_one_round,
)
from skdpot.audit.reconstruction.messages import (
    PairedDifferences,
    differences_seen,
    paired_differences,
    positions_from_distances,
    reconstruct,
    rows_from_cost_matrices,
)
from skdpot.audit.reconstruction.sketch import row_from_sketch, rows_from_sketch

__all__ = [
    "FractionGuess",
    "PairedDifferences",
    "Reconstruction",
    "differences_seen",
    "fraction_from_ties",
    "fraction_on_geodesic",
    "fractions_from_two_messages",
    "paired_differences",
    "positions_from_distances",
    "reconstruct",
    "row_from_sketch",
    "rows_along_geodesic",
    "rows_from_cost_matrices",
    "rows_from_interpolation",
    "rows_from_one_round",
    "rows_from_sketch",
]
