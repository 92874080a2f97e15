"""The release of one training step: a gradient with its noise, and what each record adds to it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.nets.output_gradients import ClippedVectors
from skdpot.nets.per_sample import (
    Cotangents,
    RecordGradients,
    full_precision,
    record_jacobians,
)
from skdpot.nets.training_plan import TrainingPlan
from skdpot.privacy.noise import noisy_sum
from skdpot.privacy.recording import Part, Records, Release, released

__all__ = [
    "Gradients",
    "StepPart",
    "at_parameters",
    "expected_batch",
    "gradients_of_vectors",
    "release_gradient",
]


@dataclass(frozen=True, eq=False)
class Gradients:
    """What single records add to a sum of gradients: a part a layer, for disjoint parameters.

    The gradient of a linear layer is an outer product, whose inner products take a few numbers a
    record: it is never formed.
    """

    parts: tuple[RecordGradients, ...]
    trained: tuple[nn.Parameter, ...]

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """Return the sum over records, each times its weight."""
        given = torch.from_numpy(np.asarray(weights, dtype=np.float64))
        found: dict[nn.Parameter, torch.Tensor] = {}
        for part in self.parts:
            found.update(zip(part.parameters, part.weighted_sum(given), strict=True))
        return _flat([found[p] if p in found else torch.zeros_like(p) for p in self.trained])

    def inner(self, value: np.ndarray) -> np.ndarray:
        """Return the inner products with a value."""
        pieces = torch.from_numpy(value).split([p.numel() for p in self.trained])
        of = {p: v.view_as(p) for p, v in zip(self.trained, pieces, strict=True)}
        products = [part.inner([of[p] for p in part.parameters]) for part in self.parts]
        return torch.stack(products).sum(0).numpy()

    def gram(self) -> np.ndarray:
        """Return the inner products of all pairs of records."""
        return torch.stack([part.gram() for part in self.parts]).sum(0).numpy()

    def plus(self, other: "Gradients", share: float) -> "Gradients":
        """Mix with `share` of others, which may be for some of the parameters only."""
        added = {part.parameters[0]: part for part in other.parts}
        mixed = (part.plus(added.get(part.parameters[0]), share) for part in self.parts)
        return Gradients(tuple(mixed), self.trained)


@dataclass(frozen=True, eq=False, kw_only=True)
class StepPart:
    """What records add to the gradient of a step: see `skdpot.privacy.recording.Part`."""

    rows: Gradients
    center: np.ndarray | None = None
    exact: bool = True
    missed: float = 0.0


# A network, as it was before the step, the records and how many of each are expected.
StepMap: TypeAlias = Callable[[nn.Module, Records, np.ndarray], StepPart]


def release_gradient(
    network: nn.Module,
    total: dict[nn.Parameter, torch.Tensor],
    plan: TrainingPlan,
    secret: SecretStream,
    facts: Mapping[str, Any],
    linear: StepMap,
) -> None:
    """Add noise to a clipped gradient and give it to the parameters.

    Privacy
    -------
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
    for parameter, gradient in zip(total, released(release), strict=True):
        parameter.grad = gradient


def _step(
    network: nn.Module, linear: StepMap, release: Release, records: Records, shares: np.ndarray
) -> Iterator[Part]:
    """Yield what records add to a step, at the parameters that it was made with."""
    plan: TrainingPlan = release.facts["plan"]
    found = linear(at_parameters(network, release.facts["parameters"]), records, shares)
    rates = plan.rates(records[-1])
    yield Part(
        value=plan.batch_size * _flat([torch.from_numpy(value) for value in release.value]),
        sigma=plan.sigma,
        rows=found.rows,
        rates=None if np.all(rates == 1.0) else rates,
        center=found.center,
        exact=found.exact,
        missed=found.missed,
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
    cotangents: Cotangents | None = None,
    places: np.ndarray | None = None,
) -> Gradients:
    """Return what `skdpot.nets.output_gradients.pulled_back_sum` sums over.

    `places` says where in the batch of `vectors` each row is, by default in their order.
    """
    with full_precision(rows.device):
        jacobians = record_jacobians(network, rows, cotangents)
    outputs = jacobians.outputs.double()
    gram = torch.stack([part.gram() for part in jacobians.parts]).sum(0)
    index: Any = slice(0, len(rows)) if places is None else torch.from_numpy(places)
    chosen = vectors(outputs, gram, index).double()
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
    flat: np.ndarray = torch.cat([value.detach().flatten().double() for value in values]).numpy()
    return flat
