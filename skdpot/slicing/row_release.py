"""Noisy projections of private rows: the mechanism of the flow paper, released once.

Each step projects a secret batch of rows on fresh directions and adds Gaussian noise to every
number; what is released is sorted along each direction after the noise. Everything is drawn
and frozen here, so that flows and generators made of it afterwards are post-processing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from skdpot._utils.rng import SecretStream, Streams
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import PrivacyTarget
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.noise import gaussian_noise, lattice_noise
from skdpot.privacy.private_bounds import release_private_bounds
from skdpot.privacy.provenance import warn_of_composition
from skdpot.privacy.recording import Release, released
from skdpot.privacy.spent import PrivacySpent, charge
from skdpot.privacy.subsampling import fixed_size_batches, poisson_batches
from skdpot.slicing.declarations import assumptions
from skdpot.slicing.exact_projection import project_rows, project_to_lattice
from skdpot.slicing.row_plan import RowParameters, RowPlan, one_step_mu, plan_rows
from skdpot.slicing.rules import public_bounds
from skdpot.slicing.smoothed import ProjectedRows, SmoothedProjections
from skdpot.slicing.step_directions import StepDirections, fresh_directions

__all__ = ["SmoothedRelease", "release_projections"]

_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class SmoothedRelease:
    """A release of noisy projections with its bounds and its privacy statement.

    Parameters
    ----------
    projections : SmoothedProjections
        Directions and sorted noisy values, in the units of the mapped rows.
    bounds : DataBounds
        Map from the data to the ball.
    privacy_spent : PrivacySpent
        What the release cost.
    """

    projections: SmoothedProjections
    bounds: DataBounds
    privacy_spent: PrivacySpent


def release_projections(
    label: str,
    streams: Streams,
    rows: npt.NDArray[Any],
    target: PrivacyTarget,
    parameters: RowParameters,
    *,
    bounds: Any,
    norm_bound: float | None = None,
    budget: PrivacyBudget | None = None,
    X: Any = None,
    progress: str | None = None,
) -> SmoothedRelease:
    """Plan, charge, and only then look at the rows and draw the noise.

    Parameters
    ----------
    label : str
        Name in the budget's history.
    streams : Streams
        Secret noise and batches, public directions.
    rows : ndarray of shape (n_samples, n_features)
        Private rows, validated.
    target : PrivacyTarget
        Epsilon and delta of the whole release; with ``parameters.sigma`` only delta is used.
    parameters : RowParameters
        Steps, directions, batches and noise.
    bounds : "private" or (low, high)
        What is known about the range of each feature, as in `SlicedSketch`.
    norm_bound : float, optional
        Public bound of the norm of every row.
    budget : PrivacyBudget, optional
        Shared budget that the release is charged to.
    X : object, optional
        What the caller's ``fit`` was given, to warn when it comes from another private step.
    progress : str, optional
        Label of a progress bar over the steps; None shows none.

    Returns
    -------
    SmoothedRelease
        With one batch a step. Poisson samples can be empty; those are left out.

    Raises
    ------
    ValueError
        If parameters are not usable; nothing is charged. If every Poisson sample is empty.
    CalibrationError
        If no noise meets the target. Nothing is charged.
    BudgetExceededError
        If `budget` cannot pay. Nothing is charged.

    Privacy
    -------
    Releases ``Θ_k B_kᵀ + noise`` for the batches B_k of all steps, as one event under
    replace-one with sensitivity ``2 R max_k ‖Θ_k‖₂``, after the two events of the bounds when
    these are private. Batches stay secret; their sizes and all directions are public. Sorting
    after the noise leaves nothing of the order of the rows.
    """
    n_samples, n_features = rows.shape
    known = public_bounds(bounds, norm_bound, n_features)
    directions = fresh_directions(
        parameters.slices, parameters.n_steps, parameters.n_slices, n_features, streams.public
    )
    plan = plan_rows(
        target,
        parameters,
        n_samples,
        n_features,
        bounds=known or n_samples,
        directions_norm=directions.largest_norm,
    )
    spent = charge(
        budget,
        plan.event,
        epsilon=target.epsilon if parameters.sigma is None else None,
        delta=target.delta,
        n_samples=n_samples,
        label=label,
        assumptions=_assumptions(plan, known, streams),
        sigma=plan.sigma,
        sensitivity=plan.sensitivity,
        mechanism=plan.mechanism,
    )
    warn_of_composition(X, spent, budget, label)
    if isinstance(plan.bounds, DataBounds):
        found = plan.bounds
    else:
        found, _ = release_private_bounds(rows, plan.bounds, streams)
    batches = tuple(_released(rows, plan, found, directions, streams.secret, progress))
    if not batches:
        raise ValueError(
            "Every Poisson sample came out empty, so nothing was released; what was charged is "
            "spent. Raise batch_size or n_steps."
        )
    sigma = plan.sigma / plan.unit * found.radius
    return SmoothedRelease(SmoothedProjections(batches, sigma), found, spent)


def _assumptions(plan: RowPlan, known: DataBounds | None, streams: Streams) -> tuple[str, ...]:
    listed = assumptions(None, known, streams)
    if plan.noise_event is not None and plan.lattice is None:
        listed += ("floating-point noise counts as Gaussian (not hardened)",)
    return listed


def _released(
    rows: npt.NDArray[Any],
    plan: RowPlan,
    bounds: DataBounds,
    directions: StepDirections,
    stream: SecretStream,
    progress: str | None,
) -> Iterator[ProjectedRows]:
    """Yield the noisy projections of each step's batch."""
    steps = zip(directions, _batches(plan, stream), strict=True)
    for theta, batch in tqdm(steps, desc=progress, disable=progress is None, total=len(directions)):
        n_rows = len(rows) if batch is None else len(batch)
        if n_rows == 0:
            continue
        values = np.empty((len(theta), n_rows), dtype=np.float32)
        for start in range(0, n_rows, _BLOCK):
            block = slice(start, start + _BLOCK)
            members = rows[block] if batch is None else rows[batch[block]]
            values[:, block] = _noisy(bounds.to_ball(members), theta, plan, bounds.radius, stream)
        values.sort(axis=1)
        release = Release(
            "rows",
            values,
            {"bounds": bounds, "directions": theta},
            sigma=plan.sigma / plan.unit * bounds.radius,
            lattice=None if plan.lattice is None else plan.lattice * bounds.radius,
            sensitivity=plan.sensitivity / plan.unit * bounds.radius,
            event=plan.noise_event,
        )
        yield ProjectedRows(theta, released(release))


def _batches(plan: RowPlan, stream: SecretStream) -> Iterator[npt.NDArray[np.intp] | None]:
    """Yield the members of each step's batch; None is everyone."""
    asked = plan.parameters
    if plan.all_rows or asked.batch_size is None:
        return iter([None] * asked.n_steps)
    if asked.sampling == "poisson":
        rate = asked.batch_size / plan.n_samples
        return poisson_batches(plan.n_samples, rate, asked.n_steps, stream)
    return fixed_size_batches(plan.n_samples, asked.batch_size, asked.n_steps, stream)


def _noisy(
    rows: npt.NDArray[Any],
    directions: npt.NDArray[np.float32],
    plan: RowPlan,
    radius: float,
    stream: SecretStream,
) -> npt.NDArray[np.float64]:
    """Project rows of the ball and add noise, in the units of the rows."""
    shape = (len(directions), len(rows))
    noise = plan.noise_event
    if noise is None or noise.lattice is None or plan.lattice is None:
        values = project_rows(rows, directions, radius)
        if noise is not None:
            values += gaussian_noise(noise.sigma / plan.unit, shape, stream)
    else:
        units = lattice_noise(
            noise.sigma, shape, stream, lattice=noise.lattice, mu=one_step_mu(noise)
        )
        units += project_to_lattice(rows, directions, radius, plan.lattice)
        values = units.astype(np.float64) * plan.lattice
    values *= radius
    return values
