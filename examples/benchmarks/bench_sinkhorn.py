"""Cost a pair of Schrödinger potentials, beside POT's two Sinkhorn solvers at equal accuracy.

Nine pairs of neighbouring clouds on three branches (a third of the particles each, in random order)
are solved to a marginal error of `--tol` (L1, of total mass one): cold, and warm from the solution
before all particles moved a little. POT gets the fewest iterations with which its plan meets
the same error, found by bisection that is not timed, and its warm start is the solution of the
same earlier clouds. All times are one call's over its pairs, costs included, on one thread.

A ratio is POT's time over ours: above 1 ours is faster. "-" means that POT's solver fails there,
by underflow or by needing more than `--most` iterations.

    python examples/benchmarks/bench_sinkhorn.py
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import ot
from threadpoolctl import threadpool_limits

from skdpot.ot.sinkhorn import SchrodingerPotentials, schrodinger_potentials

REGULARIZATIONS = (0.1, 0.03, 0.01, 0.003, 0.001)
METHODS = ("sinkhorn", "sinkhorn_log")
N_TIMES, MOVED = 10, 0.005


def branches(m: int, rng: np.random.Generator) -> np.ndarray:
    """Return clouds on an upper arc, a line and a lower arc, within the unit disc."""
    time_axis = np.linspace(0, 1, N_TIMES)[:, None]
    angle = np.pi * (1 - time_axis)
    branch = rng.permutation(np.arange(m) % 3) - 1
    x = np.where(branch == 0, 2 * time_axis - 1, np.cos(angle))
    centers = np.stack([x, np.broadcast_to(branch * np.sin(angle), x.shape)], axis=2)
    return 0.8 * (centers + np.sqrt(0.005) * rng.normal(size=centers.shape))


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def margin_error(plan: np.ndarray) -> float:
    """Return the L1 violation of both margins; infinite for a plan that is not finite."""
    m, k = plan.shape
    if not np.isfinite(plan).all():
        return np.inf
    rows, columns = plan.sum(axis=1) - 1 / m, plan.sum(axis=0) - 1 / k
    return float(np.abs(rows).sum() + np.abs(columns).sum())


def pot(
    x: np.ndarray, y: np.ndarray, epsilon: float, method: str, n_iter: int, start: tuple | None
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Solve one pair with POT; return its plan and what warms the next call."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        plan, log = ot.sinkhorn(
            np.full(len(x), 1 / len(x)),
            np.full(len(y), 1 / len(y)),
            ot.dist(x, y) / 2,
            epsilon,
            method=method,
            numItermax=n_iter,
            stopThr=0.0,
            warn=False,
            log=True,
            warmstart=start,
        )
        scalings = (
            (np.log(log["u"]), np.log(log["v"])) if "u" in log else (log["log_u"], log["log_v"])
        )
    return plan, scalings


def fewest_iterations(solve: Callable[[int], np.ndarray], tol: float, most: int) -> int | None:
    """Return the least number of iterations that meets the tolerance, up to a tenth."""
    low, high = 0, 1
    while margin_error(solve(high)) > tol:
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > max(high // 10, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if margin_error(solve(middle)) > tol else (low, middle)
    return high


def pot_time(
    pairs: list[tuple[np.ndarray, np.ndarray]],
    epsilon: float,
    method: str,
    starts: list,
    options: argparse.Namespace,
) -> tuple[float, int] | None:
    """Return POT's time over all pairs, and the iterations of the slowest."""
    total, slowest = 0.0, 0
    for (x, y), start in zip(pairs, starts, strict=True):
        needed = fewest_iterations(
            lambda n, x=x, y=y, start=start: pot(x, y, epsilon, method, n, start)[0],
            options.tol,
            options.most,
        )
        if needed is None:
            return None
        total += seconds(
            lambda x=x, y=y, n=needed, start=start: pot(x, y, epsilon, method, n, start),
            options.repeats,
        )
        slowest = max(slowest, needed)
    return total, slowest


def warm_scalings(solved: SchrodingerPotentials) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return POT's warm starts, from potentials that are accurate."""
    m, k = solved.source.shape[1], solved.target.shape[1]
    epsilon = solved.regularization[:, None]
    source = solved.source / epsilon - np.log(m)
    target = solved.target / epsilon - np.log(k)
    return list(zip(source, target, strict=True))


def rows(clouds: np.ndarray, moved: np.ndarray, epsilon: float, options: argparse.Namespace):
    """Yield the cold and the warm line of one regularisation."""
    n_pairs = len(clouds) - 1
    regularization = np.full(n_pairs, epsilon)
    before = schrodinger_potentials(clouds[:-1], clouds[1:], regularization, tol=options.tol)
    cases = (
        ("cold", clouds, None, [None] * n_pairs),
        ("warm", moved, before, warm_scalings(before)),
    )
    for name, points, start, scalings in cases:

        def ours(points=points, start=start) -> SchrodingerPotentials:
            return schrodinger_potentials(
                points[:-1], points[1:], regularization, start=start, tol=options.tol
            )

        solved = ours()
        error = max(margin_error(plan) for plan in solved.plans())
        mine = seconds(ours, options.repeats)
        pairs = list(zip(points[:-1], points[1:], strict=True))
        cells = [f"{epsilon:>6}", name, f"{solved.n_iter:>5}", f"{error:>8.1e}"]
        cells.append(f"{1e3 * mine / n_pairs:>8.2f}")
        for method in METHODS:
            found = pot_time(pairs, epsilon, method, scalings, options)
            if found is None:
                cells += ["      -"] * 3
            else:
                theirs, slowest = found
                cells += [f"{slowest:>7}", f"{1e3 * theirs / n_pairs:>7.1f}"]
                cells.append(f"{theirs / mine:>7.1f}")
        yield " ".join(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=500)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--most", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    clouds = branches(options.particles, rng)
    moved = clouds + MOVED * rng.normal(size=clouds.shape)
    print(
        f"{N_TIMES - 1} pairs of {options.particles} particles, margins to {options.tol:g}; "
        "iterations of the slowest pair, milliseconds a pair\n"
        f"{'eps':>6} start {'iter':>4} {'error':>8} {'ms':>8}"
        + "".join(f" {'iter':>7} {'ms':>7} {'ratio':>7}" for _ in METHODS)
        + f"\n{'':>33}"
        + "".join(f" {method:>23}" for method in METHODS)
    )
    with threadpool_limits(limits=1):
        for epsilon in REGULARIZATIONS:
            for line in rows(clouds, moved, epsilon, options):
                print(line, flush=True)


if __name__ == "__main__":
    main()
