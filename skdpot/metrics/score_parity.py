"""How far the scores of groups are apart, whatever the threshold."""

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.rng import solver_generator
from skdpot.metrics._groups import as_labels, check_same_length, group_codes
from skdpot.metrics._samples import as_numbers, as_points, check_slices
from skdpot.metrics.selection import warn_of_undefined
from skdpot.slicing.directions import orthogonal_directions
from skdpot.slicing.transport import sliced_wasserstein_distance

__all__ = ["wasserstein_parity"]


def wasserstein_parity(
    scores: ArrayLike,
    *,
    sensitive_features: Any,
    y_true: Any = None,
    n_slices: int = 256,
    random_state: int | np.random.RandomState | None = 0,
) -> float:
    """Mean Wasserstein-2 distance between the score distributions of two groups.

    The mean runs over all pairs of groups. 0 is statistical parity at every threshold. With
    `y_true` the distances are taken within each true class, and averaged over the classes: 0
    is then equalized odds at every threshold.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, d)
        Scores, such as the probability of the positive class; predictions of a regressor; or
        codes of an encoder. With several columns the distance is the sliced one.
    sensitive_features : array-like of shape (n,)
        Group of each row: booleans, integers or strings. Two or more groups must occur.
    y_true : array-like of shape (n,), optional
        True class of each row: booleans, integers or strings.
    n_slices : int, default=256
        Number of directions for several columns, rounded up to a multiple of d. All pairs
        share them.
    random_state : int, RandomState or None, default=0
        Draws the directions; the same integer makes results comparable.

    Returns
    -------
    float
        The mean of the distances W_2 (not their squares), in the unit of the scores: at most 1
        for probabilities. NaN, with a warning, if some group has no row of a class.

    Raises
    ------
    ValueError
        If the scores are not finite numbers, the labels are not usable, columns differ in
        length, or only one group occurs.

    Warns
    -----
    UndefinedMetricWarning
        If some group has no row of a class.

    See Also
    --------
    sliced_wasserstein_distance : Between two samples.
    disparate_impact : The ratio of selection rates at one threshold.

    Notes
    -----
    Between groups of the same law the distance is above 0, by a number of the order of
    ``1/√n`` for n rows a group.

    Privacy
    -------
    All rows are treated as public: the distance is computed from them without noise.

    Examples
    --------
    >>> from skdpot.metrics import wasserstein_parity
    >>> wasserstein_parity([0.1, 0.4, 0.3, 0.6], sensitive_features=["a", "a", "b", "b"])
    0.2
    """
    values = as_numbers(scores, "scores", ensure_2d=False, allow_nd=True)
    points = as_points(values[:, np.newaxis] if values.ndim == 1 else values, "scores")
    groups = as_labels(sensitive_features, "sensitive_features")
    columns = {"scores": points, "sensitive_features": groups}
    labels = np.zeros(len(points), dtype=int)
    if y_true is not None:
        columns["y_true"] = labels = as_labels(y_true, "y_true")
    check_same_length(**columns)
    n_slices = check_slices(n_slices)
    names, codes = group_codes(groups)
    directions = _directions(points.shape[1], n_slices, random_state)
    distances = []
    for label in np.unique(labels):
        cells = [points[(codes == code) & (labels == label)] for code in range(len(names))]
        if min(map(len, cells)) == 0:
            warn_of_undefined("Some group has no row of some class of y_true: nan.")
            return float("nan")
        distances += [
            sliced_wasserstein_distance(first, second, directions)
            for first, second in combinations(cells, 2)
        ]
    return float(np.mean(distances))


def _directions(
    n_features: int, n_slices: int, random_state: int | np.random.RandomState | None
) -> np.ndarray:
    """Return orthogonal blocks of directions; the line has one."""
    if n_features == 1:
        return np.ones((1, 1))
    n_directions = n_features * -(-n_slices // n_features)
    return orthogonal_directions(n_directions, n_features, solver_generator(random_state))
