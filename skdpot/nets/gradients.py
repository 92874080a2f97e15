r"""Noisy sums of clipped gradients: the plan of a training, the sums, and the release of a step.

Every loss of the outputs :math:`o_i` of a network has the gradient :math:`J_i^\top v_i`, with the
Jacobian :math:`J_i` of record i by all parameters and the loss' gradient :math:`v_i` by
:math:`o_i`. All that clipping needs of :math:`J_i` is the small Gram matrix
:math:`G_i = J_i J_i^\top`:

.. math:: \|J_i^\top v_i\| = \sqrt{v_i^\top G_i v_i}, \qquad
          \|J_i\|_2 = \sqrt{\lambda_\max(G_i)}.

One pass that computes Jacobians serves any number of losses and penalties, each clipped in its own
way, by vectors of length k. Where outputs are many, the loss is the one output. What is clipped
behind the network, such as probabilities :math:`p(o_i)` with the k x k Jacobian :math:`D_i`, has
the Gram matrix :math:`D_i G_i D_i^\top`, and its vectors pull back as :math:`D_i^\top w_i`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import SecretStream
from skdpot.nets.per_sample import (
    ChunkJacobians,
    OutputGradient,
    RecordJacobians,
    chain_of_layers,
    record_jacobians,
)
from skdpot.privacy.accounting import PrivacyTarget, calibrate
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.privacy.noise import LatticeNoise, noise_for_sums, noisy_sum, required_bits
from skdpot.privacy.sampling import SampledGaussianEvent, fixed_size_batches, placed_batches
from skdpot.release.bounds import BoundsPlan, DataBounds
from skdpot.release.gate import Part, Records, Release, of_candidates, pass_gate


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The public parameters of training by noisy sums of gradients."""

    group_sizes: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    n_steps: int
    sampling: str
    sensitivity: float
    noise: LatticeNoise | None
    bounds: Any  # DataBounds or BoundsPlan; None where there are none to settle
    event: Event

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on a batch's sum; 0 without privacy."""
        return 0.0 if self.noise is None else self.noise.sigma

    @property
    def n_samples(self) -> int:
        """Number of records of all cells."""
        return sum(self.group_sizes)

    @property
    def batch_size(self) -> int:
        """(Expected) number of records in a whole batch."""
        return sum(self.batch_sizes)

    @property
    def sampling_rate(self) -> float:
        """Probability that a record is in a batch; the largest of the cells."""
        return max(b / n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True))

    def rates(self, codes: np.ndarray) -> np.ndarray:
        """Return the probability that records of some cells are in a batch."""
        if self.sampling == "poisson" or len(self.group_sizes) == 1:
            return np.full(len(codes), self.sampling_rate)
        return (np.asarray(self.batch_sizes) / np.asarray(self.group_sizes))[codes]

    def batches(
        self, stream: SecretStream, members: Sequence[np.ndarray] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the secret indices of each step's batch; -1 for places of no record."""
        if self.sampling == "poisson":
            return placed_batches(self.n_samples, self.sampling_rate, self.n_steps, stream)
        if members is None:
            members = np.split(np.arange(self.n_samples), np.cumsum(self.group_sizes)[:-1])
        cells = zip(self.group_sizes, self.batch_sizes, strict=True)
        draws = [fixed_size_batches(n, size, self.n_steps, stream) for n, size in cells]
        return (
            np.concatenate([of_cell[drawn] for of_cell, drawn in zip(members, step, strict=True)])
            for step in zip(*draws, strict=True)
        )


def plan_training(
    target: PrivacyTarget,
    *,
    n_samples: int | Sequence[int],
    batch_size: int | Sequence[int],
    n_steps: int,
    sampling: str,
    sensitivity: float,
    n_parameters: int,
    bounds: DataBounds | BoundsPlan | None = None,
    others: Sequence[Event] = (),
    sigma: float | None = None,
) -> TrainingPlan:
    """Find the least noise that meets a target, or take the noise that is given."""
    if sigma is not None and isinstance(bounds, BoundsPlan):
        raise ValueError(
            "sigma= fixes the noise of training, but not that of private bounds. Give public "
            "bounds=(low, high) or norm_bound=, or leave sigma=None."
        )
    cells = tuple(np.atleast_1d(n_samples).tolist())
    wanted = np.atleast_1d(batch_size).tolist()
    sizes = tuple(min(size, n) for size, n in zip(wanted, cells, strict=True))

    def training(scale: float) -> Event:
        noise = noise_for_sums(scale, sensitivity, max(1, n_parameters))
        batches: dict[str, Any] = {"batch_sizes": sizes, "group_sizes": cells}
        if sampling == "poisson":
            batches = {"sampling_rate": sizes[0] / cells[0], "clipped_sum": True}
        return SampledGaussianEvent(
            sampling="poisson" if sampling == "poisson" else "fixed_size",
            n_steps=n_steps,
            label="Gradients",
            **vars(noise),
            **batches,
        )

    def whole(scale: float) -> Event:
        before = (bounds.event,) if isinstance(bounds, BoundsPlan) else ()
        if not before and not others:
            return training(scale)
        return ComposedEvent(events=(*before, *others, training(scale)))

    if sigma is None:
        event = calibrate(target, whole)
    else:
        event = whole(sigma) if sigma > 0 else NonPrivateEvent()
    noise = None
    if event.is_private:
        step = event.phases[-1]
        noise = LatticeNoise(sigma=step.sigma, sensitivity=step.sensitivity, lattice=step.lattice)
        required_bits(noise.sigma / noise.lattice, noise.mu)  # refuses before any charge
    return TrainingPlan(
        group_sizes=cells,
        batch_sizes=sizes,
        n_steps=n_steps,
        sampling=sampling,
        sensitivity=sensitivity if noise is None else noise.sensitivity,
        noise=noise,
        bounds=bounds,
        event=event,
    )


def trained_numbers(network: nn.Module) -> int:
    """Return how many numbers of a network are trained."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


# Why one part in a million is enough room for rounding
# ------------------------------------------------------
# Let u = 2**-53, P the number of parameters, m the batch size. Networks of single precision give
# factors of which all products are exact in double precision; from there on all is double.
#
# 1. Gram matrices: |error of G_rs| <= (P + 2) u sqrt(G_rr G_ss), by Cauchy and Schwarz.
# 2. Norms: the terms of v' G v may cancel, with errors of up to (P + 2k) u b**2, where
#    b = sum_r |v_r| sqrt(G_rr) is what the norm is without cancellation. `shares_of_vectors` adds
#    _CANCELLED * b**2 before the root, more than that for P < 9e5 and never less than the rest, so
#    that the norm that it divides by is not below the true one (layers that are wider than that
#    sum their products in blocks, with errors far below this bound).
# 3. What a record adds to the sum: J' c is formed with errors of at most 2 k u b(c). After 2.
#    b(c) <= clip / sqrt(_CANCELLED) = 1e5 clip, so that for k = 20 these are below 1e-9 clip.
# 4. Sums over m records in chunks of at most 2048: errors of at most u (2048 + m / 2048) times
#    the sum of the norms, m clip: for m = 1e6 below 3e-7 clip in all, for both neighbours
#    together below 6e-7 clip. (Worst cases: they are orders of magnitude smaller in practice.)
#
# 5. Underflow: factors are 0 or between 1e-60 and 1e60 (those of single precision more closely),
#    so that Gram matrices neither underflow nor overflow. What underflows in v' G v is below
#    5e-324 |v|, and never above _CANCELLED * b**2 unless |v| < 1e-73, when it is below 1e-390. What
#    underflows in b**2 belongs to norms below 1e-153. Clips from 1e-30 to 1e30 are far from either;
#    what overflows has an infinite norm, of which nothing is left.
#
# 2e-9 + 6e-7 is below the 2e-6 clip that _INSIDE leaves free between two neighbours. Vectors
# that are shortened by `shares_of_jacobians` have lengths |w_i| that sum to as much as the bound
# they belong to, so that 4. is the same share of it.


# Outputs, Gram matrices and indices of the records of a chunk, to one vector for each.
ClippedVectors = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_INSIDE = 1.0 - 1e-6
_CANCELLED = 1e-10

_FIRST_CHUNK = 16
_LARGEST_CHUNK = 2048  # beyond, arrays leave the cache and nothing is gained
_NUMBERS_HELD = 2**22  # to be in memory at the same time
_HELD: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # of these, for a record
_WHOLE = 16  # places: no kernel has a rest of rows, and no product is one of vectors


def pulled_back_sum(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: ClippedVectors,
    output_gradient: OutputGradient | None = None,
    *,
    batch: np.ndarray | None = None,
    chunk_size: int | None = None,
) -> dict[nn.Parameter, torch.Tensor]:
    r"""Sum :math:`J_i^\top c_i` over a batch, with vectors that are chosen by their size.

    A batch has an index for each place, of which -1 is a vacant one that adds exactly nothing (the
    last record stands in for it); by default it is all records. Where a loss has an
    `output_gradient`, it is the one output: of J is left the loss' gradient.

    Not private by itself. What a record adds is what `vectors` lets it add: at most C with
    `shares_of_vectors`, :math:`L \|w_i\|` with `shares_of_jacobians`, C for a loss that these
    shorten.
    The last bits of a network's outputs depend on how many places there are and on that of the
    record. Batches of neighbours must have as many places, and a record in both the same place
    (`skdpot.privacy.sampling.placed_batches`); nothing else then moves with the one that differs.
    """
    total = {p: torch.zeros_like(p, dtype=torch.float64) for p in _trained(network)}
    places = torch.from_numpy(np.arange(len(rows)) if batch is None else batch)
    places = nn.functional.pad(places, (0, -len(places) % _WHOLE), value=-1).to(rows.device)
    start, size = 0, chunk_size or _first_chunk_size(network, total)
    while total and start < len(places):
        records = places[start : start + size]
        jacobians = record_jacobians(network, rows[records], output_gradient)
        _add(total, jacobians, vectors, records)
        start, _HELD[network] = start + size, jacobians.numbers_per_record
        size = chunk_size or _chunk_size(_HELD[network])
    return total


def shares_of_vectors(vectors: torch.Tensor, gram: torch.Tensor, clip: float) -> torch.Tensor:
    """Return by how much to shorten vectors for their gradients to be no longer than `clip`.

    Replacing one record moves the sum of its gradients, so shortened, by at most 2C in the L2
    norm.
    """
    squared = (vectors[:, None, :] @ gram @ vectors[:, :, None])[:, 0, 0].clamp(min=0.0)
    diagonal = gram.diagonal(dim1=1, dim2=2).clamp(min=0.0)
    without_cancelling = (vectors.abs() * diagonal.sqrt()).sum(1)
    return _shares((squared + _CANCELLED * without_cancelling**2).sqrt(), clip)


def shares_of_jacobians(gram: torch.Tensor, clip: float) -> torch.Tensor:
    r"""Return by how much to shorten Jacobians for their spectral norms to be at most `clip`.

    A record adds at most :math:`L \|w_i\|` to the sum of :math:`J_i^\top w_i`.
    """
    return _shares(_largest_eigenvalues(gram).clamp(min=0.0).sqrt(), clip)


def by_jacobians(clip: float, vectors: torch.Tensor | None = None) -> ClippedVectors:
    """Return what is pulled back by shortened Jacobians: vectors, or 1 for single outputs."""

    def shortened(_: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        shares = shares_of_jacobians(gram, clip)[:, None]
        return shares if vectors is None else shares * vectors[records]

    return shortened


def by_rows(clip: float, vectors: torch.Tensor) -> ClippedVectors:
    """Return vectors to be pulled back by Jacobians of k rows, each shortened to clip / √k."""

    def shortened(_: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        norms = gram.diagonal(dim1=1, dim2=2).clamp(min=0.0).sqrt()
        return _shares(norms, clip / math.sqrt(gram.shape[1])) * vectors[records]

    return shortened


def _add(
    total: dict[nn.Parameter, torch.Tensor],
    jacobians: ChunkJacobians,
    vectors: ClippedVectors,
    records: torch.Tensor,
) -> None:
    """Add the contributions of a chunk to the total."""
    outputs, gram = jacobians.outputs, jacobians.gram()
    chosen = vectors(outputs, gram, records)
    if chosen.shape != gram.shape[:2]:
        raise ValueError(
            f"`vectors` must return one vector per record, of shape {tuple(gram.shape[:2])}; it "
            f"returned {tuple(chosen.shape)}."
        )
    chosen = chosen.double()
    usable = torch.cat([outputs.flatten(1), gram.flatten(1), chosen], dim=1).isfinite().all(1)
    chosen = torch.where((usable & (records >= 0))[:, None], chosen, 0.0)
    # Zero times infinity is not zero. Looking takes time, not privacy: the result is the same
    # function of each record either way.
    clean = bool(usable.all())
    for part in jacobians.parts:
        sums = (part if clean else part.finite()).pulled_back(chosen)
        for parameter, value in zip(part.parameters, sums, strict=True):
            total[parameter] += value


def _shares(norms: torch.Tensor, clip: float) -> torch.Tensor:
    inside = clip * _INSIDE
    return torch.where(norms.isfinite(), inside / norms.clamp(min=inside), 0.0)


def _largest_eigenvalues(gram: torch.Tensor) -> torch.Tensor:
    """Return the largest eigenvalue of each matrix; infinite where it is not finite."""
    if gram.shape[1] == 1:
        return gram[:, 0, 0]
    if gram.shape[1] == 2:
        middle = (gram[:, 0, 0] + gram[:, 1, 1]) / 2.0
        half = (gram[:, 0, 0] - gram[:, 1, 1]) / 2.0
        return middle + torch.hypot(half, gram[:, 0, 1])
    finite = gram.isfinite().flatten(1).all(1)
    largest = torch.linalg.eigvalsh(torch.where(finite[:, None, None], gram, 0.0))[:, -1]
    return torch.where(finite, largest, math.inf)


def _first_chunk_size(network: nn.Module, total: dict[nn.Parameter, torch.Tensor]) -> int:
    """Return a cautious size where nothing has been measured."""
    if network in _HELD:
        return _chunk_size(_HELD[network])
    if chain_of_layers(network) is not None:  # of no record a whole gradient is formed
        return 4 * _FIRST_CHUNK
    return min(_FIRST_CHUNK, _chunk_size(sum(value.numel() for value in total.values())))


def _chunk_size(numbers_per_record: int) -> int:
    """Return how many records are taken at a time, from the public sizes of arrays."""
    return max(1, min(_LARGEST_CHUNK, _NUMBERS_HELD // max(1, numbers_per_record)))


@dataclass(frozen=True, eq=False)
class Gradients:
    """Contributions of single records to a sum of gradients, one part per layer."""

    parts: tuple[RecordJacobians, ...]
    trained: tuple[nn.Parameter, ...]

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """Return the sum over records, each times its weight."""
        given = torch.from_numpy(np.asarray(weights, dtype=np.float64))
        found: dict[nn.Parameter, torch.Tensor] = {}
        for part in self.parts:
            found.update(zip(part.parameters, part.pulled_back(given[:, None]), strict=True))
        return _flat([found[p] if p in found else torch.zeros_like(p) for p in self.trained])

    def inner(self, value: np.ndarray) -> np.ndarray:
        """Return the inner products with a value."""
        pieces = torch.from_numpy(value).split([p.numel() for p in self.trained])
        of = {p: v.view_as(p) for p, v in zip(self.trained, pieces, strict=True)}
        products = [part.inner([of[p] for p in part.parameters]) for part in self.parts]
        return torch.stack(products).sum(0).numpy()

    def gram(self) -> np.ndarray:
        """Return the inner products of all pairs of records."""
        return torch.stack([part.products() for part in self.parts]).sum(0).numpy()

    def plus(self, other: "Gradients", share: float) -> "Gradients":
        """Mix with `share` of others, which may be for some of the parameters only."""
        added = {parameter: part for part in other.parts for parameter in part.parameters}
        return Gradients(tuple(part.plus(added, share) for part in self.parts), self.trained)


# From a network, as it was before the step, the records, the cell of each, how many of each are
# expected, and the facts of the step, to what records add to its gradient: arguments of
# `skdpot.release.gate.Part`.
StepMap: TypeAlias = Callable[..., dict[str, Any]]
_OF_EVERY_STEP = ("parameters", "plan")


def release_gradient(
    network: nn.Module,
    total: dict[nn.Parameter, torch.Tensor],
    plan: TrainingPlan,
    secret: SecretStream,
    facts: Mapping[str, Any],
    linear: StepMap,
) -> None:
    """Add noise to a clipped gradient and give it to the parameters.

    One step of an event that the caller has charged. The whole gradient is rounded to the lattice
    of the noise once; in this and in the division nothing depends on the batch but the sum. The
    gradients pass the gate with their noise, as the optimizer gets them, with the parameters that
    they were computed at: nothing of the batch.
    """
    noise, divisor = plan.noise, plan.batch_size
    if noise is not None:
        exact = torch.cat([value.flatten() for value in total.values()])
        noisy = torch.from_numpy(noisy_sum(exact.cpu().numpy(), noise, secret)).to(exact.device)
        parts = noisy.split([value.numel() for value in total.values()])
        total = {p: part.view_as(p) for p, part in zip(total, parts, strict=True)}
    release = Release(
        "gradient",
        tuple((value / divisor).to(parameter.dtype) for parameter, value in total.items()),
        {"parameters": tuple(total), "plan": plan, **facts},
        sigma=plan.sigma / divisor,
        lattice=None if noise is None else noise.lattice / divisor,
        sensitivity=plan.sensitivity / divisor,
        event=plan.event,
        linear=partial(_step, network, linear),
    )
    for parameter, gradient in zip(total, pass_gate(release), strict=True):
        parameter.grad = gradient


def _step(
    network: nn.Module, linear: StepMap, release: Release, records: Records, shares: np.ndarray
) -> Iterator[Part]:
    """Yield what records add to a step, at the parameters that it was made with."""
    plan: TrainingPlan = release.facts["plan"]
    facts = {name: fact for name, fact in release.facts.items() if name not in _OF_EVERY_STEP}
    cells, before = facts.get("cells"), at_parameters(network, release.facts["parameters"])
    codes = np.zeros(len(shares), np.intp) if cells is None else of_candidates(cells.codes, shares)
    found = linear(before, records, codes, shares, **facts)
    rates = plan.rates(codes)
    yield Part(
        value=plan.batch_size * _flat([torch.from_numpy(value) for value in release.value]),
        sigma=plan.sigma,
        rates=None if np.all(rates == 1.0) else rates,
        **found,
    )


def at_parameters(network: nn.Module, parameters: Sequence[np.ndarray]) -> nn.Module:
    """Return a copy of a network, on the CPU, with recorded parameters in their precision."""
    copy = deepcopy(network).cpu().eval()
    copy.to(torch.from_numpy(parameters[0]).dtype)
    with torch.no_grad():
        for parameter, value in zip(_trained(copy), parameters, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return copy


def gradients_of_vectors(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: ClippedVectors,
    output_gradient: OutputGradient | None = None,
    places: np.ndarray | None = None,
) -> Gradients:
    """Return what `skdpot.nets.gradients.pulled_back_sum` sums over."""
    jacobians = record_jacobians(network, rows, output_gradient)
    index = torch.arange(len(rows)) if places is None else torch.from_numpy(places)
    chosen = vectors(jacobians.outputs, jacobians.gram(), index).double()
    return Gradients(tuple(part.of_each(chosen) for part in jacobians.parts), _trained(network))


def expected_batch(
    codes: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return a batch that has the ranks that are expected, cell by cell.

    It holds each record that is there once, or if some are candidates, these once and the others
    twice. Its order, the place of each record in it and the numbers of its cells are returned.
    """
    members = np.arange(len(codes))
    if np.any(shares < 1.0):
        members = np.concatenate([np.flatnonzero(shares == 1.0), members])
    order = members[np.argsort(codes[members], kind="stable")]
    places = np.empty(len(codes), dtype=np.intp)
    places[order] = np.arange(len(order))
    return order, places, tuple(np.bincount(codes[order]).tolist())


def _trained(network: nn.Module) -> tuple[nn.Parameter, ...]:
    return tuple(parameter for parameter in network.parameters() if parameter.requires_grad)


def _flat(values: Sequence[torch.Tensor]) -> np.ndarray:
    return torch.cat([value.detach().flatten().double() for value in values]).numpy()
