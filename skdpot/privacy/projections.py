r"""How far one record can move the projections of a table of rows.

Rows :math:`u_i` of norm at most R are projected on the rows of :math:`\Theta` (L x d) and
:math:`U \Theta^T` is released with noise. Replacing one record changes one row of it, by
:math:`\Theta (u - u')`, so that

.. math:: \Delta = \max_{\|u\|, \|u'\| \le R} \|\Theta (u - u')\|_2 = 2 R \|\Theta\|_2,

the largest singular value of :math:`\Theta`: it is no more because
:math:`\|\Theta v\| \le \|\Theta\|_2 \|v\|` and :math:`\|u - u'\| \le 2R`, and no less because
the antipodal pair :math:`\pm R v_1`, with the first right singular vector, attains it. For
directions in d x d orthogonal blocks, :math:`\Theta^T \Theta` is a sum of
:math:`\lceil L/d \rceil` projections, the first of them identities, so that
:math:`\|\Theta\|_2 = \sqrt{\lceil L / d \rceil}` without computing anything.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

__all__ = ["lemma1_sensitivity", "projection_sensitivity", "spectral_norm"]


def projection_sensitivity(directions: npt.NDArray[Any], radius: float) -> float:
    """Return the exact replace-one L2 sensitivity of projections of rows in a ball.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, n_features)
        Public directions, the rows of Θ; they need not have unit length.
    radius : float
        Every row has a norm of at most `radius`.

    Returns
    -------
    float
        ``2 * radius * ‖Θ‖₂``, rounded up. Two antipodal rows attain it.

    Raises
    ------
    ValueError
        If `directions` is not a finite matrix, or `radius` is not positive and finite.

    See Also
    --------
    lemma1_sensitivity : The bound of the paper, which can be exceeded.

    Examples
    --------
    >>> import numpy as np
    >>> projection_sensitivity(np.eye(3), radius=1.0)
    2.0
    >>> projection_sensitivity(np.vstack([np.eye(3), np.eye(3)]), radius=1.0)
    2.828
    """
    if not (math.isfinite(radius) and radius > 0.0):
        raise ValueError(f"`radius` must be positive and finite, got {radius!r}.")
    return 2.0 * radius * spectral_norm(directions) * (1.0 + 1e-15)


def spectral_norm(directions: npt.NDArray[Any]) -> float:
    r"""Return an upper bound of the largest singular value, tight up to rounding.

    The smaller Gram matrix holds its square as the largest eigenvalue. Computing the matrix
    errs by at most :math:`\gamma_k \| |\Theta| \|_2^2 \le \gamma_k \min(L, d) \|\Theta\|_2^2`
    with :math:`k = \max(L, d)`, its eigenvalues by a modest multiple of the dimension times the
    machine epsilon; four times the first covers both.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, n_features)
        A finite matrix.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `directions` is not a finite matrix.
    """
    theta = np.asarray(directions, dtype=np.float64)
    if theta.ndim != 2 or theta.size == 0 or not np.isfinite(theta).all():
        raise ValueError(
            "`directions` must be a finite matrix of shape (n_slices, n_features), got shape "
            f"{theta.shape}."
        )
    largest = float(np.abs(theta).max()) or 1.0
    theta = theta / largest  # squares of very large or small entries would not be finite
    gram = theta @ theta.T if len(theta) <= theta.shape[1] else theta.T @ theta
    slack = 4.0 * (theta.size + 16) * float(np.finfo(np.float64).eps)
    return largest * math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0) * (1.0 + slack))


def lemma1_sensitivity(
    n_slices: int, n_features: int, delta: float, *, radius: float = 1.0
) -> float:
    r"""Return the sensitivity bound of the flow paper, for comparison only.

    With random unit directions :math:`\|\Theta v\|^2 \le w \|v\|^2` for one *fixed* v with
    probability about :math:`1 - \delta` over the draw,

    .. math:: w = \frac{L}{d} + \frac{z_{1-\delta}}{d} \sqrt{\frac{2 L (d-1)}{d+2}}.

    It is no sensitivity to build on: it speaks of one pair of rows and not of the worst one,
    and it fails with probability about delta *at every draw*, so that T draws with a record can
    add up to T times delta to the δ of a statement. `projection_sensitivity` always holds, and
    orthogonal directions make it smaller than this.

    Parameters
    ----------
    n_slices : int
        Number of directions L, drawn independently; the normal approximation wants over 30.
    n_features : int
        Dimension d.
    delta : float
        Failure probability of one draw, in (0, 1).
    radius : float, default=1.0
        Every row has a norm of at most `radius`; the lemma is for rows that differ by at most
        1, and rows of a ball differ by up to ``2 * radius``.

    Returns
    -------
    float
        ``2 * radius * sqrt(w)``. Theorem 3 of the paper prints w in the place of its root.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    .. [1] A. Rakotomamonjy, L. Ralaivola, "Differentially Private Sliced Wasserstein Distance",
       2021.
    .. [2] "Differentially Private Gradient Flow based on the Sliced Wasserstein Distance",
       lemma 1 (equation 23).

    Examples
    --------
    The setting of the paper: 70 directions in 8 dimensions.

    >>> lemma1_sensitivity(70, 8, 1e-5)
    7.491
    >>> 2 * math.sqrt(math.ceil(70 / 8))  # of orthogonal directions, exactly
    6.0
    """
    if n_slices < 1 or n_features < 1:
        raise ValueError(
            f"`n_slices` and `n_features` must be at least 1, got {n_slices} and {n_features}."
        )
    if not 0.0 < delta < 1.0:
        raise ValueError(f"`delta` must lie in (0, 1), got {delta!r}.")
    if not (math.isfinite(radius) and radius > 0.0):
        raise ValueError(f"`radius` must be positive and finite, got {radius!r}.")
    d = n_features
    spread = math.sqrt(2.0 * n_slices * (d - 1) / (d + 2)) / d
    squared = n_slices / d + float(ndtri(1.0 - delta)) * spread
    return 2.0 * radius * math.sqrt(max(squared, 0.0))
