r"""Gaussian noise on a lattice, and the scales that make it reach a privacy target.

Private statistics here are integer multiples of a *data lattice* (counts: 1). The noise
lives on a lattice that contains it, so that the sum shows nothing but multiples of the
noise lattice ``g``; this is what closes the floating-point attacks on continuous noise.
A discrete Gaussian of scale ``sigma`` costs

.. math:: \mu = \frac{\Delta}{\sigma} \left(1 + \frac{1}{20 s^2}\right),
          \qquad s = \sigma / g \ge 1,

which `skdpot.privacy.lattice_sampler` proves. Statistics that are not on a lattice are
rounded to one first. Rounding moves each of the ``dim`` coordinates that a record can
change by at most ``g/2`` in each of two neighbouring data sets, so by the triangle
inequality the L2 sensitivity grows by at most :math:`g \sqrt{dim}`.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skdpot._utils.rng import SecretStream
from skdpot.exceptions import CalibrationError
from skdpot.privacy.lattice_sampler import MAX_S, discrete_gaussian

__all__ = [
    "LatticeNoise",
    "calibrate_lattice",
    "calibrate_rounded",
    "discrete_gaussian",
    "gaussian_noise",
    "lattice_noise",
    "noise_for_sums",
    "noise_lattice",
    "noisy_sum",
    "round_to_lattice",
    "rounded_sensitivity",
]

MIN_LATTICE_STEPS = 16.0
_ROUNDING_SHARE = 1 / 64
_SUM_ROUNDING_SHARE = 1 / 512
_FEWEST_SUM_STEPS, _MOST_SUM_STEPS = 64.0, 2.0**39
_LARGEST_UNIT = 2.0**52


@dataclass(frozen=True, kw_only=True)
class LatticeNoise:
    """Discrete Gaussian noise that reaches a privacy target.

    Attributes
    ----------
    sigma : float
        Standard deviation, in the units of the statistic.
    sensitivity : float
        L2 sensitivity that it hides, with what rounding adds.
    lattice : float
        Spacing ``g`` of the noise.
    """

    sigma: float
    sensitivity: float
    lattice: float

    @property
    def mu(self) -> float:
        """Privacy parameter of one release, ``sensitivity / sigma * (1 + 1 / 20 s**2)``."""
        s = self.sigma / self.lattice
        return self.sensitivity / self.sigma * (1 + 1 / (20 * s * s))


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")


def _check_power_of_two(lattice: float) -> None:
    _check_positive(lattice=lattice)
    if math.frexp(lattice)[0] != 0.5:
        raise ValueError(
            f"`lattice` must be a power of two, so that dividing by it is exact; got {lattice!r}."
        )


def gaussian_noise(
    sigma: float, size: int | tuple[int, ...], stream: SecretStream
) -> npt.NDArray[np.float64]:
    """Draw continuous Gaussian noise in double precision.

    For ``noise="float"`` only: the bits of a floating-point sum leak more about the data
    than the Gaussian mechanism promises. It is not hardened against that.

    Parameters
    ----------
    sigma : float
        Standard deviation.
    size : int or tuple of int
        Shape of the result.
    stream : SecretStream
        Seeds the generator with 256 secret bits.

    Returns
    -------
    ndarray of float64, shape `size`
    """
    _check_positive(sigma=sigma)
    return stream.generator().normal(0.0, sigma, size)


def noise_lattice(sigma: float, data_lattice: float = 1.0) -> float:
    """Return the coarsest ``g = data_lattice / 2**k``, k >= 0, with ``sigma / g >= 16``.

    At 16 lattice steps the discrete Gaussian costs 0.02 % more than a continuous one.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise.
    data_lattice : float, default=1.0
        Spacing of the statistic.

    Returns
    -------
    float
    """
    _check_positive(sigma=sigma, data_lattice=data_lattice)
    lattice = data_lattice
    while sigma / lattice < MIN_LATTICE_STEPS:
        lattice /= 2
        if lattice < 1e-290:
            raise CalibrationError(f"No noise lattice resolves sigma = {sigma:.3g}.")
    return lattice


def lattice_noise(
    sigma: float,
    shape: int | tuple[int, ...],
    stream: SecretStream,
    *,
    lattice: float,
    mu: float,
) -> npt.NDArray[np.int64]:
    """Draw discrete Gaussian noise in units of `lattice`.

    Parameters
    ----------
    sigma : float
        Standard deviation in the units of the statistic, at least `lattice`.
    shape : int or tuple of int
        Shape of the result.
    stream : SecretStream
        Source of the random words.
    lattice : float
        Spacing of the noise.
    mu : float
        Privacy parameter of the whole event that the noise belongs to.

    Returns
    -------
    ndarray of int64
        Multiply by `lattice` to return to the units of the statistic.

    Raises
    ------
    CalibrationError
        If `sigma` is below `lattice` or above 2**40 times it.
    """
    _check_positive(sigma=sigma, lattice=lattice)
    s = sigma / lattice
    if not 1 <= s <= MAX_S:
        raise CalibrationError(
            f"sigma = {sigma:.4g} is {s:.3g} steps of the noise lattice {lattice:.4g}; "
            "between 1 and 2**40 are needed."
        )
    return discrete_gaussian(s, shape, stream, mu=mu)


def noise_for_sums(sigma: float, sensitivity: float, dim: int) -> LatticeNoise:
    r"""Return noise of a given scale for sums of clipped vectors that are rounded once.

    If records move a sum by :math:`v`, rounding it moves by at most
    :math:`\|v\| + g \sqrt{dim}`. That holds for a replaced record, with
    :math:`\|v\| \le \Delta`, and for one that is or is not in a secret sample, with
    :math:`\|v\| \le \Delta / 2`. Twice the latter is the larger: the sensitivity grows to
    :math:`\Delta + 2 g \sqrt{dim}`, of which one half is what a record's presence changes.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise.
    sensitivity : float
        L2 sensitivity :math:`\Delta` of the exact sum under replace-one.
    dim : int
        Number of coordinates of the sum.

    Returns
    -------
    LatticeNoise
        With the sensitivity of the rounded sum, at most 1/512 larger, unless the noise is more
        than 2**39 steps of such a lattice.
    """
    _check_positive(sigma=sigma, sensitivity=sensitivity, dim=dim)
    finest = sensitivity * _SUM_ROUNDING_SHARE / (2.0 * math.sqrt(dim))
    bounded = min(max(finest, sigma / _MOST_SUM_STEPS), sigma / _FEWEST_SUM_STEPS)
    lattice = 2.0 ** math.floor(math.log2(bounded))
    delta = rounded_sensitivity(sensitivity, 2.0 * lattice, dim)
    return LatticeNoise(sigma=sigma, sensitivity=delta, lattice=lattice)


def noisy_sum(
    values: npt.NDArray[np.float64], noise: LatticeNoise, stream: SecretStream
) -> npt.NDArray[np.float64]:
    """Round a private sum to the lattice and add noise, in integers.

    Parameters
    ----------
    values : ndarray of float64
        The sum; finite.
    noise : LatticeNoise
        Noise that has been charged, for the sensitivity of the rounded sum.
    stream : SecretStream
        Draws the noise.

    Returns
    -------
    ndarray of float64, of the shape of `values`
        Multiples of ``noise.lattice``.
    """
    units = lattice_noise(noise.sigma, values.shape, stream, lattice=noise.lattice, mu=noise.mu)
    units += round_to_lattice(values, noise.lattice)
    return units.astype(np.float64) * noise.lattice


def round_to_lattice(x: npt.ArrayLike, lattice: float) -> npt.NDArray[np.int64]:
    """Return the nearest multiples of `lattice`, as integers in units of it.

    Values beyond 2**52 units are clamped there, which no neighbour can move further than
    the value itself moved; no value raises an error, since errors are outputs.

    Parameters
    ----------
    x : array-like of finite floats
        The statistic.
    lattice : float
        Spacing, a power of two.

    Returns
    -------
    ndarray of int64
    """
    _check_power_of_two(lattice)
    units = np.asarray(x, dtype=np.float64) / lattice
    return np.rint(np.clip(units, -_LARGEST_UNIT, _LARGEST_UNIT)).astype(np.int64)


def rounded_sensitivity(sensitivity: float, lattice: float, dim: int) -> float:
    """Return an upper bound of the L2 sensitivity after rounding to the lattice.

    Parameters
    ----------
    sensitivity : float
        L2 sensitivity before rounding.
    lattice : float
        Spacing that the statistic is rounded to.
    dim : int
        Number of coordinates that one record can change.

    Returns
    -------
    float
        ``sensitivity + lattice * sqrt(dim)``, rounded up.
    """
    _check_positive(sensitivity=sensitivity, lattice=lattice, dim=dim)
    return (sensitivity + lattice * math.sqrt(dim)) * (1 + 1e-15)


def _sigma_for(mu: float, sensitivity: float, lattice: float) -> float:
    """Return the least sigma, to rounding, with ``LatticeNoise.mu <= mu``.

    The solution is the fixed point of ``sigma = continuous * (1 + 1 / (20 s**2))``. The right
    side falls as sigma grows, so iterates from below and from above alternate: an odd number
    of steps ends above, on the private side.
    """
    continuous = sensitivity / mu
    sigma = continuous
    for _ in range(5):
        s = sigma / lattice
        sigma = continuous * (1 + 1 / (20 * s * s))
    return sigma * (1 + 1e-15)


def calibrate_lattice(mu: float, sensitivity: float, *, data_lattice: float = 1.0) -> LatticeNoise:
    """Return noise of privacy `mu` for a statistic that lies on `data_lattice`.

    Parameters
    ----------
    mu : float
        Privacy parameter to reach, from `gdp_mu`.
    sensitivity : float
        L2 sensitivity of the statistic.
    data_lattice : float, default=1.0
        Spacing of the statistic; 1 for counts.

    Returns
    -------
    LatticeNoise
        Its `mu` is at most the one given, and equal to it up to rounding.
    """
    _check_positive(mu=mu, sensitivity=sensitivity)
    lattice = noise_lattice(sensitivity / mu, data_lattice)
    sigma = _sigma_for(mu, sensitivity, lattice)
    return _proved(LatticeNoise(sigma=sigma, sensitivity=sensitivity, lattice=lattice), mu)


def calibrate_rounded(
    mu: float, sensitivity: float, dim: int, *, lattice: float | None = None
) -> LatticeNoise:
    """Return lattice and noise of privacy `mu` for a statistic that must be rounded.

    Parameters
    ----------
    mu : float
        Privacy parameter to reach.
    sensitivity : float
        L2 sensitivity before rounding.
    dim : int
        Number of coordinates that one record can change.
    lattice : float or None, default=None
        Spacing, a power of two. ``None`` takes the coarsest at which rounding costs at
        most 1/64 of the sensitivity and sigma spans at least 16 steps.

    Returns
    -------
    LatticeNoise
        With the sensitivity of the rounded statistic.

    Raises
    ------
    CalibrationError
        If `lattice` is coarser than the noise may be, or finer than 2**-40 of it.
    """
    _check_positive(mu=mu, sensitivity=sensitivity, dim=dim)
    if lattice is None:
        finest = min(
            sensitivity * _ROUNDING_SHARE / math.sqrt(dim), sensitivity / mu / MIN_LATTICE_STEPS
        )
        lattice = 2.0 ** math.floor(math.log2(finest))
    _check_power_of_two(lattice)
    delta = rounded_sensitivity(sensitivity, lattice, dim)
    sigma = _sigma_for(mu, delta, lattice)
    return _proved(LatticeNoise(sigma=sigma, sensitivity=delta, lattice=lattice), mu)


def _proved(noise: LatticeNoise, mu: float) -> LatticeNoise:
    """Return `noise` if it reaches `mu` and can be drawn, else raise."""
    steps = noise.sigma / noise.lattice
    if not (1 <= steps <= MAX_S and noise.mu <= mu):
        raise CalibrationError(
            f"Noise on the lattice {noise.lattice:.4g} cannot reach mu = {mu:.4g} for a "
            f"sensitivity of {noise.sensitivity:.4g}: sigma would be {steps:.3g} lattice "
            "steps, and between 1 and 2**40 are needed. Choose another lattice or epsilon."
        )
    return noise
