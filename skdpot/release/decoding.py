"""Decoding of a released table into distribution functions along directions, and their errors.

Everything here is post-processing. The released table is ``S = A h + σ·noise`` for every class and
slice. ``D = T A^{-1}`` turns it into noisy cumulative counts with covariance ``σ² D Dᵀ``. Then the
known facts (the number of rows, monotonicity) are imposed.

Isotonic regression alone turns noise into mass: where a distribution function is 0 or 1, noise is
clipped on one side only, so every class looks wider than it is. The functions are therefore
estimated under a prior (empirical Bayes):

- Along each direction a class is a priori a Gaussian plus a difference. Differences along one
  direction vary like a Dirichlet process: ``τ G(s) (1 - G(t))`` for s <= t. The base measure G is
  the Gaussian of the class, optionally mixed with a wider Gaussian or with the uniform measure
  (without which no table could show a second cluster in a tail). Differences along neighbouring
  directions have the correlation ``exp(-(1 - cos) / length)``, except for a share of their
  variance, the nugget, which is independent between directions.
- The locations and spreads of the Gaussians, τ, the length, the nugget and the kind of base are
  estimated from the released table.

Gaussians are fitted to whitened values, whose noise is independent. Positions along a direction are
in units of the half width of its binned range.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from skdpot._utils.threads import one_blas_thread
from skdpot.release.strategy import Strategy, increasing

_CONCENTRATIONS = np.geomspace(1e-5, 1.0, 31)
_LENGTHS = (0.02, 0.05, 0.15, 0.5, 1.5, 5.0, 20.0)
_NUGGETS = (0.0, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
# Share of the base measure that is not the Gaussian of the class, and its relative width.
_BASES = ((0.0, 1.0), (0.02, np.inf), (0.1, np.inf), (0.2, 2.0), (0.2, 4.0))
_AXES, _OTHERS = 64, 192  # slices that the prior is chosen on; all slices are estimated
_SLICES_OF_BASE = 64
_MOST_TOGETHER = 2048  # directions that are smoothed together
_FEWEST_AXES = 8  # fewer axes are too few to estimate a prior of their own
_TAIL = 0.02  # a value counts as in a tail where G (1 - G) is smaller
_CERTAIN = 5.0  # standard deviations beyond which an excess is not reduced
_LOG_SIGNALS = np.arange(-23.0, 45.0, 0.1)
_VARIANCES = 1 + _CONCENTRATIONS[:, None] * np.exp(_LOG_SIGNALS)
_LOG_VARIANCES, _PRECISIONS = np.log(_VARIANCES), 1 / _VARIANCES
_LOCATIONS = np.linspace(-1.0, 1.0, 129)
_SPREADS = np.geomspace(0.03, 1.0, 24)
_CLASS_SHARES = np.linspace(0.35, 1.0, 14)
_SCALES = np.geomspace(0.01, 1.0, 161)  # spreads within a class are rounded to these
_SPREAD_LOG_DEVIATION = 0.35  # how much spreads differ between directions, a priori
# Entries of the maps of a comparison; these take 2 GiB.
_MOST_ENTRIES = 2**28


def measured_cdf(sketch: Any, label: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the unbiased distribution functions of a sketch and the deviations of their noise.

    They are the values at all bin edges before any smoothing: the true values plus Gaussian noise,
    neither monotone nor within [0, 1]. Both ends are known, with deviation 0.

    With ``C`` the covariance of noisy cumulative counts for noise of unit variance, a table whose
    last count is known to be t has the values ``F_j + σ e_j / t`` with ``Var(e_j) =
    C_jj − C_jB² / C_BB``. All K classes together have t = n, and K such tables are added. The size
    of one class is known when labels are public. Otherwise it is estimated from the last counts of
    L slices, such that all sizes sum to n, which adds ``(F_j − C_jB / C_BB)² (1 − 1 / K) C_BB / L``
    to the variance of e_j (to first order in the error of the size).

    Privacy
    -------
    Reads the released table and the public law of its noise alone.
    """
    smooth = sketch.table(label).cdf
    strategy = sketch.strategy_
    last = strategy.covariance[:-1, -1] / strategy.covariance[-1, -1]
    variances = np.broadcast_to(
        np.diag(strategy.known_total_covariance), (len(smooth), strategy.n_bins - 1)
    )
    if label is None:
        statistic, total = sketch.statistic_.sum(axis=0), float(sketch.n_samples_)
        variances = variances * len(sketch.statistic_)
    else:
        position = sketch._position(label)
        statistic, total = sketch.statistic_[position], float(sketch.class_counts_[position])
        if sketch._label_counts is None:
            factor = 1 - 1 / len(sketch.statistic_)
            spread = factor * strategy.covariance[-1, -1] / len(smooth)
            variances = variances + (smooth[:, 1:-1] - last) ** 2 * spread
    if total == 0:
        raise ValueError("A class without rows has no distribution function to measure.")
    values = np.zeros_like(smooth)
    values[:, 1:-1] = strategy.known_total(statistic @ strategy.decoder.T, total)
    values[:, -1] = 1.0
    deviations = np.zeros_like(smooth)
    deviations[:, 1:-1] = sketch.noise_scale_ / total * np.sqrt(variances)
    return values, deviations


_Spectrum = tuple[np.ndarray, np.ndarray]  # eigenvalues and eigenvectors


def decode(
    statistic: np.ndarray,
    strategy: Strategy,
    n_samples: int,
    sigma: float,
    directions: np.ndarray,
    half_widths: np.ndarray,
    class_counts: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Decode a released table into distribution functions at the bin edges.

    Notes
    -----
    Knowing the total means conditioning a Gaussian vector on its last entry:
    ``c_j <- c_j - (C_jB / C_BB) (c_B - n)`` with ``C = D Dᵀ``. (A linear bridge, with j / B as the
    ratio, is right for white noise only.) Noisy functions are then replaced by their
    `posterior_mean`. Isotonic regression projects on the increasing functions, so it never moves
    away from the true one.

    With public class sizes, `class_counts`, each class has one noisy number fewer, and classes need
    not be similar (they may be time stamps). A class without rows gets the uniform distribution.
    """
    cumulative = statistic @ strategy.decoder.T
    if class_counts is None:
        totals = class_totals(cumulative[:, :, -1].mean(axis=1), n_samples)
    else:
        totals = class_counts.astype(np.float64)
    cdf = np.empty((*statistic.shape[:2], strategy.n_bins + 1))
    cdf[...] = np.linspace(0.0, 1.0, strategy.n_bins + 1)
    present = np.flatnonzero(totals)
    sizes = totals[present]
    inner = strategy.known_total(cumulative[present], sizes[:, None, None])
    if sigma > 0:
        inner = posterior_mean(
            inner,
            covariance=strategy.known_total_covariance,
            noise=sigma / sizes,
            weights=sizes / sizes.sum(),
            directions=directions,
            half_widths=half_widths,
            by_class=class_counts is not None,
        )
    cdf[present] = increasing(inner)
    return cdf, totals


def class_totals(noisy: np.ndarray, n_samples: int) -> np.ndarray:
    """Project noisy class totals on totals of at least 1 that sum to n."""
    floor = min(1.0, n_samples / len(noisy))
    free = n_samples - floor * len(noisy)
    ordered = np.sort(noisy - floor)[::-1]
    shifts = (np.cumsum(ordered) - free) / np.arange(1, len(noisy) + 1)
    shift = shifts[np.flatnonzero(ordered >= shifts)[-1]]
    return floor + np.maximum(noisy - floor - shift, 0)


class _Whitened(NamedTuple):
    """Functions (n_classes, n_projections, n_inner), transformed so that noise is white."""

    values: np.ndarray
    noise: np.ndarray  # of each class
    whiten: np.ndarray

    @property
    def edges(self) -> np.ndarray:
        """The edges between bins, in units of the half width."""
        return np.linspace(-1.0, 1.0, self.values.shape[-1] + 2)[1:-1]


class _Prior(NamedTuple):
    """Covariance of the differences: ``τ ((1 - nugget) K + nugget I) ⊗ P``."""

    misfit: float
    length: float
    nugget: float
    tau: float
    bases: list[_Spectrum]  # of P, whitened, one per class


@one_blas_thread()  # several threads would slow down many small products
def posterior_mean(
    cdf: np.ndarray,
    covariance: np.ndarray,
    noise: np.ndarray,
    weights: np.ndarray,
    directions: np.ndarray,
    half_widths: np.ndarray,
    *,
    by_class: bool = False,
) -> np.ndarray:
    """Return the empirical-Bayes posterior mean of noisy distribution functions.

    Notes
    -----
    Along each direction the spread of all classes together has a posterior under a log-normal prior
    around the spread that fits all directions best. The spread within a class is a common fraction
    of it, chosen by marginal likelihood, and the location of a class has a posterior under a normal
    prior around the common location. The locations of a class along all directions are projected on
    the projections of one point.

    The bases of a class are averaged over the directions, so the covariance of its differences is a
    Kronecker product. The noise is the same along all directions, so everything is diagonal in the
    product of two bases of eigenvectors. The parameters maximise the marginal likelihood of up to
    256 directions and all classes. Axes get a prior of their own where that is more likely: single
    features are often far from Gaussian when mixtures of many features are close to it.

    The posterior mean is optimal for each function. Quantities computed from all functions have
    less noise, because the noise of the L / d orthogonal blocks of directions averages out, whereas
    the bias of the prior does not. So the gain uses d / L of the variance of the noise.

    With `by_class`, each class has a prior of its own if that has the larger marginal likelihood of
    the Gaussians. A shared prior helps small classes that are similar (arms of a trial), and
    distorts classes that are not (a crowd that disperses over time).

    References
    ----------
    T. S. Ferguson, "A Bayesian analysis of some nonparametric problems", Annals of Statistics
    1 (1973): mean and covariance of a Dirichlet process.
    """
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    white = _Whitened(cdf @ whiten.T, noise, whiten)
    fits = [(white, _fit_gaussians(white, weights))]
    if by_class:
        parts = [_Whitened(white.values[k, None], noise[k, None], whiten) for k in range(len(cdf))]
        apart = [(part, _fit_gaussians(part, np.ones(1))) for part in parts]
        if fits[0][1].evidence < sum(fit.evidence for _, fit in apart):
            fits = apart
    return np.concatenate([_around(fit, part, directions, half_widths) for part, fit in fits])


def _around(
    gaussians: "_Gaussians", white: _Whitened, directions: np.ndarray, half_widths: np.ndarray
) -> np.ndarray:
    """Return the Gaussians plus the posterior means of the differences from them."""
    locations = gaussians.locations * half_widths
    points = np.linalg.lstsq(directions, locations.T, rcond=None)[0]
    locations = (points.T @ directions.T) / half_widths
    z = (white.edges - locations[:, :, None]) / gaussians.spreads[:, None]
    gaussian = ndtr(z)
    residual = white._replace(values=white.values - gaussian @ white.whiten.T)
    differences, deviations = _smoothed(residual, z, directions)
    plain = differences @ np.linalg.inv(white.whiten).T
    return gaussian + _trimmed(plain, deviations, gaussian)


def _smoothed(
    residual: _Whitened, z: np.ndarray, directions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mean of whitened differences, and the deviations of plain ones."""
    values, noise, whiten = residual
    root = np.linalg.inv(whiten)
    averaged = min(1.0, directions.shape[1] / len(directions))
    kept, deviations = np.empty_like(values), np.empty_like(values)
    for group, prior in _priors(residual, z, directions):
        # Correlations of more directions at once would take too much time and memory.
        for rows in np.array_split(group, -(-len(group) // _MOST_TOGETHER)):
            levels, vectors = np.linalg.eigh(_kernel(directions[rows], prior.length))
            variances = prior.tau * _with_nugget(levels, prior.nugget)
            for k, (masses, shapes) in enumerate(prior.bases):
                signal = np.outer(variances, masses)
                gain = signal / (signal + averaged * noise[k] ** 2)
                kept[k, rows] = vectors @ (gain * (vectors.T @ values[k, rows] @ shapes)) @ shapes.T
                squares = vectors**2 @ gain @ ((root @ shapes) ** 2).T
                deviations[k, rows] = noise[k] * np.sqrt(squares)
    return kept, deviations


def _trimmed(differences: np.ndarray, deviations: np.ndarray, gaussian: np.ndarray) -> np.ndarray:
    """Reduce the tails' excess over the Gaussian's by one deviation where it may be noise.

    Noise adds mass to a tail as often as it removes mass, but a distribution function cannot be
    negative: the monotone function that follows would keep only the added mass. An excess of
    several deviations stays.
    """
    in_tail = np.maximum(0.0, 1.0 - gaussian * (1.0 - gaussian) / _TAIL)
    doubt = np.clip((_CERTAIN * deviations - np.abs(differences)) / (_CERTAIN - 1), 0, deviations)
    smaller = np.maximum(np.abs(differences) - in_tail * doubt, 0.0)
    outward = (differences > 0) == (gaussian < 0.5)
    return np.where(outward, np.sign(differences) * smaller, differences)


def _priors(
    residual: _Whitened, z: np.ndarray, directions: np.ndarray
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
        seen = [residual._replace(values=residual.values[:, at]) for at in parts]
        fits = [
            _fitted(some, z[:, at], directions[at]) for some, at in zip(seen, parts, strict=True)
        ]
        choices.append(list(zip(groups, fits, strict=True)))
    return min(choices, key=lambda choice: sum(prior.misfit for _, prior in choice))


def _fitted(residual: _Whitened, z: np.ndarray, directions: np.ndarray) -> _Prior:
    """Return the prior of the largest marginal likelihood, common to all classes."""
    kernels = [np.linalg.eigh(_kernel(directions, length)) for length in _LENGTHS]
    likeliest = _Prior(np.inf, 0.0, 0.0, 0.0, [])
    for share, factor in _BASES:
        bases = [_base(positions, share, factor, residual) for positions in z]
        each = list(zip(residual.values, bases, residual.noise, strict=True))
        levels = np.stack([values / level**2 for _, (values, _), level in each])
        turned = np.stack([r @ vectors / level for r, (_, vectors), level in each])
        for (values, vectors), length in zip(kernels, _LENGTHS, strict=True):
            squares = (vectors.T @ turned) ** 2
            for nugget in _NUGGETS:
                signals = _with_nugget(values, nugget)[:, None] * levels[:, None, :]
                misfit, tau = _concentration(signals, squares)
                if misfit < likeliest.misfit:
                    likeliest = _Prior(misfit, length, nugget, tau, bases)
    return likeliest


def _concentration(signals: np.ndarray, squares: np.ndarray) -> tuple[float, float]:
    """Return the smallest misfit over τ and its τ: values have variance τ signal + 1.

    Signals are counted in steps of 10 %, so that trying one τ is cheap.
    """
    step = _LOG_SIGNALS[1] - _LOG_SIGNALS[0]
    logs = np.log(np.maximum(signals, np.exp(_LOG_SIGNALS[0]))).ravel()
    at = np.minimum((logs - _LOG_SIGNALS[0]) / step + 0.5, len(_LOG_SIGNALS) - 1).astype(int)
    numbers = np.bincount(at, minlength=len(_LOG_SIGNALS))
    sums = np.bincount(at, squares.ravel(), minlength=len(_LOG_SIGNALS))
    misfits = _LOG_VARIANCES @ numbers + _PRECISIONS @ sums
    best = int(misfits.argmin())
    return float(misfits[best]), float(_CONCENTRATIONS[best])


def _base(z: np.ndarray, share: float, factor: float, white: _Whitened) -> _Spectrum:
    """Return the spectrum of a class's covariance along a direction, for standardised edges z."""
    some = z[_spaced(np.arange(len(z)), _SLICES_OF_BASE)]
    wider = ndtr(some / factor) if np.isfinite(factor) else (white.edges + 1) / 2
    bridge = _bridge((1 - share) * ndtr(some) + share * wider)
    values, vectors = np.linalg.eigh(white.whiten @ bridge @ white.whiten.T)
    return np.maximum(values, 0), vectors


def _bridge(base: np.ndarray) -> np.ndarray:
    """Return the covariance ``G(s) (1 - G(t))``, s <= t, averaged over the rows G."""
    mean = np.mean(base, axis=0)
    return np.minimum(mean[:, None], mean) - base.T @ base / len(base)


def _kernel(directions: np.ndarray, length: float) -> np.ndarray:
    """Return the correlations of the differences along the directions, without nugget."""
    return np.exp((directions @ directions.T - 1) / length)


def _with_nugget(values: np.ndarray, nugget: float) -> np.ndarray:
    """Return the eigenvalues of the correlations with the nugget."""
    return (1 - nugget) * np.maximum(values, 0) + nugget


def _spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Return all rows, or `most` of them at equal steps."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


class _Gaussians(NamedTuple):
    """Gaussians of classes that share a prior, and their log evidence."""

    locations: np.ndarray  # posterior means (n_classes, n_projections)
    spreads: np.ndarray  # (n_projections,), the same for all classes
    evidence: float  # log marginal likelihood, up to a constant of the release


def _fit_gaussians(white: _Whitened, weights: np.ndarray) -> _Gaussians:
    """Fit location and spread of classes that share a prior."""
    pooled_noise = float(np.sqrt(np.sum((weights * white.noise) ** 2)))
    pooled = white._replace(values=np.tensordot(weights, white.values, axes=1))
    centers, spreads = _pooled_fit(pooled, pooled_noise)
    several = len(white.values) > 1
    shares, width = (_CLASS_SHARES, 1.0) if several else (np.ones(1), np.inf)
    fits = [_class_locations(white, centers, spreads, share, width) for share in shares]
    best = int(np.argmax([evidence for _, evidence in fits]))
    return _Gaussians(fits[best][0], shares[best] * spreads, fits[best][1])


def _misfits(white: _Whitened, spread: float) -> np.ndarray:
    """Return half the squared whitened misfit of each row to a Gaussian at each location."""
    models = ndtr((white.edges - _LOCATIONS[:, None]) / spread) @ white.whiten.T
    squares = np.sum(white.values**2, axis=-1)[..., None] + np.sum(models**2, axis=1)
    return 0.5 * squares - white.values @ models.T


def _pooled_fit(white: _Whitened, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return location and spread of all classes together along each direction."""
    misfits = np.stack([_misfits(white, spread) for spread in _SPREADS]) / noise**2
    profile = -misfits.min(axis=2)  # (n_spreads, n_projections)
    common = _SPREADS[profile.sum(axis=1).argmax()]
    prior = -0.5 * (np.log(_SPREADS / common) / _SPREAD_LOG_DEVIATION) ** 2
    posterior = _normalised(profile + prior[:, None])
    spreads = np.exp(np.log(_SPREADS) @ posterior)
    nearest = np.abs(np.log(_SPREADS[:, None] / spreads)).argmin(axis=0)
    at = misfits[nearest, np.arange(len(white.values))].argmin(axis=1)
    return _LOCATIONS[at], spreads


def _class_locations(
    white: _Whitened, centers: np.ndarray, spreads: np.ndarray, share: float, width: float
) -> tuple[np.ndarray, float]:
    """Return posterior mean locations (n_classes, n_projections) and their log evidence."""
    locations = np.empty(white.values.shape[:2])
    evidence = 0.0
    nearest = np.abs(np.log(_SCALES[:, None] / (share * spreads))).argmin(axis=0)
    for scale in np.unique(nearest):
        at = np.flatnonzero(nearest == scale)
        some = white._replace(values=white.values[:, at])
        log_likelihood = -_misfits(some, _SCALES[scale])
        log_likelihood /= white.noise[:, None, None] ** 2
        steps = (_LOCATIONS[:, None] - centers[at]) / (width * spreads[at])
        prior = _normalised(-0.5 * steps**2).T
        highest = log_likelihood.max(axis=2, keepdims=True)
        joint = np.exp(log_likelihood - highest) * prior
        total = joint.sum(axis=2)
        locations[:, at] = joint @ _LOCATIONS / total
        evidence += float(np.sum(np.log(total) + highest[:, :, 0]))
    return locations, evidence


def _normalised(log_values: np.ndarray) -> np.ndarray:
    """Exponentiate and scale to sum to one along the first axis."""
    values = np.exp(log_values - log_values.max(axis=0))
    return values / values.sum(axis=0)


class SupportedDecoder:
    """Decoder of released entries into distribution functions of known supports (n_projections, 2).

    It fits the cumulative counts of a histogram with the known total on the support by generalised
    least squares, without any prior on their shape. It is linear up to the isotonic regression at
    the end.
    """

    def __init__(self, strategy: Strategy, support: np.ndarray) -> None:
        if len(support) * strategy.n_bins**2 > _MOST_ENTRIES:
            raise ValueError(
                f"A comparison of {len(support)} slices of {strategy.n_bins} bins takes too much "
                f"memory: n_projections * n_bins**2 may be {_MOST_ENTRIES} at most. "
                "SlicedSketch.distance compares any, without subtracting noise."
            )
        self.support = support
        self.span = int(support[:, 0].min()), int(support[:, 1].max())
        maps = [_cumulative_map(strategy, int(first), int(last)) for first, last in support]
        self._gains = np.stack([gain for gain, _ in maps])
        self._offsets = np.stack([offset for _, offset in maps])

    def decode(self, entries: np.ndarray) -> np.ndarray:
        """Decode a released table."""
        return increasing(self._offsets + np.matmul(self._gains, entries[:, :, None])[:, :, 0])

    def errors(self, noise: np.ndarray) -> np.ndarray:
        """Return the errors at the inner edges of the span by noise (n_projections, n, n_bins)."""
        low, high = self.span
        moved: np.ndarray = np.matmul(noise, self._gains[:, low : high - 1].transpose(0, 2, 1))
        return moved.transpose(1, 0, 2)


@lru_cache(maxsize=2**12)
def _cumulative_map(strategy: Strategy, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and offset from entries to inner values, for data in bins first to last - 1.

    Least squares under ``sum(h) = 1``: ``h = G s + (1 - 1ᵀG s) q``, where G is the pseudo-inverse
    of the columns of A that the data can reach, and q is ``(AᵀA)⁻¹1`` scaled to sum to one, the
    direction that increases the squared error least.
    """
    n_bins = strategy.n_bins
    reached = strategy.matrix[:, first:last]
    inverse = np.linalg.inv(reached.T @ reached)
    pseudo = inverse @ reached.T
    give = inverse.sum(axis=1) / inverse.sum()
    gain, offset = np.zeros((n_bins - 1, n_bins)), np.zeros(n_bins - 1)
    within = slice(first, last - 1)
    gain[within] = np.cumsum(pseudo - np.outer(give, pseudo.sum(axis=0)), axis=0)[:-1]
    offset[within] = np.cumsum(give)[:-1]
    offset[last - 1 :] = 1.0
    return gain, offset
