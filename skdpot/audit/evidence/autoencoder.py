"""Canaries for private autoencoders, and what the noisy gradients of their training say.

The gradient of a record's reconstruction error is long beside the usual clip, so that nearly every
record moves a step by as much as it may; what makes canaries strong is that their gradients
differ: orthogonal rows have nearly orthogonal ones. Attacks have teeth where there are at least as
many features as canaries, where batches hold a good share of the records (with all of them the
other canaries do not disturb at all), in few steps, and where the learning rate is so small that
the network does not fit the canaries. A penalty's noise pays for more than one record moves in
practice, a draw of batches hides single records beyond what is claimed for it, and small images
have much the same gradients of kernels: there these audits stay further below the claim.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.linalg import hadamard
from torch import nn

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.contributions import (
    Contributions,
    Crowd,
    at_parameters,
    crowd_of_audit,
    gradients_by_parameter,
    of_clipped_gradients,
    of_vectors,
    public_facts_of_pairs,
)
from skdpot.audit.evidence.histograms import add_histograms
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.audit.evidence.sketch import edges
from skdpot.nets.autoencoder_training import AutoencoderLoss, reconstruction_gradient
from skdpot.nets.code_penalties import CodeParity, PriorPenalty
from skdpot.nets.networks import to_network_units
from skdpot.nets.output_gradients import shares_of_jacobians
from skdpot.nets.per_sample import record_outputs
from skdpot.slicing.directions import orthogonal_directions

__all__ = ["add_autoencoder", "autoencoder_canaries"]


def autoencoder_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make opposite rows on the edge of what is declared, of one group in each pair."""
    estimator, n_pairs, X, rng = request.estimator, request.n_pairs, request.X, request.rng
    if not estimator.private:
        raise ValueError("private=False claims no privacy: there is nothing to audit.")
    low, high = edges(estimator, X)
    middle, reach = (low + high) / 2.0, (high - low) / 2.0
    if estimator.norm_bound is None:
        reach = reach * _corners(n_pairs, X.shape[1], rng)
    else:
        reach = reach * orthogonal_directions(n_pairs, X.shape[1], rng)
    same = (
        None if request.y is None else rng.choice(np.asarray(request.y), size=n_pairs)
    )  # ignored by the fit
    return CanaryPairs(
        first=middle + reach,
        second=middle - reach,
        first_labels=same,
        second_labels=same,
        fit_params=public_facts_of_pairs(n_pairs, request.fit_params, rng),
    )


def _corners(n_pairs: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw corners of the cube, orthogonal as far as there are so many."""
    size = 2 ** math.ceil(math.log2(max(n_pairs, n_features, 2)))
    signs = hadamard(size, dtype=float)
    rows, columns = (rng.permutation(size)[:count] for count in (n_pairs, n_features))
    corners: np.ndarray = signs[np.ix_(rows, columns)] * rng.choice([-1.0, 1.0], size=n_features)
    return corners


def add_autoencoder(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the noisy gradients of all steps.

    With a penalty, which compares the codes of a batch, a record's own term is taken, among
    known rows and both records of all pairs.
    """
    fitted = audited.fitted
    network = nn.Sequential(fitted.encoder_, fitted.decoder_)
    rows = torch.from_numpy(to_network_units(fitted.bounds_, audited.rows_and_weights()[0]))
    parity = fitted.penalty == "parity"
    crowd = crowd_of_audit(audited, audited.fit_params["sensitive_features"] if parity else None)
    add_histograms(evidence, audited)
    for release in audited.watched(audited.releases, "steps"):
        if release.kind != "gradient":
            continue
        facts = release.facts
        plan, loss = facts["plan"], facts["loss"]
        made = at_parameters(network, facts["parameters"])
        given, along = rows.to(torch.float32), facts["directions"]
        own = _contributions(loss, made, given, crowd, along)
        gradient = gradients_by_parameter(made, release.value)
        ranked = None if loss.penalty is None else partial(_of_present, loss, made, given, along)
        crowd.add_step(evidence, own, gradient, facts, plan, ranked)


def _of_present(
    loss: AutoencoderLoss,
    network: Any,
    rows: torch.Tensor,
    directions: np.ndarray | None,
    present: Crowd,
    index: np.ndarray,
) -> Contributions:
    """Return what each row of the data adds to a sum in which codes are compared."""
    return _contributions(loss, network, rows[index], present, directions)


def _contributions(
    loss: AutoencoderLoss,
    network: Any,
    rows: torch.Tensor,
    crowd: Crowd,
    directions: np.ndarray | None,
) -> Contributions:
    """Return what each row adds to `AutoencoderLoss.clipped_sum`."""
    own = of_clipped_gradients(network, rows, reconstruction_gradient, loss.clip)
    if loss.penalty is None or directions is None:
        return own
    # A batch of all known rows, twice, and both records of all pairs has the expected ranks.
    whole = rows[crowd.order]
    encoder = network[:-1]
    penalty = _of_batch(loss.penalty, crowd)
    pulls = penalty.vectors(record_outputs(encoder, whole), directions)[crowd.places]

    def vectors(_: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
        return shares_of_jacobians(gram, loss.clip_jacobian)[:, None] * pulls[records]

    pulled = of_vectors(encoder, rows, vectors).times(loss.alpha)
    return own.times(1.0 - loss.alpha).plus(pulled)


def _of_batch(penalty: Any, crowd: Crowd) -> PriorPenalty | CodeParity:
    if isinstance(penalty, PriorPenalty):
        return replace(penalty, batch_size=len(crowd.order))
    parity: CodeParity = replace(penalty, batch_sizes=crowd.sizes)
    return parity
