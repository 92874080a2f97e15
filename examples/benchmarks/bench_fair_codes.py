"""
Codes that do not tell the group: penalties of the training beside a map of the codes afterwards.

The paper's data and network (appendix B.3 of Rodríguez-Vítores, Lalanne and Loubes): 16-62-2-62-16
units, 500 steps, C = 10, M = 2, L = √2, learning rate 0.01, batches of a fifth of 30,000 rows, 50
directions. "map" is an autoencoder without a penalty and a `FairPrivateTransformer` of its codes,
together at the same epsilon. Judged on 10,000 other rows: squared error of all features and of the
eight core ones, accuracy and disparate impact of a logistic regression of the class from codes,
sliced distance of the groups over the spread of the codes, and how often gradient boosting tells
the group from a code.

Run: ``python examples/benchmarks/bench_fair_codes.py`` (about twenty minutes)
"""

import argparse
import math
import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

from skdpot import FairPrivateTransformer, PrivacyBudget, PrivateSWAutoencoder
from skdpot.datasets import make_biased_classification
from skdpot.exceptions import FairnessWarning, PrivacyWarning
from skdpot.mechanisms import DPSGD, Architecture, CodeParity
from skdpot.metrics import disparate_impact, wasserstein_parity

N, N_CORE, FITTED = 30_000, 8, 6_000
DELTA = 0.1 / N
SHARE = 0.8  # of epsilon, for the autoencoder of a map
BOUNDS = (-1.5, 2.5)


def paper_network():
    """Return the paper's encoder and decoder, from public initial weights."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(16, 62), nn.ReLU(), nn.Linear(62, 2))
    return encoder, nn.Sequential(nn.Linear(2, 62), nn.ReLU(), nn.Linear(62, 16))


def small_network():
    """Return one linear layer each way: 82 parameters."""
    generator = torch.Generator().manual_seed(0)
    layers = nn.Linear(16, 2), nn.Linear(2, 16)
    for layer in layers:
        nn.init.orthogonal_(layer.weight, 0.3, generator=generator)
        nn.init.zeros_(layer.bias)
    return layers


NETWORKS = {
    "paper": (
        paper_network,
        DPSGD(500, learning_rate=0.01, batch_size=6000, clip_gradient=10.0),
        2.0,
    ),
    "small": (
        small_network,
        DPSGD(300, learning_rate=0.03, batch_size=1500, clip_gradient=0.4),
        0.5,
    ),
}


PENALTIES = [("none", 0.0), ("ranks", 0.5), ("ranks", 0.75)]
PENALTIES += [("sketch", alpha) for alpha in (0.5, 0.75, 0.9)]


def trained(network, X, group, epsilon, alpha, comparison, budget=None):
    """Return a fitted autoencoder."""
    make, mechanism, radius = NETWORKS[network]
    penalty = None
    if alpha:
        clip = {"clip_output": radius, "clip_jacobian": math.sqrt(2.0)}
        penalty = CodeParity(alpha, comparison=comparison, **clip)
    return PrivateSWAutoencoder(
        latent_dim=2,
        epsilon=epsilon,
        delta=DELTA,
        penalty=penalty,
        architecture=Architecture(make(), normalize_codes=False),
        mechanism=mechanism,
        bounds=BOUNDS,
        budget=budget,
    ).fit(X, sensitive_features=group)


def judged(autoencoder, codes, X, y, group):
    """Return the figures of codes of public rows."""
    errors = (autoencoder.inverse_transform(codes) - X) ** 2
    fitted, tested = slice(0, FITTED), slice(FITTED, None)
    predicted = LogisticRegression().fit(codes[fitted], y[fitted]).predict(codes[tested])
    of_group = HistGradientBoostingClassifier(max_iter=60).fit(codes[fitted], group[fitted])
    return {
        "error": errors.sum(axis=1).mean(),
        "core": errors[:, :N_CORE].sum(axis=1).mean(),
        "accuracy": np.mean(predicted == y[tested]),
        "impact": disparate_impact(predicted, sensitive_features=group[tested]),
        "apart": wasserstein_parity(codes, sensitive_features=group)
        / math.sqrt(codes.var(axis=0).mean()),
        "group": of_group.score(codes[tested], group[tested]),
    }


def rows(network, epsilon, seed):
    """Yield the settings and figures of all methods on one data set."""
    X, y, group = make_biased_classification(N + 10_000, random_state=seed)
    public = X[N:], y[N:], group[N:]
    X, group = X[:N], group[:N]
    for comparison, alpha in PENALTIES:
        if math.isinf(epsilon) and comparison == "sketch":
            continue
        autoencoder = trained(network, X, group, epsilon, alpha, comparison)
        codes = autoencoder.transform(public[0])
        yield (comparison, alpha), judged(autoencoder, codes, *public)
    budget = PrivacyBudget(epsilon, DELTA) if math.isfinite(epsilon) else None
    autoencoder = trained(network, X, group, SHARE * epsilon, 0.0, "none", budget)
    rest = budget.remaining() if budget else math.inf
    fair = FairPrivateTransformer(epsilon=rest, delta=DELTA, budget=budget)
    fair.fit(autoencoder.transform(X), sensitive_features=group)
    codes = autoencoder.transform(public[0])
    for level in (0.5, 0.75, 1.0):
        moved = fair.with_level(level).transform(codes, sensitive_features=public[2])
        yield ("map", level), judged(autoencoder, moved, *public)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FairnessWarning)
    warnings.simplefilter("ignore", PrivacyWarning)
    for network, epsilon in (("paper", 1.0), ("small", 1.0), ("paper", math.inf)):
        found = [
            {"method": method, "alpha or level": weight, "seed": seed, **figures}
            for seed in range(1, given.seeds + 1)
            for (method, weight), figures in rows(network, epsilon, seed)
        ]
        table = pd.DataFrame(found).groupby(["method", "alpha or level"], sort=False)
        print(f"{network} network, epsilon = {epsilon}")
        print(table.mean().drop(columns="seed").round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
