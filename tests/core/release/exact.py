"""What mechanisms release without noise, so that the releases of neighbours can be subtracted."""

import sys
from contextlib import contextmanager

import numpy as np
import pytest

from skdpot._utils.streams import SecretStream, Streams
from skdpot.release import gate
from skdpot.release.gate import record_releases


def streams(seed=0):
    return Streams(SecretStream(seed), np.random.default_rng(seed), np.random.default_rng(seed))


@contextmanager
def no_noise():
    """Let mechanisms draw zeros in place of noise, whatever they are charged."""
    kinds = {"lattice_noise": np.int64, "gaussian_noise": np.float64}
    with pytest.MonkeyPatch.context() as patch:
        for module in [m for name, m in sys.modules.items() if name.startswith("skdpot.")]:
            for name in kinds.keys() & vars(module).keys():

                def zeros(sigma, shape, *_, dtype=kinds[name], **__):
                    return np.zeros(shape, dtype)

                patch.setattr(module, name, zeros)
        yield


class _Beside(gate._Player):
    """Notes what is released, and lets everybody go on with what was recorded."""

    def __init__(self, recorded):
        super().__init__(recorded)
        self.own = []

    def __call__(self, release, value):
        self.own.append(release)
        return super().__call__(release, value)


def again(run, recorded, *args):
    """What a run releases without noise, at each release given the recorded ones before it."""
    player = _Beside(recorded)
    token = gate._GATE.set(player)
    try:
        with no_noise():
            run(*args)
        player.finish()
    finally:
        gate._GATE.reset(token)
    return player.own


def numbers(release):
    """The released numbers in the units of the sensitivity, by the name of each part."""
    if release.kind == "category_counts":
        return dict(release.value)
    if release.kind == "cluster_sums":
        (sums, counts), plan = release.value, release.facts["plan"]
        weighted = counts * plan.count_weight * plan.lattice
        return {"sums": sums} | ({"counts": weighted} if plan.method == "kmeans" else {})
    if release.kind == "fit_gradients":
        return {"sums": release.value * release.facts["expected"][:, None, None]}
    return {"table": release.value}


def gaps(release, other):
    """The differences of two releases, as one vector."""
    first, second = numbers(release), numbers(other)
    parts = [np.ravel(first.get(k, 0.0) - second.get(k, 0.0)) for k in first | second]
    return np.concatenate([*parts, np.zeros(1)])


def moves(run, first, second):
    """How far each release moves from one data set to the other, and how much is charged for."""
    with no_noise(), record_releases() as recorded:
        run(first)
    pairs = zip(recorded, again(run, recorded, second), strict=True)
    stated = [r.sensitivity or r.event.phases[-1].sensitivity for r in recorded]
    return np.array([np.linalg.norm(gaps(*pair)) for pair in pairs]), np.array(stated)
