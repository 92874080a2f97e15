"""
Make one synthetic table in a process of its own, which may have a Python of its own.

``bench_tables.py`` starts it with the path of a job, a file in JSON::

    python table_worker.py job.job

It needs pandas and whichever library the job names, and nothing of the other rivals: their
requirements exclude each other. Seconds and peak memory go to ``job.costs`` beside it,
synthetic rows to ``job.csv``, and to ``job.<sampling>.csv`` where one fit is sampled in more than
one way.

Rivals that know marginals only are given a table of codes 0, 1, ... with public sizes.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Job = dict[str, Any]
Sampler = Callable[[int], pd.DataFrame]


# --- rivals -----------------------------------------------------------------------------------
# Each takes a job and the private rows and returns ways to sample, by name.


def fit_dpmm(job: Job, rows: pd.DataFrame) -> dict[str, Sampler]:
    """Fit a pipeline of dpmm: on codes, or on raw values that it bins itself."""
    from dpmm.pipelines import PIPELINE_DICT

    settings: dict[str, Any] = {"delta": job["delta"], "n_jobs": 1} | job["options"]
    epsilon = job["epsilon"]
    if job["bins"] == "public":
        settings["disable_processing"] = True
    else:
        # Its own bins cost extra; the sum is what was asked for.
        epsilon -= settings.get("proc_epsilon", 0.0)
    pipeline = PIPELINE_DICT[job["model"]](epsilon=epsilon, **settings)
    pipeline.fit(rows, domain=job["domain"], random_state=job["seed"])
    return {"": lambda n: pipeline.generate(n_records=n, random_state=job["seed"] + 1)}


def fit_smartnoise(job: Job, rows: pd.DataFrame) -> dict[str, Sampler]:
    """Fit a synthesizer of SmartNoise on codes whose sizes it is told."""
    from snsynth import Synthesizer
    from snsynth.transform import LabelTransformer, TableTransformer

    np.random.seed(job["seed"])  # noqa: NPY002 (it draws from the global generator)
    labels = []
    for size in job["domain"].values():
        label = LabelTransformer(nullable=False)
        label.fit(range(size))
        labels.append(label)
    synthesizer = Synthesizer.create(
        job["model"], epsilon=job["epsilon"], delta=job["delta"], **job["options"]
    )
    synthesizer.fit(rows, transformer=TableTransformer(labels))
    model = synthesizer.synthesizer

    def mended(n_rows: int) -> pd.DataFrame:
        synthesizer.synthesizer = _IndependentRows(model)
        try:
            return synthesizer.sample(n_rows)
        finally:
            synthesizer.synthesizer = model

    return {"": lambda n: synthesizer.sample(n), "mended": mended}


def fit_opendp(job: Job, rows: pd.DataFrame) -> dict[str, Sampler]:
    """Fit a contingency table of OpenDP on codes whose sizes it is told."""
    import opendp.prelude as dp
    import polars as pl

    np.random.seed(job["seed"])  # noqa: NPY002 (it draws from the global generator)
    dp.enable_features("contrib", "idealized-numerics")
    rho = zcdp_rho(job["epsilon"], job["delta"])
    context = dp.Context.compositor(
        data=pl.from_pandas(rows).lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=_divisible(rho, len(job["domain"]) - 1)),
        split_evenly_over=1,
    )
    algorithm = {"mst": dp.mbi.MST, "aim": dp.mbi.AIM}[job["model"]](**job["options"])
    keys = {name: list(range(size)) for name, size in job["domain"].items()}
    table = context.query().contingency_table(keys=keys, algorithm=algorithm).release()
    model = table.model

    def shipped(n_rows: int) -> pd.DataFrame:
        return _without_missing(table.synthesize(n_rows).to_pandas(), job)

    def mended(n_rows: int) -> pd.DataFrame:
        table.model = _with_fill_in(model)
        try:
            synthetic = table.synthesize(n_rows, method="sample").to_pandas()
        finally:
            table.model = model
        return _without_missing(synthetic, job)

    return {"": shipped, "mended": mended}


def fit_marginals(job: Job, rows: pd.DataFrame) -> dict[str, Sampler]:
    """Release every column's histogram with our noise; columns are then drawn apart."""
    from skdpot._utils.streams import SecretStream
    from skdpot.privacy import GaussianEvent, gdp_mu
    from skdpot.tables.contingency import Marginal
    from skdpot.tables.marginal_release import release_marginals

    # Under replace-one, a record changes two counts of each column by one.
    sigma = math.sqrt(2 * rows.shape[1]) / gdp_mu(job["epsilon"], job["delta"])
    alone = [Marginal((k,), (np.arange(size),)) for k, size in enumerate(job["domain"].values())]
    event = GaussianEvent(sigma=sigma, sensitivity=math.sqrt(2 * rows.shape[1]))
    noisy = release_marginals(
        rows.to_numpy(), alone, np.full(len(alone), sigma), SecretStream(), event
    )
    rng, shares = np.random.default_rng(job["seed"]), {}
    for name, counts in zip(job["domain"], noisy.value, strict=True):
        table = np.maximum(counts, 0.0)
        shares[name] = table / table.sum() if table.any() else np.full(len(table), 1 / len(table))

    def sample(n_rows: int) -> pd.DataFrame:
        return pd.DataFrame({name: rng.choice(len(p), n_rows, p=p) for name, p in shares.items()})

    return {"": sample}


def fit_skdpot(job: Job, rows: pd.DataFrame) -> dict[str, Sampler]:
    """Fit our estimator on the table as it is, with the public schema."""
    from skdpot import DPTableSynthesizer
    from skdpot.preprocessing import TableSchema

    schema = TableSchema.from_json(Path(job["schema"]))
    synthesizer = DPTableSynthesizer(
        schema, epsilon=job["epsilon"], delta=job["delta"], target=job["target"], **job["options"]
    ).fit(rows)
    # The seed is for what follows the release; the noise is the operating system's.
    return {"": lambda n: synthesizer.sample(n, random_state=job["seed"])}


LIBRARIES: dict[str, tuple[Callable[[Job, pd.DataFrame], dict[str, Sampler]], str]] = {
    "dpmm": (fit_dpmm, "dpmm"),
    "smartnoise": (fit_smartnoise, "smartnoise-synth"),
    "opendp": (fit_opendp, "opendp"),
    "marginals": (fit_marginals, "skdpot"),
    "skdpot": (fit_skdpot, "skdpot"),
}


# --- what they lack ---------------------------------------------------------------------------


def zcdp_rho(epsilon: float, delta: float) -> float:
    """
    Return the largest ρ for which ρ-zCDP implies (ε, δ)-differential privacy.

    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020,
    Proposition 12, minimised over α on a grid: never too large. dpmm and SmartNoise convert by the
    same formula.
    """
    orders = 1 + np.geomspace(1e-3, 1e5, 20_000)
    low, high = 0.0, epsilon + 1.0
    for _ in range(100):
        rho = (low + high) / 2
        exponents = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders)
        reached = np.min(exponents - np.log(orders - 1)) <= math.log(delta)
        low, high = (rho, high) if reached else (low, rho)
    return low


def _with_fill_in(model: Any) -> Any:
    """
    Return the same distribution over the cliques of a triangulated graph.

    ``MarkovRandomField.synthetic_data`` (mbi 1.1) draws each column given those of its neighbours
    that are there already. That is right when elimination adds no edge; where the graph has
    cycles, conditional on too few columns otherwise (mended in mbi 2.0).
    """
    from mbi import junction_tree

    potentials = model.potentials
    while True:
        tree, _ = junction_tree.make_junction_tree(potentials.domain, potentials.cliques)
        if {frozenset(clique) for clique in tree} == {frozenset(c) for c in potentials.cliques}:
            break
        potentials = potentials.expand(list(tree))
    return type(model)(potentials=potentials, marginals=potentials, total=model.total)


def _divisible(rho: float, n_selections: int) -> float:
    """
    Return a ρ, smaller by some billionths, that OpenDP's MST can divide and add up again.

    OpenDP 0.16 gives each selection the float before the quotient, adds these rounding upwards,
    and refuses its own sum when that comes out above the whole: so for most values of ρ.
    """
    while True:
        rest = _before(_before(rho - rho * 0.5))  # the other half is for one-way marginals
        whole = _before(_before(rest - rest * 0.9))
        total = 0.0
        for _ in range(n_selections):
            exact = Fraction(total) + Fraction(_before(whole / n_selections))
            total = float(exact)
            if Fraction(total) < exact:
                total = math.nextafter(total, math.inf)
        if total <= whole:
            return rho
        rho *= 1 - 1e-9


def _before(value: float) -> float:
    return math.nextafter(value, -math.inf)


class _IndependentRows:
    """
    A fitted model of mbi 1.1 whose rows are drawn independently.

    As shipped, the draws within a group of equal parents rise with the row's number, for every
    column: columns with a common parent come out sorted alike, and so correlated. mbi 2.0 shuffles
    them.
    """

    def __init__(self, model: Any) -> None:
        self.model = _with_fill_in(model)

    def synthetic_data(self, rows: int) -> Any:
        return self.model.synthetic_data(rows, method="sample")


def _without_missing(synthetic: pd.DataFrame, job: Job) -> pd.DataFrame:
    """Draw anew what fell into OpenDP's extra category of unknown values."""
    rng = np.random.default_rng(job["seed"])
    for name, size in job["domain"].items():
        unknown = synthetic[name].isna().to_numpy()
        known = synthetic.loc[~unknown, name] if not unknown.all() else np.arange(size)
        synthetic.loc[unknown, name] = rng.choice(known, unknown.sum())
    return synthetic.astype(np.int64)


# --- the process ------------------------------------------------------------------------------


def peak_memory() -> float:
    """
    Return the largest resident size of this process so far, in MiB.

    Linux's ``VmHWM`` starts anew with the program; ``ru_maxrss`` is also that of the process that
    forked, when that was larger.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def timed(step: str, run: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return a result, and its seconds by the clock and of all cores."""
    clock, cores = time.perf_counter(), time.process_time()
    result = run()
    return result, {
        f"{step}_seconds": time.perf_counter() - clock,
        f"{step}_cpu_seconds": time.process_time() - cores,
    }


def main(path: Path) -> None:
    """Read the job, fit, sample, and write rows and costs."""
    job = json.loads(path.read_text(encoding="utf-8"))
    stem = path.with_suffix("")
    fit, package = LIBRARIES[job["library"]]
    rows = pd.read_csv(job["train"], **job["read"])
    before = peak_memory()
    samplers, costs = timed("fit", lambda: fit(job, rows))
    for name, sample in samplers.items():
        synthetic, seconds = timed("sample", lambda sample=sample: sample(job["n_rows"]))
        costs = seconds | costs  # of the way that comes first
        synthetic.to_csv(f"{stem}.{name}.csv" if name else f"{stem}.csv", index=False)
    costs |= {"peak_mib": peak_memory(), "mib_before": before, "version": version(package)}
    Path(f"{stem}.costs").write_text(json.dumps({"job": job} | costs), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
