"""How far the noise of a published sketch lets distances to it be trusted."""

import numpy as np

from skdpot.distance.estimates import common_scale
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_reliability import cdf_errors

OUTPUT = "distances to other parties"
# Tails make a distance that noise alone yields grow as a power of the error of distribution
# functions. Both figures were fitted to 6 laws; tests compare them with distances of equal parties.
_PER_SPREAD, _POWER = 2.2, 0.75
_AT_BOUND = 0.95  # of half the range: a mean beyond it is one of clipped values
_HARDLY_SPREAD = 0.1  # of half the range, without noise
_MOST_NOISE = 0.1  # error of distribution functions, beyond which a corner is not seen
_OF_NOISE = 0.3  # squares of half the range that noise adds to a squared spread, per error
_ADVICE = "Use more rows, a larger epsilon, or fewer features (and n_projections)."
_CLIPPED = "Nearly all rows are at one corner of the bounds: check that bounds= holds the rows."


def distance_reliability(sketch: SlicedSketch) -> Reliability:
    """State the error of distances between parties with such a sketch, beside the rows' spread.

    The standard error is a distance that noise yields between two equal parties. Distances up to
    the spread of the rows about their mean are trivial where the error is as large.

    Privacy
    -------
    Post-processing of the sketch.
    """
    table, unit = sketch.table(), common_scale(sketch.bounds_, sketch._is_declared) or 1.0
    middles = (table.edges[:, 1:] + table.edges[:, :-1]) / 2
    masses = np.diff(table.cdf, axis=1)
    means = (masses * middles).sum(axis=1)
    spread = float(np.sqrt(((masses * middles**2).sum(axis=1) - means**2).clip(0.0).mean()))
    error = float(np.sqrt(np.square(cdf_errors(sketch)).mean()))
    largest = 2.0 * float(table.half_widths.mean())
    at_corner = _are_at_a_corner(sketch, means, spread, error)
    found = _PER_SPREAD * spread * error**_POWER
    if at_corner and error:
        found = largest  # whatever lies outside of the bounds is not seen
    output = OutputError(
        output=OUTPUT,
        standard_error=unit * min(found, largest),
        trivial="no distance",
        trivial_error=0.0 if at_corner else unit * spread,
    )
    return Reliability((output,), _CLIPPED if at_corner else _ADVICE)


def _are_at_a_corner(sketch: SlicedSketch, means: np.ndarray, spread: float, error: float) -> bool:
    """Whether the features have means at the bounds of a box, and the rows hardly any spread."""
    bounds, directions = sketch.bounds_, sketch.directions_
    if not bounds.box or np.linalg.matrix_rank(directions) < bounds.n_features:
        return False
    half = bounds.radius / np.sqrt(bounds.n_features)
    centre = np.linalg.lstsq(directions, means, rcond=None)[0]
    if error > _MOST_NOISE:
        return False
    is_at_bound = bool((np.abs(centre) > (_AT_BOUND - 2 * error) * half).all())
    return is_at_bound and spread**2 < (_HARDLY_SPREAD**2 + _OF_NOISE * error) * half**2
