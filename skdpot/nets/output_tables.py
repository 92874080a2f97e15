r"""Outputs of groups: what is compared, how far one record moves it, and private tables of it.

Records are divided into *cells*, which are public. Cells that are to have the same distribution of
outputs form a *stratum*: all groups (demographic parity), or the groups within one class (equalised
odds). What is compared lies in a bounded set whatever the network computes, which bounds the
gradient (`ParityPenalty`).

With the distribution functions :math:`F_c` of the outputs of each cell released, the gradient of
the squared distance between two cells is a *sum over records*: record i of cell a is pulled along
direction θ by :math:`2 (u_i - F_b^{-1}(F_a(u_i)))`, which depends on the record and on what is
public. Ranks couple the records of a batch; tables do not. So records can be sampled by Poisson
coins, and loss and penalty be clipped together.

A threshold for predicted probabilities is read off noisy histograms. A penalty pulls the scores of
groups together, and with them all scores towards each other: few reach one half when the second
class is the rarer one. The threshold selects as many records as belong to the second class. The
first release finds the range of the scores, the second measures their distribution there, and a
third counts the second class unless the classes are public.

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025, theorems 4.1 and A.1.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from skdpot._utils.validation import SecretStream, encode_labels
from skdpot.exceptions import warn_of_fairness
from skdpot.ot.slices import CDFTable, orthogonal_directions
from skdpot.ot.transport import pulls_between
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise, required_bits
from skdpot.release.gate import Part, Records, Release, Vectors, of_candidates, released
from skdpot.release.histogram import binned_rows, count_projections, recommended_bins
from skdpot.release.strategy import Energy, Strategy, best_strategy

_ROUNDED_UP = 1.0 + 1e-12  # also of counts: 0.29 * 100 is a little less than 29

# What a statement of privacy says of the neighbours that it protects among.
SAME_GROUP = (
    "the group of each record and the sizes of the groups are public: the record that replaces "
    "another has the same group"
)
SAME_CLASS = (
    "the class of each record is public: the record that replaces another has the same class"
)
_ADVICE = (
    "drop rows whose group is missing or give them a group of their own, and cut continuous values "
    "into intervals, for example with pandas.cut"
)
_FEWEST_RECORDS = 5.0  # of a cell, over the noise of one entry of its table
_ALONG, _ONE = np.ones((1, 1)), np.ones(1)
_TARGET_BINS = 5


@dataclass(frozen=True, eq=False)
class Cells:
    """How the records are divided, and which parts are to have alike outputs."""

    codes: np.ndarray
    sizes: tuple[int, ...]
    strata: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """Positions of the records of each cell."""
        return tuple(np.flatnonzero(self.codes == cell) for cell in range(len(self.sizes)))

    def batch_sizes(self, fraction: float, *, parameter: str = "batch_fraction") -> tuple[int, ...]:
        """Return how many records a batch takes of each cell: ``floor(fraction * size)``."""
        taken = tuple(min(n, math.floor(fraction * n * _ROUNDED_UP)) for n in self.sizes)
        for name, size, count in zip(self.names, self.sizes, taken, strict=True):
            if count < 1:
                raise ValueError(
                    f"sensitive_features: group {name} has {size} "
                    f"{'row' if size == 1 else 'rows'}, too few for a batch. Choose a larger "
                    f"{parameter}, or merge small groups."
                )
        return taken

    def codes_of(self, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the cells of records, given what is public of these."""
        return codes

    def others(self, cell: int) -> tuple[int, ...]:
        """Return the cells that a cell is compared with."""
        stratum = next((s for s in self.strata if cell in s), ())
        return tuple(other for other in stratum if other != cell)


def one_cell(n_samples: int) -> Cells:
    """Return all records as one cell that is compared with none."""
    return Cells(np.zeros(n_samples, dtype=np.intp), (n_samples,), ())


def read_groups(
    sensitive_features: Any, n_samples: int, *, needed_by: str = "Fairness between groups"
) -> tuple[Cells, np.ndarray]:
    """Read the public group of each record, and the labels of at least two groups."""
    codes, labels = encode_labels(
        sensitive_features,
        n_samples,
        argument="sensitive_features",
        meaning="group label",
        needed_by=needed_by,
        advice=_ADVICE,
    )
    if len(labels) == 1:
        raise ValueError(
            f"{needed_by} needs at least two groups, but sensitive_features holds the group "
            f"{labels.tolist()[0]!r} alone."
        )
    codes = codes.astype(np.intp, copy=False)
    sizes = tuple(np.bincount(codes, minlength=len(labels)).tolist())
    names = tuple(map(str, labels))
    return Cells(codes, sizes, (tuple(range(len(labels))),), names), labels


def within_classes(groups: Cells, codes: np.ndarray, labels: np.ndarray) -> Cells:
    """Divide groups by class: what is compared are the members of groups with the same class."""
    n_groups, n_classes = len(groups.sizes), len(labels)
    cells = (codes * n_groups + groups.codes).astype(np.intp)
    sizes = tuple(np.bincount(cells, minlength=n_groups * n_classes).tolist())
    for cell, size in enumerate(sizes):
        if size == 0:
            raise ValueError(
                f'fairness="equalized_odds" needs records of every class in every group, but class '
                f"{labels[cell // n_groups]!s} has none in group {groups.names[cell % n_groups]}"
                '. Merge groups, or use fairness="demographic_parity".'
            )
    strata = np.arange(n_groups * n_classes).reshape(n_classes, n_groups).tolist()
    names = tuple(f"{group}, class {label}" for label in labels for group in groups.names)
    return Cells(cells, sizes, tuple(tuple(stratum) for stratum in strata), names)


def warn_of_small_cells(caller: str, cells: Cells, sigma: float) -> None:
    """Say which groups are so small that their distributions are mostly noise; all public."""
    small = [
        f"{name} ({size} records)"
        for name, size in zip(cells.names, cells.sizes, strict=True)
        if size < _FEWEST_RECORDS * sigma
    ]
    if small:
        warn_of_fairness(
            f"{caller}: these groups are too small for this epsilon: "
            f"{', '.join(small[:3])}{', ...' if len(small) > 3 else ''}. The noise on their counts "
            f"has a standard deviation of {sigma:.0f} records, which hides the distributions. "
            "Merge small groups, leave them out, or take a larger epsilon."
        )


_CANCELLED = 1e-10


@dataclass(frozen=True)
class Probabilities:
    """Predicted probabilities: of the second class for one output, of all classes otherwise."""

    n_outputs: int

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return probabilities less their mean over the classes."""
        if self.n_outputs == 1:
            return outputs.sigmoid() - 0.5
        return outputs.softmax(1) - 1.0 / self.n_outputs

    def derivatives(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the derivative of sigmoid or softmax, (n_records, k, q)."""
        if self.n_outputs == 1:
            p = outputs.sigmoid()
            return (p * (1.0 - p))[:, :, None]
        p = outputs.softmax(1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]

    def pull_back(self, vectors: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Map gradients by the values, (n_records, k), to gradients by the outputs."""
        return torch.einsum("nkq,nk->nq", self.derivatives(outputs), vectors)

    def gram(self, gram: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        r"""Map the Gram matrices of the outputs' Jacobians, (n_records, q, q), to the values'.

        Where all outputs move together, probabilities hardly do: what is left of
        :math:`D G D^\top` is then a difference of large numbers, and :math:`D^\top w` errs by as
        much. So the diagonal has :math:`10^{-10} \|D\|^2 \operatorname{tr} G` on top, which is
        more than either error, and nothing beside the rest where nothing cancels.
        """
        derivatives = self.derivatives(outputs)
        traces = gram.diagonal(dim1=1, dim2=2).sum(1)
        room = _CANCELLED * derivatives.square().sum((1, 2)) * traces
        mapped = derivatives @ gram @ derivatives.transpose(1, 2)
        return mapped + torch.diag_embed(room[:, None].expand(-1, gram.shape[1]))

    def directions(self, n_projections: int, rng: np.random.Generator) -> np.ndarray:
        """Draw directions that sum to zero: along the others probabilities do not differ."""
        if self.n_outputs == 1:
            return np.ones((1, 1))
        n_free = self.n_outputs - 1
        # An orthonormal basis of the vectors that sum to zero.
        basis = np.linalg.svd(np.ones((1, self.n_outputs)))[2][1:]
        return orthogonal_directions(n_projections, n_free, rng) @ basis

    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the widths of the intervals that values project to: the corners are classes."""
        if self.n_outputs == 1:
            return np.ones(1)
        return directions.max(axis=1) - directions.min(axis=1)

    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return how far from 0 projections can be: the largest entry, less their mean."""
        if self.n_outputs == 1:
            return np.full(1, 0.5)
        centred = directions - directions.mean(axis=1, keepdims=True)
        return np.abs(centred).max(axis=1)


@dataclass(frozen=True)
class ClippedOutputs:
    """Outputs shortened to a ball; the Jacobian stays that of the network, as in the paper."""

    n_outputs: int
    radius: float

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the nearest points of the ball; 0 for what is not a number."""
        finite = outputs.nan_to_num(nan=0.0, posinf=1e150, neginf=-1e150)
        norms = finite.norm(dim=1, keepdim=True)
        return finite / (norms / self.radius).clamp(min=1.0)

    def pull_back(self, vectors: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return the vectors, which pass the projection unchanged."""
        return vectors

    def gram(self, gram: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return the Gram matrices of the outputs."""
        return gram

    def directions(self, n_projections: int, rng: np.random.Generator) -> np.ndarray:
        """Draw orthogonal blocks of directions."""
        if self.n_outputs == 1:
            return np.ones((1, 1))
        return orthogonal_directions(n_projections, self.n_outputs, rng)

    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the diameter 2M."""
        return 2.0 * self.half_widths(directions)

    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the radius M."""
        return np.full(len(directions), self.radius)


# A map from a network's outputs to values, centred around 0, in a bounded set.
ComparedOutputs: TypeAlias = Probabilities | ClippedOutputs


def fixed_side_sensitivity(
    radius: float, clip_jacobian: float, n_projections: int, directions_norm: float
) -> float:
    r"""Bound how far a record of the *fixed* side moves the gradient, times n.

    Notation as in `skdpot.ot.transport.pulls_between`. Let the n points :math:`U_i` be private, in
    a ball of radius R, and let the Jacobians of the other side have a spectral norm of at most L;
    they do not depend on the points.

    Replacing u by u' moves one value of a sample along each direction. Its sorted values then
    all move the same way, by :math:`|\langle\theta, u - u'\rangle|` in sum (the W₁ distance of
    the two samples, times n). Of that, rank i passes the share :math:`R_{ij}` on to output j,
    and :math:`\sum_j R_{ij} = 1/n`. Hence

    .. math:: n \|\Delta G\| \le n L \sum_j \|\Delta w_j\|
              \le \frac{2 L}{S} \sum_\theta |\langle\theta, u - u'\rangle|
              \le \frac{2 L}{\sqrt S} \|\Theta (u - u')\|
              \le 4 R L \min\left(1, \frac{\|\Theta\|_2}{\sqrt S}\right)

    by Cauchy-Schwarz, and since directions are unit vectors. Whole orthogonal blocks have
    :math:`\|\Theta\|_2 = \sqrt{S / d}`: a factor :math:`\sqrt d` less than :math:`4RL`, which is
    the bound of the paper with :math:`L_1 = 0`. It is attained: one block of d directions,
    :math:`u - u'` along their sum, all other points equal to u', and outputs of which another
    one is the last along each direction.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, theorem A.1 with L₁ = 0.
    """
    share = min(1.0, directions_norm / math.sqrt(n_projections))
    return 4.0 * radius * clip_jacobian * share * _ROUNDED_UP


def moving_side_sensitivity(width: float, clip_own: float, clip_other: float) -> float:
    r"""Bound how far a record moves the gradient, times n, when its own side moves too.

    Let all projections lie in an interval of width r, let :math:`L_1` bound the Jacobians on the
    side of the record, which has n outputs, and :math:`L_2` those of the other side. Replacing
    u by u', without loss of generality :math:`u \le u'`, changes

    - the record's own term, before and after: at most
      :math:`\frac{2 L_1}{n} (|u - v| + |u' - v'|)`, where v and v' are what it is matched with;
    - the terms of the records between, each of which moves down by one rank; their matched
      values move by :math:`v' - v` in sum: at most :math:`\frac{2 L_1}{n} (v' - v)`;
    - the other side, as in `fixed_side_sensitivity`: at most :math:`\frac{2 L_2}{n} (u' - u)`.

    The sum is convex in (u, u', v, v'), so it is largest at a corner of
    :math:`0 \le u \le u' \le r,\ 0 \le v \le v' \le r`: where u = u' and v' - v = r it is
    :math:`4 r L_1 / n`; where u' - u = r it is at most
    :math:`2 r (L_1 + L_2) / n`. Ranks must come from a stable sort.
    """
    return 2.0 * width * max(2.0 * clip_own, clip_own + clip_other) * _ROUNDED_UP


@dataclass(frozen=True)
class ParityPenalty:
    r"""Squared sliced Wasserstein distances between the cells of each stratum.

    Over the Q strata and the pairs of their K cells (for two groups: equations 5 and 6 of the
    paper) it is

    .. math:: \frac{1}{Q} \sum_{q=1}^Q \frac{4}{K^2} \sum_{a < b}
              SW_2^2\left(P_{q,a}, P_{q,b}\right).

    Cells that differ by shifts have :math:`4 / K` times the sum of their squared distances to the
    barycentre: for any K a cell is pulled there with the same force.
    """

    strata: tuple[tuple[int, ...], ...]
    batch_sizes: tuple[int, ...]

    @property
    def pair_weight(self) -> float:
        """Weight of the distance between two cells of a stratum."""
        n_cells = len(self.strata[0])
        return 4.0 / (n_cells**2 * len(self.strata))

    def sensitivity(self, width: float, clip_jacobian: float) -> float:
        r"""Bound how far one record moves the gradient, under replace-one within its cell.

        The record occurs in K − 1 pairs, each of which it moves by at most :math:`4 r L / n_c`
        (`moving_side_sensitivity` with :math:`L_1 = L_2 = L`), where :math:`n_c` is the number of
        records of its cell in the batch. With the weight of a pair that is
        :math:`\frac{4 (K - 1)}{K^2 Q} \cdot \frac{4 r L}{\min_c n_c}`.
        """
        compared = [self.batch_sizes[cell] for stratum in self.strata for cell in stratum]
        n_pairs = len(self.strata[0]) - 1
        of_a_pair = moving_side_sensitivity(width, clip_jacobian, clip_jacobian) / min(compared)
        return self.pair_weight * n_pairs * of_a_pair

    def vectors(self, outputs: Sequence[np.ndarray], directions: np.ndarray) -> list[np.ndarray]:
        """Return the gradient of the penalty with respect to each output."""
        vectors = [np.zeros(of_cell.shape) for of_cell in outputs]
        for stratum in self.strata:
            pulls = pulls_between([outputs[cell] for cell in stratum], directions)
            for cell, pull in zip(stratum, pulls, strict=True):
                vectors[cell] = self.pair_weight * pull
        return vectors


_NEARLY_ALL = np.array([0.01, 0.99])
_MARGIN = 2.0
_NARROWEST = 1e-6  # of the limits: single precision, in which outputs are counted, sees no more


ValuesOf: TypeAlias = Callable[[Any, np.ndarray], np.ndarray]  # of rows, and of their cells
Seen: TypeAlias = Callable[[Records, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _as_they_are(rows: Any, _: np.ndarray) -> np.ndarray:
    return np.asarray(rows)


@dataclass(frozen=True, kw_only=True)
class TableNoise:
    """What is measured of the outputs of each cell, and with how much noise."""

    strategy: Strategy
    sigma: float
    lattice: float
    mu: float
    event: Event


def plan_tables(
    mu: float,
    n_releases: int,
    n_projections: int,
    n_records: int,
    label: str = "Outputs of each group, compared while training",
) -> TableNoise:
    """Choose the bins of some releases and the noise of each.

    It is enough for a record that changes its cell, too: with the optimised strategies for 16, 32
    and 64 bins that costs no more.
    """
    of_each = mu / math.sqrt(n_releases)
    anywhere = Energy.unlimited(n_projections)
    strategy = best_strategy(recommended_bins(n_records, 1, of_each), anywhere)
    sigma, lattice = 0.0, strategy.lattice
    event: Event = NonPrivateEvent(label=label)
    if math.isfinite(mu):
        moved = strategy.sensitivity(anywhere, conditional=True)
        noise = calibrate_lattice(of_each, moved, data_lattice=lattice)
        sigma, lattice = noise.sigma, noise.lattice
        required_bits(sigma / lattice, mu)  # for all of them; refuses before any charge
        event = GaussianEvent(**vars(noise), n_steps=n_releases, label=label)
    return TableNoise(strategy=strategy, sigma=sigma, lattice=lattice, mu=mu, event=event)


@dataclass(frozen=True, eq=False)
class OutputTables:
    """Released distribution functions of the outputs of each cell."""

    tables: tuple[CDFTable, ...]
    centres: np.ndarray
    values_of: ValuesOf = _as_they_are  # the outputs of other rows, for audits

    @property
    def directions(self) -> np.ndarray:
        """Unit rows, shape (n_projections, k)."""
        return self.tables[0].directions

    def range_of_interest(self, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and half width of the range in which nearly all outputs are.

        The next release measures that range only, and so resolves outputs that a penalty has
        squeezed. Outputs beyond count in the outermost bins, so that nothing breaks if the range
        is too narrow; a margin lets outputs spread again.
        """
        ends = np.stack([table.quantiles(_NEARLY_ALL) for table in self.tables])
        low, high = ends[:, :, 0].min(axis=0), ends[:, :, 1].max(axis=0)
        bins = 2.0 * self.tables[0].half_widths / (self.tables[0].cdf.shape[1] - 1)
        half = _MARGIN * (high - low) / 2.0 + bins
        centres = self.centres + (low + high) / 2.0
        half = np.clip(half, _NARROWEST * limits, limits)
        return np.clip(centres, half - limits, limits - half), half

    def projections(self, values: np.ndarray) -> np.ndarray:
        """Project values, in columns; all cells are measured from one centre."""
        return self.directions @ values.T - self.centres[:, None]

    def pulls(self, projections: np.ndarray, cell: int, others: Sequence[int]) -> np.ndarray:
        """Return the gradients of summed squared distances to other cells, by projections."""
        own, gaps = self.tables[cell], np.empty_like(projections)
        for k, (u, edges, levels) in enumerate(zip(projections, own.edges, own.cdf, strict=True)):
            reached = np.interp(u, edges, levels)
            gaps[k] = len(others) * u
            for other in others:
                gaps[k] -= self.tables[other].quantiles_along(k, reached)
        return 2.0 / len(gaps) * gaps


def release_tables(
    values: np.ndarray,
    cells: np.ndarray,
    cell_sizes: Sequence[int],
    directions: np.ndarray,
    limits: np.ndarray,
    noise: TableNoise,
    stream: SecretStream,
    *,
    previous: OutputTables | None = None,
    within: tuple[np.ndarray, np.ndarray] | None = None,
    values_of: ValuesOf = _as_they_are,
    seen: Seen | None = None,
    known: np.ndarray | None = None,
) -> OutputTables:
    """Release noisy distribution functions of the outputs of every cell, once.

    They are measured `within` a public range (centres and half widths), by default that of a
    `previous` release, or all that outputs can be.

    One release of a `GaussianEvent` that the caller has charged, under replace-one: the record
    moves one count per direction, in the table of its cell or from there to that of another one, by
    ``strategy.sensitivity(Energy.unlimited(n_projections), conditional=True)`` in all, whatever
    range is binned. The noise lies on a lattice and is drawn before the counts are taken. `seen`
    makes values and cells of the records of an audit, by default by `values_of` and with the cells
    of the fit; where cells are private, it is given what is `known` of them.
    """
    if previous is not None:
        within = previous.range_of_interest(limits)
    centres, half_widths = (np.zeros(len(limits)), limits) if within is None else within
    statistic = noisy_counts(
        values,
        cells,
        len(cell_sizes),
        directions,
        half_widths,
        noise,
        stream,
        centres,
        seen or (lambda records, codes: (values_of(records[0], codes), codes)),
        known,
    )
    return OutputTables(
        tuple(
            CDFTable(directions, half_widths, noise.strategy.decoded(of_cell, n_records))
            for of_cell, n_records in zip(statistic, cell_sizes, strict=True)
        ),
        centres,
        values_of,
    )


def noisy_counts(
    values: np.ndarray,
    codes: np.ndarray,
    n_codes: int,
    directions: np.ndarray,
    half_widths: np.ndarray,
    noise: TableNoise,
    stream: SecretStream,
    centres: np.ndarray,
    seen: Seen,
    known: np.ndarray | None,
) -> np.ndarray:
    """Measure the histograms of each part of the records with noise, as in `release_tables`."""
    strategy = noise.strategy
    factor = round(strategy.lattice / noise.lattice)
    shape = (n_codes, len(directions), strategy.n_bins)
    table = (
        lattice_noise(noise.sigma, shape, stream, lattice=noise.lattice, mu=noise.mu)
        if noise.sigma > 0
        else np.zeros(shape, dtype=np.int64)
    )
    values = np.column_stack([values, np.ones(len(values))])  # which moves the projections
    directions = np.column_stack([directions, -centres])
    counts = count_projections(
        values, directions, half_widths, strategy.n_bins, codes=codes, n_classes=n_codes
    )
    measured = counts.reshape(shape) @ strategy.integer_matrix.T.astype(np.float64)
    table += measured.astype(np.int64) * factor
    release = Release(
        "table",
        table * noise.lattice,
        {"strategy": strategy, "directions": directions, "half_widths": half_widths},
        sigma=float(noise.sigma),
        lattice=noise.lattice,
        sensitivity=strategy.sensitivity(Energy.unlimited(len(directions)), conditional=True),
        event=noise.event,
        linear=partial(_counted, seen, codes if known is None else known),
    )
    return released(release)


def _counted(
    seen: Seen, codes: np.ndarray, release: Release, records: Records, shares: np.ndarray
) -> Iterable[Part]:
    """Yield what values add, moved by a constant column."""
    values, codes = seen(records, of_candidates(codes, shares))
    values = np.column_stack([values, np.ones(len(values))])
    return binned_rows(release, (values, codes), shares)


_LIMIT = np.full(1, 0.5)  # of probabilities less one half
_DIRECTION = np.ones((1, 1))
_INSIDE = 1e-6
_SHARES = {"coarse": 0.2, "fine": 0.65, "count": 0.15}  # of the squared mu


@dataclass(frozen=True, kw_only=True)
class ThresholdNoise:
    """Noise of the releases that a threshold is read off."""

    coarse: TableNoise
    fine: TableNoise
    count: GaussianEvent | None

    @property
    def events(self) -> tuple[Event, ...]:
        """What is to be charged."""
        counted = () if self.count is None else (self.count,)
        return (self.coarse.event, self.fine.event, *counted)


def plan_threshold(mu: float, n_samples: int, *, public_classes: bool) -> ThresholdNoise:
    """Divide a privacy parameter between the releases of a threshold.

    The histograms hold all records, whatever their class, so that a replaced record moves one
    count from one bin to another. The number of records of the second class moves by one, and
    not at all where a neighbouring data set has the same classes.
    """
    shares = _SHARES | ({"count": 0.0} if public_classes else {})
    mus = {name: mu * math.sqrt(share / sum(shares.values())) for name, share in shares.items()}
    words = "Range of the outputs, for the threshold"
    coarse = plan_tables(mus["coarse"], 1, 1, n_samples, words)
    fine, count = plan_tables(mus["fine"], 1, 1, n_samples, "Outputs in that range"), None
    if not (public_classes or math.isinf(mu)):
        noise = calibrate_lattice(mus["count"], 1.0)
        count = GaussianEvent(**vars(noise), label="Records of the second class")
    return ThresholdNoise(coarse=coarse, fine=fine, count=count)


def tuned_threshold(
    probabilities: np.ndarray,
    labels: np.ndarray,
    noise: ThresholdNoise,
    stream: SecretStream,
    probabilities_of: Callable[[Any], np.ndarray] = np.asarray,
) -> float:
    """Release the score that as many records exceed as belong to the second class."""
    n = len(labels)
    values, together = probabilities[:, None] - 0.5, np.zeros(n, dtype=np.intp)
    given = (values, together, (n,), _DIRECTION, _LIMIT)
    release = partial(
        release_tables, *given, values_of=lambda rows, _: probabilities_of(rows)[:, None] - 0.5
    )
    fine = release(noise.fine, stream, previous=release(noise.coarse, stream))
    if noise.count is None:  # public, or no privacy is promised
        second = float(labels.sum())
    else:
        second = _noisy_count(labels, noise.count, stream)
    rest = 1.0 - float(np.clip(second, 1.0, n - 1.0)) / n
    cut = fine.tables[0].quantiles_along(0, np.array([rest]))[0] + fine.centres[0]
    return float(np.clip(0.5 + cut, _INSIDE, 1.0 - _INSIDE))


def _noisy_count(labels: np.ndarray, event: GaussianEvent, stream: SecretStream) -> float:
    """Release the number of records of the second class, which one record moves by one."""
    lattice = float(event.lattice or 1.0)
    table = lattice_noise(event.sigma, 1, stream, lattice=lattice, mu=event.mu)
    table += int(labels.sum()) * round(1 / lattice)
    release = Release(
        "class_count",
        table.astype(np.float64) * lattice,
        sigma=event.sigma,
        lattice=lattice,
        sensitivity=event.sensitivity,
        event=event,
        linear=_counted_labels,
    )
    return float(released(release)[0])


def _counted_labels(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield what labels add to their sum."""
    rows = Vectors(np.asarray(records[1], dtype=np.float64)[:, None])
    yield Part(value=release.value, sigma=float(np.max(release.sigma)), rows=rows)


@dataclass(frozen=True, eq=False)
class BinnedCells(Cells):
    """Groups divided by bins of a private target: whose outputs are alike given the target.

    `codes` are the groups, which are public. In which bin a record is is private; sizes of cells
    are estimates, and edges and sizes follow from one release of the targets of each group. What
    counts records by cell pays for a record that changes its bin, and what a record adds depends on
    the bin of its own target.
    """

    edges: np.ndarray = field(default_factory=lambda: np.zeros(0))  # between bins
    n_groups: int = 1

    def codes_of(self, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the cells of records, given their groups, or cells of the same groups."""
        bins = np.searchsorted(self.edges, np.asarray(targets)[:, 0], side="right")
        return (bins * self.n_groups + codes % self.n_groups).astype(np.intp)


def in_a_bin(cells: Cells) -> Cells:
    """Return what the cells of one bin are like, about."""
    sizes = tuple(size // _TARGET_BINS for size in cells.sizes)
    return replace(cells, sizes=sizes, names=tuple(f"{n}, in a bin of y" for n in cells.names))


def plan_target_bins(mu: float, cells: Cells) -> TableNoise:
    """Plan the release of the distribution of the targets of each group: its range, then itself."""
    return plan_tables(mu, 2, 1, max(1, min(cells.sizes)), "Targets of each group, for their bins")


def release_target_bins(
    targets: np.ndarray, cells: Cells, noise: TableNoise, stream: SecretStream
) -> BinnedCells:
    """Divide groups by quantiles of their targets in [-1, 1], (n, 1); the caller has charged."""
    given = (targets, cells.codes, cells.sizes, _ALONG, _ONE, noise, stream)
    seen: Seen = lambda records, codes: (np.asarray(records[1], dtype=np.float64), codes)  # noqa: E731
    tables = release_tables(*given, previous=release_tables(*given, seen=seen), seen=seen)
    sizes, first = np.array(cells.sizes, dtype=np.float64), tables.tables[0]
    pooled = sizes @ np.array([table.cdf[0] for table in tables.tables]) / sizes.sum()
    of_all = CDFTable(_ALONG, first.half_widths, pooled[None])
    inner = of_all.quantiles_along(0, np.arange(1, _TARGET_BINS) / _TARGET_BINS)
    width = first.edges[0, 1] - first.edges[0, 0]
    inner = inner[np.diff(inner, prepend=-np.inf) >= width]
    above = [np.concatenate([[0.0], table.evaluate(inner)[0], [1.0]]) for table in tables.tables]
    found = np.maximum(np.rint(np.diff(above, axis=1).T * sizes), 1.0)  # (n_bins, n_groups)
    edges, n_groups = inner + tables.centres[0], len(sizes)
    return BinnedCells(
        cells.codes,
        tuple(found.astype(int).ravel().tolist()),
        tuple(tuple(range(k, k + n_groups)) for k in range(0, found.size, n_groups)),
        edges=edges,
        n_groups=n_groups,
    )
