"""DP-SGD: of an autoencoder, with penalties of its codes, and of a generator."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from skdpot._utils.validation import Interval, Streams, StrOptions, resolve_device
from skdpot.base import COUNT, LENGTH, FitContext, Mechanism, MechanismResult, refuse_classes
from skdpot.exceptions import BudgetExceededError, warn_of_privacy
from skdpot.nets.cells import Cells, warn_of_small_cells
from skdpot.nets.compared_outputs import ComparedOutputs, fixed_side_sensitivity
from skdpot.nets.gradients import (
    TrainingPlan,
    by_jacobians,
    gradients_of_vectors,
    plan_training,
    release_gradient,
    trained_numbers,
)
from skdpot.nets.local_penalty import TABLE_SHARE, LocalPenalty, network_outputs
from skdpot.nets.loss_curve import LossCurve
from skdpot.nets.output_tables import OutputTables, TableNoise, plan_tables, release_tables
from skdpot.nets.per_record_check import check_per_record
from skdpot.nets.training import (
    GradientStep,
    noisy_learning_rate,
    train_network,
    train_privately,
    train_to_the_end,
)
from skdpot.ot.slices import CDFTable
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.spent import charge
from skdpot.release.bounds import DataBounds, planned_bounds, public_bounds
from skdpot.release.gate import Records
from skdpot.sampling.architecture import LatentNetwork
from skdpot.sampling.autoencoder_training import (
    AutoencoderLoss,
    ParityDistance,
    Prior,
    PriorDistance,
    private_steps,
    public_steps,
    reconstruction_gradient,
    reconstruction_losses,
)
from skdpot.sampling.generator_training import OutputUnits, draw_groups, noisy_gradient_steps
from skdpot.sampling.noisy_rows import epochs
from skdpot.sampling.row_releases import StepDirections

_WIDTH = 32  # of the default generator, of which every parameter gets noise
_PROJECTIONS = 64
_EPOCHS = 40
_FEWEST_STEPS = 60
_FEWEST_PUBLIC_STEPS = 1500
_PUBLIC_RATE = 2e-3
_LARGEST_RATE = 0.03
_LEAST_SIGNAL = 2.0
_LEAST_SIGNAL_OF_RANKS = 12.0


@dataclass(eq=False, repr=False)
class CodePenalty(BaseEstimator):
    """What both penalties read: a squared sliced Wasserstein distance of codes, and its weight."""

    alpha: float = 0.1
    _: KW_ONLY
    comparison: str = "sketch"
    n_releases: int = 20
    n_projections: int = 50
    clip_jacobian: float = 1.0

    needs_groups: ClassVar[bool] = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "comparison": [StrOptions({"sketch", "ranks"})],
        "n_releases": [COUNT],
        "n_projections": [COUNT],
        "clip_jacobian": [LENGTH],
    }


class PriorPenalty(CodePenalty):
    """Penalty of an autoencoder: the distance of a batch of codes to the prior of `sample`.

    Parameters
    ----------
    alpha : float, default=0.1
        Weight of the squared sliced Wasserstein distance in [0, 1); the reconstruction error has
        the rest.
    comparison : {"sketch", "ranks"}, default="sketch"
        "sketch": the distributions of all codes are released `n_releases` times during training.
        In between the penalty is a sum over records, clipped to the norm of the gradient of the
        reconstruction error. "ranks", as in the paper: the codes of a batch are ranked, and one
        record moves the ranks of others, which needs more noise.
    n_releases : int, default=20
        Number of releases with "sketch", 10 % of the squared mu together.
    n_projections : int, default=50
        Directions per step, rounded up to a multiple of the length of a code.
    clip_jacobian : float, default=1.0
        Largest spectral norm L of the Jacobian of a record's code, for "ranks".
    """

    def distance(self, *, on_sphere: bool, cells: Cells, **sizes: Any) -> PriorDistance:
        """Return the distance to the uniform law on the sphere, or to the normal law."""
        prior: Prior = "sphere" if on_sphere else "normal"
        return PriorDistance(prior=prior, n_projections=self.n_projections, **sizes)


@dataclass(eq=False, repr=False)
class CodeParity(CodePenalty):
    """Penalty of an autoencoder: the mean distance of the codes of two groups.

    Codes then reveal little about the group of a row. Pass the groups as
    ``fit(X, sensitive_features=groups)``; with ranks a batch takes the same share of each group.

    Equalised odds [1]_ for codes is that code and group are independent given the class, so that a
    classifier of codes, whichever is trained later, has the same rates of errors in all groups. The
    penalty is then the mean over the classes of the distance of their members in two groups. Pass
    ``fit(X, classes, sensitive_features=groups)``; the class of each row is public then, as its
    group is.

    Parameters
    ----------
    alpha : float, default=0.1
        Weight of the squared sliced Wasserstein distance in [0, 1); the reconstruction error has
        the rest.
    comparison : {"sketch", "ranks"}, default="sketch"
        "sketch": the distributions of all codes are released `n_releases` times during training.
        In between the penalty is a sum over records, clipped to the norm of the gradient of the
        reconstruction error. "ranks", as in the paper: the codes of a batch are ranked, and one
        record moves the ranks of others, which needs more noise.
    n_releases : int, default=20
        Number of releases with "sketch", 10 % of the squared mu together.
    n_projections : int, default=50
        Directions per step, rounded up to a multiple of the length of a code.
    clip_jacobian : float, default=1.0
        Largest spectral norm L of the Jacobian of a record's code, for "ranks".
    clip_output : float, default=2.0
        Largest norm M of a code when groups are compared; longer ones count as shortened to it.
        The noise that the penalty needs is proportional to it. Not used for normalised codes,
        whose norm is 1.
    fairness : {"demographic_parity", "equalized_odds"}, default="demographic_parity"
        Whose codes are compared: of all members of two groups, or of those of the same class.

    References
    ----------
    .. [1] M. Hardt, E. Price, N. Srebro, "Equality of opportunity in supervised learning", NeurIPS
       2016, definition 2.1, with the code in the place of the prediction.
    """

    _: KW_ONLY
    clip_output: float = 2.0
    fairness: str = "demographic_parity"

    needs_groups = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CodePenalty._parameter_constraints,
        "clip_output": [LENGTH],
        "fairness": [StrOptions({"demographic_parity", "equalized_odds"})],
    }

    def distance(self, *, on_sphere: bool, cells: Cells, **sizes: Any) -> ParityDistance:
        """Return the mean distance between groups."""
        radius = 1.0 if on_sphere else self.clip_output
        return ParityDistance(
            radius=radius, n_projections=self.n_projections, strata=cells.strata, **sizes
        )


@dataclass(eq=False, repr=False)
class DPSGD(Mechanism):
    """Training by noisy sums of clipped gradients of single records (DP-SGD).

    Parameters
    ----------
    n_steps : int, optional
        Training steps. By default 40 epochs, and at least 60 steps; on public rows, where steps
        cost no privacy, at least 1,500.
    learning_rate : "auto" or float, default="auto"
        Initial learning rate of Adam; it falls to zero along a half cosine. "auto" is 0.002 for
        public rows. For private rows it is 0.32 over the fourth root of the number of parameters,
        at most 0.03, and beyond 400 steps it shrinks with the square root of their number.
    batch_size : int, default=250
        (Expected) number of records per step, capped at n. Groups that are compared have the same
        share of a batch as of the rows, rounded down.
    clip_gradient : float, default=1.0
        Largest norm C of the gradient of one record's reconstruction error (half of the squared
        error, in mapped units), from 1e-30 to 1e30. The default shortens nearly all gradients. Not
        used on public rows.
    sampling : {"auto", "poisson", "without_replacement"}, default="auto"
        How private batches are drawn. "auto" is "poisson", whose account is tighter, and
        "without_replacement" with a penalty by ranks: these couple the records of a batch, and only
        batches of a fixed size are accounted for.
    sigma : float, optional
        Standard deviation of the noise on a batch's summed gradient; by default calibrated to
        epsilon. If given, epsilon is not used, `privacy_spent_` states the cost of the fit, and
        bounds must be public.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016.
    """

    n_steps: int | None = None
    _: KW_ONLY
    learning_rate: float | str = "auto"
    batch_size: int = 250
    clip_gradient: float = 1.0
    sampling: str = "auto"
    sigma: float | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_steps": [COUNT, None],
        "learning_rate": [Interval(Real, 0, 10, closed="right"), StrOptions({"auto"})],
        "batch_size": [COUNT],
        "clip_gradient": [LENGTH],
        "sampling": [StrOptions({"auto", "poisson", "without_replacement"})],
        "sigma": [Interval(Real, 0, 1e30, closed="both"), None],
    }

    def loss(
        self,
        penalty: PriorPenalty | CodeParity | None,
        latent_dim: int,
        cells: Cells,
        *,
        on_sphere: bool,
    ) -> AutoencoderLoss:
        """Return what is minimised."""
        if penalty is None:
            return AutoencoderLoss(clip=self.clip_gradient)
        distance = penalty.distance(
            on_sphere=on_sphere,
            cells=cells,
            latent_dim=latent_dim,
            batch_sizes=self.batch_sizes(cells),
        )
        shared = {"alpha": penalty.alpha, "clip_jacobian": penalty.clip_jacobian}
        releases = penalty.n_releases if penalty.comparison == "sketch" and penalty.alpha else 0
        return AutoencoderLoss(
            clip=self.clip_gradient, penalty=distance, n_releases=releases, **shared
        )

    def batch_sizes(self, cells: Cells) -> tuple[int, ...]:
        """Return how many records a batch takes of each group that is compared, or of all."""
        n_samples = sum(cells.sizes)
        if not cells.strata:
            return (min(self.batch_size, n_samples),)
        share = min(1.0, self.batch_size / n_samples)
        return cells.batch_sizes(share, parameter="batch_size")

    def release(
        self,
        context: FitContext,
        autoencoder: nn.Sequential,
        loss: AutoencoderLoss,
        cells: Cells,
        rows: np.ndarray,
        callbacks: Sequence[Any] | None,
        public: Sequence[str],
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows: train the network in place.

        An interrupt after at least one step is part of the result, for the caller to raise once
        what has been paid for is stored: the parameters are a function of noisy sums at any time.
        """
        tables, release_at = self._tables(context, loss, cells)
        plan = self._plan(context, autoencoder, loss, cells, rows.shape[1], tables)
        _warn_of_noise(context.caller, loss, plan, autoencoder, ranked=plan.sampling != "poisson")
        if tables is not None and cells.strata:
            warn_of_small_cells(context.caller, cells, tables.sigma)
        streams = context.streams
        kind = "Poisson batches" if plan.sampling == "poisson" else "batches without replacement"
        batches = f"{kind} of {plan.batch_size} records"
        if len(plan.batch_sizes) > 1:
            batches += f" ({' + '.join(map(str, plan.batch_sizes))} by group)"
        if tables is not None:
            batches += f", {len(release_at)} noisy distributions of all codes"
        spent = context.charge(
            plan,
            ("the architecture and its initial weights", *public, *context.arithmetic),
            f"{plan.n_steps} noisy sums of clipped gradients over {batches}",
            sigma_given=self.sigma is not None,
        )
        bounds = plan.bounds.settled(rows, streams)
        tensor = _tensor(context, bounds, rows)
        if tables is None:
            step = private_steps(loss, tensor, plan, streams.secret, streams.public, cells)
        else:
            step = sketched_steps(loss, tensor, plan, tables, release_at, streams, cells)
        losses = reconstruction_losses(loss, tensor, cells)
        told = losses if plan.noise is None else None  # only then they may be
        curve = LossCurve(told, plan.n_steps)
        finished, stopped = train_privately(
            autoencoder,
            curve.told(step),
            plan.n_steps,
            learning_rate=noisy_learning_rate(
                self.learning_rate, autoencoder, plan.n_steps, _LARGEST_RATE
            ),
            # Masks of dropout depend on who else is in a Poisson batch: they must be secret.
            rng=streams.secret.generator(),
            callbacks=callbacks,
            **context.training,
        )
        if stopped is not None and (finished == 0 or isinstance(stopped, Exception)):
            raise stopped  # when it happened tells of the rows
        found = {"n_steps_": finished, "losses_": curve.table()}
        return MechanismResult(None, bounds, spent, attributes=found, stopped=stopped)

    def train_public(
        self,
        context: FitContext,
        autoencoder: nn.Sequential,
        loss: AutoencoderLoss,
        cells: Cells,
        rows: np.ndarray,
        bounds: DataBounds,
        rng: np.random.Generator,
        callbacks: Sequence[Any] | None,
    ) -> MechanismResult:
        """Train on public rows; a finite budget refuses a fit without noise."""
        try:
            spent = charge(
                context,
                NonPrivateEvent(),
                n_samples=None,
                assumptions=("the rows given to fit are public",),
                mechanism="training without noise on public rows",
                noise_given=True,
            )
        except BudgetExceededError as error:
            raise BudgetExceededError(
                "private=False adds no noise, which a finite budget cannot pay for: pass no budget "
                f"if the rows are public. {error}"
            ) from None
        n_steps = self._number_of_steps(len(rows), _FEWEST_PUBLIC_STEPS)
        tensor = _tensor(context, bounds, rows)
        curve = LossCurve(reconstruction_losses(loss, tensor, cells), n_steps)
        train_network(
            autoencoder,
            curve.told(public_steps(loss, tensor, self.batch_sizes(cells), rng, cells.members)),
            n_steps,
            learning_rate=_PUBLIC_RATE if self.learning_rate == "auto" else self.learning_rate,  # type: ignore[arg-type]
            rng=rng,
            device=resolve_device(context.device),
            callbacks=callbacks,
            progress=context.progress(context.caller),
        )
        found = {"n_steps_": n_steps, "losses_": curve.table()}
        return MechanismResult(None, bounds, spent, attributes=found)

    def _plan(
        self,
        context: FitContext,
        network: nn.Module,
        loss: AutoencoderLoss,
        cells: Cells,
        n_features: int,
        tables: TableNoise | None,
    ) -> TrainingPlan:
        """Fix batches and noise from public facts."""
        sampling, ranked = self.sampling, loss.penalty is not None and tables is None
        if sampling == "auto":
            sampling = "without_replacement" if ranked else "poisson"
        elif sampling == "poisson" and ranked:
            raise ValueError(
                "A penalty compares the ranks of the codes of a batch, and the account of Poisson "
                'batches covers sums only. Use sampling="auto" or "without_replacement", '
                'or comparison="sketch".'
            )
        n_samples, target = sum(cells.sizes), context.target
        known = public_bounds(context.bounds, context.norm_bound, n_features)
        together = sampling == "poisson"
        private = math.isfinite(target.epsilon)
        return plan_training(
            target,
            n_samples=n_samples if together else cells.sizes,
            batch_size=sum(self.batch_sizes(cells)) if together else self.batch_sizes(cells),
            others=(tables.event,) if tables is not None and private else (),
            n_steps=self._number_of_steps(n_samples, _FEWEST_STEPS),
            sampling=sampling,
            sensitivity=loss.sensitivity,
            n_parameters=trained_numbers(network),
            bounds=planned_bounds(known or n_samples, n_features, target.mu_cap),
            sigma=self.sigma,
        )

    def _tables(
        self, context: FitContext, loss: AutoencoderLoss, cells: Cells
    ) -> tuple[TableNoise | None, list[int]]:
        """Plan the releases of codes: spread over the steps, none before the first."""
        if not loss.n_releases or loss.penalty is None:
            return None, []
        if self.sigma is not None:
            raise ValueError(
                "sigma= fixes the noise of training, but not that of the distributions of codes. "
                'Use comparison="ranks" in the penalty, or leave sigma=None.'
            )
        n_steps = self._number_of_steps(sum(cells.sizes), _FEWEST_STEPS)
        wanted = min(loss.n_releases, n_steps)
        release_at = sorted({k * n_steps // wanted for k in range(wanted)})
        n_projections = len(loss.penalty.directions(np.random.default_rng(0)))
        mu, label = context.mu_share(TABLE_SHARE), "Codes, compared while training"
        noise = plan_tables(mu, len(release_at), n_projections, min(cells.sizes), label)
        return noise, release_at

    def _number_of_steps(self, n_samples: int, fewest: int) -> int:
        # Steps without noise cost no privacy, so that few rows are simply passed over more often.
        return self.n_steps or max(fewest, _EPOCHS * n_samples // self.batch_size)


def _warn_of_noise(
    caller: str, loss: AutoencoderLoss, plan: TrainingPlan, network: nn.Module, *, ranked: bool
) -> None:
    """Say before the charge, of public facts, that the noise will hide what rows have in common."""
    if plan.sigma == 0.0:
        return
    longest = plan.batch_size * (1.0 - loss.alpha) * loss.clip * math.sqrt(plan.n_steps)
    ratio = longest / (plan.sigma * math.sqrt(trained_numbers(network)))
    ranked = ranked and loss.penalty is not None and loss.alpha > 0
    if ratio < (_LEAST_SIGNAL_OF_RANKS if ranked else _LEAST_SIGNAL):
        instead = 'comparison="sketch" in the penalty, ' if ranked else ""
        warn_of_privacy(
            f"{caller} will learn little: over all steps its gradients are at most {ratio:.1f} "
            f"times as long as their noise. Use {instead}more rows, a larger epsilon, a smaller "
            "network, larger batches or public rows (private=False)."
        )


def _tensor(context: FitContext, bounds: DataBounds, rows: np.ndarray) -> torch.Tensor:
    units = bounds.to_units(rows).astype(np.float32)
    return torch.from_numpy(units).to(resolve_device(context.device) or "cpu")


def sketched_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    plan: TrainingPlan,
    noise: TableNoise,
    release_at: Sequence[int],
    streams: Streams,
    cells: Cells,
) -> GradientStep:
    """Make the steps of training by released distributions of codes."""
    penalty = cast("PriorDistance | ParityDistance", loss.penalty)
    batches, compared = plan.batches(streams.secret), penalty.compared
    directions = penalty.directions(streams.public)
    limits = compared.half_widths(directions)
    tables: OutputTables | None = None
    local: LocalPenalty | None = None

    def step(autoencoder: Any, number: int) -> None:
        nonlocal tables, local
        if number in release_at:
            encoder = deepcopy(autoencoder[:-1]).eval()
            codes = _codes(compared, encoder, rows)
            of = partial(_codes, compared, encoder.cpu())
            parts = (codes, cells.codes, cells.sizes, directions, limits, noise, streams.secret)
            tables = release_tables(*parts, previous=tables, values_of=lambda rows, _: of(rows))
            local = _local(loss, tables, codes, cells)
        total = loss.local_sum(autoencoder, rows, local, next(batches))
        facts = {"loss": loss, "cells": cells, "tables": tables}
        release_gradient(autoencoder, total, plan, streams.secret, facts, _sketched_part)

    return step


def _codes(compared: ComparedOutputs, encoder: nn.Module, rows: Any) -> np.ndarray:
    """Return the codes of rows in their units, shortened."""
    return compared.values(network_outputs(encoder, torch.as_tensor(rows).float())).cpu().numpy()


def _local(
    loss: AutoencoderLoss, tables: OutputTables, codes: np.ndarray, cells: Cells
) -> LocalPenalty:
    """Return the penalty of all records, whose codes were released."""
    if isinstance(loss.penalty, PriorDistance):
        own = tables.tables[0]
        levels = loss.penalty.cdf(own.edges + tables.centres[:, None])
        prior = CDFTable(own.directions, own.half_widths, levels)
        both = OutputTables((own, prior), tables.centres)
        pulls = both.pulls(both.projections(codes), 0, (1,)).T @ own.directions
        mean_square = own.directions.T @ own.directions / len(own.directions)
        stiffness = np.broadcast_to(mean_square, (len(codes), *mean_square.shape)).copy()
        return LocalPenalty(*map(torch.from_numpy, (codes, pulls, stiffness)))
    return LocalPenalty.of_release(tables, codes, cells)


def _sketched_part(
    autoencoder: Any,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    loss: AutoencoderLoss,
    cells: Cells,
    tables: OutputTables,
) -> dict[str, Any]:
    """Return what each record adds to `AutoencoderLoss.local_sum`."""
    rows = torch.from_numpy(records[0]).float()
    own = gradients_of_vectors(autoencoder, rows, by_jacobians(loss.clip), reconstruction_gradient)
    local = _local(loss, tables, tables.values_of(rows, codes), replace(cells, codes=codes))
    pulled = gradients_of_vectors(autoencoder[:-1], rows, loss.local_vectors(local))
    return {"rows": own.plus(pulled, loss.alpha)}


@dataclass(eq=False, repr=False)
class Gradient(Mechanism):
    """Noisy gradients of a generator, one per step.

    Training minimises the sliced Wasserstein distance between generated rows and a batch of private
    rows. Every step is a release and is charged.

    Parameters
    ----------
    batch_size : int, default=250
        Rows per step, capped at n.
    n_projections : int or "auto", default="auto"
        Number of directions per step; "auto" is about 64, in whole orthogonal blocks.
    projections : {"orthogonal", "uniform"}, default="orthogonal"
        How directions are drawn.
    n_latents : int, optional
        Generated points per step; by default the batch size.
    clip_jacobian : float, default=1.0
        The Jacobian of every output by all parameters is shortened to this spectral norm, from
        1e-30 to 1e30.
    sigma : float, optional
        Standard deviation of the noise on the batch size times the gradient; by default the least
        noise for `epsilon`. If given, `privacy_spent_` states the cost at `delta`, and bounds must
        be public.

    Privacy
    -------
    All steps together are one event under replace-one. Sensitivity:
    `skdpot.nets.compared_outputs.fixed_side_sensitivity`. Batches stay secret; directions are
    public.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, corrected.
    """

    batch_size: int = 250
    _: KW_ONLY
    n_projections: int | str = "auto"
    projections: str = "orthogonal"
    n_latents: int | None = None
    clip_jacobian: float = 1.0
    sigma: float | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "batch_size": [COUNT],
        "n_projections": [StrOptions({"auto"}), COUNT],
        "projections": [StrOptions({"orthogonal", "uniform"})],
        "n_latents": [Interval(Integral, 2, None, closed="left"), None],
        "clip_jacobian": [LENGTH],
        "sigma": [Interval(Real, 0, None, closed="left"), None],
    }

    def release(
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        n_steps: int | None,
        latent: LatentNetwork,
        learning_rate: float,
        callbacks: Sequence[Any] | None,
    ) -> MechanismResult:
        """Charge all steps, then train."""
        refuse_classes(self, conditional)
        n, d = rows.shape
        streams, latent_dim = context.streams, latent.dimension(d)
        network = latent.build(d, 0, _WIDTH, streams.solver)
        check_per_record(
            network, (latent_dim,), streams.solver, parameter="module", callbacks=callbacks
        )
        directions, plan = self._plan(context, network, n, d, n_steps)
        spent = context.charge(
            plan,
            ("the network and its initial weights",),
            f"{plan.n_steps} noisy gradients of the sliced Wasserstein distance to secret batches "
            f"of {plan.batch_size} rows",
            sigma_given=self.sigma is not None,
        )
        bounds = plan.bounds.settled(rows, streams)
        size = self.n_latents or plan.batch_size
        step = noisy_gradient_steps(
            bounds.to_units(rows.astype(np.float64, copy=False)),
            math.sqrt(d),
            plan,
            iter(directions),
            partial(draw_groups, latent_dim, 0, size, streams.solver),
            self.clip_jacobian,
            streams.secret,
        )
        train_to_the_end(
            network,
            step,
            plan.n_steps,
            learning_rate=learning_rate,
            rng=streams.solver,
            callbacks=callbacks,
            **context.training,
        )
        found = {"n_steps_": plan.n_steps, "_units": OutputUnits.of_ball(bounds)}
        found |= {"_latent_dim": latent_dim, "module_": network}
        return MechanismResult(None, bounds, spent, attributes=found)

    def _plan(
        self, context: FitContext, network: nn.Module, n: int, d: int, n_steps: int | None
    ) -> tuple[StepDirections, TrainingPlan]:
        """Settle directions, batches and noise from public facts."""
        size, n_projections = min(self.batch_size, n), self.n_projections
        if isinstance(n_projections, str):
            n_projections = d * max(1, round(_PROJECTIONS / d))
        n_steps = n_steps or epochs(n, size)
        public = context.streams.public
        directions = StepDirections(self.projections, n_steps, n_projections, d, public)
        known = public_bounds(context.bounds, context.norm_bound, d)
        plan = plan_training(
            context.target,
            n_samples=n,
            batch_size=size,
            n_steps=n_steps,
            sampling="without_replacement",
            sensitivity=fixed_side_sensitivity(
                math.sqrt(d), self.clip_jacobian, n_projections, directions.largest_norm
            ),
            n_parameters=trained_numbers(network),
            bounds=planned_bounds(known or n, d, context.target.mu_cap),
            sigma=self.sigma,
        )
        return directions, plan
