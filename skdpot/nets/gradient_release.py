"""The release of a training step: a noisy sum of clipped gradients that passes the gate.

For audits and replays the release has a linear map: the contribution of each record to the sum at
the parameters before the step (`StepMap`, `Gradients`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.nets.gradients import ClippedVectors, trained_parameters
from skdpot.nets.per_sample import OutputGradient, RecordJacobians, record_jacobians
from skdpot.nets.training_plan import TrainingPlan
from skdpot.privacy.noise import noisy_sum
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Part, Records, Release, of_candidates

# A map from the network before the step, the records, the cell and the expected number of
# occurrences of each record, and the named facts of the step to the contributions of the records to
# the gradient, which are arguments of `skdpot.release.releases.Part`.
StepMap: TypeAlias = Callable[..., dict[str, Any]]

_OF_EVERY_STEP = ("parameters", "plan")  # facts that are not passed to a `StepMap`


@dataclass(frozen=True, eq=False)
class Gradients:
    """Contributions of single records to a sum of gradients, one part per layer."""

    parts: tuple[RecordJacobians, ...]
    trained: tuple[nn.Parameter, ...]

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum over records."""
        vectors = torch.from_numpy(np.asarray(weights, dtype=np.float64))[:, None]
        sums: dict[nn.Parameter, torch.Tensor] = {}
        for part in self.parts:
            sums.update(zip(part.parameters, part.pulled_back(vectors), strict=True))
        return _flat([sums[p] if p in sums else torch.zeros_like(p) for p in self.trained])

    def inner(self, value: np.ndarray) -> np.ndarray:
        """Return the inner product of each contribution with a value."""
        pieces = torch.from_numpy(value).split([p.numel() for p in self.trained])
        values = {p: v.view_as(p) for p, v in zip(self.trained, pieces, strict=True)}
        products = [part.inner([values[p] for p in part.parameters]) for part in self.parts]
        return torch.stack(products).sum(0).numpy()

    def gram(self) -> np.ndarray:
        """Return the inner products of all pairs of records."""
        return torch.stack([part.products() for part in self.parts]).sum(0).numpy()

    def plus(self, added: "Gradients", share: float) -> "Gradients":
        """Return ``1 - share`` times these plus `share` times `added`, if it has the parameter."""
        others = {parameter: part for part in added.parts for parameter in part.parameters}
        return Gradients(tuple(part.plus(others, share) for part in self.parts), self.trained)


def release_gradient(
    network: nn.Module,
    total: dict[nn.Parameter, torch.Tensor],
    plan: TrainingPlan,
    secret: SecretStream,
    facts: Mapping[str, Any],
    linear: StepMap,
) -> None:
    """Add noise to a clipped gradient and store it as the gradient of the parameters.

    This is one step of an event that the caller has charged. The whole gradient is rounded once to
    the lattice of the noise. Rounding and division depend on the batch through the sum alone. The
    noisy gradients pass the gate in the form that the optimizer gets, with the parameters before
    the step.
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
    """Yield the contributions of records to a step at the parameters before it."""
    plan: TrainingPlan = release.facts["plan"]
    facts = {name: fact for name, fact in release.facts.items() if name not in _OF_EVERY_STEP}
    cells, before = facts.get("cells"), at_parameters(network, release.facts["parameters"])
    codes = np.zeros(len(shares), np.intp) if cells is None else of_candidates(cells.codes, shares)
    contributions = linear(before, records, codes, shares, **facts)
    rates = plan.rates(codes)
    yield Part(
        value=plan.batch_size * _flat([torch.from_numpy(value) for value in release.value]),
        sigma=plan.sigma,
        rates=None if np.all(rates == 1.0) else rates,
        **contributions,
    )


def at_parameters(network: nn.Module, parameters: Sequence[np.ndarray]) -> nn.Module:
    """Return a copy of a network on the CPU with recorded parameters, in their precision."""
    copy = deepcopy(network).cpu().eval()
    copy.to(torch.from_numpy(parameters[0]).dtype)
    with torch.no_grad():
        for parameter, value in zip(trained_parameters(copy), parameters, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return copy


def gradients_of_vectors(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: ClippedVectors,
    output_gradient: OutputGradient | None = None,
    places: np.ndarray | None = None,
) -> Gradients:
    """Return the contributions of records to `skdpot.nets.gradients.pulled_back_sum`."""
    jacobians = record_jacobians(network, rows, output_gradient)
    index = torch.arange(len(rows)) if places is None else torch.from_numpy(places)
    chosen = vectors(jacobians.outputs, jacobians.gram(), index).double()
    return Gradients(
        tuple(part.of_each(chosen) for part in jacobians.parts), trained_parameters(network)
    )


def expected_batch(
    codes: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return a batch with the expected ranks, cell by cell.

    The batch holds each record once; if some records are candidates, it holds these once and the
    others twice. Return its order, the place of each record in it and the sizes of its cells.
    """
    members = np.arange(len(codes))
    if np.any(shares < 1.0):
        members = np.concatenate([np.flatnonzero(shares == 1.0), members])
    order = members[np.argsort(codes[members], kind="stable")]
    places = np.empty(len(codes), dtype=np.intp)
    places[order] = np.arange(len(order))
    return order, places, tuple(np.bincount(codes[order]).tolist())


def _flat(values: Sequence[torch.Tensor]) -> np.ndarray:
    return torch.cat([value.detach().flatten().double() for value in values]).numpy()
