"""What a sketch will measure and with how much noise, settled before any row is read.

Directions are drawn from a public stream, independently of the data, and published with the sketch.

A cumulative distribution is a prefix sum ``T h`` of a histogram ``h``. Adding noise to
``h`` makes the noise of ``T h`` grow along the bins; adding it to ``T h`` makes one record
touch every value. Releasing ``A h`` with ``A = T^(1/2)`` and decoding with ``T A^(-1)``
balances both: the worst error grows like log B instead of sqrt B.

References
----------
M. Henzinger, J. Upadhyay, S. Upadhyay, "Almost tight error bounds on differentially
private continual counting", SODA 2023 (the square root of the counting matrix).
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular, toeplitz
from scipy.stats.qmc import Halton

from skdpot._utils.rng import Streams
from skdpot.privacy.accounting import PrivacyTarget, calibrate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import noise_lattice, required_bits
from skdpot.privacy.private_bounds import (
    BoundsPlan,
    bounds_share,
    plan_private_bounds,
    release_private_bounds,
)

_SPARSE = 0.5  # share of entries that are not zero


def uniform_directions(n_projections: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw independent uniform directions."""
    rows = rng.standard_normal((n_projections, n_features))
    return _unit(rows)


def orthogonal_directions(
    n_projections: int, n_features: int, rng: np.random.Generator, *, axes_first: bool = False
) -> np.ndarray:
    """Draw directions in Haar-distributed orthogonal blocks of `n_features` rows.

    Each direction alone is uniform on the sphere; within a block they repel each other,
    so averages over them have a lower variance than over independent ones. When L is a
    multiple of d, ``directions.T @ directions`` is exactly ``(L / d)`` times the identity.

    In the plane the blocks repel each other too: they lie at equally spaced angles, which
    integrates smooth functions of the direction far better than independent blocks do (the error
    of a sliced distance falls from several per cent to less than a thousandth). Each
    block alone is still Haar-distributed.
    """
    n_blocks = -(-n_projections // n_features)
    if n_features == 2:
        return _plane_blocks(n_blocks, None if axes_first else rng)[:n_projections]
    blocks = [_haar(n_features, rng) for _ in range(n_blocks - axes_first)]
    if axes_first:
        blocks.insert(0, np.eye(n_features))
    return np.concatenate(blocks)[:n_projections]


def make_directions(
    projections: str | np.ndarray, n_projections: int, n_features: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the directions that a ``projections=`` parameter asks for."""
    if isinstance(projections, str):
        if projections == "uniform":
            return uniform_directions(n_projections, n_features, rng)
        axes_first = projections == "axes+orthogonal"
        return orthogonal_directions(n_projections, n_features, rng, axes_first=axes_first)
    rows = np.asarray(projections, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or rows.shape[0] == 0:
        raise ValueError(
            f"projections has shape {rows.shape}; an array of directions must have shape "
            f"(n_projections, {n_features}), one column a feature."
        )
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not np.all(np.isfinite(rows)) or np.any(largest == 0):
        raise ValueError("projections must hold finite rows that are not zero.")
    rows = rows / largest  # squares of very large or small entries would not be finite
    return _unit(rows)


def _unit(rows: np.ndarray) -> np.ndarray:
    """Scale rows to unit length."""
    scaled: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def _haar(n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a Haar-distributed orthogonal matrix (QR with the signs of R's diagonal removed)."""
    q, r = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)
    return q * signs


def _plane_blocks(n_blocks: int, rng: np.random.Generator | None) -> np.ndarray:
    """Return orthogonal pairs in the plane at equally spaced angles, shape (2 n_blocks, 2).

    A quarter turn maps a pair on itself, so the angles divide a right angle. All of them are
    moved by one random angle, and each pair is turned by right angles and reflected at random:
    the eight symmetries of a pair. Without a stream the first pair is the axes.

    They come in the order of the van der Corput sequence, of which every stretch is spread out:
    whoever takes some neighbouring directions gets angles from everywhere.
    """
    order = Halton(1, scramble=False).random(n_blocks)[:, 0].argsort().argsort()
    steps = order / n_blocks
    signs = np.ones(n_blocks)
    if rng is not None:
        steps = (steps + rng.random()) % 1 + rng.integers(0, 4, n_blocks)
        signs = rng.choice([-1.0, 1.0], n_blocks)
    cos, sin = np.cos(np.pi / 2 * steps), np.sin(np.pi / 2 * steps)
    first, second = np.stack([cos, sin], axis=1), np.stack([-sin * signs, cos * signs], axis=1)
    pairs: np.ndarray = np.stack([first, second], axis=1).reshape(-1, 2)
    return pairs + 0.0  # no negative zeros


def longest_step(directions: np.ndarray) -> np.ndarray:
    """Return the step by which a summed drift is multiplied, per coordinate.

    The sum over directions of the one-dimensional residuals has the Jacobian ΘᵀΘ where maps are
    locally translations; one over its largest eigenvalue is the longest step that overshoots
    nowhere, and an exact solution when the rows are orthogonal. For sparse directions the
    eigenvalue is ruled by the busiest coordinate, so each coordinate is scaled by the row sum of
    ``|Θ|ᵀ|Θ|`` that bounds it (Gershgorin), which is never longer than stable.
    """
    magnitudes = np.abs(directions.astype(np.float64))
    n_features = magnitudes.shape[1]
    if n_features > 1 and np.mean(magnitudes > 0) < _SPARSE:
        sums = magnitudes.T @ magnitudes.sum(axis=1)
        seen = sums > 0
        steps: np.ndarray = np.divide(1.0, sums, out=np.zeros(n_features), where=seen)
        return steps.astype(np.float32)
    largest = np.linalg.norm(directions.astype(np.float64), ord=2) ** 2
    return np.full(n_features, 1.0 / largest, dtype=np.float32)


@dataclass(frozen=True)
class SquareRootStrategy:
    """Lower-triangular Toeplitz strategy matrix, rounded once to a public lattice."""

    n_bins: int
    lattice: float

    def __reduce__(self) -> Any:
        """Copy and pickle without the matrices, which follow from the rest."""
        return type(self), (self.n_bins, self.lattice)

    @cached_property
    def integer_matrix(self) -> np.ndarray:
        """A / g, int64 of shape (n_bins, n_bins)."""
        k = np.arange(1, self.n_bins)
        column = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
        units = np.rint(column / self.lattice).astype(np.int64)
        return _frozen(np.tril(toeplitz(units)))

    @cached_property
    def matrix(self) -> np.ndarray:
        """A, float64 of shape (n_bins, n_bins); exact, as g is a power of two."""
        return _frozen(self.integer_matrix * self.lattice)

    @cached_property
    def decoder(self) -> np.ndarray:
        """D = T A^-1: from the released statistic to cumulative counts."""
        inverse = solve_triangular(self.matrix, np.eye(self.n_bins), lower=True)
        return _frozen(np.cumsum(inverse, axis=0))

    @cached_property
    def covariance(self) -> np.ndarray:
        """D Dᵀ: covariance of the cumulative counts for noise of unit variance."""
        return _frozen(self.decoder @ self.decoder.T)

    @cached_property
    def known_total_covariance(self) -> np.ndarray:
        """Covariance of the counts at the inner edges, given the last one."""
        last = self.covariance[:, -1]
        return _frozen((self.covariance - np.outer(last, last) / last[-1])[:-1, :-1])

    @cached_property
    def typical_deviation(self) -> float:
        """Root mean square deviation of a cumulative count, for noise of unit variance."""
        return float(np.sqrt(np.diag(self.covariance).mean()))

    def sensitivity(self, n_projections: int, *, conditional: bool, group_size: int = 1) -> float:
        """Return the L2 sensitivity of the released statistic under replace-one.

        A record adds one count to one bin of each of the L histograms. Replacing it moves
        that count from bin a to bin b, which moves the statistic by ``A (e_a - e_b)`` in
        each slice: ``Δ² = L max_ab ‖A(e_a - e_b)‖²``. With classes the record may also
        change class; then two tables move, by ``A e_a`` and ``A e_b``:
        ``Δ² = 2 L max_a ‖A e_a‖²``. As A has no negative entry,
        ``‖A(e_a - e_b)‖² <= ‖A e_a‖² + ‖A e_b‖²``, so the second covers the first.
        Both are attained with one slice; with many, by records whose projections fall in
        the maximal bins of all of them.

        Where labels are public, neighbours replace the values of a row and keep its label: the
        table of its class moves as a table without classes would, by at most Δ, and the other
        tables stay. A person with k rows of k different labels moves k of the tables, each by at
        most Δ. They are different coordinates of the release, so that their squares add up:
        ``sqrt(k) Δ``, the sensitivity of k L histograms of one table. (Were two of the rows in
        one table, their moves could add up in length, to 2 Δ; hence the different labels.)
        """
        # Integers far below 2^53, so that the products are exact in double precision, which
        # is hundreds of times faster at 4096 bins.
        units = self.integer_matrix.astype(np.float64)
        gram = units.T @ units
        diagonal = np.diag(gram)
        if conditional:
            squared = 2 * int(diagonal.max())
        else:
            squared = int((diagonal[:, None] + diagonal[None, :] - 2 * gram).max())
        # Whole numbers up to here; one unit in the last place pays for the square root.
        squared *= group_size * n_projections
        return float(np.nextafter(self.lattice * np.sqrt(float(squared)), np.inf))


@lru_cache(maxsize=32)
def square_root_strategy(n_bins: int) -> SquareRootStrategy:
    """Return the strategy for `n_bins` bins, with the coarsest lattice that costs nothing.

    The spacing is 1/16 up to 256 bins. Beyond, the entries of the matrix fall below it and
    rounding them would cost accuracy (at 512 bins 14 % more noise), so it is 1/64.
    """
    return SquareRootStrategy(n_bins, 1 / 16 if n_bins <= 256 else 1 / 64)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


_SPREADS = 3.5
_LARGEST_NORM = 1e30
_SIGNAL_PER_BLOCK, _MOST_SLICES = 25.0, 1024
_SIGNAL_PER_DISTANCE_BLOCK, _MOST_DISTANCE_SLICES = 500.0, 256
_BINS_BELOW = ((100.0, 16), (2000.0, 32), (math.inf, 64))


def public_bounds(bounds: Any, norm_bound: float | None, n_features: int) -> DataBounds | None:
    """Read the ``bounds=`` and ``norm_bound=`` parameters."""
    if norm_bound is not None and not isinstance(bounds, str):
        raise ValueError(
            "bounds=(low, high) and norm_bound= are two ways to say the same; give only one."
        )
    if isinstance(bounds, str):
        if norm_bound is None:
            return None
        _check_resolved("norm_bound", norm_bound)
        return DataBounds.from_norm(norm_bound, n_features)
    if isinstance(bounds, DataBounds):
        if bounds.n_features != n_features:
            raise ValueError(f"bounds maps {bounds.n_features} features and X has {n_features}.")
        _check_resolved("The radius of bounds", bounds.radius)
        return bounds
    if len(bounds) != 2:
        raise ValueError(
            f'bounds has {len(bounds)} entries; it must be "private" or a pair (low, high) of '
            "numbers or of arrays with one number per feature."
        )
    return DataBounds.from_box(bounds[0], bounds[1], n_features)


def _check_resolved(name: str, radius: float) -> None:
    """Refuse a ball that single precision does not resolve."""
    if not 1 / _LARGEST_NORM <= radius <= _LARGEST_NORM:
        raise ValueError(
            f"{name}={radius!r} must lie between {1 / _LARGEST_NORM:g} and {_LARGEST_NORM:g}, "
            "where single precision resolves it; change the unit of X."
        )


def projection_half_widths(bounds: DataBounds, directions: np.ndarray) -> np.ndarray:
    """Return the half width w of the binned range along each direction.

    ``min(R, 3.5 R / sqrt(d))``, and in a box no more than its own extent along the
    direction, ``side * ‖θ‖₁``. Projections of points spread over a ball of radius R in d
    dimensions have a standard deviation near ``R / sqrt(d)``: binning the whole diameter
    would leave most bins empty in high dimension. What falls beyond is counted in the end
    bins, at no privacy cost.
    """
    root = math.sqrt(bounds.n_features)
    widths = np.full(len(directions), min(bounds.radius, _SPREADS * bounds.radius / root))
    if bounds.box:
        widths = np.minimum(widths, bounds.radius / root * np.abs(directions).sum(axis=1))
    return widths


def recommended_n_projections(
    n_samples: int, n_features: int, mu: float, n_classes: int = 1
) -> int:
    """Return the number of slices that ``n_projections="auto"`` stands for.

    One orthogonal block of directions for every 25 units of ``n mu / C``, at least one and
    at most about 1024 directions: what a class's rows can pay for. The constant is the
    public outcome of ``examples/benchmarks/bench_sketch_shape.py``; see the user guide.
    """
    if n_features == 1:
        return 1  # there is no other direction
    most = max(1, _MOST_SLICES // n_features)
    blocks = n_samples * mu / n_classes / _SIGNAL_PER_BLOCK
    return n_features * int(min(max(blocks, 1), most))


def recommended_distance_n_projections(n_samples: int, n_features: int, mu: float) -> int:
    """Return a number of slices for sketches that are made to be compared.

    One orthogonal block of directions for every 500 units of ``n mu``, at least two (the first
    may be the axes, which see no dependence between features) and at most about 256 directions:
    a twentieth of what a sampler uses. Whole blocks see a shift without error, and the noise of
    its size does not depend on their number; but the smallest distance that stands out of the
    noise grows with it, and more directions show more shapes. The constants are outcomes of
    ``examples/benchmarks/bench_sliced_distance.py``.
    """
    most = max(1, _MOST_DISTANCE_SLICES // n_features)
    blocks = n_samples * mu / _SIGNAL_PER_DISTANCE_BLOCK
    return n_features * int(min(max(blocks, 2), most))


def recommended_bins(n_samples: int, n_features: int, mu: float, n_classes: int = 1) -> int:
    """Return the number of bins that ``n_bins="auto"`` stands for.

    16 while ``n mu / C`` is below 100, 32 below 2,000, and 64 from there on. The noise of a
    distribution function grows only logarithmically with the bins, but below the noise there
    is nothing fine to see.
    """
    signal = n_samples * mu / n_classes
    return next(n_bins for limit, n_bins in _BINS_BELOW if signal < limit or math.isinf(limit))


@dataclass(frozen=True)
class SketchPlan:
    """The public parameters of one sketch."""

    n_projections: int
    n_classes: int  # number of tables; 1 without classes
    strategy: SquareRootStrategy
    sensitivity: float  # of the whole table
    sigma: float  # of each entry; 0 without privacy
    lattice: float  # of the noise, a fraction of the strategy's
    bounds: DataBounds | BoundsPlan  # public, or how they are estimated first
    event: Event  # everything together
    public_labels: bool


def plan_sketch(
    target: PrivacyTarget,
    n_samples: int,
    n_features: int,
    n_classes: int | None = None,
    *,
    n_projections: int | str = "auto",
    n_bins: int | str = "auto",
    bounds: DataBounds | int,
    public_labels: bool = False,
    group_size: int = 1,
) -> SketchPlan:
    """Choose the shape of a sketch and the least noise that meets a target."""
    check_public_labels(n_classes, public_labels, group_size)
    # What is left for each row of the table decides its shape before the exact calibration.
    left = 1.0
    if not isinstance(bounds, DataBounds):
        left -= bounds_share(bounds, n_features, target.mu_cap, int(group_size))
    mu = target.mu_cap * math.sqrt(left / group_size)
    tables = n_classes or 1
    size = (n_samples, n_features, mu, tables)
    if isinstance(n_projections, str):
        n_projections = recommended_n_projections(*size)
    if isinstance(n_bins, str):
        n_bins = recommended_bins(*size)
    # Integers of numpy wrap around, and unsigned and signed ones make floating-point numbers.
    n_projections, n_bins, group_size = int(n_projections), int(n_bins), int(group_size)
    if tables * n_projections * n_bins >= 2**31:
        raise ValueError(
            f"A table of {tables} classes x {n_projections} slices x {n_bins} bins is too large; "
            "it must have fewer than 2^31 entries."
        )
    strategy = square_root_strategy(n_bins)
    conditional = n_classes is not None and not public_labels
    sensitivity = strategy.sensitivity(
        n_projections, conditional=conditional, group_size=group_size
    )
    shape = (n_projections, tables, strategy, sensitivity)
    limits = bounds_or_plan(bounds, n_features, target.mu_cap, group_size)
    if math.isinf(target.epsilon):
        return SketchPlan(*shape, 0.0, strategy.lattice, limits, NonPrivateEvent(), public_labels)

    def fit_event(sigma: float) -> Event:
        lattice = noise_lattice(sigma, strategy.lattice)
        table = GaussianEvent(
            sigma=sigma, sensitivity=sensitivity, lattice=lattice, label="Distribution functions"
        )
        return after_bounds(limits, table)

    event = calibrate(target, fit_event)
    table = event.phases[-1]
    required_bits(table.sigma / table.lattice, table.mu)  # refuses here, before any charge
    return SketchPlan(*shape, table.sigma, table.lattice, limits, event, public_labels)


def bounds_or_plan(
    bounds: DataBounds | int, n_features: int, mu: float, group_size: int = 1
) -> DataBounds | BoundsPlan:
    """Return public bounds as they are, or plan how to estimate them from so many rows."""
    if isinstance(bounds, DataBounds):
        return bounds
    of_bounds = mu * math.sqrt(bounds_share(bounds, n_features, mu, group_size))
    return plan_private_bounds(bounds, n_features, of_bounds, group_size=group_size)


def check_public_labels(n_classes: int | None, public_labels: bool, group_size: int) -> None:
    """Refuse, before any charge, public labels without classes and groups without public labels."""
    if public_labels and n_classes is None:
        raise ValueError("public_labels=True needs conditional=True and the label of every row.")
    if group_size > 1 and not public_labels:
        raise ValueError(
            f"group_size={group_size} needs public_labels=True: the rows of one person must have "
            "different public labels, such as times. Otherwise pass one row per person."
        )
    if group_size > (n_classes or 1):
        raise ValueError(
            f"group_size={group_size} is more than the {n_classes} labels, and the rows of one "
            "person must have different labels."
        )


def assumptions(
    classes: Any,
    bounds: DataBounds | None,
    streams: Streams,
    *,
    public_labels: bool = False,
    group_size: int = 1,
) -> tuple[str, ...]:
    """List what is taken as public, and what else the statement rests on."""
    has_classes = classes is not None
    labels = " and every label one of the classes" if has_classes else ""
    rows = "one row"
    if group_size > 1:
        rows = f"at most {group_size} rows, all of different labels"
    all_labels = "the label of every row, and so the number of rows of each class"
    listed = (
        (True, "the number of rows"),
        (True, "the number and names of the features"),
        (has_classes, "the set of classes"),
        (public_labels, all_labels),
        (bounds is not None, "the bounds given by the caller"),
        (True, f"every value is a finite number{labels}; others are refused"),
        (True, f"each person contributes {rows}"),
        (streams.secret.reproducible, "nobody knows random_state"),
    )
    return tuple(text for holds, text in listed if holds)


def after_bounds(limits: DataBounds | BoundsPlan, event: Event) -> Event:
    """Return an event together with those of the bounds, if these are estimated first."""
    if isinstance(limits, DataBounds):
        return event
    return ComposedEvent(events=(limits.event, event))


def settled_bounds(
    limits: DataBounds | BoundsPlan, rows: np.ndarray, streams: Streams
) -> DataBounds:
    """Return public bounds as they are, or release those that were planned and charged."""
    if isinstance(limits, DataBounds):
        return limits
    return release_private_bounds(rows, limits, streams)
