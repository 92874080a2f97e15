"""The messages of all protocols, and what each of them tells to whom.

Only `SketchMessage` is private. The others carry what the protocols of the literature exchange,
without noise; their docstrings say how rows follow from them. See the attacks in
`skdpot.audit`, which read nothing but messages.
"""

from skdpot.federated.measure_messages import (
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    ReferenceMeasure,
)
from skdpot.federated.message_base import Message
from skdpot.federated.number_messages import CostMatrices, DistanceMessage, DistancesAtFractions
from skdpot.federated.sketch_messages import SketchMessage
from skdpot.federated.sketch_request import SketchRequest

__all__ = [
    "CostMatrices",
    "DistanceMessage",
    "DistancesAtFractions",
    "FractionRequest",
    "GeodesicMeasure",
    "InterpolatingMeasure",
    "Message",
    "ReferenceMeasure",
    "SketchMessage",
    "SketchRequest",
]
