"""The private gradient of a Wasserstein distance, for training loops of users."""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from itertools import compress
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from torch import nn

from skdpot._utils.parameters import Interval, StrOptions, check_parameters
from skdpot._utils.rows import read_rows
from skdpot._utils.streams import Streams, spawn_streams
from skdpot.exceptions import publishable
from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.gradient_release import release_gradient
from skdpot.nets.gradients import by_jacobians, by_rows, pulled_back_sum
from skdpot.nets.parity_penalty import fixed_side_sensitivity, moving_side_sensitivity
from skdpot.nets.per_record_check import check_per_record
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.ot.transport import pulls_between, sliced_distance
from skdpot.privacy.batches import fixed_size_batches
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import charge, row_assumptions
from skdpot.privacy.noise import LatticeNoise
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.targets import privacy_target

# Constraints of parameters; the limits of lengths are far from under- and overflow.
_COUNT = Interval(Integral, 1, None, closed="left")
_LENGTH = Interval(Real, 1e-30, 1e30, closed="both")
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, kw_only=True)
class _Sides:
    """Two sets of points; the first or both are outputs of a network."""

    n_outputs: int
    both_move: bool
    clip_output: float
    clip_jacobian: float
    clipping: str
    n_projections: int  # in whole orthogonal blocks

    def sensitivity(self, sizes: Sequence[int], private: Sequence[bool]) -> float:
        """Bound how far a private record moves the mean gradient, under replace-one in its side.

        Theorem A.1 of the paper with the constants of `moving_side_sensitivity`, with L₂ = 0 if the
        other points do not move, and of `fixed_side_sensitivity` for points that do not move. A
        Jacobian whose k rows are each shortened to L / √k has a Frobenius norm, and so a spectral
        norm, of at most L (remark A.2).
        """
        length, radius = self.clip_jacobian, self.clip_output
        bound = moving_side_sensitivity(
            2.0 * radius, clip_own=length, clip_other=length if self.both_move else 0.0
        )
        bounds = [bound, bound]
        if not self.both_move:
            bounds[1] = fixed_side_sensitivity(
                radius,
                clip_jacobian=length,
                n_projections=self.n_projections,
                directions_norm=math.sqrt(self.n_projections / self.n_outputs),  # whole blocks
            )
        sides = zip(bounds, sizes, private, strict=True)
        return max(b / n for b, n, is_private in sides if is_private)

    def clipped_sum(
        self, network: nn.Module, batch: Sequence[torch.Tensor], directions: np.ndarray
    ) -> tuple[dict[nn.Parameter, torch.Tensor], list[np.ndarray]]:
        """Return the clipped gradient and the points that were compared.

        The sum is not private by itself. Replacing a record moves it by at most `sensitivity`.
        """
        n_moving = 2 if self.both_move else 1
        moving = torch.cat(list(batch[:n_moving]))
        ball = ClippedOutputs(self.n_outputs, self.clip_output)
        outputs = [record_outputs(network, chunk) for chunk in moving.split(_ROWS_AT_ONCE)]
        outputs = [*torch.cat(outputs).split([len(side) for side in batch[:n_moving]])]
        points = [ball.values(p.cpu().double()).numpy() for p in (*outputs, *batch[n_moving:])]
        pulls = np.concatenate(pulls_between(points, directions, n_moving=n_moving))
        shorten = by_jacobians if self.clipping == "spectral" else by_rows
        vectors = shorten(self.clip_jacobian, torch.from_numpy(pulls).to(moving.device))
        return pulled_back_sum(network, moving, vectors), points


@dataclass(eq=False, repr=False)
class PrivateWassersteinGradient(BaseEstimator):
    r"""Noisy gradients of a squared sliced Wasserstein distance, to train any network of torch.

    X or Z or both are private. Let :math:`P` be the distribution of ``network(X)``, and :math:`Q`
    that of ``network(Z)``, or of Z itself. Each step of `steps` stores a differentially private
    gradient of :math:`SW_2^2(P, Q)` by the parameters of the network in their ``grad``, and your
    optimizer takes the step. Clipping, batches and accounting are those of the paper below.

    The fair predictors, `skdpot.mechanisms.Gradient` and `skdpot.mechanisms.CodeParity` train with
    such gradients. Use this class for objectives that no estimator has. It releases a gradient in
    each step. Where two *distributions* suffice, a `SlicedSketch` of each, released once, needs far
    less noise.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of all steps together; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of all steps together, in (0, 1).
    private : {"both", "X", "Z"}, default="both"
        Whose rows are private. A neighbour has one row of a private side replaced.
    other : {"network", "fixed"}, default="network"
        "network": the second side is ``network(Z)``, as between groups or domains. "fixed": Z are
        points in the space of the outputs, which do not move: samples of a prior, or rows that
        a generator is to resemble.
    n_steps : int, default=200
        Number of steps.
    batch_fraction : float, default=0.2
        Share of each side in the batch of a step, in (0, 1]; rounded down, at least one.
    n_projections : int, default=50
        Directions per step, rounded up to whole orthogonal blocks.
    clip_output : float, default=1.0
        M: outputs and fixed points count as shortened to this norm.
    clip_jacobian : float, default=1.0
        L: largest spectral norm of the Jacobian of a row's output by all parameters.
    clipping : {"spectral", "rows"}, default="spectral"
        "spectral" shortens a Jacobian as a whole. "rows" shortens its k rows, each to
        :math:`L / \sqrt k`, as the paper's experiments do.
    clip_noisy : float, optional
        Largest norm of the noisy gradient that the optimizer is given. Post-processing.
    sigma : float, optional
        Standard deviation of the noise on the gradient times the number of private rows in a batch;
        by default the least noise for `epsilon`. If given, `privacy_spent_` states the cost.
    budget : PrivacyBudget, optional
        Shared budget that all steps are charged to, before the first.
    random_state : int, RandomState or None, default=None
        Seed of directions, batches and noise. For tests only: it lets anyone remove the noise.

    Attributes
    ----------
    privacy_spent_ : PrivacySpent
        Cost of all steps and their assumptions.
    losses_ : list of float
        Squared distance of each batch before its step, recorded without noise and therefore only
        for a training without noise.

    Privacy
    -------
    All steps are one event under replace-one within a private side, charged when the first is asked
    for. Batches of fixed sizes are drawn from each side; they are secret, directions are public.
    With b rows of X and c of Z in a batch, the gradient moves by at most :math:`8 M L / \min(b, c)`
    if both sides are private outputs, :math:`8 M L / b` for private X, and :math:`4 M L / (c \sqrt
    k)` for private fixed points of k numbers (`skdpot.nets.parity_penalty` has the proofs).
    Public: the sizes of both sides, the network and its initial weights, and all rows of a side
    that is not private. Nothing else may read the rows: a loss of your own on private rows is not
    accounted for.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, theorem A.1, remark A.2 and appendix C.

    Examples
    --------
    Move points, which are private, to a circle of points, which are private as well:

    >>> import numpy as np, torch
    >>> from skdpot.nets import PrivateWassersteinGradient
    >>> rng = np.random.default_rng(0)
    >>> X, angles = rng.normal(size=(4000, 2)), rng.uniform(0, 2 * np.pi, 5000)
    >>> Z = 0.75 * np.column_stack([np.cos(angles), np.sin(angles)])
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(),
    ...                               torch.nn.Linear(16, 2))
    >>> optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    >>> gradient = PrivateWassersteinGradient(epsilon=2.0, other="fixed", n_steps=20)
    >>> for step in gradient.steps(network, X, Z):
    ...     optimizer.step()
    >>> gradient.privacy_spent_.epsilon
    2.0
    """

    epsilon: float = 1.0
    _: KW_ONLY
    delta: float = 1e-5
    private: str = "both"
    other: str = "network"
    n_steps: int = 200
    batch_fraction: float = 0.2
    n_projections: int = 50
    clip_output: float = 1.0
    clip_jacobian: float = 1.0
    clipping: str = "spectral"
    clip_noisy: float | None = None
    sigma: float | None = None
    budget: PrivacyBudget | None = None
    random_state: int | np.random.RandomState | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: PrivateEstimatorMixin._parameter_constraints[name]
            for name in ("epsilon", "delta", "budget", "random_state")
        },
        "private": [StrOptions({"both", "X", "Z"})],
        "other": [StrOptions({"network", "fixed"})],
        "n_steps": [_COUNT],
        "batch_fraction": [Interval(Real, 0, 1, closed="right")],
        "n_projections": [_COUNT],
        "clip_output": [_LENGTH],
        "clip_jacobian": [_LENGTH],
        "clipping": [StrOptions({"spectral", "rows"})],
        "clip_noisy": [_LENGTH, None],
        "sigma": [Interval(Real, 0, 1e30, closed="both"), None],
    }

    def steps(self, network: nn.Module, X: ArrayLike, Z: ArrayLike) -> Iterator[int]:
        """Charge all steps; return an iterator of their numbers, each with its gradient in place.

        Parameters
        ----------
        network : torch.nn.Module
            Maps each row by itself to a vector. Gradients are computed on a copy in evaluation
            mode, so that no buffer or hook of the network sees a row.
        X : array-like of shape (n, n_features)
            Rows of the first side.
        Z : array-like of shape (m, n_features) or (m, n_outputs)
            Rows of the second side, or fixed points.

        Returns
        -------
        iterator of int
            The number of each step. Every trained parameter has the noisy gradient as ``grad``.
            Change the parameters by these gradients alone.

        Raises
        ------
        ValueError
            If parameters, network or rows are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged.
        """
        check_parameters(self)
        streams = spawn_streams(self.random_state, type(self).__name__)
        copied, rows = deepcopy(network).eval(), [read_rows(side) for side in (X, Z)]
        check_per_record(deepcopy(network), rows[0].shape[1:], streams.solver, parameter="network")
        sides = self._sides(copied, rows)
        private = [self.private in ("both", side) for side in "XZ"]
        sizes = [max(1, math.floor(self.batch_fraction * len(side))) for side in rows]
        numbers = [list(compress(counts, private)) for counts in (map(len, rows), sizes)]
        plan = plan_training(
            privacy_target(self.epsilon, self.delta, self.budget),
            n_samples=numbers[0],
            batch_size=numbers[1],
            n_steps=self.n_steps,
            sampling="without_replacement",
            sensitivity=sum(numbers[1]) * sides.sensitivity(sizes, private),
            n_parameters=trained_numbers(copied),
            sigma=self.sigma,
        )
        others = [f"the rows of {side}" for side in compress("XZ", np.logical_not(private))]
        facts = row_assumptions(
            declared_bounds=False,
            seeded=streams.secret.reproducible,
            records=("the number of rows of each side", "each person contributes one row in all"),
            others=(*others, "the network and its initial weights"),
        )
        self.privacy_spent_ = charge(
            self,
            plan.event,
            n_samples=plan.n_samples,
            assumptions=facts,
            mechanism=f"{self.n_steps} noisy gradients of the sliced Wasserstein distance between "
            f"batches of {sizes[0]} and {sizes[1]} rows",
            scales=(plan.sigma, plan.sensitivity),
            noise_given=self.sigma is not None,
        )
        self.losses_: list[float] = []
        device = next(copied.parameters()).device
        tensors = [torch.from_numpy(side).float().to(device) for side in rows]
        batches = _batches(plan.n_steps, sizes, private, [len(side) for side in rows], streams)
        return self._steps(network, copied, tensors, sides, plan, batches, streams)

    def _steps(
        self,
        network: nn.Module,
        copied: nn.Module,
        rows: Sequence[torch.Tensor],
        sides: _Sides,
        plan: TrainingPlan,
        batches: Iterator[Sequence[np.ndarray]],
        streams: Streams,
    ) -> Iterator[int]:
        """Release the gradient of each step on a copy, and pass it on to the caller's network."""
        pairs = list(zip(copied.parameters(), network.parameters(), strict=True))
        ball = ClippedOutputs(sides.n_outputs, sides.clip_output)
        for number, secret in enumerate(batches):
            with torch.no_grad():
                for parameter, current in pairs:
                    parameter.copy_(current)
            directions = ball.directions(sides.n_projections, streams.public)
            drawn = [torch.from_numpy(indices).to(rows[0].device) for indices in secret]
            batch, stopped = [side[of] for side, of in zip(rows, drawn, strict=True)], None
            try:
                total, points = sides.clipped_sum(copied, batch, directions)
            except BaseException as error:
                stopped = publishable(error, type(self).__name__)
            if stopped is not None:
                raise stopped
            self._record_loss(points, directions, noise=plan.noise)
            total = {p: plan.batch_size * value for p, value in total.items()}
            facts = {"directions": directions}
            release_gradient(copied, total, plan, streams.secret, facts, _no_linear_map)
            if self.clip_noisy is not None:
                nn.utils.clip_grad_norm_(list(total), self.clip_noisy)
            for parameter, current in pairs:
                current.grad, parameter.grad = parameter.grad, None
            yield number

    def _record_loss(
        self, points: Sequence[np.ndarray], directions: np.ndarray, noise: LatticeNoise | None
    ) -> None:
        """Record the squared distance of a batch, only for a training without noise."""
        if noise is None:
            distance = sliced_distance(points[0], points[1], directions)
            self.losses_.append(distance**2)

    def _sides(self, network: nn.Module, rows: Sequence[np.ndarray]) -> _Sides:
        """Check the widths of both sides; return their description."""
        both_move = self.other == "network"
        with torch.no_grad():
            probe = torch.zeros((2, rows[0].shape[1]), device=next(network.parameters()).device)
            outputs = network(probe)
        if outputs.ndim != 2:
            raise ValueError("network must map each row to a vector: add torch.nn.Flatten().")
        wanted = rows[0].shape[1] if both_move else outputs.shape[1]
        if rows[1].shape[1] != wanted:
            like = "as X has" if both_move else 'as network has outputs, with other="fixed"'
            raise ValueError(f"Z has {rows[1].shape[1]} columns; it must have {wanted}, {like}.")
        n_outputs = outputs.shape[1]
        return _Sides(
            n_outputs=n_outputs,
            both_move=both_move,
            clip_output=float(self.clip_output),
            clip_jacobian=float(self.clip_jacobian),
            clipping=self.clipping,
            n_projections=n_outputs * math.ceil(self.n_projections / n_outputs),
        )


def _batches(
    n_steps: int,
    sizes: Sequence[int],
    private: Sequence[bool],
    lengths: Sequence[int],
    streams: Streams,
) -> Iterator[Sequence[np.ndarray]]:
    """Yield the batch of each side for each step; batches of private sides are secret."""
    secret = [
        fixed_size_batches(n, size, n_steps, streams.secret) if is_private else None
        for n, size, is_private in zip(lengths, sizes, private, strict=True)
    ]
    for _ in range(n_steps):
        yield [
            streams.public.choice(n, size, replace=False) if draws is None else next(draws)
            for n, size, draws in zip(lengths, sizes, secret, strict=True)
        ]


def _no_linear_map(*_: Any, **facts: Any) -> dict[str, Any]:
    """Return no contributions: ranks couple the records of a batch."""
    return {}
