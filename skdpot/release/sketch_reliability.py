"""How far the noise of a sketch lets its distribution functions be trusted."""

import math
from typing import Any

import numpy as np

from skdpot._utils.arrays import FloatArray
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.release.decoding import measured_cdf

# Root mean square errors of decoded functions, in deviations of the measured ones: .3 to .95 where
# the noise is low, for normal, uniform, skewed, bimodal and binary features. Beyond, the fit of
# Gaussians adds an error of second order, which the directions of a feature space share.
_DECODED = 0.6
_SECOND_ORDER = 3.5
# Directions for each feature from which on more of them lower the errors of classes, unless the
# noise is low.
_POOLED, _LOW = 2.0, 0.05
_MOST = 0.5  # standard deviation of a number in [0, 1]
# Of the squared error in a squared distance. Few features are taken for more than noise; functions
# of classes are shrunk to those of all, so that noise adds less to their distance.
_SHARE, _SHARE_OF_CLASSES = 2.0, 1.0
_MARGIN = 0.05  # of the range of a distribution function
_ADVICE = "Use more rows, a larger epsilon, fewer features{} or tight bounds."


def cdf_errors(sketch: Any, label: Any = None) -> FloatArray:
    """Return the root mean square error of each distribution function, over the inner edges.

    The standard deviation about the functions of the same rows without noise, of shape
    (n_projections,), for one class or for all together. A class without rows is unknown.

    Privacy
    -------
    Reads the released table and the public law of its noise alone.
    """
    n_projections, n_features = sketch.directions_.shape
    if label is not None and sketch.class_counts_[sketch._position(label)] == 0:
        return np.full(n_projections, _MOST if sketch.noise_scale_ else 0.0)
    measured = np.sqrt((measured_cdf(sketch, label)[1][:, 1:-1] ** 2).mean(axis=1))
    alone = n_features / n_projections  # what one direction tells that no other does
    first, second = _DECODED * measured, _SECOND_ORDER * min(1.0, alone) * measured**2
    if label is not None:  # most of the directions are oblique, and tell of each other
        several = min(1.0, math.sqrt(_POOLED * alone))
        first = np.maximum(several * first, np.minimum(first, _DECODED * _LOW))
    return np.minimum(np.hypot(first, second), _MOST)


def sketch_reliability(sketch: Any) -> Reliability:
    """State the errors of a closed sketch, beside those of a law that needs no data.

    The outputs are the distribution of each feature, beside the uniform one; or that of each class,
    over all directions, beside that of all classes. Without directions along axes there is one
    output for all of them.

    Privacy
    -------
    Post-processing of the release.
    """
    directions, inner = sketch.directions_, slice(1, -1)
    cdf = sketch.table().cdf[:, inner]
    uniform = np.linspace(0.0, 1.0, cdf.shape[1] + 2)[inner]
    names, classes = feature_names(sketch), getattr(sketch, "classes_", ())
    if len(classes) > 1:
        names = [f"class {label}" for label in classes]
        apart = [sketch.table(label).cdf[:, inner] - cdf for label in classes]
        distances = np.array([np.square(each).mean() for each in apart])
        squares = np.array([np.square(cdf_errors(sketch, label)).mean() for label in classes])
        trivial, help_by = "that of all classes together", ", no classes"
        share = _SHARE_OF_CLASSES
    else:
        distances = np.square(cdf - uniform).mean(axis=1)
        squares = cdf_errors(sketch) ** 2
        trivial, help_by, share = "a uniform one in the bounds", "", _SHARE
        at = {int(np.abs(d).argmax()): k for k, d in enumerate(directions) if _is_axis(d)}
        if len(at) == len(names):
            order = [at[j] for j in range(len(names))]
            distances, squares = distances[order], squares[order]
        else:
            names, distances, squares = (
                ["all features"],
                distances.mean()[None],
                squares.mean()[None],
            )
    outputs = tuple(
        OutputError(
            output=f"the distribution of {name}",
            standard_error=math.sqrt(square),
            trivial=trivial,
            trivial_error=math.sqrt(max(float(distance) - share * square, 0.0)),
            margin=_MARGIN,
        )
        for name, square, distance in zip(names, squares, distances, strict=True)
    )
    return Reliability(outputs, _ADVICE.format(help_by))


def feature_names(fitted: Any) -> list[str]:
    """Return the names of the features of a fitted estimator, or their positions."""
    given = getattr(fitted, "feature_names_in_", None)
    return [f"feature {j}" for j in range(fitted.n_features_in_)] if given is None else list(given)


def _is_axis(direction: FloatArray) -> bool:
    return bool(np.abs(direction).max() > 1 - 1e-9)
