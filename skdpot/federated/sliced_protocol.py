"""The private protocol: every party publishes one sketch."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from skdpot.exceptions import BudgetExceededError, MessageError
from skdpot.federated.exchange import (
    SERVER,
    DistanceEstimate,
    Exchange,
    PairwiseResult,
    check_participants,
)
from skdpot.federated.messages import SketchMessage, SketchRequest, check_type
from skdpot.federated.party import Party, data_of, rehearsed
from skdpot.metrics.debiased_distance import debiased_squared_distance
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget


def sliced(first: Party, second: Party, request: SketchRequest, **options: Any) -> DistanceEstimate:
    """Estimate SW₂ between two parties from a private sketch of each, see `pairwise_sliced`."""
    (estimate,) = pairwise_sliced((first, second), request, **options).estimates.values()
    return estimate


def pairwise_sliced(
    parties: Sequence[Party],
    request: SketchRequest,
    *,
    target: str = "population",
    n_simulations: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    budget: PrivacyBudget | None = None,
) -> PairwiseResult:
    """Estimate SW₂ between all parties from one private sketch of each.

    Privacy
    -------
    Each party releases one sketch at its own (epsilon, delta), however many others there are. The
    estimates are post-processing. A person whose row is with two parties spends both.
    `budget` pays once for all (parallel composition): the number of rows of each party is public,
    so a neighbouring data set replaces a row of one party. The sketches of the others have the same
    law and are independent of its sketch: all together are as private as the least private one.
    """
    names = check_participants(parties)
    check_type(request, SketchRequest)
    others = {p.name: p.n_features for p in parties if p.n_features != request.n_features}
    if others:
        raise MessageError(
            f"The request is about {request.n_features} features; these parties have others: "
            f"{others}. Nobody was asked."
        )
    if budget is not None:
        _charge_once(budget, parties, request)
    exchange = Exchange()
    sent = exchange.send(0, SERVER, request, SketchRequest, to=names)
    due = {"publish_sketch": SketchMessage}
    (sketches,) = exchange.ask(1, parties, sent, due, read=sent.read)
    estimates = {}
    for one, other in combinations(names, 2):
        try:
            found = debiased_squared_distance(
                sketches[one],
                sketches[other],
                target=target,
                n_simulations=n_simulations,
                random_state=random_state,
            )
        except ValueError as error:
            raise MessageError(
                f"The sketches of {one!r} and {other!r} cannot be compared. {error}"
            ) from error
        estimates[one, other] = DistanceEstimate(
            "sliced", found.squared, exchange.transcript, found, unit="scaled features"
        )
    return PairwiseResult("sliced", names, estimates, exchange.transcript)


def _charge_once(budget: PrivacyBudget, parties: Sequence[Party], request: SketchRequest) -> None:
    """Charge the least private of the sketches to come: all are Gaussian, so the largest mu.

    Everything that a party would refuse is refused here, before the charge.
    """
    events = []
    for party in parties:
        if not isinstance(party, Party):
            raise ValueError(
                "budget= is for parties of this process; those elsewhere charge their own."
            )
        events.append(rehearsed(party, request).statement.event)
        own = party.budget
        is_new = request.to_bytes() not in data_of(party).releases
        if own is not None and is_new and not own.can_afford(events[-1]):
            raise BudgetExceededError(
                f"Too little is left in the budget of party {party.name!r} for a sketch at "
                f"epsilon={party.epsilon:g}. Nobody was asked and nothing charged."
            )
    event = max(events, key=lambda event: compose(event).mu_without_sampling)
    budget.spend(event, label=f"sketches of {len(parties)} parties with different people")
