"""The data fit of mean-field Langevin dynamics: likelihoods, and their clipped gradients."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from skdpot._utils.arrays import FloatArray
from skdpot._utils.threads import one_blas_thread

# Vectors are clipped slightly below the norm, so that the rounding of sums stays within it.
_INSIDE = 1.0 - 1e-6
# A smaller norm may have lost terms to underflow; such a gradient is left out.
_SMALLEST_NORM = 1e-140
# Squares of larger coordinates overflow, and one record would turn the whole sum into nan.
_LARGEST = 1e150
# Arrays of this many numbers stay in the cache and are several times faster.
_BLOCK = 2**14


def clipped_fit_gradient(
    particles: npt.NDArray[np.floating],
    rows: npt.NDArray[np.floating],
    *,
    bandwidth: float,
    weight: float,
    clip: float,
) -> FloatArray:
    r"""Sum the clipped gradients of records, each on all particles, shape (m, d).

    Particles :math:`x_1, \dots, x_m`, smoothed by a Gaussian kernel :math:`g_\sigma`, give a point
    :math:`y` of their time the likelihood :math:`\frac1m \sum_l g_\sigma(x_l - y)`.
    The data fit is minus the sum of the logarithms over the records. Its Wasserstein gradient, the
    gradient of its first variation, moves the particle :math:`x_k` for the record :math:`y` by

    .. math:: G_k(y) = w\,\frac{x_k - y}{\sigma^2}\,
              \frac{g_\sigma(x_k - y)}{\frac1m \sum_l g_\sigma(x_l - y)}
              = \frac{w\,m}{\sigma^2}\,p_k(y)\,(x_k - y),

    with a weight :math:`w` and the softmax :math:`p(y)` of :math:`-\|x_k - y\|^2 / 2\sigma^2`. Only
    the differences of the exponents matter: a record far from all particles has a large gradient
    on the nearest ones, and no quotient of two zeros occurs.

    The sum points uphill: particles move against it.

    Privacy
    -------
    One record's gradient moves *all* particles, and the particles are released together. The whole
    m × d matrix is therefore clipped as one vector of :math:`m d` numbers. (A bound of C for each
    particle would admit a norm of :math:`\sqrt m\,C`.) The term of a record depends on the
    particles, which are public, and on this record alone. Therefore:

    * a record that is added or removed moves the sum by at most :math:`C`;
    * a record that is replaced moves it by at most :math:`\|G\| + \|G'\| \le 2C`, which two
      records on opposite sides of a particle attain;
    * on a Poisson sample the sum has the form that
      ``SampledGaussianEvent(sensitivity=2 * clip, clipped_sum=True)`` requires: one vector
      per record, of norm at most half the sensitivity, summed over the records of the batch.

    Rounding is within these bounds. The term of a record is computed from this record alone:
    distances pair by pair, reductions along rows and elementwise functions, none of which depends
    on the size of the sample (the tests compare bits). It is clipped to one part in a million
    below C. The sum of b records in blocks of k, in an order that depends on the (secret)
    batch, errs by at most :math:`2^{-53} (k + b/k)\, b\, C`, below a millionth of C for 500,000
    records on 300 particles and for 90,000 on however many.
    """
    points: FloatArray = particles.astype(np.float64)
    observed: FloatArray = np.clip(rows.astype(np.float64), -_LARGEST, _LARGEST)
    m = len(points)
    total = np.zeros_like(points)
    for start in range(0, len(observed), block := max(1, _BLOCK // m)):
        part = observed[start : start + block]
        shares = clipped_shares(points, part, bandwidth=bandwidth, weight=weight, clip=clip)
        for j in range(points.shape[1]):
            offsets = points[:, j] - part[:, j, None]
            total[:, j] += np.einsum("bk,bk->k", shares, offsets)
    return total


def clipped_shares(
    points: FloatArray, part: FloatArray, *, bandwidth: float, weight: float, clip: float
) -> FloatArray:
    """Return the factor of each offset in the clipped gradients of records (b, m).

    Each row is computed by itself: the bits of a record do not depend on the other records.
    """
    squares = cdist(part, points, "sqeuclidean")
    shares = softmax_weights(squares, bandwidth)
    norms = np.sqrt(np.einsum("bk,bk,bk->b", shares, shares, squares))
    with np.errstate(over="ignore"):
        full = norms * weight * len(points) / bandwidth / bandwidth
    clipped = np.minimum(clip * _INSIDE, full)
    usable = norms > _SMALLEST_NORM
    shares *= np.divide(clipped, norms, out=np.zeros_like(norms), where=usable)[:, None]
    return shares


def clipped_pulls(
    particles: FloatArray, rows: FloatArray, *, bandwidth: float, weight: float, clip: float
) -> FloatArray:
    """Return the clipped gradient of each row on all particles, shape (n_rows, m * d).

    Their sum is `clipped_fit_gradient`, which does not form them.
    """
    offsets = particles - rows[:, None]
    squares = np.einsum("bkd,bkd->bk", offsets, offsets)
    pulls = (softmax_weights(squares, bandwidth)[:, :, None] * offsets).reshape(len(rows), -1)
    pulls *= weight * len(particles) / bandwidth**2
    norms = np.linalg.norm(pulls, axis=1, keepdims=True)
    return pulls * (clip / np.maximum(norms, clip))


def softmax_weights(squares: FloatArray, bandwidth: float) -> FloatArray:
    """Return the softmax weights of the particles for each record, (b, m)."""
    shares: FloatArray = squares - squares.min(axis=1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        # Two divisions: the square of a small bandwidth would underflow.
        shares /= -2.0 * bandwidth
        shares /= bandwidth
        np.exp(shares, out=shares)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def averaged_over_neighbours(
    gradients: FloatArray, particles: FloatArray, width: float
) -> FloatArray:
    """Average released gradients (T, m, d) with a Gaussian kernel of the particles' distances."""
    averages = np.empty_like(gradients)
    with one_blas_thread():
        for cloud, gradient, average in zip(particles, gradients, averages, strict=True):
            scaled = (cloud - cloud.mean(axis=0)) / width
            norms = np.sum(scaled**2, axis=1) / 2
            weights = np.exp(np.minimum(scaled @ scaled.T - norms[:, None] - norms, 0.0))
            np.fill_diagonal(weights, 1.0)  # exact in spite of cancellation
            average[...] = weights @ gradient / weights.sum(axis=1, keepdims=True)
    return averages


def likelihood_misfit(
    particles: FloatArray,
    rows: Sequence[npt.NDArray[np.floating]],
    weights: FloatArray,
    width: float,
) -> float:
    """Return minus the weighted sum, over times, of the mean log-likelihood of the rows."""
    total = 0.0
    for cloud, of_time, weight in zip(particles, rows, weights, strict=True):
        parts = np.array_split(of_time, 1 + len(of_time) * len(cloud) // _BLOCK)
        exponents = (cdist(part, cloud, "sqeuclidean") / (-2.0 * width**2) for part in parts)
        logs = sum(float(logsumexp(exponent, axis=1).sum()) for exponent in exponents)
        total -= float(weight) * (logs / len(of_time) - math.log(len(cloud)))
    return total
