r"""How well particles explain the points that were seen, and each record's clipped pull on them.

A point :math:`y` was seen at a time where the particles are :math:`x_1, \dots, x_m`. Smoothed by a
Gaussian kernel :math:`g_\sigma`, they give it the likelihood
:math:`\frac1m \sum_l g_\sigma(x_l - y)`. The data fit is minus the sum of the logarithms over the
records. Its Wasserstein gradient, the gradient of its first variation, moves the particle
:math:`x_k` for the record :math:`y` by

.. math:: G_k(y) = w\,\frac{x_k - y}{\sigma^2}\,
          \frac{g_\sigma(x_k - y)}{\frac1m \sum_l g_\sigma(x_l - y)}
          = \frac{w\,m}{\sigma^2}\,p_k(y)\,(x_k - y),

with a weight :math:`w` and the softmax :math:`p(y)` of :math:`-\|x_k - y\|^2 / 2\sigma^2`. Only the
differences of the exponents matter, so that a record far away from all particles pulls the
nearest ones, by much, and no quotient of two zeros occurs.
"""

import math

import numpy as np
import numpy.typing as npt

__all__ = ["clipped_fit_gradient"]

FloatArray = npt.NDArray[np.float64]

# Clipping a little below the norm leaves room for the rounding of sums.
_INSIDE = 1.0 - 1e-6
# Below this a norm may have lost terms to underflow; what has such a norm is left out.
_SMALLEST_NORM = 1e-140
_LARGEST = 1e150
# Arrays that stay in the cache are several times faster.
_BLOCK = 2**14


def clipped_fit_gradient(
    particles: npt.NDArray[np.floating],
    rows: npt.NDArray[np.floating],
    *,
    bandwidth: float,
    weight: float,
    clip: float,
) -> FloatArray:
    r"""Sum the clipped gradients of records, each on all particles.

    Parameters
    ----------
    particles : ndarray of shape (m, d)
        Particles of one time, finite; no secret, or an earlier release.
    rows : ndarray of shape (b, d)
        Private records of the same time, finite, possibly none.
    bandwidth : float
        Standard deviation :math:`\sigma` of the kernel.
    weight : float
        Factor :math:`w` of the data fit.
    clip : float
        Largest Frobenius norm :math:`C` of one record's m × d gradient.

    Returns
    -------
    ndarray of shape (m, d), float64
        :math:`\sum_y G(y) \min(1, C / \|G(y)\|_F)`. It points uphill: particles move against it.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, or the shapes do not match.

    Privacy
    -------
    One record's gradient moves *all* particles, and the particles are released together. So it is
    the whole m × d matrix that is clipped, as one vector of :math:`m d` numbers. (A bound of C for
    each particle would admit a norm of :math:`\sqrt m\,C`.) The term of a record depends on
    the particles, which are no secret, and on this record alone. Therefore:

    * a record that is added or removed moves the sum by at most :math:`C`;
    * a record that is replaced moves it by at most :math:`\|G\| + \|G'\| \le 2C`, which two
      records on opposite sides of a particle attain;
    * on a Poisson sample the sum has the form that
      ``PoissonGaussianEvent(sensitivity=2 * clip, clipped_sum=True)`` asks for: one vector a
      record, of norm at most half the sensitivity, summed over the records of the batch.

    Rounding is within these bounds: a record is shortened to one part in a million below C. The
    sum of b records in blocks of k, in an order that depends on the (secret) batch, errs by at
    most :math:`2^{-53} (k + b/k)\, b\, C`, below a millionth of C for 500,000 records on 300
    particles and for 90,000 on however many.

    Notes
    -----
    Distances come feature by feature from differences, not from a matrix product, which would
    lose the small ones to cancellation and with them the bound on the norm. Memory is a few
    arrays of at most 2**14 numbers or one row of m, whatever b is.

    References
    ----------
    Chizat, Zhang, Heitz and Schiebinger, "Trajectory inference via mean-field Langevin in path
    space", NeurIPS 2022 (the data fit).
    """
    points, seen = _checked(particles, rows, bandwidth=bandwidth, weight=weight, clip=clip)
    m = len(points)
    total = np.zeros_like(points)
    for start in range(0, len(seen), block := max(1, _BLOCK // m)):
        part = seen[start : start + block]
        squares = _squared_distances(points, part)
        shares = _softmax(squares, bandwidth)
        norms = np.sqrt(np.einsum("bk,bk,bk->b", shares, shares, squares))
        with np.errstate(over="ignore"):
            full = norms * weight * m / bandwidth / bandwidth
        # The part of C that a record uses, spread in proportion to its gradient.
        used = np.minimum(clip * _INSIDE, full)
        spread = norms > _SMALLEST_NORM
        shares *= np.divide(used, norms, out=np.zeros_like(norms), where=spread)[:, None]
        for j in range(points.shape[1]):
            offsets = points[:, j] - part[:, j, None]
            total[:, j] += np.einsum("bk,bk->k", shares, offsets)
    return total


def _checked(
    particles: npt.NDArray[np.floating], rows: npt.NDArray[np.floating], **positive: float
) -> tuple[FloatArray, FloatArray]:
    """Return both in double precision; refuse shapes that do not match, and what is no number.

    The number of rows appears in no message: it is a secret of the sample.
    """
    for name, value in positive.items():
        if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")
    if particles.ndim != 2 or rows.ndim != 2 or particles.shape[1] != rows.shape[1]:
        raise ValueError(
            "`particles` and `rows` must be tables with as many features, got rows of shape "
            f"{particles.shape[1:]} and {rows.shape[1:]}."
        )
    if particles.size == 0:
        raise ValueError("`particles` must hold at least one particle and one feature.")
    points: FloatArray = particles.astype(np.float64)
    # Beyond this, squares overflow, and one record would turn the whole sum into nan.
    seen: FloatArray = np.clip(rows.astype(np.float64), -_LARGEST, _LARGEST)
    return points, seen


def _squared_distances(particles: FloatArray, rows: FloatArray) -> FloatArray:
    """Return all squared distances, exact up to relative rounding, shape (b, m)."""
    squares = np.zeros((len(rows), len(particles)))
    for j in range(particles.shape[1]):
        offsets = particles[:, j] - rows[:, j, None]
        offsets *= offsets
        squares += offsets
    return squares


def _softmax(squares: FloatArray, bandwidth: float) -> FloatArray:
    """Return each record's shares of the particles, which add up to one."""
    shares: FloatArray = squares - squares.min(axis=1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        # One division after the other: the square of a small bandwidth would underflow.
        shares /= -2.0 * bandwidth
        shares /= bandwidth
        np.exp(shares, out=shares)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
