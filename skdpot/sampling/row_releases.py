r"""Noisy projections of rows, which the flow paper releases instead of a sketch.

Each step projects a secret batch of rows on new directions, adds Gaussian noise to every number and
sorts the noisy values along each direction. Flows and generators made from these releases are
post-processing.

*Sensitivity.* Rows :math:`u_i` of norm at most R are projected on the rows of :math:`\Theta` (L x
d). Replacing a record changes one row of :math:`U \Theta^T`, by :math:`\Theta (u - u')`, so that

.. math:: \Delta = \max_{\|u\|, \|u'\| \le R} \|\Theta (u - u')\|_2 = 2 R \|\Theta\|_2,

with the largest singular value of :math:`\Theta`. The upper bound follows from :math:`\|\Theta v\|
\le \|\Theta\|_2 \|v\|` and :math:`\|u - u'\| \le 2R`; the antipodal pair :math:`\pm R v_1`, with
the first right singular vector, attains it. For directions in d x d orthogonal blocks,
:math:`\Theta^T \Theta` is a sum of :math:`\lceil L/d \rceil` projections, which are identities
except for the last if it is truncated, so :math:`\|\Theta\|_2 = \sqrt{\lceil L / d \rceil}`.

*Rounding.* A projection must depend on one row alone, to the last bit, because the noise covers the
change of one record and not the rounding errors of others. The order of additions in a
floating-point matrix product depends on the shape of the batch, on threads and on the device. A
value near the edge between two lattice points could then move for a record that has not changed.

The product is therefore computed in fixed point. Rows are divided by the radius of the ball and cut
to 28 binary digits, directions are rounded to 23, and their products are integers in units of
:math:`2^{-51}`. Any partial sum over features is at most about 1 by Cauchy-Schwarz, far below
:math:`2^{53}` units, so double precision holds it exactly in any order of additions. Cutting
towards zero keeps rows in the ball, and the rounded directions are the published ones (single
precision holds them). The sensitivity is therefore that of exact projections.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from tqdm.auto import tqdm

from skdpot._utils.streams import SecretStream
from skdpot.exceptions import CalibrationError
from skdpot.ot.directions import make_directions
from skdpot.ot.flow_problems import ProjectedRows
from skdpot.privacy.batches import fixed_size_batches, poisson_batches
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.gdp import check_delta
from skdpot.privacy.noise import (
    MAX_S,
    check_counts,
    check_positive,
    gaussian_noise,
    lattice_noise,
    required_bits,
    round_to_lattice,
    rounded_sensitivity,
)
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.gate import pass_gate
from skdpot.release.private_bounds import BoundsPlan, planned_bounds
from skdpot.release.releases import Release

_ROW_UNITS = 2.0**28
_DIRECTION_UNITS = 2.0**23
_ROUNDING_SHARE = 1 / 1024  # share of the sensitivity that rounding to the lattice may add
_LATTICE_STEPS = 16.0  # fewest steps of the lattice per standard deviation of the noise
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class SmoothedProjections:
    """Noisy projections of one or several batches of rows, as they were released."""

    releases: tuple[Release, ...]

    @cached_property
    def batches(self) -> tuple[ProjectedRows, ...]:
        """Directions and noisy values of each release."""
        return tuple(ProjectedRows(r.facts["directions"], r.value) for r in self.releases)

    @property
    def bounds(self) -> DataBounds:
        """The bounds of the rows."""
        bounds: DataBounds = self.releases[0].facts["bounds"]
        return bounds

    @property
    def n_rows(self) -> float:
        """Mean number of rows in a batch."""
        return float(np.mean([batch.values.shape[1] for batch in self.batches]))

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the units of the mapped rows; 0 without privacy."""
        return float(np.max(self.releases[0].sigma))


class StepDirections:
    """The directions of all steps, drawn from a seed: each iteration yields the same ones.

    The sensitivity depends on the directions of all steps and must be known before the first step.
    A seed takes less memory than `n_steps` matrices.
    """

    def __init__(
        self,
        projections: str,
        n_steps: int,
        n_projections: int,
        n_features: int,
        rng: np.random.Generator,
    ) -> None:
        self.projections, self.n_steps = projections, int(n_steps)
        self.n_projections, self.n_features = int(n_projections), n_features
        self._seed = rng.integers(0, 2**63, size=4).tolist()

    def __len__(self) -> int:
        """Return the number of steps."""
        return self.n_steps

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield directions of shape (n_projections, n_features), float32, on their grid."""
        rng = np.random.default_rng(self._seed)
        for _ in range(self.n_steps):
            directions = make_directions(self.projections, self.n_projections, self.n_features, rng)
            yield on_direction_grid(directions)

    @cached_property
    def largest_norm(self) -> float:
        r"""Upper bound of the largest singular value of the directions of any step.

        For orthogonal blocks it is ``sqrt(ceil(L / d))``. Rounding each entry to the grid adds at
        most the Frobenius norm of the errors, :math:`2^{-24} \sqrt{L d}`, and a computed matrix is
        orthogonal up to :math:`O(d^{5/2})` machine epsilons [1]_. Independent directions are drawn
        and measured.

        References
        ----------
        .. [1] N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, theorem 19.4.
        """
        if self.projections == "uniform":
            return max(spectral_norm(directions) for directions in self)
        d = self.n_features
        computed = 1.0 + 16.0 * math.pow(d, 2.5) * float(np.finfo(np.float64).eps)
        blocks = n_orthogonal_blocks(self.n_projections, d)
        return math.sqrt(blocks) * computed + 2.0**-24 * math.sqrt(self.n_projections * d)


def n_orthogonal_blocks(n_projections: int, n_features: int) -> float:
    """Return the number of orthogonal blocks, of which the last may be truncated."""
    return math.ceil(n_projections / n_features)


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """The public parameters of one release of projected rows; `event` covers everything."""

    directions: StepDirections
    n_samples: int
    batch_size: int
    sampling: str
    bounds: DataBounds | BoundsPlan
    unit: float  # the public radius of the rows, or 1 if the radius is estimated first
    sensitivity: float  # of one release under replace-one, with rounding; see `sigma`
    event: Event = NonPrivateEvent()

    @property
    def all_rows(self) -> bool:
        """Whether every release holds all rows."""
        return self.batch_size >= self.n_samples

    @property
    def noise(self) -> Any:
        """The part of the event that pays for the rows."""
        return self.event.phases[-1]

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, 0 without privacy. Over `unit`: in radii of the ball."""
        return getattr(self.noise, "sigma", 0.0)

    @property
    def lattice(self) -> float | None:
        """Spacing of the noise as a share of the radius, a power of two; None without a lattice."""
        lattice: float | None = getattr(self.noise, "lattice", None)
        return None if lattice is None else lattice / self.unit

    @property
    def step_mu(self) -> float:
        """Mu of one release for the rows in its batch; its leak is charged once per step."""
        mu: float = self.noise.mu
        return mu / math.sqrt(len(self.directions)) if self.all_rows else mu

    @property
    def mechanism(self) -> str:
        """Description of the releases for the privacy statement."""
        n_steps = len(self.directions)
        along = f"along {self.directions.n_projections} {self.directions.projections} directions"
        units = "" if isinstance(self.bounds, DataBounds) else ", noise in shares of the radius"
        if self.all_rows:
            times = "" if n_steps == 1 else f", {n_steps} times"
            return f"noisy projections of all rows {along}{times}{units}"
        size = f"about {self.batch_size}" if self.sampling == "poisson" else self.batch_size
        return f"noisy projections of {n_steps} secret batches of {size} rows {along}{units}"

    def batches(self, stream: SecretStream) -> Iterator[npt.NDArray[np.intp] | slice]:
        """Yield the members of each step's batch."""
        n, size, n_steps = self.n_samples, self.batch_size, len(self.directions)
        if self.all_rows:
            return iter([slice(None)] * n_steps)
        if self.sampling == "poisson":
            return poisson_batches(n, size / n, n_steps, stream)
        return fixed_size_batches(n, size, n_steps, stream)


def plan_rows(
    target: PrivacyTarget,
    directions: StepDirections,
    n_samples: int,
    *,
    bounds: DataBounds | int,
    batch_size: int | None = None,
    sampling: str = "without_replacement",
    sigma: float | None = None,
    noise: str = "discrete",
) -> RowPlan:
    """Choose the least noise that meets a target, or compute the cost of given noise."""
    no_noise = sigma == 0 or (sigma is None and math.isinf(target.epsilon))
    if sigma and not isinstance(bounds, DataBounds):
        raise ValueError(
            "sigma= is in the units of the mapped rows, which bounds='private' fixes only after "
            "a part of the budget was spent: give bounds=(low, high) or norm_bound=, or leave "
            "sigma=None to calibrate it to epsilon."
        )
    mu = math.inf if no_noise else target.mu_cap
    limits = planned_bounds(bounds, directions.n_features, mu)
    unit = limits.radius if isinstance(limits, DataBounds) else 1.0
    exact = 2.0 * directions.largest_norm * (1.0 + 1e-15)
    n_projections, size = directions.n_projections, int(min(batch_size or n_samples, n_samples))
    plan = RowPlan(
        directions=directions,
        n_samples=n_samples,
        batch_size=size,
        sampling=sampling,
        bounds=limits,
        unit=unit,
        sensitivity=exact * unit,
    )
    if no_noise:
        return plan

    def fit_event(sigma: float) -> Event:
        sensitivity, lattice = exact, None
        if noise == "discrete":
            # A power of two, small compared with the sensitivity and with the noise.
            rounding = exact * _ROUNDING_SHARE / math.sqrt(n_projections)
            steps = min(rounding, sigma / unit / _LATTICE_STEPS)
            share = float(2.0 ** math.floor(math.log2(steps)))
            sensitivity = rounded_sensitivity(exact, share, n_projections)
            lattice = share * unit
        shared: dict[str, Any] = {
            "sigma": sigma,
            "sensitivity": sensitivity * unit * (1.0 + 1e-15),
            "n_steps": len(directions),
            "lattice": lattice,
            "label": "Noisy rows",
        }
        if plan.all_rows:
            return limits.before(GaussianEvent(**shared))
        drawn: dict[str, Any] = {"batch_sizes": (size,), "group_sizes": (n_samples,)}
        kind = "fixed_size"
        if sampling == "poisson":
            drawn = {"sampling_rate": size / n_samples, "n_samples": n_samples}
            kind = "poisson_rows"
        return limits.before(SampledGaussianEvent(sampling=kind, **drawn, **shared))

    event = fit_event(sigma) if sigma else calibrate(target, fit_event)
    plan = replace(plan, sensitivity=event.phases[-1].sensitivity, event=event)
    if plan.lattice is None:
        return plan
    # Noise that cannot be drawn is refused before any charge.
    s = plan.sigma / (plan.lattice * plan.unit)
    if s > MAX_S:
        raise CalibrationError(
            f"sigma = {plan.sigma:.4g} is more than 2**40 times the lattice of the rows: epsilon "
            "is too small, or sigma too large, to learn anything."
        )
    try:
        required_bits(s, plan.step_mu)
    except CalibrationError as error:
        raise CalibrationError(f'{error} noise="float" draws it without a guarantee.') from error
    return plan


def noisy_batches(
    rows: npt.NDArray[Any],
    plan: RowPlan,
    bounds: DataBounds,
    stream: SecretStream,
    progress: str | None = None,
) -> Iterator[Release]:
    """Yield the noisy projections of each step's batch; the caller has charged the event."""
    steps = zip(plan.directions, plan.batches(stream), strict=True)
    n_steps = len(plan.directions)
    for theta, batch in tqdm(steps, desc=progress, disable=progress is None, total=n_steps):
        members = rows[batch]
        values = np.empty((len(theta), len(members)), dtype=np.float32)
        for start in range(0, len(members), _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            exact = project_rows(bounds.to_ball(members[block]), theta, bounds.radius)
            values[:, block] = _with_noise(exact, plan, stream) * bounds.radius
        values = sorted_along(values)
        release = Release(
            "rows",
            values,
            {"bounds": bounds, "directions": theta},
            sigma=plan.sigma / plan.unit * bounds.radius,
            lattice=None if plan.lattice is None else plan.lattice * bounds.radius,
            sensitivity=plan.sensitivity / plan.unit * bounds.radius,
            event=plan.noise,
        )
        value = pass_gate(release)  # also an empty one, which keeps its place
        if value.shape[1]:
            yield replace(release, value=value)


def sorted_along(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Sort the noisy values along each direction, which removes the order of the rows."""
    values.sort(axis=1)
    return values


def _with_noise(
    exact: npt.NDArray[np.float64], plan: RowPlan, stream: SecretStream
) -> npt.NDArray[np.float64]:
    """Add noise to projections in shares of the radius."""
    lattice = plan.lattice
    if lattice is not None:
        units = lattice_noise(
            plan.sigma, exact.shape, stream, lattice=lattice * plan.unit, mu=plan.step_mu
        )
        units += round_to_lattice(exact, lattice)
        return units.astype(np.float64) * lattice
    if plan.sigma > 0:
        exact += gaussian_noise(plan.sigma / plan.unit, exact.shape, stream)
    return exact


def on_direction_grid(directions: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Round directions to multiples of 2**-23, which single precision holds exactly."""
    return (np.rint(directions * _DIRECTION_UNITS) / _DIRECTION_UNITS).astype(np.float32)


def project_rows(
    rows: npt.NDArray[Any], directions: npt.NDArray[np.float32], radius: float
) -> npt.NDArray[np.float64]:
    """Project rows of a ball on directions of the grid, in shares of the radius."""
    cut = np.trunc(rows.astype(np.float64) / radius * _ROW_UNITS)
    projected = (directions.astype(np.float64) * _DIRECTION_UNITS) @ cut.T
    projected /= _ROW_UNITS * _DIRECTION_UNITS
    return projected


def projection_sensitivity(directions: npt.NDArray[Any], radius: float) -> float:
    """Return the exact replace-one L2 sensitivity of projections of rows in a ball."""
    check_positive(radius=radius)
    return 2.0 * radius * spectral_norm(directions) * (1.0 + 1e-15)


def spectral_norm(directions: npt.NDArray[Any]) -> float:
    r"""Return an upper bound of the largest singular value, tight up to rounding.

    Its square is the largest eigenvalue of the smaller Gram matrix. The error of this matrix is at
    most :math:`\gamma_k \| |\Theta| \|_2^2 \le \gamma_k \min(L, d) \|\Theta\|_2^2` with :math:`k =
    \max(L, d)`, and that of its eigenvalues a modest multiple of the dimension times the machine
    epsilon. Four times the first error covers both.
    """
    theta = np.asarray(directions, dtype=np.float64)
    if theta.ndim != 2 or theta.size == 0 or not np.isfinite(theta).all():
        raise ValueError(
            "`directions` must be a finite matrix of shape (n_projections, n_features), got shape "
            f"{theta.shape}."
        )
    largest = float(np.abs(theta).max()) or 1.0
    theta = theta / largest  # squares of very large or small entries would not be finite
    gram = theta @ theta.T if len(theta) <= theta.shape[1] else theta.T @ theta
    slack = 4.0 * (theta.size + 16) * float(np.finfo(np.float64).eps)
    return largest * math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0) * (1.0 + slack))


def lemma1_sensitivity(
    n_projections: int, n_features: int, delta: float, *, radius: float = 1.0
) -> float:
    r"""Return the sensitivity bound of the flow paper, for comparison only.

    With random unit directions :math:`\|\Theta v\|^2 \le w \|v\|^2` for one *fixed* v with
    probability about :math:`1 - \delta` over the draw,

    .. math:: w = \frac{L}{d} + \frac{z_{1-\delta}}{d} \sqrt{\frac{2 L (d-1)}{d+2}}.

    This does not suffice for privacy. It holds for one fixed pair of rows instead of the worst
    pair, and fails with probability about delta *per draw*, so T draws with a record can add T
    times delta to the δ of a statement. `projection_sensitivity` always holds, and is smaller for
    orthogonal directions.

    References
    ----------
    .. [1] A. Rakotomamonjy, L. Ralaivola, "Differentially Private Sliced Wasserstein Distance",
       2021.
    .. [2] "Differentially Private Gradient Flow based on the Sliced Wasserstein Distance",
       lemma 1 (equation 23).
    """
    check_counts(n_projections=n_projections, n_features=n_features)
    check_delta(delta)
    check_positive(radius=radius)
    d = n_features
    spread = math.sqrt(2.0 * n_projections * (d - 1) / (d + 2)) / d
    squared = n_projections / d + float(ndtri(1.0 - delta)) * spread
    return 2.0 * radius * math.sqrt(max(squared, 0.0))
