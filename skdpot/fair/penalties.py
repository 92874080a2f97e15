r"""Private gradients of a fair predictor: by a sketch of its outputs, or by ranks.

Training minimises :math:`(1 - \alpha)` times the mean loss plus :math:`\alpha` times the squared
(sliced) Wasserstein distance between the outputs of groups
(`skdpot.nets.parity_penalty.ParityPenalty`). There are two private gradients of it.

*Ranks* is the method of the paper: the outputs of a batch are compared with each other. One record
moves the terms of others by a rank, which the sensitivity pays for; batches have a fixed size per
cell.

*Tables*: the distributions of all outputs are released a few times during training. They give each
record a point halfway to where the other group has its like. Until the next release the penalty is
a sum of squared distances to these points. It is clipped together with the loss, and one record
moves only its own term.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import Interval, SecretStream, StrOptions, resolve_device
from skdpot.base import COUNT, LENGTH, FitContext, Mechanism, MechanismResult
from skdpot.fair.loss_curve import prediction_losses
from skdpot.fair.recalibration import plan_recalibration, recalibrated
from skdpot.fair.thresholds import (
    ThresholdNoise,
    in_a_bin,
    plan_target_bins,
    plan_threshold,
    release_target_bins,
    tuned_threshold,
)
from skdpot.nets.cells import Cells, warn_of_small_cells
from skdpot.nets.compared_outputs import ClippedOutputs, ComparedOutputs, Probabilities
from skdpot.nets.gradient_release import expected_batch, gradients_of_vectors, release_gradient
from skdpot.nets.gradients import (
    ClippedVectors,
    pulled_back_sum,
    shares_of_jacobians,
    shares_of_vectors,
)
from skdpot.nets.local_penalty import TABLE_SHARE, LocalPenalty, finite_outputs, network_outputs
from skdpot.nets.loss_curve import LossCurve
from skdpot.nets.output_tables import OutputTables, TableNoise, plan_output_tables, release_tables
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.per_sample import chain_of_layers
from skdpot.nets.training import (
    GradientStep,
    noisy_learning_rate,
    train_to_the_end,
    with_trained_parameters,
)
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.release import gate as recording
from skdpot.release.bounds import BoundsPlan, DataBounds
from skdpot.release.moments import SumNoise

LastNoise: TypeAlias = ThresholdNoise | SumNoise
OutputLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_DEFAULT_STEPS, _USUAL_ALPHA = 200, 0.75
_LARGEST_RATE = 0.1
_BINS_SHARE = 0.02  # of the squared mu, for bins of the targets
_TUNING_SHARE = 0.05  # of the squared mu, for the threshold


@dataclass(frozen=True, eq=False)
class Records:
    """Private rows and targets, on the device and in the precision of training."""

    rows: torch.Tensor
    targets: torch.Tensor

    @classmethod
    def of(
        cls, network: nn.Module, rows: np.ndarray, targets: np.ndarray, device: str
    ) -> "Records":
        """Convert arrays.

        Plain chains compute in double precision, which holds rows of any size. Networks that may
        not be able to stay in single.
        """
        kind = np.float64 if _in_double(network) else np.float32
        parts, where = (rows.astype(kind), targets), resolve_device(device) or "cpu"
        return cls(*(torch.from_numpy(part).to(where) for part in parts))

    def take(self, batch: np.ndarray) -> "Records":
        """Return the records of a batch."""
        index = torch.from_numpy(batch).to(self.rows.device)
        return Records(self.rows[index], self.targets[index])


def _in_double(network: nn.Module) -> bool:
    return chain_of_layers(network) is not None


@dataclass(frozen=True, kw_only=True)
class FairLoss:
    """What is minimised, and how the gradients of a record are clipped."""

    gradient: OutputLoss
    compared: ComparedOutputs
    alpha: float  # 0 where nothing is compared
    clip: float
    clip_jacobian: float = 1.0

    def ranked_vectors(
        self, network: nn.Module, batch: Records, penalty: ParityPenalty, directions: np.ndarray
    ) -> ClippedVectors:
        """Return what is pulled back of each record of a batch: the gradient, times its size.

        Not private by itself. Replacing one record by another of its cell moves the sum by at most
        `ranked_sensitivity`.
        """
        n, alpha = len(batch.rows), self.alpha
        values = _values(self.compared, network, batch.rows)
        of_cells = np.split(values, np.cumsum(penalty.batch_sizes)[:-1])
        pulled = np.concatenate(penalty.vectors(of_cells, directions))
        pulls = torch.from_numpy(pulled).to(batch.rows.device)

        def vectors(
            outputs: torch.Tensor, gram: torch.Tensor, records: torch.Tensor
        ) -> torch.Tensor:
            own = self.gradient(outputs, batch.targets[records])
            loss = _scaled(own, shares_of_vectors(own, gram, self.clip))
            shares = shares_of_jacobians(self.compared.gram(gram, outputs), self.clip_jacobian)
            pull = self.compared.pull_back(_scaled(pulls[records], shares), outputs)
            return _finite((1.0 - alpha) * loss + alpha * n * pull)

        return vectors

    def ranked_sensitivity(self, batch_size: int, penalty: ParityPenalty, width: float) -> float:
        r"""Bound how far one record moves a ranked sum, under replace-one within its cell.

        :math:`(1 - \alpha)\, 2 C` by the loss, whose clipped gradients are a sum, and
        :math:`\alpha n'` times what the penalty moves by (`ParityPenalty.sensitivity`).
        """
        moved = penalty.sensitivity(width, self.clip_jacobian)
        return (1.0 - self.alpha) * 2.0 * self.clip + self.alpha * batch_size * moved

    def joint_vectors(self, batch: Records, local: LocalPenalty | None) -> ClippedVectors:
        r"""Return what is pulled back of each record: gradients of loss and penalty together.

        Record i contributes :math:`(1 - \alpha) \nabla \ell_i + \alpha J_i^\top w_i`, with the
        vector w of `LocalPenalty.vectors`, shortened to the norm `joint_clip`.

        Not private by itself. A record contributes a vector of norm at most `joint_clip`, which
        depends on the other records only through the release.
        """
        alpha = self.alpha

        def vectors(
            outputs: torch.Tensor, gram: torch.Tensor, records: torch.Tensor
        ) -> torch.Tensor:
            total = (1.0 - alpha) * self.gradient(outputs, batch.targets[records])
            if local is not None:
                pull = local.vectors(self.compared.values(finite_outputs(outputs)), records)
                total = total + alpha * self.compared.pull_back(pull, outputs)
            total = _finite(total)
            return _scaled(total, shares_of_vectors(total, gram, self.joint_clip))

        return vectors

    @property
    def joint_clip(self) -> float:
        """Largest norm of what a record contributes to a joint sum."""
        return (1.0 - self.alpha) * self.clip


def _values(compared: ComparedOutputs, network: nn.Module, rows: torch.Tensor) -> np.ndarray:
    return compared.values(network_outputs(network, rows)).cpu().numpy()


def _probabilities(network: nn.Module, rows: torch.Tensor) -> np.ndarray:
    """Return the probability of the second class, before a threshold is known."""
    outputs = network_outputs(network, rows.to("cpu", torch.float32))
    return outputs[:, 0].sigmoid().numpy()


def _scaled(vectors: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    # Zero times infinity is not zero.
    return torch.where(shares[:, None] > 0.0, vectors * shares[:, None], 0.0)


def _finite(vectors: torch.Tensor) -> torch.Tensor:
    return torch.where(vectors.isfinite().all(1, keepdim=True), vectors, 0.0)


def ranked_steps(
    records: Records,
    *,
    loss: FairLoss,
    cells: Cells,
    penalty: ParityPenalty,
    directions: Sequence[np.ndarray],
    plan: TrainingPlan,
    secret: SecretStream,
) -> GradientStep:
    """Make the steps of training by ranks. Each releases one noisy sum, on a lattice."""
    batches = plan.batches(secret, cells.members)

    def step(network: nn.Module, number: int) -> None:
        batch, along = records.take(next(batches)), directions[number]
        vectors = loss.ranked_vectors(network, batch, penalty, along)
        total = pulled_back_sum(network, batch.rows, vectors)
        facts = {"loss": loss, "cells": cells, "penalty": penalty, "directions": along}
        release_gradient(network, total, plan, secret, facts, _ranked_part)

    return step


def _ranked_part(
    network: nn.Module,
    given: recording.Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    penalty: ParityPenalty,
    directions: np.ndarray,
    **_: Any,
) -> dict[str, Any]:
    """Return what each record adds to a ranked sum, in an expected batch."""
    rows, targets = given
    order, places, sizes = expected_batch(codes, shares)
    of_batch = replace(penalty, batch_sizes=sizes)
    vectors = loss.ranked_vectors(network, Records(rows, targets).take(order), of_batch, directions)
    own = gradients_of_vectors(network, rows, vectors, places=places)
    return {"rows": own, "exact": False}


def tabled_steps(
    records: Records,
    *,
    loss: FairLoss,
    cells: Cells,
    plan: TrainingPlan,
    noise: TableNoise | None,
    release_at: Sequence[int],
    n_projections: int,
    secret: SecretStream,
    public: np.random.Generator,
) -> GradientStep:
    """Make the steps of training by released tables."""
    batches = plan.batches(secret)
    directions = loss.compared.directions(n_projections, public)
    limits = loss.compared.half_widths(directions)
    tables: OutputTables | None = None
    local: LocalPenalty | None = None
    targets = records.targets.cpu().numpy()
    own = replace(cells, codes=cells.codes_of(targets, cells.codes))  # private given the target

    def step(network: nn.Module, number: int) -> None:
        nonlocal tables, local
        if noise is not None and number in release_at:
            values = _values(loss.compared, network, records.rows)
            of = partial(_values, loss.compared, deepcopy(network).cpu().eval())
            parts = (values, own.codes, cells.sizes, directions, limits, noise, secret)
            tables = release_tables(
                *parts,
                previous=tables,
                values_of=lambda rows, _: of(rows),
                seen=lambda rows, codes: (of(rows[0]), cells.codes_of(rows[1], codes)),
                known=cells.codes,
            )
            local = LocalPenalty.of_release(tables, values, own)
        vectors = loss.joint_vectors(records, local)
        total = pulled_back_sum(network, records.rows, vectors, batch=next(batches))
        facts = {"loss": loss, "cells": cells, "tables": tables}
        release_gradient(network, total, plan, secret, facts, _joint_part)

    return step


def _joint_part(
    network: nn.Module,
    given: recording.Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: FairLoss,
    cells: Cells,
    tables: OutputTables | None,
) -> dict[str, Any]:
    """Return what each record adds to a joint sum."""
    rows, targets = given
    local, cells = None, replace(cells, codes=cells.codes_of(targets, codes))
    if tables is not None:
        local = LocalPenalty.of_release(tables, tables.values_of(rows, codes), cells)
    vectors = loss.joint_vectors(Records(rows, targets), local)
    return {"rows": gradients_of_vectors(network, rows, vectors)}


@dataclass(frozen=True, eq=False, kw_only=True)
class FairTask:
    """What a fit is for, all of it public: loss, comparison, cells, and what else it releases."""

    gradient: OutputLoss
    compared: ComparedOutputs
    cells: Cells
    network: nn.Module
    bounds: DataBounds | BoundsPlan | None = None  # of targets
    public_classes: bool = False  # whether a record keeps its class in all neighbours
    given_target: bool = False  # whether outputs are to be alike given the target
    bins: TableNoise | None = None  # of private targets, which then divide the groups
    last: LastNoise | None = None  # what sets the level of the outputs right
    group_aware: bool = False  # whether the network reads the group, after the features


class FairMechanism(Mechanism):
    """What fair predictors need of a mechanism."""

    clip_gradient = 2.0  # what canaries of an audit exceed
    release: Callable[..., MechanismResult]  # plans, charges, and only then touches the rows

    @property
    def compares(self) -> bool:
        """Whether the groups are read."""
        return getattr(self, "alpha", 1.0) > 0.0


@dataclass(eq=False, repr=False)
class FairGradients(FairMechanism):
    """What both mechanisms of the fair predictors read, and how they train."""

    alpha: float = 0.75
    _: KW_ONLY
    n_steps: int | None = None
    learning_rate: float | str = "auto"
    tune_threshold: bool = True
    batch_fraction: float = 0.2
    clip_gradient: float = 2.0
    clip_output: float | None = None
    n_projections: int = 50

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "n_steps": [COUNT, None],
        "learning_rate": [Interval(Real, 0, 10, closed="right"), StrOptions({"auto"})],
        "batch_fraction": [Interval(Real, 0, 1, closed="right")],
        "clip_gradient": [LENGTH],
        "clip_output": [LENGTH, None],
        "n_projections": [COUNT],
        "tune_threshold": ["boolean"],
    }

    def release(
        self,
        context: FitContext,
        task: FairTask,
        rows: np.ndarray,
        targets: np.ndarray,
        public: Sequence[str],
        callbacks: Sequence[Any] | None,
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows."""
        network, streams, compared = task.network, context.streams, task.compared
        n_steps = self.n_steps or _default_steps(self.alpha)
        if self.clip_output is not None:
            compared = ClippedOutputs(compared.n_outputs, float(self.clip_output))
        alpha = self.alpha if task.cells.strata else 0.0
        norms = {"clip": float(self.clip_gradient)}
        loss = FairLoss(gradient=task.gradient, compared=compared, alpha=alpha, **norms)
        task = replace(task, last=self._threshold(context, task))
        if task.given_target and task.cells.strata:
            mu = context.mu_share(_BINS_SHARE)
            task = replace(task, bins=plan_target_bins(mu, task.cells))
        plan, make_steps, text = self._plan(context, task, loss, n_steps)
        if task.last is not None:
            text += ", and noisy histograms or moments for the level of predictions"
        spent = context.charge(
            plan,
            (*public, "the network's initial weights", *context.arithmetic),
            f"{n_steps} noisy sums of clipped gradients over batches of {text}",
        )
        found: dict[str, Any] = {"n_steps_": n_steps}
        if task.bounds is not None:
            settled = found["target_bounds_"] = task.bounds.settled(targets, streams)
            targets = settled.to_units(targets)
        cells = task.cells
        if task.bins is not None:
            cells = release_target_bins(targets, cells, task.bins, streams.secret)
            found["target_bins_"] = settled.from_units(cells.edges[:, None])[:, 0]
        records = Records.of(network, rows, targets, context.device)
        trained = deepcopy(network).to(records.rows.dtype) if _in_double(network) else network
        losses = prediction_losses(compared, records.rows, records.targets, cells)
        told = losses if plan.noise is None else None  # only then they may be
        curve = LossCurve(told, n_steps)
        train_to_the_end(
            trained,
            curve.told(make_steps(records, cells=cells, plan=plan, secret=streams.secret)),
            n_steps,
            learning_rate=noisy_learning_rate(self.learning_rate, network, n_steps, _LARGEST_RATE),
            # Masks of dropout depend on who else is in a Poisson batch: they must be secret.
            rng=streams.secret.generator(),
            callbacks=callbacks,
            **context.training,
        )
        trained = with_trained_parameters(network, trained)
        network, level = _levelled(trained, task, rows, targets, streams.secret)
        return MechanismResult(
            network, None, spent, attributes={**found, **level, "losses_": curve.table()}
        )

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, n_steps: int
    ) -> tuple[TrainingPlan, Callable[..., GradientStep], str]:
        raise NotImplementedError

    def _threshold(self, context: FitContext, task: FairTask) -> LastNoise | None:
        """Plan what sets the level right that a penalty moves: of two classes, or of targets."""
        mu = context.mu_share(_TUNING_SHARE)
        if not (self.tune_threshold and self.alpha and task.cells.strata):
            return None
        if task.bounds is not None:
            return plan_recalibration(mu)
        if not (isinstance(task.compared, Probabilities) and task.compared.n_outputs == 1):
            return None
        return plan_threshold(mu, sum(task.cells.sizes), public_classes=task.public_classes)

    def _training(
        self, context: FitContext, task: FairTask, tables: TableNoise | None = None, **terms: Any
    ) -> TrainingPlan:
        others = [*(task.last.events if task.last else ())]
        others += [noise.event for noise in (task.bins, tables) if noise is not None]
        return plan_training(
            context.target,
            n_parameters=trained_numbers(task.network),
            bounds=task.bounds,
            others=() if math.isinf(context.target.epsilon) else others,
            **terms,
        )


def _levelled(
    network: nn.Module, task: FairTask, rows: np.ndarray, targets: np.ndarray, secret: SecretStream
) -> tuple[nn.Module, dict[str, Any]]:
    """Set the level of predictions right; return the network, and a threshold of two classes."""
    if isinstance(task.last, SumNoise):
        return recalibrated(network, rows, targets, task.cells.codes, task.last, secret), {}
    if task.last is not None:
        of = partial(_probabilities, network)
        given = (of(torch.from_numpy(rows)), targets, task.last, secret, of)
        return network, {"threshold_": tuned_threshold(*given)}
    return network, {"threshold_": 0.5} if isinstance(task.compared, Probabilities) else {}


@dataclass(eq=False, repr=False)
class SketchedOutputs(FairGradients):
    r"""Private gradients of a fair predictor by a sketch of its outputs: the default.

    The distributions of the outputs of each group are released `n_releases` times. In between, the
    penalty is a sum over records and is clipped together with the loss, to :math:`(1 - \alpha) C`.
    Batches are Poisson samples.

    Parameters
    ----------
    alpha : float, default=0.75
        Weight of fairness in [0, 1); 0 is DP-SGD for the loss alone. Groups become alike from about
        0.5; most of the effect lies between 0.7 and 0.95.
    n_steps : int, optional
        Training steps; 200 by default up to ``alpha=0.75``, beyond in inverse proportion to the
        root of ``1 - alpha``.
    learning_rate : "auto" or float, default="auto"
        Initial learning rate of Adam; it falls to zero along a half cosine. "auto" is 0.32 over the
        fourth root of the number of parameters, at most 0.1, and beyond 400 steps it shrinks with
        the square root of their number.
    batch_fraction : float, default=0.2
        Expected share of the records in the batch of a step.
    clip_gradient : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30.
    tune_threshold : bool, default=True
        Where groups are compared: move the intercept after training, so that as many training
        records are predicted in the second of two classes as belong to it, or set mean and spread
        of predicted targets right. Costs 5 % of the squared mu. A penalty squeezes outputs.
    clip_output : float, optional
        M: largest norm of what is compared. A classifier then compares logits shortened to M
        instead of probabilities; a small M compares decisions near the threshold only. A regressor
        shortens mapped predictions to M, by default the square root of the number of targets.
    n_projections : int, default=50
        Directions along which more than two classes, or several targets, are compared.
    n_releases : int, optional
        Number of times that the distributions are released; together they cost 10 % of the squared
        mu. By default 20. Given the target, where the records of a bin are few: 5, for 20 %.
    """

    _: KW_ONLY
    n_releases: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FairGradients._parameter_constraints,
        "n_releases": [COUNT, None],
    }

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, n_steps: int
    ) -> tuple[TrainingPlan, Callable[..., GradientStep], str]:
        cells, tables, given_target = task.cells, None, task.bins is not None
        # Spread over the steps, none before the first: then all outputs are equal.
        wanted = min(self.n_releases or (5 if given_target else 20), n_steps - 1)
        wanted = wanted if cells.strata else 0
        release_at = sorted({1 + (k + 1) * (n_steps - 1) // (wanted + 1) for k in range(wanted)})
        if release_at:
            rng = np.random.default_rng(0)
            n_projections = len(loss.compared.directions(self.n_projections, rng))
            mu, fewest = context.mu_share((1 + given_target) * TABLE_SHARE), min(cells.sizes)
            tables = plan_output_tables(mu, len(release_at), n_projections, fewest)
            # What is averaged over the blocks of directions has less noise.
            n_blocks = max(1.0, n_projections / loss.compared.n_outputs)
            compared = in_a_bin(cells) if given_target else cells
            warn_of_small_cells(context.caller, compared, tables.sigma / math.sqrt(n_blocks))
        n_samples = sum(cells.sizes)
        plan = self._training(
            context,
            task,
            tables,
            n_samples=n_samples,
            batch_size=max(1, math.floor(self.batch_fraction * n_samples)),
            n_steps=n_steps,
            sampling="poisson",
            sensitivity=2.0 * loss.joint_clip,
        )
        steps = partial(
            tabled_steps,
            loss=loss,
            noise=tables,
            release_at=release_at,
            n_projections=self.n_projections,
            public=context.streams.public,
        )
        text = f"about {plan.batch_size} records"
        if tables is not None:
            text += f", {len(release_at)} noisy distributions of the outputs of all records"
        return plan, steps, text


@dataclass(eq=False, repr=False)
class RankedOutputs(FairGradients):
    r"""Private gradients of a fair predictor by ranks, as in the paper.

    The outputs of a batch are ranked. One record moves the ranks of others, which needs more noise
    than `SketchedOutputs`. Batches have a fixed number of records of each group.

    Parameters
    ----------
    alpha : float, default=0.75
        Weight of fairness in [0, 1), as in `SketchedOutputs`.
    n_steps : int, optional
        Training steps, by default as in `SketchedOutputs`.
    learning_rate : "auto" or float, default="auto"
        As in `SketchedOutputs`.
    batch_fraction : float, default=0.2
        Share of the records of each group in the batch of a step.
    clip_gradient : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30.
    tune_threshold : bool, default=True
        As in `SketchedOutputs`.
    clip_output : float, optional
        M, as in `SketchedOutputs`.
    clip_jacobian : float, default=0.25
        L: largest spectral norm of the Jacobian of a compared output.
    n_projections : int, default=50
        Directions along which more than two classes, or several targets, are compared.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025.
    """

    _: KW_ONLY
    clip_jacobian: float = 0.25

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FairGradients._parameter_constraints,
        "clip_jacobian": [LENGTH],
    }

    def _plan(
        self, context: FitContext, task: FairTask, loss: FairLoss, n_steps: int
    ) -> tuple[TrainingPlan, Callable[..., GradientStep], str]:
        cells = task.cells
        if not cells.strata:  # nothing is compared, so that nothing is ranked
            sketched = SketchedOutputs(n_steps=n_steps, batch_fraction=self.batch_fraction)
            return sketched._plan(context, task, loss, n_steps)
        loss = replace(loss, clip_jacobian=float(self.clip_jacobian))
        sizes = cells.batch_sizes(self.batch_fraction)
        penalty = ParityPenalty(cells.strata, sizes)
        # Their widths enter the sensitivity, so that they are drawn now.
        draw = partial(loss.compared.directions, self.n_projections, context.streams.public)
        directions = tuple(draw() for _ in range(n_steps))
        width = max(float(loss.compared.widths(of_step).mean()) for of_step in directions)
        plan = self._training(
            context,
            task,
            n_samples=cells.sizes,
            batch_size=sizes,
            n_steps=n_steps,
            sampling="without_replacement",
            sensitivity=loss.ranked_sensitivity(sum(sizes), penalty, width),
        )
        steps = partial(ranked_steps, loss=loss, penalty=penalty, directions=directions)
        return plan, steps, f"{sizes} records, compared by rank"


FAIR_MECHANISMS: dict[str, type[FairMechanism]] = {
    "sketch": SketchedOutputs,
    "ranks": RankedOutputs,
}


def _default_steps(alpha: float) -> int:
    """Return the number of steps: more where little of the loss is left in each."""
    return round(_DEFAULT_STEPS * math.sqrt(max(1.0, (1.0 - _USUAL_ALPHA) / (1.0 - alpha))))
