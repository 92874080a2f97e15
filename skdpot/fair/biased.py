"""Tasks with a known bias: a group that is aligned with the target."""

import numpy as np

from skdpot._utils.arguments import check_count, check_real
from skdpot._utils.streams import solver_generator


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
    ``r_1 + r_2 = 1``. The group equals the class with probability `alignment`. Core features repeat
    the response and spurious features the group, with independent normal noise. A model that trusts
    spurious features is right for most rows, and its errors fall on rows whose group and class
    differ.

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
    X, response, group = make_biased_regression(
        n_samples,
        alignment=alignment,
        n_core=n_core,
        n_spurious=n_spurious,
        core_variance=core_variance,
        spurious_variance=spurious_variance,
        random_state=random_state,
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

    The rows of `make_biased_classification` for the same parameters and random state, with the
    response r on the unit square as target. Given the group, r lies in the triangle of the group's
    number with probability `alignment`, and is uniform there: triangle 0 lies below the diagonal
    ``r_1 + r_2 = 1`` and triangle 1 above.

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

    Examples
    --------
    >>> from skdpot.datasets import make_biased_regression
    >>> X, Y, sensitive_features = make_biased_regression(random_state=0)
    >>> Y.shape
    (30000, 2)
    >>> bool(Y[sensitive_features == 1].mean() > Y[sensitive_features == 0].mean())
    True
    """
    n_samples = check_count(n_samples, "n_samples")
    n_core = check_count(n_core, "n_core", least=2)
    n_spurious = check_count(n_spurious, "n_spurious", least=0)
    if n_core % 2:
        raise ValueError(
            f"n_core={n_core} must be even: the core features come in pairs, one for each "
            "coordinate of the response."
        )
    alignment = check_real(alignment, "alignment", most=1)
    variances = [
        check_real(core_variance, "core_variance"),
        check_real(spurious_variance, "spurious_variance"),
    ]
    rng = solver_generator(random_state)
    response = rng.random((n_samples, 2))
    label = _classes(response)
    group = np.where(rng.random(n_samples) < alignment, label, 1 - label)
    spurious = np.repeat(group[:, np.newaxis], n_spurious, axis=1)
    X = np.hstack([np.tile(response, n_core // 2), spurious])
    deviations = np.repeat(np.sqrt(variances), [n_core, n_spurious])
    return X + deviations * rng.standard_normal(X.shape), response, group


def _classes(response: np.ndarray) -> np.ndarray:
    """Return 1 above the diagonal of the unit square and 0 below."""
    return np.asarray(response[:, 1] > 1 - response[:, 0], dtype=np.int64)
