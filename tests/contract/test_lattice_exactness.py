"""The lattice noise: fresh for every draw, and nothing else in any release.

Its law is in `tests/privacy/test_noise.py`. Those tests that use the operating system's entropy
fail by chance with the probability `RARE`.
"""

import copy
import json
import math
import os
import re
import subprocess
import sys
import textwrap
import warnings
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

import skdpot
from skdpot import (
    FairPrivateClassifier,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot._utils import validation as rng_module
from skdpot._utils.validation import SecretStream
from skdpot.exceptions import PrivacyWarning
from skdpot.federated.messages import Message, SketchMessage, SketchRequest
from skdpot.federated.party import Party
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.privacy.noise import (
    MAX_TABLE_S,
    discrete_gaussian,
    noise_lattice,
)
from skdpot.release import gradients as noisy_sums
from skdpot.release import langevin
from skdpot.release import rows as noisy_rows
from skdpot.release.contingency import Marginal, release_marginals, release_misfits, tables_of
from skdpot.release.release import record_releases
from tests.contract.fits import FITS, TABLE, TABLES, N
from tests.flat_options import flow_sampler, made, sliced_generator, trajectory_sampler

RARE = 1e-8


# ------------------------------------------------------------ nothing else is released


def hostile_rows(n, d, seed):
    """Rows whose last bits differ in every way that floating point knows."""
    rng = np.random.default_rng(seed)
    values = np.array(
        "0.1 0.10000000000000001 0.10000000000000002 5e-324 -5e-324 -0.0 0.0 1e-300 1e308 "
        "-1e308 1.0 1.0000000000000002 -1.0 0.3 0.30000000000000004 1.1e-16 1e16".split(),
        dtype=float,
    )
    rows = values[rng.integers(0, len(values), (n, d))]
    mixed = rng.random((n, d)) < 0.3
    return np.where(mixed, rng.uniform(-1, 1, (n, d)), rows)


ROWS, LABELS = hostile_rows(120, 3, 1), np.arange(120) % 3
SLICES = np.vstack([np.eye(3), np.ones((1, 3)) / math.sqrt(3)])


def assert_on_lattice(values, lattice):
    """Every float is exactly a whole multiple, small enough for floats to hold all multiples."""
    step = Fraction(float(lattice))
    flat = np.ravel(values)
    assert flat.dtype == np.float64
    for value in flat.tolist():
        units = Fraction(value) / step
        assert units.denominator == 1, value
        assert abs(units.numerator) < 2**53
    # Zero has two floats, and which one it is would tell where it came from.
    assert not np.signbit(flat[flat == 0]).any()


def table_lattice(sketch):
    event = sketch.privacy_spent_.event
    table = event.events[-1] if isinstance(event, ComposedEvent) else event
    return table.lattice


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return make()


def fitted(rows=ROWS, labels=None, **parameters):
    parameters = {"bounds": (-1, 1), "projections": SLICES, "n_bins": 16} | parameters
    return quietly(lambda: SlicedSketch(**parameters).fit(rows, labels))


def streamed():
    sketch = SlicedSketch(bounds=(-1, 1), projections=SLICES, n_bins=16)
    for start in range(0, 120, 30):
        quietly(partial(sketch.partial_fit, ROWS[start : start + 30], n_samples=120))
    return sketch


def saved(tmp_path):
    fitted(epsilon=0.7).save(tmp_path / "sketch.safetensors")
    return SlicedSketch.load(tmp_path / "sketch.safetensors")


def published(tmp_path):
    request = SketchRequest(SLICES, 16, fitted().bounds_)
    message = Party("north", np.clip(ROWS, -9, 9)).publish_sketch(request)
    return Message.from_bytes(message.to_bytes()).sketch


def of_trajectories():
    sampler = trajectory_sampler(
        epsilon=2.0, bounds=(-1, 1), n_particles=8, n_projections=3, n_bins=8
    )
    return sampler.fit(np.clip(ROWS, -1, 1), LABELS).sketch_


SKETCHES = {
    "plain": lambda _: fitted(),
    "much noise": lambda _: fitted(epsilon=0.01),
    "little noise": lambda _: fitted(epsilon=100.0),
    "many bins": lambda _: fitted(n_bins=300),
    "single precision": lambda _: fitted(ROWS.clip(-9, 9).astype(np.float32)),
    "private bounds": lambda _: fitted(bounds="private", epsilon=3.0),
    "ball": lambda _: fitted(bounds="private", norm_bound=0.1),
    "classes": lambda _: fitted(labels=LABELS, conditional=True),
    "public labels": lambda _: fitted(
        labels=LABELS, conditional=True, public_labels=True, group_size=2
    ),
    "stream": lambda _: streamed(),
    "merged": lambda _: fitted(epsilon=0.1).merge(fitted(epsilon=9.0)),
    "saved": saved,
    "sent": lambda _: Message.from_bytes(SketchMessage(fitted()).to_bytes()).sketch,
    "published": published,
    "sampler": lambda _: quietly(
        lambda: flow_sampler(bounds=(-1, 1), n_steps=1, n_projections=3).fit(ROWS).sketch_
    ),
    "trajectories": lambda _: quietly(of_trajectories),
}


@pytest.mark.parametrize("name", SKETCHES)
def test_a_sketch_holds_multiples_of_its_lattice_only(name, tmp_path):
    sketch = SKETCHES[name](tmp_path)
    lattice = table_lattice(sketch)
    assert math.frexp(lattice)[0] == 0.5
    assert lattice <= 1 / 16
    assert_on_lattice(sketch.statistic_, lattice)
    assert sketch.noise_scale_ >= 16 * lattice


def test_without_privacy_the_table_is_on_the_coarse_lattice():
    assert_on_lattice(fitted(epsilon=math.inf).statistic_, 1 / 16)


def test_the_lattice_is_the_same_for_all_data():
    """It follows from public parameters, so that it cannot tell data sets apart."""
    lattices = {
        table_lattice(fitted(rows, epsilon=0.9))
        for rows in (ROWS, hostile_rows(120, 3, 2), np.zeros((120, 3)), np.full((120, 3), 5e-324))
    }
    assert len(lattices) == 1
    # And the remainders in units of a coarser lattice have one law: no data leave a mark.
    first, second = (
        np.concatenate([fitted(rows, epsilon=0.9, n_bins=64).statistic_.ravel() for _ in range(20)])
        for rows in (ROWS, np.full((120, 3), 0.1 + 1e-17))
    )
    fine = lattices.pop()
    table = [
        np.bincount((np.rint(v / fine) % 16).astype(int), minlength=16) for v in (first, second)
    ]
    assert stats.chi2_contingency(np.array(table)).pvalue > RARE


@pytest.fixture
def seen(monkeypatch):
    """Everything that the named functions return."""
    outputs = []

    def watch(module, name):
        original = getattr(module, name)

        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            outputs.append((args, kwargs, copy.deepcopy(result)))  # callers may write in it
            return result

        monkeypatch.setattr(module, name, call)
        return outputs

    return watch


# What fits release as it is on its lattice: gradients are divided later, and rows scaled.
RELEASED = {
    "scaler": {"histogram"},
    "sketch, norms": {"histogram", "sketch"},
    "classifier, threshold": {"table", "class_count"},
    "regressor": {"histogram", "table"},
    "paths, mfld, mean": {"histogram", "cluster_sums"},
    "paths, mfld, kmeans": {"cluster_sums"},
    "synthesizer, nothing known": {"histogram", "category_counts"},
}


def numbers_of(release):
    if release.kind == "category_counts":
        return np.array([count for _, count in release.value])
    if release.kind == "cluster_sums":
        sums, counts = release.value
        weight = release.facts["plan"].count_weight
        # A count is a whole number of these, divided once.
        assert np.array_equal(np.rint(counts * weight) / weight, counts)
        return sums
    return release.value


@pytest.mark.parametrize("name", RELEASED)
def test_whatever_a_fit_releases_is_on_its_lattice(name):
    estimator, given, _ = FITS.get(name) or (TABLES[name], {}, "")
    rows = TABLE if name in TABLES else hostile_rows(N, 40 if "norms" in name else 3, 3)
    with record_releases() as releases:
        quietly(lambda: clone(estimator).set_params(epsilon=8.0).fit(rows, **given))
    checked = [release for release in releases if release.kind in RELEASED[name]]
    assert {release.kind for release in checked} == RELEASED[name]
    for release in checked:
        assert math.frexp(release.lattice)[0] == 0.5
        assert_on_lattice(numbers_of(release), release.lattice)


def test_rows_are_released_on_a_lattice_times_the_public_radius(seen):
    """Scaled by a radius that is no power of two, and rounded: functions of whole numbers."""
    outputs = seen(noisy_rows, "_noisy")
    sampler = flow_sampler(
        "resample", epsilon=5.0, norm_bound=0.7, n_steps=3, n_projections=4, batch_size=40
    )
    quietly(lambda: sampler.fit(ROWS))
    assert len(outputs) == 3
    for (_, _, plan, radius, _), _, values in outputs:
        assert radius == 0.7
        assert math.frexp(plan.lattice)[0] == 0.5
        units = np.rint(values / radius / plan.lattice)
        assert np.array_equal(units * plan.lattice * radius, values)
        assert np.abs(units).max() < 2**53
        assert not np.signbit(values[values == 0]).any()


@pytest.mark.parametrize("sigma", [0.7, 13.0, 4321.0])
def test_marginals_and_misfits_are_on_their_lattice(sigma):
    codes = np.random.default_rng(7).integers(0, 4, (200, 2))
    pair = Marginal((0, 1), (np.arange(4), np.array([0, 0, 1, 1])))
    (noisy,) = tables_of(
        release_marginals(codes, [pair], np.array([sigma]), SecretStream(), NonPrivateEvent())
    )
    misfits = release_misfits(
        codes, [pair] * 50, [np.full(8, 24.7)] * 50, sigma, SecretStream(), NonPrivateEvent()
    )
    for table in (noisy.counts, misfits):
        assert_on_lattice(table, noise_lattice(sigma, 1 / 16))


TRAINED = {
    "autoencoder": made(PrivateSWAutoencoder, latent_dim=2, n_steps=2, batch_size=30),
    "autoencoder, prior": made(
        PrivateSWAutoencoder, latent_dim=2, n_steps=2, batch_size=30, penalty="prior", alpha=0.3
    ),
    "generator": sliced_generator("gradient", n_steps=2, batch_size=30),
    "classifier": made(FairPrivateClassifier, epsilon=20.0, n_steps=2),
    "classifier, ranks": made(FairPrivateClassifier, n_steps=2, mechanism="ranks"),
    "trajectories": trajectory_sampler(
        "mfld", n_particles=5, schedule=[(1e-4, None, 2)], sampling_rate=0.5
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_sums_of_clipped_gradients_are_on_their_lattice(name, seen):
    estimator = clone(TRAINED[name])
    outputs = [seen(module, "noisy_sum") for module in (noisy_sums, langevin)][-1]
    given = {"y": LABELS} if "classifier" in name or name == "trajectories" else {}
    if "classifier" in name:
        given["sensitive_features"] = LABELS % 2
    spent = quietly(lambda: estimator.fit(ROWS, **given)).privacy_spent_
    event = spent.event.events[-1] if isinstance(spent.event, ComposedEvent) else spent.event
    assert len(outputs) == event.n_steps == 2
    for (values, noise, _), _, noisy in outputs:
        assert (noise.sigma, noise.lattice) == (event.sigma, event.lattice)
        assert math.frexp(noise.lattice)[0] == 0.5
        assert_on_lattice(noisy, noise.lattice)
        assert np.abs(noisy - values).max() < 10 * noise.sigma  # 1e-19 by chance
    assert "not hardened" not in str(spent)


@pytest.mark.parametrize("mechanism", ["resample", "presample"])
def test_continuous_noise_says_so(mechanism):
    for noise in ("float", "discrete"):
        sampler = flow_sampler(mechanism, epsilon=5.0, bounds=(-1, 1), n_steps=2, noise=noise)
        statement = str(quietly(partial(sampler.fit, np.tile(ROWS, (3, 1)))).privacy_spent_)
        assert ("not hardened" in statement) == (noise == "float")


def test_all_who_draw_lattice_noise_are_looked_at_here():
    """A new release needs a new test in this file."""
    package = Path(skdpot.__file__).parent
    users = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\b(lattice_noise|discrete_gaussian|noisy_sum)\(", path.read_text())
    }
    assert users == {
        "estimators/_search_trials.py",  # tests/estimators/test_private_search.py
        "privacy/noise.py",
        *(
            f"release/{name}.py"
            for name in (
                *("categories", "contingency", "gradients", "histogram", "langevin"),
                *("output_tables", "rows", "value_histogram", "warm_start"),
            )
        ),
    }


# --------------------------------------------------------------- bytes are used once


@pytest.fixture
def entropy(monkeypatch):
    """All that was read from the operating system, and how much of it."""
    read, original = [], rng_module.os.urandom

    def urandom(n_bytes):
        data = original(n_bytes)
        read.append(data)
        return data

    fake = type(os)("os")
    fake.__dict__.update(os.__dict__, urandom=urandom)
    monkeypatch.setattr(rng_module, "os", fake)
    return read


@pytest.mark.parametrize("s", [1.0, 10.0, 1e4, 2.0**35])
def test_every_draw_reads_bytes_of_its_own(s, entropy):
    stream = SecretStream()
    draws = [discrete_gaussian(s, 500, stream) for _ in range(4)]
    leaves = 1 if s <= MAX_TABLE_S else 2
    word = 8 if leaves == 1 else 2  # of a wide draw most parts take two bytes
    words = [data for data in entropy if len(data) == word * 500]
    assert len(words) >= 4 * leaves
    assert len(set(entropy)) == len(entropy)
    if word == 8:
        every_word = np.frombuffer(b"".join(words), dtype=np.uint64)
        assert len(np.unique(every_word)) == len(every_word)
    for i, first in enumerate(draws):
        for second in draws[:i]:
            assert abs(np.corrcoef(first, second)[0, 1]) < 0.3  # 1e-11 by chance


def test_each_fit_and_each_event_of_a_fit_reads_bytes_of_its_own(entropy):
    for _ in range(2):
        quietly(lambda: SlicedSketch(bounds="private", n_projections=3, n_bins=8).fit(ROWS))
    long = [data for data in entropy if len(data) >= 64]
    assert len(long) >= 4
    blocks = [data[i : i + 16] for data in long for i in range(0, len(data) - 15, 16)]
    assert len(set(blocks)) == len(blocks)


FORKS = """
import json, os, sys
import numpy as np
from skdpot._utils.validation import SecretStream
from skdpot.privacy.noise import gaussian_noise, lattice_noise

stream = SecretStream()
before = lattice_noise(50.0, 200, stream, lattice=1.0, mu=1.0)

def draw():
    lattice = lattice_noise(50.0, 200, stream, lattice=1.0, mu=1.0)
    return [lattice.tolist(), gaussian_noise(1.0, 200, stream).tolist()]

found = []
for _ in range(3):
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(ends[1], json.dumps(draw()).encode())
        os._exit(0)
    found.append(json.loads(os.read(ends[0], 10**6)))
    os.waitpid(pid, 0)
found.append(draw())
sys.stdout.write(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_children_never_draw_the_same_noise():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for i, first in enumerate(found):
        for second in found[:i]:
            for a, b in zip(first, second, strict=True):
                assert abs(np.corrcoef(a, b)[0, 1]) < 0.5  # 1e-12 by chance
