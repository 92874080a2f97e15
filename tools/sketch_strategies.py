"""Make `skdpot/release/strategies.npz`: strategy matrices of sketches, optimised and rounded.

For B bins and an energy r (the squared norm of a record's projections per slice, in units of
the squared half width of the binned range), a strategy A with the Gram matrix X = AᵀA has per slice

    Δ² = min over λ >= 0 of  max over bins a, b of [X_aa + X_bb - 2 X_ab - λ (m_a² + m_b²)] + 2 λ r

where m_a is the least distance of bin a from the centre (`skdpot.release.strategy` has the proof),
and ``2 min over λ of max over a of [X_aa - λ m_a²] + 2 λ r`` if a record may change its class. The
script minimises the larger of the two Δ² times the mean variance of a distribution function at the
inner edges, given the last count, in a public mixture of densities: a third uniform, a third
normal of variance r, as in a ball, a third normal of variance .36 r. A hundredth of the variance of
the last count is added, so that sizes of classes can be estimated.

The problem is the same for reversed bins, so the optimum is centrosymmetric: X falls into a block
of even and one of odd vectors. Each block is written as a Cholesky product, and L-BFGS minimises
with soft maxima that harden step by step. A is the symmetric root of X.

``python tools/sketch_strategies.py`` writes the file (one minute). ``--certificate`` prints, for a
record that keeps its class, Δ times the root mean square deviation of the square root without
energy and of the shipped matrix, and a lower bound for any matrix.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from scipy.linalg import sqrtm
from scipy.optimize import minimize, minimize_scalar

from skdpot.release.strategy import ENERGIES, OPTIMISED_BINS, Strategy

STEPS = 1024  # entries are multiples of 1 / 1024, and the largest is 1
TOTAL_WEIGHT = 0.01
SHARPNESSES = (20, 60, 200, 600, 2000)
FILE = Path(__file__).parents[1] / "skdpot" / "release" / "strategies.npz"


class Problem:
    """The objective for one number of bins and one energy."""

    def __init__(self, n_bins: int, energy: float, *, classes: bool = True) -> None:
        self.n_bins, self.energy, self.classes = n_bins, energy, classes
        edges = np.linspace(-1, 1, n_bins + 1)
        self.least = np.minimum(np.abs(edges[:-1]), np.abs(edges[1:])) ** 2  # n_bins is even
        densities = [np.ones(n_bins - 1)]
        densities += [np.exp(-(edges[1:-1] ** 2) / (2 * share * energy)) for share in (1.0, 0.36)]
        self.weights = np.mean([density / density.sum() for density in densities], axis=0)
        self.prefixes = np.tril(np.ones((n_bins - 1, n_bins)))
        self.total_weight = TOTAL_WEIGHT if classes else 1e-4
        # One of each two pairs that reversing the bins maps to each other.
        first, second = np.triu_indices(n_bins, 1)
        here = first + second <= n_bins - 1
        self.pairs = first[here], second[here]
        self.pair_least = self.least[self.pairs[0]] + self.least[self.pairs[1]]
        half = n_bins // 2
        eye = np.eye(half) / math.sqrt(2)
        self.bases = np.concatenate([eye, eye[::-1]]), np.concatenate([eye, -eye[::-1]])
        self.lower = np.tril_indices(half)

    def roots(self, z: np.ndarray) -> list[np.ndarray]:
        """Return the Cholesky factors of both blocks."""
        size, roots = len(self.lower[0]), []
        for part in (z[:size], z[size : 2 * size]):
            roots.append(np.zeros((self.n_bins // 2,) * 2))
            roots[-1][self.lower] = part
        return roots

    def gram(self, z: np.ndarray) -> np.ndarray:
        """Return the Gram matrix."""
        products = [
            basis @ root @ root.T @ basis.T
            for basis, root in zip(self.bases, self.roots(z), strict=True)
        ]
        return products[0] + products[1]

    def variance(self, gram: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean variance and its gradient."""
        inverse = np.linalg.inv(gram)
        sums = inverse.sum(axis=1)
        # Given the last count, t_j becomes t_j - (C_jB / C_BB) 1.
        given = self.prefixes - (self.prefixes @ sums / sums.sum())[:, None]
        vectors = given @ inverse
        variances = np.einsum("ij,ij->i", vectors, given)
        value = self.weights @ variances + self.total_weight * sums.sum()
        slope = -(vectors.T * self.weights) @ vectors - self.total_weight * np.outer(sums, sums)
        return float(value), slope

    def changes(self, gram: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return squared changes of the statistic, and the energies that they take."""
        diagonal, (first, second) = np.diag(gram), self.pairs
        pairs = diagonal[first] + diagonal[second] - 2 * gram[first, second]
        cases = [(pairs, self.pair_least)]
        return [*cases, (2 * diagonal, 2 * self.least)] if self.classes else cases

    def __call__(self, z: np.ndarray, sharpness: float) -> tuple[float, np.ndarray]:
        """Return the log of the objective, with a soft maximum, and its gradient."""
        gram, duals = self.gram(z), np.exp(z[-2:][: 1 + self.classes])
        variance, slope = self.variance(gram)
        changes, energies = zip(*self.changes(gram), strict=True)
        rooms = [2 * self.energy - each for each in energies]
        values = np.concatenate(
            [c + dual * room for c, dual, room in zip(changes, duals, rooms, strict=True)]
        )
        largest = values.max()
        shares = np.exp(sharpness * (values / largest - 1))
        value = math.log(variance) + math.log(largest) + math.log(shares.sum()) / sharpness
        shares /= shares.sum()
        of_pairs, of_bins = np.split(shares, [len(self.pairs[0])])
        push = self.spread(of_pairs)
        if self.classes:
            push[np.diag_indices(self.n_bins)] += 2 * of_bins
        total = slope / variance + push / largest
        parts = [
            2 * (basis.T @ total @ basis @ root)[self.lower]
            for basis, root in zip(self.bases, self.roots(z), strict=True)
        ]
        slopes = np.zeros(2)
        for k, share in enumerate((of_pairs, of_bins)[: len(rooms)]):
            slopes[k] = duals[k] * (share @ rooms[k]) / largest
        return value, np.concatenate([*parts, slopes])

    def spread(self, shares: np.ndarray) -> np.ndarray:
        """Return the sum of ``(e_a - e_b)(e_a - e_b)ᵀ`` over pairs, weighted."""
        first, second = self.pairs
        matrix = np.zeros((self.n_bins, self.n_bins))
        np.add.at(matrix, (first, second), -shares)
        np.add.at(matrix, (second, first), -shares)
        np.add.at(matrix, (first, first), shares)
        np.add.at(matrix, (second, second), shares)
        return matrix

    def solve(self) -> np.ndarray:
        """Return the minimiser in the coordinates of `gram`."""
        root = Strategy(self.n_bins).matrix
        start = root.T @ root
        factors = [np.linalg.cholesky(basis.T @ start @ basis) for basis in self.bases]
        z = np.concatenate([*(factor[self.lower] for factor in factors), np.log([0.05, 0.05])])
        bounds = [(None, None)] * (len(z) - 2) + [(-12.0, 3.0)] * 2
        options = {"maxiter": 2000, "maxfun": 3000, "maxcor": 20}
        for sharpness in SHARPNESSES:
            z = minimize(
                self, z, (sharpness,), "L-BFGS-B", jac=True, bounds=bounds, options=options
            ).x
        return z

    def objective(self, gram: np.ndarray) -> float:
        """Return Δ times the root mean square deviation."""

        def least(changes: np.ndarray, energies: np.ndarray) -> float:
            def bound(dual: float) -> float:
                return float((changes - dual * energies).max() + 2 * dual * self.energy)

            upper = changes.max() / self.energy
            found = minimize_scalar(bound, bounds=(0, upper), method="bounded")
            return min(bound(0.0), float(found.fun))

        squared = max(least(*case) for case in self.changes(gram))
        return math.sqrt(squared * self.variance(gram)[0])

    def lower_bound(self, z: np.ndarray) -> float:
        """Return a bound of the objective of any matrix, for records that keep their class.

        Any shares q of pairs of bins whose mean energy is at most 2 r give ``Δ² >= tr(K X)`` with
        ``K = Σ q (e_a - e_b)(e_a - e_b)ᵀ``, and the variance is ``tr(S X⁻¹)`` on vectors that sum
        to zero. The least product of the two is ``(tr (K^½ S K^½)^½)²``.
        """
        gram, dual = self.gram(z), math.exp(z[-2])
        changes, energies = self.changes(gram)[0]
        values = changes + dual * (2 * self.energy - energies)
        shares = np.exp(SHARPNESSES[-1] * (values / values.max() - 1))
        shares /= shares.sum()
        matrix, excess = self.spread(shares), shares @ energies - 2 * self.energy
        if excess > 0:  # mix with a pair in the middle, which has no energy
            middle = np.zeros_like(shares)
            middle[np.argmin(energies)] = 1.0
            part = excess / (excess + 2 * self.energy)
            matrix = (1 - part) * matrix + part * self.spread(middle)
        centred = self.prefixes - self.prefixes.mean(axis=1, keepdims=True)
        root = np.real(sqrtm((matrix + matrix[::-1, ::-1]) / 2))
        levels = np.linalg.eigvalsh(root @ (centred.T * self.weights) @ centred @ root)
        return float(np.sqrt(np.maximum(levels, 0)).sum())


def rounded(gram: np.ndarray) -> np.ndarray:
    """Return the symmetric root in steps of the lattice, its largest entry 1."""
    root = np.real(sqrtm(gram))
    root = root + root.T
    root = root + root[::-1, ::-1]
    return np.rint(root / np.abs(root).max() * STEPS).astype(np.int16)


def main() -> None:
    """Write the file, or print certificates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--certificate", action="store_true")
    certify, made = parser.parse_args().certificate, {}
    print("bins energy   square root   optimised   ratio   lower bound" if certify else "")
    for n_bins in OPTIMISED_BINS:
        for k, energy in enumerate(ENERGIES):
            problem = Problem(n_bins, energy, classes=not certify)
            z = problem.solve()
            if certify:
                unlimited = Problem(n_bins, 1.0, classes=False)
                unlimited.weights = problem.weights
                first = Strategy(n_bins).matrix
                before = unlimited.objective(first.T @ first)
                second = Strategy(n_bins, energy).matrix
                now, least = problem.objective(second.T @ second), problem.lower_bound(z)
                print(
                    f"{n_bins:4d} {energy:6.4f} {before:13.4f} {now:11.4f} {now / before:7.3f}"
                    f" {least / before:13.3f}",
                    flush=True,
                )
                continue
            made[f"{n_bins}-{k}"] = rounded(problem.gram(z))[: n_bins // 2]
    if made:
        np.savez_compressed(FILE, **made)


if __name__ == "__main__":
    main()
