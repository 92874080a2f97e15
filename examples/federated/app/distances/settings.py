"""From the settings that the owner of a file has written to a party, and to what it agreed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from skdpot import PrivacyBudget
from skdpot.distance.messages import Message, SketchRequest
from skdpot.distance.party import Party
from skdpot.exceptions import MessageError
from skdpot.release.bounds import DataBounds


def make_party(settings: Mapping[str, Any]) -> Party:
    """Read the file and make the party; its charges go to the ledger that is named."""
    rows = pd.read_csv(settings["data"])
    allows = settings["allows"].split(",")
    budget = None
    if settings["ledger"]:  # without one the party cannot publish sketches
        cap, delta = float(settings["budget-epsilon"]), float(settings["delta"])
        budget = PrivacyBudget(cap, delta, ledger=settings["ledger"])
    return Party(
        settings["name"],
        rows,
        allows=allows,
        epsilon=float(settings["epsilon"]),
        delta=float(settings["delta"]),
        budget=budget,
    )


def review(request: Message, settings: Mapping[str, Any]) -> None:
    """Refuse to spend on bounds that are not those that the parties have agreed on."""
    if not isinstance(request, SketchRequest):
        return
    low, high = float(settings["low"]), float(settings["high"])
    agreed, asked = DataBounds.from_box(low, high, request.n_features), request.bounds
    same = np.array_equal(agreed.center, asked.center) and np.array_equal(agreed.scale, asked.scale)
    if not (same and agreed.radius == asked.radius and agreed.box == asked.box):
        raise MessageError(f"The bounds that this party agreed on are {low:g} to {high:g}.")
