"""What a party settles before it publishes a sketch: that it can be sent, and its seed."""

import hashlib
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot.exceptions import ProtocolRefusedError
from skdpot.federated.messages import SketchMessage, SketchRequest
from skdpot.federated.vault import Vault
from skdpot.privacy.calibration import privacy_target
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.directions import make_directions
from skdpot.slicing.plan import plan_sketch
from skdpot.slicing.rules import projection_half_widths
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["rehearsed", "release_seed"]


def rehearsed(vault: Vault, request: SketchRequest) -> SketchMessage:
    """Write the answer to a request with an empty table, so that what fails does so for free.

    Parameters
    ----------
    vault : Vault
        Of the party.
    request : SketchRequest
        What to measure.

    Returns
    -------
    SketchMessage
        As the real one will be, but for its table and the words of its statement; the real one
        if the party has published it.

    Raises
    ------
    ProtocolRefusedError
        If the party does not take part, weighs its rows, or has no budget for a second request.
    MessageError
        If the request asks about other features, or the sketch could not be sent.
    ValueError
        If no noise meets the party's epsilon and delta.

    Privacy
    -------
    Public facts only: no row is touched, no noise drawn and nothing charged.
    """
    terms = vault.terms
    vault.check_agreed("sliced")
    if vault.weighted:
        raise ProtocolRefusedError(
            f"Party {vault.name!r} weighs its rows, and a sketch counts every row once. Make "
            "a party without masses."
        )
    n_samples, n_features = vault.rows.shape
    vault.check_features(request.n_features, n_features)
    published: SketchMessage | None = vault.releases.get(request.to_bytes())
    if published is not None:
        return published
    if vault.releases and terms.budget is None:
        raise ProtocolRefusedError(
            f"Party {vault.name!r} has published its sketch, for another request; a "
            "second one would cost epsilon once more. Repeat the first request, or "
            "give the party a PrivacyBudget for several."
        )
    target = privacy_target(terms.epsilon, terms.delta, terms.budget)
    plan = plan_sketch(
        target,
        n_samples,
        request.n_features,
        n_slices=len(request.directions),
        n_bins=request.n_bins,
        bounds=request.bounds,
    )
    statement = PrivacySpent(
        epsilon=target.epsilon,
        delta=target.delta,
        relation=plan.event.relation,
        event=plan.event,
        sigma=plan.sigma,
        sensitivity=plan.sensitivity,
        assumptions=(),
    )
    sketch = SlicedSketch(terms.epsilon, terms.delta, **request.sketch_parameters)
    sketch.bounds_ = request.bounds
    sketch.directions_ = make_directions(
        request.directions, 0, request.n_features, np.random.default_rng(0)
    )
    sketch.half_widths_ = projection_half_widths(request.bounds, sketch.directions_)
    sketch.n_samples_ = n_samples
    sketch.noise_scale_ = plan.sigma
    sketch.privacy_spent_ = statement
    sketch.statistic_ = np.zeros((1, len(request.directions), request.n_bins))
    if vault.feature_names is not None:
        sketch.feature_names_in_ = np.array(vault.feature_names, dtype=object)
    return SketchMessage(sketch)


def release_seed(random_state: Any, party: str, request: SketchRequest) -> int | None:
    """Return the seed of one release: another party or request gets other noise.

    Equal noise in two releases would cancel in their difference, and leave rows in the clear.

    Parameters
    ----------
    random_state : int, RandomState or None
        What the party was given. A RandomState is drawn from, and moves on.
    party : str
        Name of the party.
    request : SketchRequest
        What is answered.

    Returns
    -------
    int or None
        None, for noise that nobody can predict, if the party was given None.
    """
    if random_state is None:
        return None
    given = check_random_state(random_state).randint(0, 2**31, size=4)
    digests = (hashlib.sha256(part).digest() for part in (party.encode(), request.to_bytes()))
    words = np.frombuffer(b"".join(digests), dtype="<u4")
    seed = np.random.SeedSequence([*given.tolist(), *words.tolist()])
    return int(seed.generate_state(1)[0])
