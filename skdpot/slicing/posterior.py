r"""The posterior mean of distribution functions that were released with Gaussian noise.

Isotonic regression alone turns noise into mass: where a distribution function is 0 or 1, noise
can only be clipped to one side, so every class looks wider than it is. This module estimates
the functions under a prior instead, all of it post-processing of the release (empirical Bayes):

- along each direction a class is a priori a Gaussian plus a difference. Differences along one
  direction vary like a Dirichlet process: ``τ G(s) (1 - G(t))`` for s <= t, with a base measure G
  that is the class's Gaussian, perhaps with a share of a wider one or of the uniform measure
  (with none, no table however exact could show a second cluster in a tail). Differences along
  neighbouring directions are alike: their correlation is ``exp(-(1 - cos) / length)``, but for a
  share of their variance, the nugget, that is each direction's own;
- the Gaussians' locations and spreads, τ, the length, the nugget and the kind of base are
  estimated from the released table.

Units: positions along a direction are divided by the half width of its binned range.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from skdpot._utils.threads import one_blas_thread
from skdpot.slicing.class_gaussians import ClassGaussians, fit_gaussians, inner_edges

__all__ = ["posterior_mean", "posterior_mean_by_class"]

_CONCENTRATIONS = np.geomspace(1e-5, 1.0, 31)
_LENGTHS = (0.02, 0.05, 0.15, 0.5, 1.5, 5.0, 20.0)
_NUGGETS = (0.0, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
# Share of the base measure that is not the Gaussian, and how many times wider it is.
_BASES = ((0.0, 1.0), (0.02, np.inf), (0.1, np.inf), (0.2, 2.0), (0.2, 4.0))
_AXES, _OTHERS = 64, 192  # as many slices show the evidence; all of them are estimated
_SLICES_OF_BASE = 64
_MOST_TOGETHER = 2048  # directions that share what they show
_FEWEST_AXES = 8  # fewer say too little to be estimated apart from the other directions
_TAIL = 0.02  # values count as in a tail where G (1 - G) is below
_CERTAIN = 5.0  # deviations
_LOG_SIGNALS = np.arange(-23.0, 45.0, 0.1)
_VARIANCES = 1 + _CONCENTRATIONS[:, None] * np.exp(_LOG_SIGNALS)
_LOG_VARIANCES, _PRECISIONS = np.log(_VARIANCES), 1 / _VARIANCES

_Spectrum = tuple[np.ndarray, np.ndarray]  # eigenvalues and eigenvectors


@dataclass(frozen=True, eq=False)
class _Prior:
    """Covariance of the differences: ``τ ((1 - nugget) K + nugget I) ⊗ P``."""

    misfit: float
    length: float
    nugget: float
    tau: float
    bases: list[_Spectrum]  # of P, whitened, one a class


@one_blas_thread()  # many small products: threads would only wait for each other
def posterior_mean(
    cdf: np.ndarray,
    covariance: np.ndarray,
    noise: np.ndarray,
    weights: np.ndarray,
    directions: np.ndarray,
    half_widths: np.ndarray,
) -> np.ndarray:
    """Return the empirical-Bayes posterior mean of noisy distribution functions.

    Parameters
    ----------
    cdf : ndarray of shape (n_classes, n_slices, n_inner)
        Noisy values at the inner bin edges.
    covariance : ndarray of shape (n_inner, n_inner)
        Covariance of their noise, up to its level.
    noise : ndarray of shape (n_classes,)
        Level of the noise: the covariance of a row of class c is ``noise[c]**2 * covariance``.
    weights : ndarray of shape (n_classes,)
        Shares of the classes; they sum to one.
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.
    half_widths : ndarray of shape (n_slices,)
        Half width of the binned range along each direction.

    Returns
    -------
    ndarray of shape (n_classes, n_slices, n_inner)
        Estimates; not necessarily monotone.

    Notes
    -----
    The spread of all classes together has, along each direction, a posterior under a
    log-normal prior around the spread that fits all directions best. Within a class it is a
    common fraction of that, chosen by marginal likelihood, and the location of a class has a
    posterior under a normal prior around the common location. Locations of one class along
    all directions are projected on the projections of one point.

    The bases of one class are averaged over the directions, so that the covariance of its
    differences is a Kronecker product, and with the noise, which is the same along all
    directions, everything is diagonal in the product of two bases of eigenvectors. What is
    chosen maximises the marginal likelihood of up to 256 directions and all classes. Axes are
    given a prior of their own where that is more likely: single features are often far from
    Gaussian where mixtures of many are close to it.

    The posterior mean is best for each function. What is computed from all of them has less
    noise: that of the L / d orthogonal blocks of directions averages out, and too strong a
    prior does not. So the gain counts noise with d / L of its variance, which is that of the
    average over blocks.

    References
    ----------
    T. S. Ferguson, "A Bayesian analysis of some nonparametric problems", Annals of Statistics
    1 (1973): mean and covariance of a Dirichlet process.
    """
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    white = cdf @ whiten.T
    gaussians = fit_gaussians(white, noise, weights, whiten)
    return _around(gaussians, white, noise, whiten, directions, half_widths)


@one_blas_thread()
def posterior_mean_by_class(
    cdf: np.ndarray,
    covariance: np.ndarray,
    noise: np.ndarray,
    weights: np.ndarray,
    directions: np.ndarray,
    half_widths: np.ndarray,
) -> np.ndarray:
    """Return posterior means of classes that may be alike, or have nothing in common.

    `posterior_mean` has the classes share a prior: one spread, up to a factor, locations around
    a common one, one concentration. Where they are alike, as arms of a trial may be, this helps
    those with few rows; where they are not, as a crowd that disperses is not at different times,
    it distorts all of them. Here each class has a prior of its own if that is more likely, by the
    marginal likelihoods of the Gaussians.

    Parameters
    ----------
    cdf, covariance, noise, weights, directions, half_widths
        As for `posterior_mean`.

    Returns
    -------
    ndarray of shape (n_classes, n_slices, n_inner)
        Estimates; not necessarily monotone.
    """
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    white = cdf @ whiten.T
    rest = (whiten, directions, half_widths)
    together = fit_gaussians(white, noise, weights, whiten)
    parts = [slice(k, k + 1) for k in range(len(cdf))]
    apart = [fit_gaussians(white[one], noise[one], np.ones(1), whiten) for one in parts]
    if together.evidence >= sum(fit.evidence for fit in apart):
        return _around(together, white, noise, *rest)
    means = [
        _around(fit, white[one], noise[one], *rest) for fit, one in zip(apart, parts, strict=True)
    ]
    return np.concatenate(means)


def _around(
    gaussians: ClassGaussians,
    white: np.ndarray,
    noise: np.ndarray,
    whiten: np.ndarray,
    directions: np.ndarray,
    half_widths: np.ndarray,
) -> np.ndarray:
    """Return the Gaussians plus the posterior means of the differences from them."""
    edges = inner_edges(white.shape[-1])
    locations = gaussians.locations * half_widths
    points = np.linalg.lstsq(directions, locations.T, rcond=None)[0]
    locations = (points.T @ directions.T) / half_widths
    z = (edges - locations[:, :, None]) / gaussians.spreads[:, None]
    gaussian = ndtr(z)
    differences, deviations = _smoothed(
        white - gaussian @ whiten.T, z, noise, whiten, directions, edges
    )
    plain = differences @ np.linalg.inv(whiten).T
    estimate: np.ndarray = gaussian + _trimmed(plain, deviations, gaussian)
    return estimate


def _smoothed(
    residual: np.ndarray,
    z: np.ndarray,
    noise: np.ndarray,
    whiten: np.ndarray,
    directions: np.ndarray,
    edges: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mean of whitened differences and deviations of plain ones."""
    root = np.linalg.inv(whiten)
    averaged = min(1.0, directions.shape[1] / len(directions))
    kept, deviations = np.empty_like(residual), np.empty_like(residual)
    for rows, prior in _blocks(_priors(residual, z, noise, whiten, directions, edges)):
        values, vectors = np.linalg.eigh(_kernel(directions[rows], prior.length))
        variances = prior.tau * _with_nugget(values, prior.nugget)
        for k, (masses, shapes) in enumerate(prior.bases):
            signal = np.outer(variances, masses)
            gain = signal / (signal + averaged * noise[k] ** 2)
            kept[k, rows] = vectors @ (gain * (vectors.T @ residual[k, rows] @ shapes)) @ shapes.T
            squares = vectors**2 @ gain @ ((root @ shapes) ** 2).T
            deviations[k, rows] = noise[k] * np.sqrt(squares)
    return kept, deviations


def _blocks(groups: list[tuple[np.ndarray, _Prior]]) -> Iterator[tuple[np.ndarray, _Prior]]:
    """Split groups of directions whose correlations would take too much time and memory."""
    for rows, prior in groups:
        for block in np.array_split(rows, -(-len(rows) // _MOST_TOGETHER)):
            yield block, prior


def _trimmed(differences: np.ndarray, deviations: np.ndarray, gaussian: np.ndarray) -> np.ndarray:
    """Take what may be noise off the tails' excess over the Gaussian's: one deviation.

    Noise puts mass into a tail as often as it takes some away, but below zero there is
    nothing: the monotone function that follows would keep the one and not the other. An excess
    of several deviations is no noise and stays as it is.
    """
    in_tail = np.maximum(0.0, 1.0 - gaussian * (1.0 - gaussian) / _TAIL)
    doubt = np.clip((_CERTAIN * deviations - np.abs(differences)) / (_CERTAIN - 1), 0, deviations)
    smaller = np.maximum(np.abs(differences) - in_tail * doubt, 0.0)
    outward = (differences > 0) == (gaussian < 0.5)
    trimmed: np.ndarray = np.where(outward, np.sign(differences) * smaller, differences)
    return trimmed


def _priors(
    residual: np.ndarray,
    z: np.ndarray,
    noise: np.ndarray,
    whiten: np.ndarray,
    directions: np.ndarray,
    edges: np.ndarray,
) -> list[tuple[np.ndarray, _Prior]]:
    """Return groups of directions and the prior of each: one group, or axes and others."""
    is_axis = np.abs(directions).max(axis=1) > 1 - 1e-9
    axes, others = np.flatnonzero(is_axis), np.flatnonzero(~is_axis)
    shown = np.sort(np.concatenate([_spaced(axes, _AXES), _spaced(others, _OTHERS)]))
    groupings = [[np.arange(len(directions))]]
    if len(axes) >= _FEWEST_AXES and len(others):
        groupings.append([axes, others])
    choices = []
    for groups in groupings:
        parts = [np.intersect1d(rows, shown) for rows in groups]
        fits = [
            _fitted(residual[:, at], z[:, at], noise, whiten, directions[at], edges) for at in parts
        ]
        choices.append(list(zip(groups, fits, strict=True)))
    return min(choices, key=lambda choice: sum(prior.misfit for _, prior in choice))


def _fitted(
    residual: np.ndarray,
    z: np.ndarray,
    noise: np.ndarray,
    whiten: np.ndarray,
    directions: np.ndarray,
    edges: np.ndarray,
) -> _Prior:
    """Return the prior of the largest marginal likelihood, common to all classes."""
    kernels = [np.linalg.eigh(_kernel(directions, length)) for length in _LENGTHS]
    likeliest = _Prior(np.inf, 0.0, 0.0, 0.0, [])
    for share, factor in _BASES:
        bases = [_base(positions, share, factor, edges, whiten) for positions in z]
        levels = [values / level**2 for (values, _), level in zip(bases, noise, strict=True)]
        turned = np.stack(
            [r @ v / level for r, (_, v), level in zip(residual, bases, noise, strict=True)]
        )
        for (values, vectors), length in zip(kernels, _LENGTHS, strict=True):
            squares = (vectors.T @ turned) ** 2
            for nugget in _NUGGETS:
                signals = _with_nugget(values, nugget)[:, None] * np.stack(levels)[:, None, :]
                misfit, tau = _concentration(signals, squares)
                if misfit < likeliest.misfit:
                    likeliest = _Prior(misfit, length, nugget, tau, bases)
    return likeliest


def _concentration(signals: np.ndarray, squares: np.ndarray) -> tuple[float, float]:
    """Return the smallest misfit over τ and where it is: values have variance τ signal + 1.

    Signals are counted in steps of 10 %, so that trying a τ costs next to nothing.
    """
    step = _LOG_SIGNALS[1] - _LOG_SIGNALS[0]
    logs = np.log(np.maximum(signals, np.exp(_LOG_SIGNALS[0]))).ravel()
    at = np.minimum((logs - _LOG_SIGNALS[0]) / step + 0.5, len(_LOG_SIGNALS) - 1).astype(int)
    numbers = np.bincount(at, minlength=len(_LOG_SIGNALS))
    sums = np.bincount(at, squares.ravel(), minlength=len(_LOG_SIGNALS))
    misfits = _LOG_VARIANCES @ numbers + _PRECISIONS @ sums
    best = int(misfits.argmin())
    return float(misfits[best]), float(_CONCENTRATIONS[best])


def _base(
    z: np.ndarray, share: float, factor: float, edges: np.ndarray, whiten: np.ndarray
) -> _Spectrum:
    """Return the spectrum of a class's covariance along a direction, for standardised edges z."""
    some = z[_spaced(np.arange(len(z)), _SLICES_OF_BASE)]
    other = ndtr(some / factor) if np.isfinite(factor) else (edges + 1) / 2
    values, vectors = np.linalg.eigh(
        whiten @ _bridge((1 - share) * ndtr(some) + share * other) @ whiten.T
    )
    return np.maximum(values, 0), vectors


def _bridge(base: np.ndarray) -> np.ndarray:
    """Return the covariance ``G(s) (1 - G(t))``, s <= t, averaged over the rows G."""
    mean = np.mean(base, axis=0)
    averaged: np.ndarray = np.minimum(mean[:, None], mean) - base.T @ base / len(base)
    return averaged


def _kernel(directions: np.ndarray, length: float) -> np.ndarray:
    """Return the correlations of the differences along the directions, without nugget."""
    correlations: np.ndarray = np.exp((directions @ directions.T - 1) / length)
    return correlations


def _with_nugget(values: np.ndarray, nugget: float) -> np.ndarray:
    """Return the eigenvalues with a share of each direction's own."""
    mixed: np.ndarray = (1 - nugget) * np.maximum(values, 0) + nugget
    return mixed


def _spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Return all rows, or as many as asked for at equal distances."""
    if len(rows) <= most:
        return rows
    spaced: np.ndarray = rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]
    return spaced
