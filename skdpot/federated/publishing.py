"""What a party settles before it publishes a sketch: that it can be sent, and its seed."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skdpot.federated.sketch_messages import SketchMessage
from skdpot.federated.sketch_request import SketchRequest
from skdpot.federated.vault import Terms
from skdpot.privacy.calibration import privacy_target
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.directions import make_directions
from skdpot.slicing.plan import plan_sketch
from skdpot.slicing.rules import projection_half_widths
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["rehearsed", "release_seed"]


def rehearsed(
    terms: Terms, request: SketchRequest, n_samples: int, feature_names: Sequence[str] | None
) -> SketchMessage:
    """Write the answer to a request with an empty table, so that what fails does so for free.

    Parameters
    ----------
    terms : Terms
        What the party has agreed to.
    request : SketchRequest
        What to measure.
    n_samples : int
        Public number of rows.
    feature_names : sequence of str or None
        Public names of the columns.

    Returns
    -------
    SketchMessage
        As the real one will be, but for its table and the words of its statement.

    Raises
    ------
    MessageError
        If the sketch could not be sent.
    ValueError
        If no noise meets the party's epsilon and delta.

    Privacy
    -------
    Public facts only: no row is touched, no noise drawn and nothing charged.
    """
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
    if feature_names is not None:
        sketch.feature_names_in_ = np.array(feature_names, dtype=object)
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
