"""What single records add to a sum of clipped gradients, without a sum over them.

The attacks on networks need the inner products of all candidates' gradients with each other and
with what was released. The gradient of a linear layer is an outer product, whose inner products
take a few numbers a record: it is never formed.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.nets.output_gradients import ClippedVectors, shares_of_jacobians
from skdpot.nets.per_sample import (
    Cotangents,
    FormedGradients,
    FormedJacobians,
    OuterProductJacobians,
    OuterProducts,
    RecordGradients,
    RecordJacobians,
    full_precision,
    record_jacobians,
)
from skdpot.nets.training_plan import TrainingPlan

__all__ = [
    "Contributions",
    "Crowd",
    "at_parameters",
    "crowd_of_audit",
    "gradients_by_parameter",
    "of_clipped_gradients",
    "of_vectors",
    "public_facts_of_pairs",
    "pulled_apart",
    "pulled_together",
]

_FEWEST = 16  # numbers beside those that batches move, from which noise is measured
_RANK = 1e-9  # of the largest eigenvalue: what counts as moved

ByParameter = Mapping[nn.Parameter, torch.Tensor]


@dataclass(frozen=True)
class Contributions:
    """The vectors that records add to a sum, layer by layer.

    Parameters
    ----------
    parts : tuple of RecordGradients
        For disjoint parameters.
    """

    parts: tuple[RecordGradients, ...]

    def gram(self) -> np.ndarray:
        """Return the inner products of all vectors, shape (n_records, n_records)."""
        total = sum(_part_gram(part) for part in self.parts)
        return torch.as_tensor(total).numpy()

    def inner(self, released: ByParameter) -> np.ndarray:
        """Return the inner products with a released gradient, shape (n_records,)."""
        total = sum(_part_inner(part, released) for part in self.parts)
        return torch.as_tensor(total).numpy()

    def plus(self, other: "Contributions") -> "Contributions":
        """Add vectors of the same records, which may be for some of the parameters only."""
        added = {id(part.parameters[0]): part for part in other.parts}
        return Contributions(
            tuple(_sum(part, added.get(id(part.parameters[0]))) for part in self.parts)
        )

    def times(self, factor: float) -> "Contributions":
        """Multiply all vectors."""
        return Contributions(tuple(_scaled(part, factor) for part in self.parts))

    def take(self, places: np.ndarray) -> "Contributions":
        """Return the vectors of some records."""
        index = torch.from_numpy(places)
        return Contributions(tuple(_taken(part, index) for part in self.parts))

    def weighted_sum(self, weights: np.ndarray) -> dict[nn.Parameter, torch.Tensor]:
        """Sum the vectors, each times its weight."""
        given = torch.from_numpy(weights)
        total: dict[nn.Parameter, torch.Tensor] = {}
        for part in self.parts:
            total.update(zip(part.parameters, part.weighted_sum(given), strict=True))
        return total

    def vectors(self) -> np.ndarray:
        """Form the vectors, shape (n_records, n_parameters): for small networks."""
        formed = [g.flatten(1) for part in self.parts for g in _formed(part).gradients]
        return torch.cat(formed, dim=1).numpy()


def at_parameters(network: nn.Module, parameters: Sequence[np.ndarray]) -> nn.Module:
    """Return a copy of a network, on the CPU, with recorded parameters in their precision."""
    copy = deepcopy(network).cpu().eval()
    copy.to(torch.from_numpy(parameters[0]).dtype)
    trained = [parameter for parameter in copy.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter, value in zip(trained, parameters, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return copy


def gradients_by_parameter(
    network: nn.Module, gradients: Sequence[np.ndarray]
) -> dict[nn.Parameter, torch.Tensor]:
    """Give recorded gradients to the parameters of such a copy, in double precision."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return {
        parameter: torch.from_numpy(value).double()
        for parameter, value in zip(trained, gradients, strict=True)
    }


def of_vectors(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: ClippedVectors,
    cotangents: Cotangents | None = None,
) -> Contributions:
    """Return what `skdpot.nets.output_gradients.pulled_back_sum` sums over."""
    with full_precision(rows.device):
        jacobians = record_jacobians(network, rows, cotangents)
    outputs = jacobians.outputs.double()
    gram = torch.stack([part.gram() for part in jacobians.parts]).sum(0)
    chosen = vectors(outputs, gram, slice(0, len(rows)))
    return Contributions(tuple(pulled_apart(part, chosen.double()) for part in jacobians.parts))


def of_clipped_gradients(
    network: nn.Module,
    rows: torch.Tensor,
    output_gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    clip: float,
) -> Contributions:
    """Return what `skdpot.nets.output_gradients.clipped_gradient_sum` sums over."""
    return of_vectors(
        network,
        rows,
        lambda _, gram, __: shares_of_jacobians(gram, clip)[:, None],
        lambda outputs, rows: [output_gradient(outputs, rows)],
    )


def pulled_apart(part: RecordJacobians, vectors: torch.Tensor) -> RecordGradients:
    """Multiply each record's Jacobian with its vector, in double precision."""
    if isinstance(part, OuterProductJacobians):
        pulled = (vectors[:, :, None] * part.output_gradients).sum(1)
        return OuterProducts(part.parameters, part.inputs, pulled)
    if not isinstance(part, FormedJacobians):
        raise TypeError(f"Unknown kind of Jacobians: {type(part).__name__}.")
    formed = tuple(torch.einsum("nk,nk...->n...", vectors, g) for g in part.gradients)
    return FormedGradients(part.parameters, formed)


def pulled_together(part: RecordJacobians, vectors: torch.Tensor) -> RecordGradients:
    """Sum the Jacobians of m inputs times vectors of shape (n_records, m, k), for each record."""
    if isinstance(part, OuterProductJacobians):
        pulled = torch.einsum("njk,jku->nju", vectors, part.output_gradients)
        weights = torch.einsum("nju,ji->nui", pulled, part.inputs)
        both = (weights, pulled.sum(1))[: len(part.parameters)]
        return FormedGradients(part.parameters, both)
    if not isinstance(part, FormedJacobians):
        raise TypeError(f"Unknown kind of Jacobians: {type(part).__name__}.")
    formed = tuple(torch.tensordot(vectors, g, dims=2) for g in part.gradients)
    return FormedGradients(part.parameters, formed)


def _formed(part: RecordGradients) -> FormedGradients:
    if isinstance(part, OuterProducts):
        weights = part.output_gradients[:, :, None] * part.inputs[:, None, :]
        both = (weights, part.output_gradients)[: len(part.parameters)]
        return FormedGradients(part.parameters, both)
    if not isinstance(part, FormedGradients):
        raise TypeError(f"Unknown kind of gradients: {type(part).__name__}.")
    return part


def _part_gram(part: RecordGradients) -> torch.Tensor:
    if isinstance(part, OuterProducts):
        inputs = part.inputs @ part.inputs.T + float(len(part.parameters) - 1)
        return inputs * (part.output_gradients @ part.output_gradients.T)
    flat = [gradient.flatten(1) for gradient in _formed(part).gradients]
    return torch.stack([rows @ rows.T for rows in flat]).sum(0)


def _part_inner(part: RecordGradients, released: ByParameter) -> torch.Tensor:
    of_part = [released[parameter] for parameter in part.parameters]
    if isinstance(part, OuterProducts):
        inner = ((part.output_gradients @ of_part[0]) * part.inputs).sum(1)
        return inner + part.output_gradients @ of_part[1] if len(of_part) == 2 else inner
    pairs = zip(_formed(part).gradients, of_part, strict=True)
    return torch.stack([rows.flatten(1) @ value.flatten() for rows, value in pairs]).sum(0)


def _sum(part: RecordGradients, other: RecordGradients | None) -> RecordGradients:
    if other is None:
        return part
    if isinstance(part, OuterProducts) and isinstance(other, OuterProducts):  # of one layer
        total = part.output_gradients + other.output_gradients
        return OuterProducts(part.parameters, part.inputs, total)
    pairs = zip(_formed(part).gradients, _formed(other).gradients, strict=True)
    return FormedGradients(part.parameters, tuple(a + b for a, b in pairs))


def _scaled(part: RecordGradients, factor: float) -> RecordGradients:
    if isinstance(part, OuterProducts):
        return OuterProducts(part.parameters, part.inputs, factor * part.output_gradients)
    gradients = tuple(factor * gradient for gradient in _formed(part).gradients)
    return FormedGradients(part.parameters, gradients)


def _taken(part: RecordGradients, index: torch.Tensor) -> RecordGradients:
    if isinstance(part, OuterProducts):
        gradients = part.output_gradients[index]
        return OuterProducts(part.parameters, part.inputs[index], gradients)
    return FormedGradients(part.parameters, tuple(g[index] for g in _formed(part).gradients))


@dataclass(frozen=True, eq=False, kw_only=True)
class Crowd:
    """Known rows, the first and the second records of all pairs, in this order.

    Parameters
    ----------
    codes : ndarray of shape (n_records,), intp
        Public cell of each, such as its group.
    shares : ndarray of shape (n_records,)
        1 for known rows and 1/2 for candidates: how many of it are expected in the data.
    order : ndarray of shape (2 * n_samples,), intp
        Positions of a batch in which each record is twice as often as it is expected, cell by
        cell.
    places : ndarray of shape (n_records,), intp
        Where each record is in that batch.
    """

    codes: np.ndarray
    shares: np.ndarray
    order: np.ndarray
    places: np.ndarray

    def present(self, heads: np.ndarray) -> tuple[np.ndarray, "Crowd"]:
        """Return the places of the records that are in the data, and them as a crowd."""
        n_pairs = len(heads)
        n_known = len(self.codes) - 2 * n_pairs
        chosen = n_known + np.arange(n_pairs) + np.where(heads, 0, n_pairs)
        index = np.concatenate([np.arange(n_known), chosen])
        codes = self.codes[index]
        order = np.argsort(codes, kind="stable")
        return index, Crowd(
            codes=codes, shares=np.ones(len(index)), order=order, places=np.argsort(order)
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Records of each cell in that batch: twice as many as in the data, if all are expected."""
        return tuple(np.bincount(self.codes[self.order]).tolist())

    def rates(self, plan: TrainingPlan) -> np.ndarray:
        """Return the probability that each record, if it is in the data, is in a batch."""
        if plan.sampling == "poisson" or len(plan.group_sizes) == 1:
            return np.full(len(self.codes), plan.sampling_rate)
        of_cells = np.asarray(plan.batch_sizes) / np.asarray(plan.group_sizes)
        rates: np.ndarray = of_cells[self.codes]
        return rates

    def add_step(
        self,
        evidence: EvidenceSum,
        own: Contributions,
        gradient: ByParameter,
        facts: Mapping[str, Any],
        plan: TrainingPlan,
        ranked: Callable[["Crowd", np.ndarray], Contributions] | None = None,
    ) -> None:
        """Add what a noisy gradient of a batch says, given what records add to its sum.

        Parameters
        ----------
        evidence : EvidenceSum
            Where to.
        own : Contributions
            Of each record, to the sum over a batch.
        gradient : mapping of parameter to tensor
            The release: the noisy sum over the size of the batch.
        facts : mapping
            The recorded ones, of which the scale of the noise is read.
        plan : TrainingPlan
            How batches are drawn.
        ranked : callable, optional
            Returns what the records that are in the data add, of which one's term depends on the
            others; by default no term does.
        """
        gram, rates = own.gram(), self.rates(plan)
        sigma = plan.batch_size * facts["noise_scale"]
        inner = plan.batch_size * own.inner(gradient) - gram @ (rates * self.shares)
        evidence.add_batch(gram, inner, sigma, rates)
        if evidence.heads is None or sigma == 0.0:
            return
        index, present = self.present(evidence.heads)
        exact = own.take(index) if ranked is None else ranked(present, index)
        signals = None
        if ranked is None and np.all(rates == 1.0):
            first, second = np.arange(len(gram) - 2 * evidence.n_pairs, len(gram)).reshape(2, -1)
            signals = gram[first, first] + gram[second, second] - 2.0 * gram[first, second]
            signals = signals / sigma**2
        left = _residual(exact, gradient, present.rates(plan), plan.batch_size, ranked is None)
        evidence.check("gradient", *left[:2], sigma, left[2], signals)


def _residual(
    own: Contributions, gradient: ByParameter, rates: np.ndarray, size: int, in_span: bool
) -> tuple[float, int, float]:
    """Return energy and length of what the records do not explain, and what hides the noise.

    What batches move lies in the span of what their records add, `in_span` of others. It is left
    out if enough numbers remain.
    """
    gram, inner = own.gram(), size * own.inner(gradient)
    energy = size**2 * sum(float(value.square().sum()) for value in gradient.values())
    n_numbers = sum(value.numel() for value in gradient.values())
    if not np.all(rates == 1.0) and in_span:
        eigenvalues, vectors = np.linalg.eigh(gram)
        moved = eigenvalues > _RANK * max(eigenvalues[-1], 1e-300)
        if n_numbers - int(moved.sum()) >= _FEWEST:
            explained = (vectors[:, moved].T @ inner) ** 2 / eigenvalues[moved]
            return energy - float(explained.sum()), n_numbers - int(moved.sum()), 0.0
    energy += float(rates @ gram @ rates - 2.0 * rates @ inner)
    hidden = float(np.sum(rates * (1.0 - rates) * np.diag(gram)))
    return energy, n_numbers, hidden if in_span or hidden == 0.0 else float("nan")


def crowd_of_audit(audited: AuditedFit, cells: np.ndarray | None = None) -> Crowd:
    """Gather the candidates.

    Parameters
    ----------
    audited : AuditedFit
        Rows and pairs.
    cells : ndarray of shape (n_samples + n_pairs,), optional
        Public cell of each row of the fit, of any type; by default there is one.
    """
    n_known, n_pairs = len(audited.X), len(audited.pairs)
    of_fit = np.zeros(n_known + n_pairs, dtype=np.intp)
    if cells is not None:
        of_fit = np.unique(np.asarray(cells), return_inverse=True)[1].astype(np.intp)
    codes = np.concatenate([of_fit, of_fit[n_known:]])
    shares = np.concatenate([np.ones(n_known), np.full(2 * n_pairs, 0.5)])
    twice = np.concatenate([np.arange(n_known), np.arange(len(codes))])
    order = twice[np.argsort(codes[twice], kind="stable")]
    places = np.empty(len(codes), dtype=np.intp)
    places[order] = np.arange(len(order))
    return Crowd(codes=codes, shares=shares, order=order, places=places)


def public_facts_of_pairs(
    n_pairs: int, fit_params: Mapping[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw the public facts of slots, such as their groups, from those of the known rows."""
    return {
        name: rng.choice(np.unique(np.asarray(values)), size=n_pairs)
        for name, values in fit_params.items()
    }
