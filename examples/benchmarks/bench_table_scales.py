"""How a `TableEncoder` lays numbers on a line, and what that does to a private copy.

Four tied columns of one law are encoded, copied by `DPSlicedFlowSampler` and decoded, all at ε = 1.
The scale was tuned on the laws of ``--laws tuned``; the others are for the report.
Run: ``python examples/benchmarks/bench_table_scales.py``.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from scipy import stats

from skdpot import DPSlicedFlowSampler, PrivacyBudget
from skdpot.preprocessing import NumericColumn, TableEncoder, TableSchema

# Values at normal scores z, some drawn with r, and bounds that anybody would state.
TUNED = {
    "normal": (lambda z, r: 50 + 10 * z, (0, 100)),
    "uniform": (lambda z, r: 100 * stats.norm.cdf(z), (0, 100)),
    "lognormal": (lambda z, r: np.exp(3 + z), (0, 1e5)),
    "zeros and lognormal": (lambda z, r: (z > -0.25) * np.exp(5.3 + 1.2 * z), (0, 1e6)),
    "two clusters": (lambda z, r: z + r.choice([-5, 5], z.shape), (-20, 20)),
    "rounded to 1,000": (lambda z, r: np.round(np.exp(8 + 1.1 * z), -3), (0, 1e6)),
    "balances": (lambda z, r: 200 * np.sinh(1.5 * z) - 50, (-1e6, 1e6)),
}
REPORTED = {
    "beta": (lambda z, r: stats.beta.ppf(stats.norm.cdf(z), 2, 5), (0, 1)),
    "logistic": (lambda z, r: 50 + 8 * stats.logistic.ppf(stats.norm.cdf(z)), (0, 100)),
    "ages": (lambda z, r: np.clip(np.round(35 + 14 * z + 3 * z**2), 18, 95), (0, 120)),
    "gamma": (lambda z, r: 30 * stats.gamma.ppf(stats.norm.cdf(z), 2), (0, 1000)),
    "Pareto": (lambda z, r: 10 * stats.norm.sf(z) ** (-1 / 1.5), (0, 1e6)),
    "zeros and Weibull": (
        lambda z, r: 1000 * np.maximum(-np.log(stats.norm.sf(z) / 0.3), 0) ** (1 / 0.6),
        (0, 1e6),
    ),
    "Student's t": (lambda z, r: 3 + 7 * stats.t.ppf(stats.norm.cdf(z), 3), (-1000, 1000)),
    "three clusters": (
        lambda z, r: np.choose(
            r.integers(3, size=z.shape), [np.exp(2 + 0.3 * z), np.exp(5 + 0.3 * z), 5 * z - 20]
        ),
        (-1000, 1000),
    ),
    "grades": (lambda z, r: np.clip(np.round(3 + 1.2 * z), 1, 5), (1, 5)),
}
CHOICES = {  # bounds stated, scale, epsilon of the encoder and of the sampler, 1 together
    "even": (False, "even", 0.2845, 0.9438),
    "auto": (False, "auto", 0.2845, 0.9438),
    "stated, even": (True, "even", 1.0, 1.0),
    "stated, private": (True, "private", 0.2845, 0.9438),
}


def drawn(law: object, n_rows: int, seed: int) -> np.ndarray:
    """Four columns with a correlation of their normal scores of a half."""
    rng = np.random.default_rng(seed)
    scores = (rng.normal(size=(n_rows, 1)) + rng.normal(size=(n_rows, 4))) / np.sqrt(2)
    return np.asarray(law(scores, rng), dtype=np.float64)


def copied(rows: np.ndarray, bounds: tuple, choice: tuple, seed: int) -> np.ndarray:
    """Return a private copy at ε = 1."""
    stated, scale, of_encoder, of_sampler = choice
    low, high = map(float, bounds) if stated else (None, None)
    schema = TableSchema([NumericColumn(f"x{j}", lower=low, upper=high) for j in range(4)])
    budget, frame = PrivacyBudget(1.0, delta=1e-5), pd.DataFrame(rows, columns=schema.names)
    options = {"budget": budget, "random_state": seed}
    encoder = TableEncoder(schema, epsilon=of_encoder, scale=scale, **options)
    places = encoder.fit_transform(frame)
    sampler = DPSlicedFlowSampler(epsilon=of_sampler, norm_bound=1.0, **options).fit(places)
    return encoder.inverse_transform(sampler.sample(6000)).to_numpy()


def errors(copy: np.ndarray, fresh: np.ndarray) -> tuple[float, float]:
    """Total variation between 16 quantiles, and W1 in units of the spread: means over columns."""
    found = []
    for one, other in zip(copy.T, fresh.T, strict=True):
        ends, levels = np.unique(np.quantile(other, np.arange(1, 16) / 16)), np.arange(0.5, 1000)
        tables = [
            np.bincount(np.searchsorted(ends, v, side), minlength=len(ends) + 1) / len(v)
            for side in ("left", "right")
            for v in (one, other)
        ]
        apart = np.abs(tables[0] - tables[1]).sum() + np.abs(tables[2] - tables[3]).sum()
        far = np.abs(np.quantile(one, levels / 1000) - np.quantile(other, levels / 1000)).mean()
        found.append((apart / 4, far * 3.3 / np.subtract(*np.quantile(other, [0.95, 0.05]))))
    return tuple(np.mean(found, axis=0))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--laws", choices=("tuned", "reported"), default="reported")
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 10_000])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    laws = TUNED if options.laws == "tuned" else REPORTED
    print(f"{'rows':>6}  {'law':20}" + "".join(f"{name:>18}" for name in CHOICES))
    for n_rows in options.rows:
        for name, (law, bounds) in laws.items():
            fresh, line = drawn(law, 20_000, 10**6), f"{n_rows:6,}  {name:20}"
            for choice in CHOICES.values():
                runs = [
                    errors(copied(drawn(law, n_rows, seed), bounds, choice, seed), fresh)
                    for seed in range(options.runs)
                ]
                line += f"{'{:.3f} / {:.3f}'.format(*np.mean(runs, axis=0)):>18}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
