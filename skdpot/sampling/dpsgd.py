"""DP-SGD: of an autoencoder, with penalties of its codes, and of a generator."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import Interval, StrOptions, resolve_device
from skdpot.base import COUNT, LENGTH, FitContext, Mechanism, MechanismResult
from skdpot.exceptions import BudgetExceededError, warn_of_privacy
from skdpot.nets.cells import Cells, warn_of_small_cells
from skdpot.nets.local_penalty import TABLE_SHARE
from skdpot.nets.loss_curve import LossCurve
from skdpot.nets.output_tables import TableNoise, plan_output_tables
from skdpot.nets.training import (
    noisy_learning_rate,
    train_network,
    train_privately,
)
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.spent import charge
from skdpot.release.bounds import DataBounds, planned_bounds, public_bounds
from skdpot.sampling.autoencoder_training import (
    AutoencoderLoss,
    private_steps,
    public_steps,
    reconstruction_losses,
    sketched_steps,
)
from skdpot.sampling.code_penalties import CodeParity, PriorPenalty

_EPOCHS = 40
_FEWEST_STEPS = 60
_FEWEST_PUBLIC_STEPS = 1500
_PUBLIC_RATE = 2e-3
_LARGEST_RATE = 0.03
_LEAST_SIGNAL = 2.0
_LEAST_SIGNAL_OF_RANKS = 12.0


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
        noise = plan_output_tables(mu, len(release_at), n_projections, min(cells.sizes), label)
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
