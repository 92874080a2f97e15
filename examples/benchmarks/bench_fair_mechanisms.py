"""
Private gradients of the parity penalty: what was tried, and what each gives
============================================================================

Trains `FairPrivateClassifier` at one ε with variants of its two mechanisms, on the same splits as
``bench_fair.py``, and prints accuracy at several levels of disparate impact:

- ``sketch``: the library's default;
- ``sketch, maps alone``: between two releases outputs are pulled by the maps as they were, which
  moves groups past each other;
- ``sketch, majorised``: outputs are pulled to fixed points halfway, with the full force of the
  majorant, which also resists what both groups do together;
- ``sketch, clipped apart``: loss and penalty of a record are clipped one by one, each to half;
- ``ranks``: the paper's mechanism with the sensitivity proved here;
- ``ranks, paper's noise``: the same with the paper's sensitivity of the penalty, 4 times ours;
- ``ranks, clipped together``: a record's loss and penalty are clipped together. Its own term is
  then bounded by 2C, but what it moves in the terms of others stays, and that alone attains
  4 r L / n: the noise is not less, and more is clipped.

Run ``python bench_fair_mechanisms.py``; half an hour on one core.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
from fair_tasks import DEFAULT_DATA, FairTask, load_task
from tqdm import tqdm

from skdpot import FairPrivateClassifier
from skdpot.exceptions import PrivacyWarning
from skdpot.fair import penalty_mechanism
from skdpot.fair.fair_loss import FairLoss, compared_values
from skdpot.fair.penalty_mechanism import PenaltyMechanism
from skdpot.fair.predictor import PENALTY_MECHANISMS
from skdpot.nets import local_penalty
from skdpot.nets.gradients import shares_of_jacobians, shares_of_vectors

ALPHAS = (0.5, 0.7, 0.8, 0.9, 0.95)
LEVELS = (0.7, 0.8, 0.9)


class _PaperNoise(FairLoss):
    """Ranks with the paper's sensitivity: 16 M L with M = 1 for probabilities."""

    def ranked_sensitivity(self, batch_size, penalty, width):
        ours = penalty.sensitivity(width, self.clip_jacobian)
        return (1 - self.alpha) * 2 * self.clip + self.alpha * batch_size * 4 / width * ours


class _TogetherByRank(FairLoss):
    """Ranks with loss and penalty of a record clipped together, to (1 - alpha) C."""

    def ranked_vectors(self, network, batch, penalty, directions):
        n, alpha = len(batch.rows), self.alpha
        values = compared_values(self.compared, network, batch.rows)
        of_cells = np.split(values, np.cumsum(penalty.batch_sizes)[:-1])
        pulls = torch.from_numpy(np.concatenate(penalty.vectors(of_cells, directions)))

        def vectors(outputs, gram, records):
            shares = shares_of_jacobians(self.compared.gram(gram, outputs), self.clip_jacobian)
            pull = self.compared.pull_back(pulls[records] * shares[:, None], outputs)
            total = (1 - alpha) * self.gradient(outputs, batch.targets[records]) + alpha * n * pull
            clip = (1 - alpha) * self.clip
            return total * shares_of_vectors(total, gram, clip)[:, None]

        return vectors


class _Apart(FairLoss):
    """A sketch with loss and penalty of a record clipped one by one."""

    def joint_vectors(self, batch, of_batch):
        clip = self.joint_clip / 2

        def vectors(outputs, gram, records):
            total = (1 - self.alpha) * self.gradient(outputs, batch.targets[records])
            total = total * shares_of_vectors(total, gram, clip)[:, None]
            if of_batch is not None:
                pull = of_batch.vectors(self.compared.values(outputs), records)
                pull = self.alpha * self.compared.pull_back(pull, outputs)
                total = total + pull * shares_of_vectors(pull, gram, clip)[:, None]
            return total

        return vectors


VARIANTS = {
    "sketch": ("sketch", FairLoss, {}),
    "sketch, maps alone": ("sketch", FairLoss, {"_STIFFNESS": 0.0}),
    "sketch, majorised": ("sketch", FairLoss, {"_STIFFNESS": 4.0}),
    "sketch, clipped apart": ("sketch", _Apart, {}),
    "ranks": ("ranks", FairLoss, {}),
    "ranks, paper's noise": ("ranks", _PaperNoise, {}),
    "ranks, clipped together": ("ranks", _TogetherByRank, {}),
}


@contextmanager
def variant(name: str) -> Iterator[type[PenaltyMechanism]]:
    """Give the mechanism with one of its parts exchanged."""
    name, loss, constants = VARIANTS[name]
    stiffness = {"_STIFFNESS": local_penalty._STIFFNESS} | constants
    with (
        mock.patch.object(penalty_mechanism, "FairLoss", loss),
        mock.patch.multiple(local_penalty, **stiffness),
    ):
        yield PENALTY_MECHANISMS[name]


def measure(name: str, task: FairTask, alpha: float, epsilon: float, seed: int) -> dict:
    """Fit once and judge on the test rows."""
    with variant(name) as make:
        mechanism = make(alpha, tune_threshold=False)
        fitted = FairPrivateClassifier(epsilon=epsilon, mechanism=mechanism, random_state=seed)
        fitted.fit(task.X, task.y, sensitive_features=task.groups)
    scores = fitted.predict_proba(task.X_test)[:, 1]
    return {"variant": name, "alpha": alpha} | task.judge(1.0 * (scores > 0.5), scores)


def best_at(means: pd.DataFrame, level: float) -> float:
    """Return the best accuracy of the settings whose mean impact reaches a level."""
    reached = means[means["disparate_impact"] >= level]
    return np.nan if reached.empty else reached["accuracy"].max()


def main() -> None:
    """Run all variants and print one table a data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--data-sets", nargs="+", default=["adult", "compas"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    torch.set_num_threads(1)
    for data in options.data_sets:
        runs = [
            (name, alpha, seed)
            for seed in range(options.seeds)
            for name in options.variants
            for alpha in ALPHAS
        ]
        tasks = [
            load_task(data, options.data, group_feature=False, seed=seed)
            for seed in range(options.seeds)
        ]
        table = pd.DataFrame(
            [
                measure(name, tasks[seed], alpha, options.epsilon, seed)
                for name, alpha, seed in tqdm(runs, desc=data)
            ]
        )
        means = table.groupby(["variant", "alpha"], sort=False).mean().reset_index()
        best = {
            name: {f"impact >= {level}": best_at(part, level) for level in LEVELS}
            for name, part in means.groupby("variant", sort=False)
        }
        print(f"\n{data}, without the group as a feature, epsilon = {options.epsilon:g}")
        for figure in ("accuracy", "disparate_impact"):
            wide = means.pivot(index="variant", columns="alpha", values=figure)
            print(f"{figure}\n{wide.loc[options.variants].round(3).to_string()}")
        print(pd.DataFrame(best).T.round(3).to_string())


if __name__ == "__main__":
    main()
