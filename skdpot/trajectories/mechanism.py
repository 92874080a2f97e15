"""What a mechanism of the trajectory sampler must define."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skdpot._utils.arrays import FloatArray
from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.trajectories.time_axis import TimeAxis
from skdpot.trajectories.timed_rows import TimedRows


class MovedParticles(NamedTuple):
    """Particles of all times, in mapped units, and how they came to their positions.

    Particles have shape (T, m, d) and displacements, the root mean square step of each iteration,
    shape (n_iter,). The data fit at the final positions is None if the release does not determine
    it. If particles are `followed`, those of one index, at all times, form one path.
    """

    particles: FloatArray
    displacements: FloatArray
    fit: float | None = None
    followed: bool = False


class TrajectoryMechanism(Mechanism):
    """Release the distributions of all times, and turn the release into particles.

    The sampler calls `release` once per fit. It stores the value of the result, and gives it to
    `move` whenever it makes particles: at the end of the fit, and again for other paths from the
    same release. Couplings and bridges between the times are made by the sampler.

    Lengths are in mapped units: the rows of a fit lie in a ball of radius sqrt(d). Times are on
    an axis from 0 to 1.

    Attributes
    ----------
    default_particles : int
        Number of particles at each time, unless the sampler is given one.
    """

    default_particles: ClassVar[int]

    @abstractmethod
    def release(
        self, context: FitContext, data: TimedRows, n_particles: int, diffusivity: float
    ) -> MechanismResult:
        """Plan, charge, and only then read the private rows and release (`Mechanism.release`).

        Parameters
        ----------
        context : FitContext
            The terms of the fit. Everything is charged by one call of ``context.charge`` or
            ``context.sketch``.
        data : TimedRows
            The private rows, shape (n, d), in the units of the data, and their times. Positions,
            counts and axis are public.
        n_particles : int
            Number of particles at each time.
        diffusivity : float
            Variance per unit of time of the reference process.

        Returns
        -------
        MechanismResult
            Its value is kept and given to `move`. Its attributes become attributes of the
            sampler; ``centers_`` are mapped to the units of the data.

        Raises
        ------
        ValueError
            If the parameters do not suit the public facts. Nothing is charged.
        BudgetExceededError
            If the budget of the fit cannot pay. Nothing is charged.
        """

    @abstractmethod
    def move(
        self,
        released: Any,
        axis: TimeAxis,
        n_particles: int,
        diffusivity: float,
        rng: np.random.Generator,
        progress: bool,
    ) -> MovedParticles:
        """Return the particles of all times: post-processing, without access to rows.

        Parameters
        ----------
        released : object
            Value of the result of `release`, or a sketch of the same kind with fewer times or with
            simulated noise.
        axis : TimeAxis
            The T times of this value.
        n_particles, diffusivity : int, float
            As for `release`; they may differ from those of the fit if the release does not depend
            on them.
        rng : Generator
            Public randomness.
        progress : bool
            Whether to show a progress bar.

        Returns
        -------
        MovedParticles
            Particles of shape (T, n_particles, d), in mapped units.
        """
