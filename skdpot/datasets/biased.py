"""Data in which the group of a person predicts the outcome, and some features only the group."""

from numbers import Real

import numpy as np
from sklearn.utils import check_scalar

from skdpot._utils.rng import solver_generator
from skdpot.datasets._counts import check_count

__all__ = ["make_biased_classification", "make_biased_regression"]


def make_biased_classification(
    n_samples: int = 30_000,
    *,
    alignment: float = 0.7,
    n_core: int = 8,
    n_spurious: int = 8,
    core_variance: float = 0.2,
    spurious_variance: float = 0.4,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a binary task whose classes are unevenly spread over two groups.

    A response r is uniform on the unit square, and the class is ``y = 1`` above the diagonal
    ``r_1 + r_2 = 1``. The group of a row equals its class with probability `alignment`, and is
    the other one else. The core features repeat the response and the spurious features repeat
    the group, each with independent normal noise: a model that trusts the spurious features is
    right for most rows, and its errors fall on those whose group and class differ.

    Parameters
    ----------
    n_samples : int, default=30000
        Number of rows.
    alignment : float, default=0.7
        Probability p that group and class are equal, in [0, 1]; at 0.5 they are independent.
        A perfect classifier has the (directed) disparate impact ``(1 − p) / p``.
    n_core : int, default=8
        Number of core features; even, for they alternate between r_1 and r_2.
    n_spurious : int, default=8
        Number of spurious features.
    core_variance, spurious_variance : float, default=0.2, 0.4
        Variances of the noise.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n_samples, n_core + n_spurious)
        Features, the core ones first.
    y : ndarray of shape (n_samples,)
        Classes 0 and 1, equally likely.
    sensitive_features : ndarray of shape (n_samples,)
        Groups 0 and 1, equally likely.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    See Also
    --------
    make_biased_regression : The same rows with the response itself as target.

    Privacy
    -------
    Made-up data belong to nobody.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
    (sliced) Wasserstein gradients", Appendix B; the default values are those of its figures.

    Examples
    --------
    >>> from skdpot.datasets import make_biased_classification
    >>> from skdpot.metrics import disparate_impact
    >>> X, y, sensitive_features = make_biased_classification(random_state=0)
    >>> X.shape
    (30000, 16)
    >>> round(disparate_impact(y, sensitive_features=sensitive_features), 1)
    0.4
    """
    X, response, group = _draw(
        n_samples, alignment, (n_core, core_variance), (n_spurious, spurious_variance), random_state
    )
    return X, _classes(response), group


def make_biased_regression(
    n_samples: int = 30_000,
    *,
    alignment: float = 0.7,
    n_core: int = 8,
    n_spurious: int = 8,
    core_variance: float = 0.2,
    spurious_variance: float = 0.4,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a task with two outputs whose distributions differ between two groups.

    The rows of `make_biased_classification`, of the same parameters and random state, with the
    response r on the unit square as target. Given the group, r falls into the triangle of the
    group's number with probability `alignment`, and is uniform there: triangle 0 lies below
    the diagonal ``r_1 + r_2 = 1`` and triangle 1 above.

    Parameters
    ----------
    n_samples : int, default=30000
        Number of rows.
    alignment : float, default=0.7
        Probability that the response lies in the triangle of its group, in [0, 1].
    n_core : int, default=8
        Number of core features; even, for they alternate between r_1 and r_2.
    n_spurious : int, default=8
        Number of spurious features.
    core_variance, spurious_variance : float, default=0.2, 0.4
        Variances of the noise.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n_samples, n_core + n_spurious)
        Features, the core ones first.
    Y : ndarray of shape (n_samples, 2)
        Responses in [0, 1].
    sensitive_features : ndarray of shape (n_samples,)
        Groups 0 and 1, equally likely.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    See Also
    --------
    make_biased_classification : With a binary target.

    Privacy
    -------
    Made-up data belong to nobody.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
    (sliced) Wasserstein gradients", Appendix B; the default values are those of its figures.

    Examples
    --------
    >>> from skdpot.datasets import make_biased_regression
    >>> X, Y, sensitive_features = make_biased_regression(random_state=0)
    >>> Y.shape
    (30000, 2)
    >>> bool(Y[sensitive_features == 1].mean() > Y[sensitive_features == 0].mean())
    True
    """
    return _draw(
        n_samples, alignment, (n_core, core_variance), (n_spurious, spurious_variance), random_state
    )


def _draw(
    n_samples: int,
    alignment: float,
    core: tuple[int, float],
    spurious: tuple[int, float],
    random_state: int | np.random.RandomState | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw features, response and group; core and spurious are (number, variance)."""
    n_samples = check_count(n_samples, "n_samples", least=1)
    core = (check_count(core[0], "n_core", least=2), core[1])
    spurious = (check_count(spurious[0], "n_spurious", least=0), spurious[1])
    if core[0] % 2:
        raise ValueError(
            f"n_core={core[0]} must be even: the core features come in pairs, one for each "
            "coordinate of the response."
        )
    # Written so that a NaN is refused as well.
    if not 0 <= check_scalar(alignment, "alignment", Real) <= 1:
        raise ValueError(f"alignment={alignment!r} must be a probability, in [0, 1].")
    for name, (_, variance) in {"core": core, "spurious": spurious}.items():
        if not 0 <= check_scalar(variance, f"{name}_variance", Real) < np.inf:
            raise ValueError(f"{name}_variance={variance!r} must be finite and at least 0.")
    rng = solver_generator(random_state)
    response = rng.random((n_samples, 2))
    label = _classes(response)
    group = np.where(rng.random(n_samples) < alignment, label, 1 - label)
    X = np.hstack(
        [np.tile(response, core[0] // 2), np.repeat(group[:, np.newaxis], spurious[0], axis=1)]
    )
    deviations = np.repeat(np.sqrt([core[1], spurious[1]]), [core[0], spurious[0]])
    return X + deviations * rng.standard_normal(X.shape), response, group


def _classes(response: np.ndarray) -> np.ndarray:
    """Return 1 above the diagonal of the unit square and 0 below."""
    classes: np.ndarray = (response[:, 1] > 1 - response[:, 0]).astype(np.int64)
    return classes
