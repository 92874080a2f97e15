"""Couplings of the particles at neighbouring times: sparse plans of uniform masses."""

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.ot.sinkhorn import schrodinger_potentials
from skdpot.ot.transport import exact_plan

# Entropic plans: their margins are corrected afterwards, so that an early stop does no harm.
_TOLERANCE = 1e-6
_MAX_ITERATIONS = 2000
# Entries with a lower density with respect to the independent coupling are dropped.
_NEGLIGIBLE = 1e-6
# If more than this share of the mass stays where it is, the kernel of a diffusion is widened.
_MOST_STAY = 0.5
# Share of a particle's mass below which an entry of the simplex solution is a rounding error.
_ROUNDING = 1e-9


def coupling_of(matrix: FloatArray) -> sparse.csr_array:
    """Return masses (m, k), scaled to sum to one, as a sparse coupling."""
    plan = sparse.csr_array(matrix)
    plan.data /= plan.data.sum()
    return plan


def sample_next(plan: sparse.csr_array, index: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw a partner, in the second cloud, of each indexed particle of the first cloud."""
    cumulated = np.concatenate([[0.0], np.cumsum(plan.data)])
    first, last = plan.indptr[index], plan.indptr[index + 1]
    low, high = cumulated[first], cumulated[last]
    level = low + rng.random(len(index)) * (high - low)
    entry = np.searchsorted(cumulated, level, side="right") - 1
    return plan.indices[np.clip(entry, first, last - 1)]


def exact_plans(particles: FloatArray) -> tuple[sparse.csr_array, ...]:
    """Couple neighbours of particles (T, m, d) by optimal transport for the squared distance."""
    plans = []
    for first, second in zip(particles[:-1], particles[1:], strict=True):
        costs = cdist(first, second, metric="sqeuclidean")
        costs /= costs.max() or 1.0  # the solver's tolerances are absolute
        plan, _ = exact_plan(costs)
        plan[plan < _ROUNDING / max(plan.shape)] = 0.0
        plans.append(coupling_of(plan))
    return tuple(plans)


def kept_plans(particles: FloatArray) -> tuple[sparse.csr_array, ...]:
    """Couple each particle with the one of the same index at the next knot."""
    same = sparse.eye_array(particles.shape[1], format="csr") / particles.shape[1]
    return (same,) * (len(particles) - 1)


def entropic_plans(
    particles: FloatArray, spacings: FloatArray, diffusivity: float
) -> tuple[sparse.csr_array, ...]:
    """Couple neighbouring knots by the Schrödinger bridges of a Brownian motion."""
    if len(particles) < 2:
        return ()
    solved = schrodinger_potentials(
        particles[:-1],
        particles[1:],
        diffusivity * np.asarray(spacings, dtype=np.float64),
        tol=_TOLERANCE,
        max_iter=_MAX_ITERATIONS,
    )
    return tuple(coupling_of(_with_exact_margins(plan)) for plan in solved.plans())


def drifting_plans(
    particles: FloatArray, spacings: FloatArray, diffusivity: float
) -> tuple[sparse.csr_array, ...]:
    """Couple neighbouring knots by bridges of a Brownian motion that drifts with the population.

    Particles of the same index follow the flow of the population. Each particle moves to the one of
    its index and diffuses from there, by the entropic plan between the later cloud and itself. This
    plan is symmetric. The diagonal of its kernel is 1, so that Sinkhorn's iteration needs no
    logarithms, and the geometric mean of two iterations converges fast (Feydy et al.,
    "Interpolating between optimal transport and MMD using Sinkhorn divergences", AISTATS 2019).

    If particles are so far apart that most would stay where they are, as in many dimensions, the
    kernel is widened, and only a share of the particles moves: the mean squared displacement is
    that of the diffusion.
    """
    plans, m = [], particles.shape[1]
    variances = np.maximum(diffusivity * np.asarray(spacings), np.finfo(np.float64).tiny)
    for cloud, variance in zip(particles[1:], variances, strict=True):
        squares = cdist(cloud, cloud, metric="sqeuclidean")
        width, largest, due = variance, squares.max(), variance * cloud.shape[1]
        plan = _plan_to_itself(squares, width)
        gained = np.sum(plan * squares)
        while np.trace(plan) > _MOST_STAY and gained < due and width < largest:
            width *= 2.0
            plan = _plan_to_itself(squares, width)
            gained = np.sum(plan * squares)
        moving = min(due / gained, 1.0) if width > variance else 1.0
        mixed = moving * plan + np.eye(m) * ((1.0 - moving) / m)
        plans.append(coupling_of(_with_exact_margins(mixed)))
    return tuple(plans)


def _plan_to_itself(squares: FloatArray, variance: float) -> FloatArray:
    """Return the entropic plan between a cloud and itself, from squared distances."""
    m = len(squares)
    with np.errstate(over="ignore"):
        kernel = np.exp(squares / (-2.0 * variance))
    scaling = np.full(m, m**-0.5)
    for _ in range(_MAX_ITERATIONS):
        sums = m * scaling * (kernel @ scaling)
        if np.abs(sums - 1.0).mean() <= _TOLERANCE:
            break
        scaling /= np.sqrt(sums)
    plan: FloatArray = scaling[:, None] * kernel * scaling
    return plan


def _with_exact_margins(plan: FloatArray) -> FloatArray:
    """Return a coupling of uniform masses that is near an approximate one and has fewer entries.

    Negligible entries are dropped, and rows and columns with too much mass are scaled down
    (Altschuler, Weed, Rigollet, NeurIPS 2017). The missing mass is then coupled in the order of
    the particles, which adds few entries.
    """
    m, k = plan.shape
    plan = np.where(plan < _NEGLIGIBLE / (m * k), 0.0, plan)
    with np.errstate(divide="ignore"):
        plan *= np.minimum(1 / (m * plan.sum(axis=1, keepdims=True)), 1.0)
        plan *= np.minimum(1 / (k * plan.sum(axis=0)), 1.0)
    sent = np.cumsum(np.maximum(1 / m - plan.sum(axis=1), 0.0))
    received = np.cumsum(np.maximum(1 / k - plan.sum(axis=0), 0.0))
    levels = np.unique(np.concatenate([sent, received]))
    masses = np.diff(levels, prepend=0.0)
    middles = levels - masses / 2
    rows = np.minimum(np.searchsorted(sent, middles), m - 1)
    columns = np.minimum(np.searchsorted(received, middles), k - 1)
    np.add.at(plan, (rows, columns), masses)
    return plan
