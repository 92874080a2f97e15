"""The protocols: who sends what to whom, and what comes out of it.

Each function plays a protocol between parties in one process. Every message becomes bytes and is
read as a stranger's, and is written down in a transcript. Only `sliced` and `pairwise_sliced`
are private.
"""

from skdpot.federated.fedwad_protocol import fedwad, pairwise_fedwad
from skdpot.federated.results import PairwiseResult, ProtocolResult
from skdpot.federated.sliced_protocol import pairwise_sliced, sliced
from skdpot.federated.triangle_protocol import pairwise_triangle, triangle, triangle_to_union

__all__ = [
    "PairwiseResult",
    "ProtocolResult",
    "fedwad",
    "pairwise_fedwad",
    "pairwise_sliced",
    "pairwise_triangle",
    "sliced",
    "triangle",
    "triangle_to_union",
]
