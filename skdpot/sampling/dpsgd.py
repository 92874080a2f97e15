"""DP-SGD, the mechanism of the autoencoder: noisy sums of clipped gradients."""

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch

from skdpot._utils.devices import resolve_device
from skdpot._utils.parameters import Interval, StrOptions
from skdpot.base import COUNT, LENGTH, FitContext, MechanismResult
from skdpot.exceptions import BudgetExceededError
from skdpot.nets.cells import Cells, warn_of_small_cells
from skdpot.nets.local_penalty import TABLE_SHARE
from skdpot.nets.loss_curve import LossCurve
from skdpot.nets.output_tables import TableNoise, plan_output_tables
from skdpot.nets.training import noisy_learning_rate, train_network, train_privately
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.privacy.charges import charge
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.reliability import Reliability
from skdpot.release.bounds import DataBounds, public_bounds
from skdpot.release.private_bounds import planned_bounds
from skdpot.sampling.autoencoder_mechanism import AutoencoderMechanism, AutoencoderTask
from skdpot.sampling.autoencoder_training import (
    AutoencoderLoss,
    private_steps,
    public_steps,
    reconstruction_losses,
    sketched_steps,
)
from skdpot.sampling.code_penalties import CodePenalty
from skdpot.sampling.training_reliability import training_reliability

# Number of steps by default. Steps without noise cost no privacy, so few public rows are passed
# over more often.
_EPOCHS = 40
_FEWEST_STEPS = 60
_FEWEST_PUBLIC_STEPS = 1500
_PUBLIC_RATE = 2e-3
_LARGEST_RATE = 0.03
# Below these ratios of the longest sum of gradients to its noise, reconstructions are as bad as the
# mean of the rows.
_LEAST_SIGNAL = 2.0
_LEAST_SIGNAL_OF_RANKS = 12.0


@dataclass(eq=False, repr=False)
class DPSGD(AutoencoderMechanism):
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
        "without_replacement" with a penalty by ranks: ranks couple the records of a batch, and the
        accounting then needs batches of a fixed size.
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
        self, penalty: CodePenalty | None, latent_dim: int, cells: Cells, *, on_sphere: bool
    ) -> AutoencoderLoss:
        """Return the objective, with the clipping of this mechanism."""
        if penalty is None:
            return AutoencoderLoss(clip=self.clip_gradient)
        by_sketch = penalty.comparison == "sketch" and penalty.alpha > 0
        return AutoencoderLoss(
            clip=self.clip_gradient,
            penalty=penalty.distance(
                on_sphere=on_sphere,
                cells=cells,
                latent_dim=latent_dim,
                batch_sizes=self.batch_sizes(cells),
            ),
            alpha=penalty.alpha,
            clip_jacobian=penalty.clip_jacobian,
            n_releases=penalty.n_releases if by_sketch else 0,
        )

    def batch_sizes(self, cells: Cells) -> tuple[int, ...]:
        """Return the number of records per batch of each group that is compared, or of all."""
        n_samples = sum(cells.sizes)
        if not cells.strata:
            return (min(self.batch_size, n_samples),)
        share = min(1.0, self.batch_size / n_samples)
        return cells.batch_sizes(share, parameter="batch_size")

    def release(
        self, context: FitContext, rows: np.ndarray, task: AutoencoderTask
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows: train the network in place."""
        autoencoder, loss, cells = task.autoencoder, task.loss, task.cells
        tables, release_at = self._plan_tables(context, task)
        plan = self._plan(context, task, rows.shape[1], tables)
        reliability = _reliability(task, plan)
        reliability.warn(context.caller)
        if tables is not None and cells.strata:
            warn_of_small_cells(context.caller, cells, tables.sigma)
        spent = context.charge(
            plan,
            ("the architecture and its initial weights", *task.public, *context.arithmetic),
            _described(plan, n_tables=len(release_at)),
            sigma_given=self.sigma is not None,
        )
        streams = context.streams
        bounds = plan.bounds.settled(rows, streams)
        mapped = _mapped(context, bounds, rows)
        if tables is None:
            step = private_steps(loss, mapped, plan, streams.secret, streams.public, cells)
        else:
            step = sketched_steps(loss, mapped, plan, tables, release_at, streams, cells)
        curve = LossCurve.of_plan(reconstruction_losses(loss, mapped, cells), plan)
        rate = noisy_learning_rate(self.learning_rate, autoencoder, plan.n_steps, _LARGEST_RATE)
        finished, stopped = train_privately(
            autoencoder,
            curve.told(step),
            plan.n_steps,
            learning_rate=rate,
            # Dropout masks depend on the other records of a Poisson batch: they must be secret.
            rng=streams.secret.generator(),
            callbacks=task.callbacks,
            **context.training,
        )
        if stopped is not None and (finished == 0 or isinstance(stopped, Exception)):
            raise stopped  # the number of finished steps would depend on the rows
        attributes = {"n_steps_": finished, "losses_": curve.table()}
        return MechanismResult(
            None,
            bounds,
            spent,
            attributes=attributes,
            reliability=reliability,
            foreseen=True,
            stopped=stopped,
        )

    def train_public(
        self,
        context: FitContext,
        rows: np.ndarray,
        task: AutoencoderTask,
        bounds: DataBounds,
        rng: np.random.Generator,
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
        loss, cells = task.loss, task.cells
        n_steps = self._number_of_steps(len(rows), _FEWEST_PUBLIC_STEPS)
        mapped = _mapped(context, bounds, rows)
        curve = LossCurve(reconstruction_losses(loss, mapped, cells), n_steps)
        train_network(
            task.autoencoder,
            curve.told(public_steps(loss, mapped, self.batch_sizes(cells), rng, cells.members)),
            n_steps,
            learning_rate=_PUBLIC_RATE if self.learning_rate == "auto" else self.learning_rate,  # type: ignore[arg-type]
            rng=rng,
            device=resolve_device(context.device),
            callbacks=task.callbacks,
            progress=context.progress(context.caller),
        )
        attributes = {"n_steps_": n_steps, "losses_": curve.table()}
        return MechanismResult(
            None, bounds, spent, attributes=attributes, reliability=Reliability(())
        )

    def _plan(
        self, context: FitContext, task: AutoencoderTask, n_features: int, tables: TableNoise | None
    ) -> TrainingPlan:
        """Determine batches and noise from public facts."""
        loss, cells = task.loss, task.cells
        sampling, by_ranks = self.sampling, loss.penalty is not None and tables is None
        if sampling == "auto":
            sampling = "without_replacement" if by_ranks else "poisson"
        elif sampling == "poisson" and by_ranks:
            raise ValueError(
                "A penalty compares the ranks of the codes of a batch, and the account of Poisson "
                'batches covers sums only. Use sampling="auto" or "without_replacement", '
                'or comparison="sketch".'
            )
        n_samples, target = sum(cells.sizes), context.target
        known = public_bounds(context.bounds, context.norm_bound, n_features)
        in_one = sampling == "poisson"  # one batch of all cells
        is_private = math.isfinite(target.epsilon)
        return plan_training(
            target,
            n_samples=n_samples if in_one else cells.sizes,
            batch_size=sum(self.batch_sizes(cells)) if in_one else self.batch_sizes(cells),
            others=(tables.event,) if tables is not None and is_private else (),
            n_steps=self._number_of_steps(n_samples, _FEWEST_STEPS),
            sampling=sampling,
            sensitivity=loss.sensitivity,
            n_parameters=trained_numbers(task.autoencoder),
            bounds=planned_bounds(known or n_samples, n_features, target.mu_cap),
            sigma=self.sigma,
        )

    def _plan_tables(
        self, context: FitContext, task: AutoencoderTask
    ) -> tuple[TableNoise | None, list[int]]:
        """Plan the releases of the distributions of codes, spread over the steps from step 0 on."""
        loss, sizes = task.loss, task.cells.sizes
        if not loss.n_releases or loss.penalty is None:
            return None, []
        if self.sigma is not None:
            raise ValueError(
                "sigma= fixes the noise of training, but not that of the distributions of codes. "
                'Use comparison="ranks" in the penalty, or leave sigma=None.'
            )
        n_steps = self._number_of_steps(sum(sizes), _FEWEST_STEPS)
        n_releases = min(loss.n_releases, n_steps)
        release_at = sorted({k * n_steps // n_releases for k in range(n_releases)})
        noise = plan_output_tables(
            context.mu_share(TABLE_SHARE),
            n_releases=len(release_at),
            n_projections=len(loss.penalty.directions(np.random.default_rng(0))),
            n_records=min(sizes),
            label="Codes, compared while training",
        )
        return noise, release_at

    def _number_of_steps(self, n_samples: int, fewest: int) -> int:
        return self.n_steps or max(fewest, _EPOCHS * n_samples // self.batch_size)


def _described(plan: TrainingPlan, n_tables: int) -> str:
    """Describe the releases for the privacy statement."""
    kind = "Poisson batches" if plan.sampling == "poisson" else "batches without replacement"
    batches = f"{kind} of {plan.batch_size} records"
    if len(plan.batch_sizes) > 1:
        batches += f" ({' + '.join(map(str, plan.batch_sizes))} by group)"
    if n_tables:
        batches += f", {n_tables} noisy distributions of all codes"
    return f"{plan.n_steps} noisy sums of clipped gradients over {batches}"


def _reliability(task: AutoencoderTask, plan: TrainingPlan) -> Reliability:
    """State the error of reconstructions, from public facts."""
    loss = task.loss
    by_ranks = plan.sampling != "poisson" and loss.penalty is not None and loss.alpha > 0
    instead = 'comparison="sketch" in the penalty, ' if by_ranks else ""
    return training_reliability(
        task.autoencoder,
        plan,
        longest=(1.0 - loss.alpha) * loss.clip,
        least=_LEAST_SIGNAL_OF_RANKS if by_ranks else _LEAST_SIGNAL,
        output="the reconstructions",
        trivial="the mean of the rows",
        advice=f"Use {instead}more rows, a larger epsilon, a smaller network, larger batches or "
        "public rows (private=False).",
    )


def _mapped(context: FitContext, bounds: DataBounds, rows: np.ndarray) -> torch.Tensor:
    """Return the rows in the units of the network, on the device of the fit."""
    units = bounds.to_units(rows).astype(np.float32)
    return torch.from_numpy(units).to(resolve_device(context.device) or "cpu")
