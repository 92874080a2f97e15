"""Defects of privacy that somebody could write, each with the test that catches it.

``python -m tests.contract.mutants --csv doc/mutants.csv`` injects them one by one and writes what
the tests say; `test_mutants` does the same in every run of the tests.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass

from tests.contract.injection import (
    Injection,
    Outcome,
    all_of,
    charged_late,
    replaced,
    rewritten,
    run_tests,
)

__all__ = ["FILES", "MUTANTS", "Mutant", "results"]

DEFECTS = {
    1: "half of the noise",
    2: "no clipping",
    3: "noise drawn again and charged once",
    4: "charged after the release",
    5: "a change of class not counted",
    6: "particles clipped one by one",
    7: "sampling rate understated",
    8: "delta ignored",
    9: "an unstable sort",
    10: "sizes of the data in the place of batch sizes",
    11: "batches cut from one permutation",
    12: "released in the order of the data",
    13: "BatchNorm let in",
    14: "truncated blocks of directions taken for whole ones",
    15: "two snapshots of an open sketch",
    16: "the factor of the lattice forgotten",
    17: "private bounds charged nothing",
    18: "several rows of a person counted as one",
    19: "a refused call has charged",
    20: "a normal approximation as the account",
    21: "what an audit forgives",
    22: "categories told that few have",
    23: "more of a table than was counted",
    24: "a search that tells of its trials",
    25: "a private number beside the gate of releases",
    26: "a step of a pipeline that learns without noise",
    27: "one record changes how others are read",
}


@dataclass(frozen=True)
class Mutant:
    """One defect.

    Parameters
    ----------
    defect : int
        Which of `DEFECTS` it is.
    name : str
        Where that happens.
    inject : callable
        Writes it into the package.
    caught_by : str
        The test that must fail, from ``tests/`` on.
    """

    defect: int
    name: str
    inject: Injection
    caught_by: str

    def __str__(self) -> str:
        return f"{self.defect}: {DEFECTS[self.defect]}, {self.name}"


NETS, SLICING, PRIVACY = "skdpot.nets.", "skdpot.slicing.", "skdpot.privacy."
PATHS, ESTIMATORS = "skdpot.trajectories.", "skdpot.estimators."
TABLES = "skdpot.tables."
_AUDIT = "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim"
_DRAWS = "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn"
_REPLAY = "contract/test_replay.py::test_a_fit"
_LAW = "test_the_charge_is_on_the_disk_before_noise_and_"


def _half_of_the_noise() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "table of a sketch",
        rewritten(
            f"{SLICING}accumulator:NoisyAccumulator.__init__",
            ("lattice_noise(plan.sigma, shape", "lattice_noise(plan.sigma / 2, shape"),
        ),
        "slicing/test_released_noise.py::test_noise_has_the_stated_variance"
        "[public-False-SlicedSketch]",
    )
    for kind, old in (
        ("lattice", "noise.sigma, shape, stream, lattice"),
        ("float", "noise.sigma / plan.unit, shape"),
    ):
        yield (
            f"projected rows, {kind}",
            rewritten(f"{SLICING}row_release:_noisy", (old, f"0.5 * {old}")),
            "slicing/test_row_release.py::test_noise_has_the_stated_sigma"
            f"[1.0-{'discrete' if kind == 'lattice' else 'float'}]",
        )
    halved = "__import__('dataclasses').replace({0}, sigma={0}.sigma / 2)"
    of_noise = halved.format("plan.noise")
    of_plan = (
        " plan, secret, facts",
        f" __import__('dataclasses').replace(plan, noise={of_noise}), secret, facts",
    )
    for kind, where, test in (
        (
            "gradients of a generator",
            "generator_training:noisy_gradient_steps",
            "test_private_generator.py::test_noise_has_its_sigma_and_comes_from_the_secret_stream",
        ),
        (
            "sums of an autoencoder",
            "autoencoder_training:private_steps",
            "test_private_training.py::"
            "test_the_noise_has_the_scale_of_the_event_and_is_fresh[poisson]",
        ),
        (
            "fair sums by ranks",
            "fair_training:ranked_steps",
            "test_fair_training.py::"
            "test_every_gradient_is_a_sum_with_noise_over_the_public_batch_size"
            "[ranks-without_replacement]",
        ),
        (
            "fair sums by tables",
            "fair_training:tabled_steps",
            "test_fair_training.py::"
            "test_every_gradient_is_a_sum_with_noise_over_the_public_batch_size[tables-poisson]",
        ),
    ):
        yield kind, rewritten(NETS + where, of_plan), f"nets/{test}"
    yield (
        "every sum of a network",
        rewritten(
            f"{NETS}noisy_step:release_gradient",
            (
                "noisy_sum(exact.cpu().numpy(), noise,",
                f"noisy_sum(exact.cpu().numpy(), {halved.format('noise')},",
            ),
        ),
        "nets/test_code_parity.py::test_the_noise_has_the_scale_of_the_event",
    )
    yield (
        "fair tables",
        rewritten(
            f"{NETS}output_tables:noisy_counts",
            ("lattice_noise(noise.sigma,", "lattice_noise(noise.sigma / 2,"),
        ),
        "nets/test_output_tables.py::test_noise_has_the_stated_size_on_every_entry[2]",
    )
    yield (
        "mean-field Langevin",
        rewritten(
            f"{PATHS}langevin:_NoisyFit.gradient",
            ("noisy_sum(total, noise,", f"noisy_sum(total, {halved.format('noise')},"),
        ),
        "trajectories/test_langevin.py::test_noise_has_the_standard_deviation_of_the_event",
    )
    warm = rewritten(
        f"{PATHS}warm_start:_noisy_sums",
        ("lattice_noise(noise.sigma,", "lattice_noise(noise.sigma / 2,"),
    )
    for kind in ("means", "clusters"):
        yield (
            f"warm start by {kind}",
            warm,
            f"trajectories/test_warm_start.py::"
            f"test_noise_of_{kind}_has_the_standard_deviation_of_the_event",
        )
    yield (
        "histograms of bounds",
        rewritten(
            f"{PRIVACY}noisy_histogram:noisy_histogram",
            ("lattice_noise(noise.sigma,", "lattice_noise(noise.sigma / 2,"),
        ),
        "privacy/test_bounds.py::test_noise_has_the_variance_of_the_event[features-True-30]",
    )
    yield (
        "counts of categories",
        rewritten(
            f"{PRIVACY}category_selection:select_categories",
            ("lattice_noise(plan.sigma,", "lattice_noise(plan.sigma / 2,"),
        ),
        "privacy/test_category_selection.py::test_noise_has_the_variance_of_the_event[1]",
    )
    for kind, test in (
        ("counts of a synthesizer", "marginals_has_the_stated_standard_deviation[40.0]"),
        ("misfits of a synthesizer", "misfits_has_the_stated_standard_deviation"),
    ):
        yield (
            kind,
            rewritten(
                f"{SLICING}marginal_release:_noise",
                ("lattice_noise(sigma, size,", "lattice_noise(sigma / 2, size,"),
            ),
            f"slicing/test_marginal_release.py::test_noise_of_{test}",
        )
    yield (
        "the sampler of lattice noise",
        rewritten(
            f"{PRIVACY}lattice_sampler:discrete_gaussian",
            ("_draw(float(s),", "_draw(float(s) / 2,"),
        ),
        "privacy/test_noise.py::test_frequencies_match_the_exact_probabilities[20.0]",
    )
    yield (
        "the sampler of float noise",
        rewritten(
            f"{PRIVACY}noise:gaussian_noise", ("normal(0.0, sigma,", "normal(0.0, sigma / 2,")
        ),
        "privacy/test_noise.py::test_float_noise",
    )
    yield (
        "noise of one release for several",
        rewritten(f"{NETS}output_tables:plan_tables", ("mu / math.sqrt(n_releases)", "mu")),
        "nets/test_output_tables.py::test_a_plan_costs_what_it_was_given[1]",
    )


def _noise_by_audit() -> Iterator[tuple[str, Injection, str]]:
    """The same, for those of which an attack on the releases sees the whole noise."""
    audited = {
        "table of a sketch": "sketch",
        "projected rows, lattice": "projected rows",
        "sums of an autoencoder": "sums of an autoencoder",
        "fair sums by tables": "fair sums",
        "fair tables": "fair table",
        "mean-field Langevin": "mean-field Langevin",
        "warm start by means": "mean of a warm start",
        "histograms of bounds": "histogram of bounds",
        "counts of categories": "counts of categories",
        "counts of a synthesizer": "counts of a synthesizer",
        "misfits of a synthesizer": "misfits of a synthesizer",
    }
    for name, inject, _ in _half_of_the_noise():
        if name in audited:
            yield f"{name}, by audit", inject, f"{_AUDIT}[{audited[name]}]"


def _no_clipping() -> Iterator[tuple[str, Injection, str]]:
    shorten = "mapped[beyond] *= (inside / np.sqrt(squares[beyond]))[:, None]"
    yield (
        "rows to the ball",
        rewritten(f"{PRIVACY}data_bounds:DataBounds._shorten", (shorten, "pass")),
        "slicing/test_row_release.py::test_rows_outside_the_ball_are_shortened",
    )
    yield (
        "rows to the box",
        rewritten(
            f"{PRIVACY}data_bounds:DataBounds.to_ball",
            ("np.clip(mapped, -side, side, out=mapped)", "mapped"),
        ),
        "privacy/test_bounds.py::test_box_broadcasts_and_clips_each_feature",
    )
    yield (
        "gradient of an autoencoder",
        rewritten(
            f"{NETS}output_gradients:clipped_gradient_sum",
            ("shares_of_jacobians(gram, clip)[:, None]", "torch.ones_like(gram[:, 0])"),
        ),
        "nets/test_private_training.py::test_no_neighbour_moves_a_sum_further_than_the_sensitivity",
    )
    yield (
        "norms in single precision",
        rewritten(
            f"{NETS}per_sample:OuterProductJacobians.gram",
            (
                "(self.output_gradients @ self.output_gradients.mT)",
                "(self.output_gradients.float() @ self.output_gradients.float().mT).double()",
            ),
        ),
        "nets/test_clipping_precision.py::test_no_record_contributes_more_than_the_clip",
    )
    yield (
        "Jacobian of the codes of an autoencoder",
        rewritten(
            f"{NETS}autoencoder_training:AutoencoderLoss._clipped_pull",
            ("shares_of_jacobians(gram, self.clip_jacobian)[:, None] * ", ""),
        ),
        "nets/test_code_parity.py::"
        "test_no_record_moves_the_clipped_sum_further_than_the_sensitivity",
    )
    yield (
        "codes that are compared with a prior",
        rewritten(
            f"{NETS}code_penalties:PriorDistance._shorten",
            ("finite * (self.radius / norms.clamp(min=self.radius))", "finite"),
        ),
        "nets/test_prior_penalty.py::test_codes_that_are_not_finite_are_bounded_too[1e+300]",
    )
    yield (
        "codes of groups",
        rewritten(
            f"{NETS}code_penalties:ParityDistance.vectors",
            ("self._compared.values(codes.to(torch.float64))", "codes.to(torch.float64)"),
        ),
        "nets/test_code_parity.py::test_codes_that_are_not_finite_are_bounded_too[1e+300]",
    )
    yield (
        "fair gradient",
        rewritten(
            f"{NETS}output_gradients:shares_of_vectors",
            (
                "return _shares((squared + _CANCELLED * without_cancelling**2).sqrt(), clip)",
                "return torch.ones_like(squared)",
            ),
        ),
        "nets/test_fair_sensitivity.py::test_twice_the_clip_is_attained",
    )
    jacobians = rewritten(
        f"{NETS}output_gradients:shares_of_jacobians",
        (
            "return _shares(_largest_eigenvalues(gram).clamp(min=0.0).sqrt(), clip)",
            "return torch.ones_like(gram[:, 0, 0])",
        ),
    )
    yield (
        "Jacobian of a fair output",
        jacobians,
        "nets/test_fair_sensitivity.py::test_the_sensitivity_of_ranked_sums_is_attained[0.99]",
    )
    yield (
        "Jacobian of a generator",
        jacobians,
        "nets/test_private_generator.py::test_the_jacobian_of_an_output_is_clipped",
    )
    yield (
        "Jacobian of a generator clipped to another norm than the charged one",
        rewritten(
            f"{ESTIMATORS}_generator_mechanisms:NoisyGradients._plan",
            ("math.sqrt(d), generator.clip_jacobian, int", "math.sqrt(d), 1.0, int"),
        ),
        "estimators/test_generator_privacy.py::"
        "test_the_sensitivity_is_that_of_the_clip_that_is_used[8.0]",
    )
    yield (
        "outputs of a generator",
        rewritten(
            f"{NETS}wasserstein_gradient:clipped_wasserstein_gradient",
            ("clip_output.nearest(_points(side, rows))", "_points(side, rows)"),
        ),
        "nets/test_private_wasserstein.py::test_outputs_and_jacobians_are_clipped_apart",
    )
    yield (
        "mean-field Langevin",
        rewritten(
            f"{PATHS}langevin:clipped_fit_gradient", ("np.minimum(clip * _INSIDE, full)", "full")
        ),
        "trajectories/test_langevin.py::test_the_sensitivity_is_attained",
    )
    yield (
        "rows of a warm start",
        rewritten(f"{PATHS}warm_start:_noisy_sums", ("_shortened(rows, plan.radius)", "rows")),
        "trajectories/test_warm_start.py::"
        "test_no_neighbour_moves_a_release_further_than_the_sensitivity[3.0-2-mean]",
    )


def _charged_once() -> Iterator[tuple[str, Injection, str]]:
    one_step = rewritten(
        f"{SLICING}row_plan:_event_maker", ('"n_steps": parameters.n_steps', '"n_steps": 1')
    )
    yield (
        "a batch a step",
        one_step,
        "estimators/test_row_mechanisms.py::test_as_much_noise_is_drawn_as_is_charged[resample]",
    )
    yield (
        "all rows at every step",
        all_of(
            rewritten(
                "skdpot.mechanisms.rows:Presample.release",
                ("n_steps=1", "n_steps=n_steps"),
            ),
            one_step,
        ),
        "estimators/test_row_mechanisms.py::test_as_much_noise_is_drawn_as_is_charged[presample]",
    )
    for kind, before, case in (
        ("sums of Poisson batches", "sampling_rate=sizes[0] / cells[0],\n", "sketch"),
        ("sums of batches of a fixed size", "group_sizes=cells,\n", "ranks"),
    ):
        indent = " " * (16 if case == "sketch" else 12)
        yield (
            kind,
            rewritten(
                f"{NETS}training_plan:plan_training",
                (f"{before}{indent}n_steps=n_steps", f"{before}{indent}n_steps=1"),
            ),
            f"{_DRAWS}[classifier{', ranks' * (case == 'ranks')}]",
        )
    tables = rewritten(
        f"{NETS}output_tables:plan_tables",
        ("mu / math.sqrt(n_releases)", "mu"),
        ("n_steps=n_releases", "n_steps=1"),
    )
    yield "fair tables, histograms of a threshold", tables, f"{_DRAWS}[classifier]"
    yield (
        "steps of mean-field Langevin",
        rewritten(f"{PATHS}langevin:plan_langevin", ("n_steps=phase.n_iter", "n_steps=1")),
        "trajectories/test_langevin_plan.py::test_given_noise_is_accounted_for_whatever_the_target",
    )
    yield (
        "Lloyd steps",
        all_of(
            rewritten(f"{PATHS}warm_start:WarmStartPlan.event", ("self.n_iter", "1")),
            rewritten(
                f"{PATHS}warm_start:plan_warm_start", ("n_iter * group_size)", "group_size)")
            ),
        ),
        f"{_DRAWS}[trajectories, mfld, kmeans]",
    )

    yield (
        "a generator that starts anew",
        rewritten("skdpot._utils.rng:SecretStream.generator", ("self.random_bits(256)", "7")),
        "slicing/test_row_release.py::test_each_step_draws_fresh_noise",
    )
    yield "a batch a step, by audit", one_step, f"{_AUDIT}[projected rows of four steps]"


def _charged_after() -> Iterator[tuple[str, Injection, str]]:
    sketch = f"{SLICING}sketch:charge"
    rows = f"{SLICING}row_release:charge"
    networks = "skdpot.mechanisms.noisy_training:charge"
    for kind, method, charge, test in (
        ("SlicedSketch.fit", f"{SLICING}sketch:SlicedSketch._release", sketch,
         f"estimators/test_budget_use.py::{_LAW}data[fit-bounds0]"),
        ("SlicedSketch.partial_fit", f"{SLICING}sketch:SlicedSketch.partial_fit", sketch,
         f"estimators/test_budget_use.py::{_LAW}data[partial_fit-private]"),
        ("DPSlicedFlowSampler, sketch", f"{ESTIMATORS}flow_sampler:DPSlicedFlowSampler.fit",
         sketch, f"estimators/test_budget_use.py::{_LAW}data[sampler-bounds0]"),
        ("DPSlicedFlowSampler, resample", f"{ESTIMATORS}flow_sampler:DPSlicedFlowSampler.fit",
         rows, f"estimators/test_row_mechanisms.py::{_LAW}data[resample]"),
        ("DPSlicedFlowSampler, presample", f"{ESTIMATORS}flow_sampler:DPSlicedFlowSampler.fit",
         rows, f"estimators/test_row_mechanisms.py::{_LAW}data[presample]"),
        ("DPSlicedGenerator, sketch", f"{ESTIMATORS}generator:DPSlicedGenerator.fit", sketch,
         "estimators/test_generator_privacy.py::test_the_charge_comes_before_noise_and_rows"
         "[sketch]"),
        ("DPSlicedGenerator, smoothing", f"{ESTIMATORS}generator:DPSlicedGenerator.fit", rows,
         "estimators/test_generator_privacy.py::test_the_charge_comes_before_noise_and_rows"
         "[smoothing]"),
        ("DPSlicedGenerator, gradient", f"{ESTIMATORS}generator:DPSlicedGenerator.fit", networks,
         "estimators/test_generator_privacy.py::test_the_charge_comes_before_noise_and_rows"
         "[gradient]"),
        ("PrivateSWAutoencoder", f"{ESTIMATORS}autoencoder:PrivateSWAutoencoder.fit", networks,
         f"estimators/test_autoencoder_privacy.py::{_LAW}data[options0]"),
        ("PrivateSWAutoencoder, parity", f"{ESTIMATORS}autoencoder:PrivateSWAutoencoder.fit",
         networks,
         "estimators/test_autoencoder_parity.py::test_the_charge_is_there_before_noise_and_data"),
        ("FairPrivateClassifier, sketch",
         f"{ESTIMATORS}fair_classifier:FairPrivateClassifier.fit", networks,
         f"estimators/test_fair_privacy.py::{_LAW}records[sketch, statistical_parity, tuned]"),
        ("FairPrivateClassifier, ranks",
         f"{ESTIMATORS}fair_classifier:FairPrivateClassifier.fit", networks,
         f"estimators/test_fair_privacy.py::{_LAW}records[ranks, statistical_parity, tuned]"),
        ("FairPrivateRegressor, sketch", f"{ESTIMATORS}fair_regressor:FairPrivateRegressor.fit",
         networks, f"estimators/test_fair_privacy.py::{_LAW}records[sketch, private bounds]"),
        ("FairPrivateRegressor, ranks", f"{ESTIMATORS}fair_regressor:FairPrivateRegressor.fit",
         networks, f"estimators/test_fair_privacy.py::{_LAW}records[regression, ranks]"),
        ("PrivateTrajectorySampler, sketch",
         f"{ESTIMATORS}trajectory_sampler:PrivateTrajectorySampler.fit", sketch,
         f"estimators/test_trajectory_privacy.py::{_LAW}data[sketch]"),
        ("PrivateTrajectorySampler, mfld",
         f"{ESTIMATORS}trajectory_sampler:PrivateTrajectorySampler.fit",
         "skdpot.mechanisms.mean_field_langevin:charge",
         f"estimators/test_trajectory_privacy.py::{_LAW}data[mfld, kmeans]"),
        ("PrivateWassersteinDistance, fit",
         f"{ESTIMATORS}wasserstein_distance:PrivateWassersteinDistance.fit", sketch,
         f"estimators/test_wasserstein_distance.py::{_LAW}rows[fit]"),
        ("PrivateWassersteinDistance, transform",
         f"{ESTIMATORS}wasserstein_distance:PrivateWassersteinDistance.transform", sketch,
         f"estimators/test_wasserstein_distance.py::{_LAW}rows[transform]"),
        ("a party's sketch", "skdpot.federated.party:Party.publish_sketch", sketch,
         f"estimators/test_wasserstein_distance.py::{_LAW}rows[party]"),
        ("DPTableSynthesizer", f"{ESTIMATORS}table_synthesizer:DPTableSynthesizer.fit",
         f"{ESTIMATORS}table_synthesizer:charge",
         f"estimators/test_table_synthesizer_privacy.py::{_LAW}rows[known]"),
        ("DPTableSynthesizer, private schema",
         f"{ESTIMATORS}table_synthesizer:DPTableSynthesizer.fit",
         f"{ESTIMATORS}table_synthesizer:charge",
         f"estimators/test_table_synthesizer_privacy.py::{_LAW}rows[open]"),
        ("PrivateScaler", "skdpot.preprocessing.private_scaler:PrivateScaler.fit",
         "skdpot.preprocessing.private_scaler:charge",
         "preprocessing/test_private_scaler.py::test_the_charge_comes_before_noise_and_data"),
    ):  # fmt: skip
        yield kind, charged_late(method, charge), test


def _change_of_class() -> Iterator[tuple[str, Injection, str]]:
    sketch = rewritten(
        f"{SLICING}plan:plan_sketch", ("n_classes is not None and not public_labels", "False")
    )
    for kind, test in (
        ("sketch with classes",
         "slicing/test_sensitivity.py::test_a_change_of_class_alone_needs_the_larger_sensitivity"),
        ("sketch with classes, by audit", f"{_AUDIT}[sketch with classes]"),
    ):  # fmt: skip
        yield kind, sketch, test
    yield (
        "threshold, class taken as public",
        rewritten(
            f"{ESTIMATORS}fair_classifier:FairPrivateClassifier._fit",
            ("public_classes=SAME_CLASS in public", "public_classes=True"),
        ),
        "estimators/test_fair_privacy.py::"
        "test_the_threshold_pays_for_what_a_record_changes[sketch, statistical_parity, tuned]",
    )


def _particles_one_by_one() -> Iterator[tuple[str, Injection, str]]:
    one_by_one = rewritten(
        f"{PATHS}langevin:clipped_fit_gradient",
        ('np.sqrt(np.einsum("bk,bk,bk->b", shares, shares, squares))', "shares * np.sqrt(squares)"),
        ("where=spread)[:, None]", "where=spread)"),
    )
    for kind, test in (
        ("one record", "test_data_fit.py::test_no_record_has_a_norm_above_the_clip"),
        ("a whole step", "test_langevin.py::"
         "test_a_neighbour_moves_one_time_by_at_most_the_sensitivity"),
    ):  # fmt: skip
        yield kind, one_by_one, f"trajectories/{test}"


def _rate_understated() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "the smallest share of a group",
        rewritten(f"{PRIVACY}events:SampledGaussianEvent.rate", ("max(", "min(")),
        "estimators/test_autoencoder_parity.py::test_the_largest_share_of_a_group_is_charged",
    )
    yield (
        "Poisson batches of training",
        rewritten(
            f"{NETS}training_plan:plan_training", ("sizes[0] / cells[0]", "sizes[0] / cells[0] / 2")
        ),
        "estimators/test_autoencoder_privacy.py::test_the_stated_epsilon_is_that_of_dp_accounting",
    )
    yield (
        "Poisson batches drawn twice as large",
        rewritten(
            f"{NETS}training_plan:TrainingPlan.batches",
            ("self.sampling_rate, self.n_steps", "min(1.0, 2 * self.sampling_rate), self.n_steps"),
        ),
        "nets/test_private_training.py::test_batches_are_those_of_the_event",
    )
    for kind, old, new in (
        ("without_replacement", "batch_sizes=(size,)", "batch_sizes=(-(-size // 2),)"),
        ("poisson", "sampling_rate=size / n_samples", "sampling_rate=size / n_samples / 2"),
    ):
        yield (
            f"batches of projected rows, {kind}",
            rewritten(f"{SLICING}row_plan:_event_maker", (old, new)),
            f"slicing/test_row_release.py::test_batches_are_as_large_as_is_charged[{kind}]",
        )
    yield (
        "event of mean-field Langevin",
        rewritten(
            f"{PATHS}langevin:plan_langevin",
            (
                "sampling_rate=sampling_rate,\n                n_steps",
                "sampling_rate=sampling_rate / 2,\n                n_steps",
            ),
        ),
        "trajectories/test_langevin_plan.py::test_given_noise_is_accounted_for_whatever_the_target",
    )
    yield (
        "batches of mean-field Langevin",
        rewritten(
            f"{PATHS}langevin:_NoisyFit.__init__",
            ("poisson_batches(len(of_time), plan.sampling_rate,",
             "poisson_batches(len(of_time), min(1.0, 2 * plan.sampling_rate),"),
        ),
        "trajectories/test_langevin.py::test_every_record_takes_part_at_the_rate_of_the_event",
    )  # fmt: skip
    yield (
        "coins that land in more often",
        rewritten(
            f"{PRIVACY}subsampling:poisson_batches",
            ("math.floor(Fraction(rate) * _WORDS)", "math.floor(Fraction(rate) * _WORDS) + 1"),
        ),
        "privacy/test_subsampling.py::test_poisson_rate_is_never_exceeded",
    )


def _delta_ignored() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "a fit is calibrated to another delta",
        rewritten(
            f"{PRIVACY}calibration:privacy_target",
            ("SingleFitTarget(epsilon, delta) if", "SingleFitTarget(epsilon, 1e-3) if"),
        ),
        "estimators/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise"
        "[bounds0-1]",
    )
    yield (
        "infinite losses not counted",
        rewritten(
            f"{PRIVACY}loss_distribution:LossDistribution.delta",
            ("self.infinity_mass + float(np.sum", "float(np.sum"),
        ),
        "privacy/test_loss_distribution.py::"
        "test_an_infinite_loss_counts_fully_with_and_without_a_gaussian",
    )  # fmt: skip
    losses = "privacy/test_loss_distribution.py::"
    for kind, change, test in (
        ("rounding errors of transforms not covered", ("+ error, 0.0)", ", 0.0)"),
         "test_composed_masses_bound_the_exact_ones_far_into_the_tail[subset]"),
        ("losses beyond the window not counted", None,
         "test_losses_beyond_the_window_count_as_infinite"),
    ):  # fmt: skip
        where = "_upper_masses" if change else "_composed"
        change = change or ("math.exp(_LOG_TAIL) if top < highest else 0.0", "0.0")
        yield kind, rewritten(f"{PRIVACY}loss_distribution:{where}", change), losses + test
    yield (
        "rounding of a profile not counted",
        rewritten(f"{PRIVACY}loss_distribution:_both_signs", (" + (error or 0.0)", "")),
        f"{losses}test_what_profiles_may_round_off_is_at_infinity[0.02-0.9]",
    )
    for where, change, test in (
        ("spent:_epsilon", ("(1.0 - 2.0 * ROUNDING)", "1.0"),
         "privacy/test_spent.py::test_a_statement_bounds_what_any_machine_computes[1e-05-event1]"),
        ("calibration:SingleFitTarget.admits", ("(1.0 + 2.0 * ROUNDING) * ", ""),
         "privacy/test_calibration.py::test_a_single_fit_pays_for_the_noise_sampler_exactly"),
    ):  # fmt: skip
        kind = f"no room for other machines in {where}"
        yield kind, rewritten(f"{PRIVACY}{where}", change), test
    yield (
        "leaks of a ledger not capped",
        rewritten(f"{PRIVACY}ledger:Terms.admit", (" and totals.leak_units <= self.leak_cap", "")),
        "privacy/test_ledger.py::test_either_cap_refuses",
    )
    yield (
        "leaks of sampled fits not charged",
        rewritten(
            f"{PRIVACY}calibration:event_cost",
            ("leak_units if private.mu < loss.mu_without_sampling else 0", "0"),
        ),
        "privacy/test_calibration.py::test_a_thousand_sampled_fits_share_the_leaks_of_a_ledger",
    )
    yield (
        "error of the noise sampler not paid for",
        rewritten(
            f"{PRIVACY}calibration:SingleFitTarget.admits",
            (" + exact_leak(loss.n_steps)", ""),
        ),
        "privacy/test_calibration.py::test_a_single_fit_pays_for_the_noise_sampler_exactly",
    )


def _unstable_sort() -> Iterator[tuple[str, Injection, str]]:
    ranks = rewritten(
        f"{NETS}wasserstein_gradient:ranked_projections",
        (
            "keys = _sortable(projected.view(np.int64))",
            "order = np.argsort(projected, axis=1)\n"
            "    return RankedProjections(np.take_along_axis(projected, order, axis=1), order)",
        ),
    )
    for kind, test in (
        ("Wasserstein gradient", "test_wasserstein_gradient.py::test_ties_keep_their_order"),
        ("codes of groups", "test_code_parity.py::"
         "test_ties_keep_their_order_when_a_record_is_replaced"),
        ("fair sums", "test_fair_sensitivity.py::"
         "test_ties_of_a_thousand_clipped_outputs_keep_their_order[0.1]"),
    ):  # fmt: skip
        yield kind, ranks, f"nets/{test}"
    yield (
        "codes that are compared with a prior",
        rewritten(
            f"{NETS}code_penalties:PriorDistance._gaps",
            ("projections.detach().argsort(dim=1, stable=True)",
             "torch.from_numpy(projections.detach().numpy().argsort(axis=1))"),
        ),
        "nets/test_prior_penalty.py::test_ties_keep_their_order_when_a_record_is_replaced",
    )  # fmt: skip


def _sizes_of_the_data() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "sensitivity of fair sums by ranks",
        rewritten(
            "skdpot.mechanisms.fair:RankedOutputs._plan",
            (
                "ranked_sensitivity(sum(sizes), penalty, width)",
                "ranked_sensitivity(sum(sizes), ParityPenalty(cells.strata, cells.sizes), width)",
            ),
        ),
        "estimators/test_fair_privacy.py::"
        "test_ranked_sums_have_the_sensitivity_of_their_batches_and_directions"
        "[ranks, equalized_odds]",
    )
    yield (
        "noise of a generator's mean gradient",
        rewritten(
            f"{NETS}generator_training:noisy_gradient_steps",
            ("plan.batch_size * value", "plan.n_samples * value"),
            (
                " plan, secret, facts",
                " __import__('dataclasses').replace(plan, batch_sizes=(plan.n_samples,)),"
                " secret, facts",
            ),
        ),
        "nets/test_private_generator.py::test_noise_has_its_sigma_and_comes_from_the_secret_stream",
    )
    yield (
        "sensitivity of the codes of groups",
        rewritten(
            "skdpot.mechanisms.dpsgd:DPSGD._plan",
            (
                "sensitivity=loss.sensitivity",
                "sensitivity=__import__('dataclasses').replace(loss, penalty=__import__("
                "'dataclasses').replace(loss.penalty, batch_sizes=cells.sizes)).sensitivity",
            ),
        ),
        "estimators/test_autoencoder_parity.py::test_the_largest_share_of_a_group_is_charged",
    )
    yield (
        "sensitivity of a mean gradient",
        rewritten(
            f"{NETS}parity:ParityPenalty.sensitivity",
            ("/ min(compared)", "/ sum(compared)"),
        ),
        "nets/test_parity_penalty.py::test_the_worst_case_is_attained[two groups]",
    )


def _one_permutation() -> Iterator[tuple[str, Injection, str]]:
    epochs = rewritten(
        f"{PRIVACY}subsampling:fixed_size_batches",
        (
            "return (_ordered_sample(n, size, stream) for _ in range(n_steps))",
            "order, turns = _random_order(n, stream), n // size\n"
            "    return (order[k % turns * size :][:size] for k in range(n_steps))",
        ),
    )
    for kind, test in (
        ("batches themselves", "privacy/test_subsampling.py::"
         "test_successive_pairs_of_batches_are_uniform"),
        ("cells of training", "nets/test_private_training.py::"
         "test_batches_of_cells_are_fresh_uniform_subsets_of_each"),
        ("fair sums by ranks", "nets/test_fair_training.py::test_batches_are_fresh_at_every_step"
         "[ranks-without_replacement]"),
        ("projected rows", "slicing/test_row_release.py::"
         "test_without_noise_the_values_are_projections_of_a_batch"),
    ):  # fmt: skip
        yield kind, epochs, test


def _order_of_the_data() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "projected rows",
        rewritten(f"{SLICING}row_release:_released", ("values.sort(axis=1)", "pass")),
        "slicing/test_row_release.py::test_shapes_types_and_order[orthogonal-discrete]",
    )
    yield (
        "sorted before the noise",
        rewritten(
            f"{SLICING}row_release:_released",
            ("values.sort(axis=1)", "pass"),
            ("bounds.to_ball(members), theta", "np.sort(bounds.to_ball(members), axis=0), theta"),
        ),
        "estimators/test_row_mechanisms.py::"
        "test_values_are_sorted_after_the_noise[orthogonal-resample]",
    )
    yield (
        "members of a batch of a fixed size",
        rewritten(
            f"{PRIVACY}subsampling:_ordered_sample",
            ("return drawn[np.sort(first_seen)[:size]]",
             "return np.sort(drawn[np.sort(first_seen)[:size]])"),
        ),
        "privacy/test_subsampling.py::test_ordered_fixed_size_batches_are_uniform[7-3]",
    )  # fmt: skip
    yield (
        "members of a Poisson batch",
        rewritten(
            f"{PRIVACY}subsampling:_coin_sample",
            ("return taking_part[_random_order(len(taking_part), stream)]", "return taking_part"),
        ),
        "privacy/test_subsampling.py::test_poisson_order_is_uniform",
    )


def _batch_norm() -> Iterator[tuple[str, Injection, str]]:
    let_in = rewritten(
        f"{NETS}private_modules:check_per_record",
        ("for name, layer in network.named_modules():", "return\n    for name, layer in []:"),
    )
    for kind, test in (
        ("the check itself", "nets/test_private_modules.py::"
         "test_refused[layer0-'1' \\\\(BatchNorm1d\\\\).*GroupNorm]"),
        ("generator", "estimators/test_generator_privacy.py::"
         "test_what_does_not_go_together_is_refused_free_of_charge[options11-BatchNorm]"),
    ):  # fmt: skip
        yield kind, let_in, test
    # Without its name BatchNorm is still refused, for what it does.
    unknown = rewritten(
        f"{NETS}private_modules:_check_layer",
        ("if isinstance(layer, _NORMALISE_RECORDS):", "if False:"),
        ('getattr(layer, "track_running_stats", False)', "False"),
    )
    for kind, test in (
        ("autoencoder", "test_autoencoder.py::"
         "test_refused_before_anything_is_charged[changes11-BatchNorm1d.*GroupNorm]"),
        ("fair predictor", "test_fair_leaks.py::"
         "test_layers_that_join_records_are_refused_and_charge_nothing[layer0-normalises each "
         "record by the others-ranks]"),
    ):  # fmt: skip
        yield kind, unknown, f"estimators/{test}"


def _truncated_blocks() -> Iterator[tuple[str, Injection, str]]:
    truncated = rewritten(
        f"{SLICING}step_directions:StepDirections.largest_norm",
        ("math.ceil(self.n_slices / d)", "self.n_slices / d"),
    )
    for kind, test in (
        ("directions of a step", "test_exact_projection.py::"
         "test_largest_norm_is_one[31-8-orthogonal]"),
        ("projected rows", "test_row_release.py::"
         "test_the_worst_record_moves_a_truncated_block_by_the_sensitivity"),
    ):  # fmt: skip
        yield kind, truncated, f"slicing/{test}"


def _open_sketch() -> Iterator[tuple[str, Injection, str]]:
    refuses = "slicing/test_stream.py::test_an_open_sketch_cannot_be_read_or_copied"
    state = rewritten(
        f"{SLICING}sketch:SlicedSketch.__getstate__", ("if self._is_open:", "if False:")
    )
    yield "state of the sketch", state, f"{refuses}[state]"
    pickled = all_of(
        state,
        replaced(
            f"{SLICING}accumulator:NoisyAccumulator.__reduce_ex__",
            lambda _: object.__reduce_ex__,
            "as any object",
        ),
        replaced(
            f"{SLICING}accumulator:NoisyAccumulator.__getstate__",
            lambda _: lambda self: dict(vars(self)),
            "as any object",
        ),
    )
    yield "pickles of the sketch", pickled, f"{refuses}[pickle]"
    yield (
        "copies of the accumulator",
        replaced(
            f"{SLICING}accumulator:NoisyAccumulator.__copy__",
            lambda _: lambda self: self,
            "as any object",
        ),
        f"{refuses}[copy of the accumulator]",
    )
    yield (
        "a fork",
        rewritten(
            f"{SLICING}accumulator:NoisyAccumulator._check_whole",
            ("if os.getpid() != self._process:", "if False:"),
        ),
        "slicing/test_neighbours.py::test_a_fork_cannot_use_the_noise_of_an_open_sketch",
    )
    yield (
        "a chunk that was half added",
        rewritten(f"{SLICING}accumulator:NoisyAccumulator.add", ("del self._table", "pass")),
        "slicing/test_stream.py::test_an_interrupted_chunk_ends_the_stream_for_good"
        "[KeyboardInterrupt]",
    )


def _lattice_forgotten() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "noise that is planned",
        rewritten(f"{PRIVACY}noise:LatticeNoise.mu", (" * (1 + 1 / (20 * s * s))", "")),
        "privacy/test_noise.py::test_exact_profile_stays_below_what_is_charged[1-1.0]",
    )
    yield (
        "noise that is charged",
        rewritten(f"{PRIVACY}steps:step_mu", ("mu * (1.0 + (lattice / sigma) ** 2 / 20.0)", "mu")),
        "privacy/test_events.py::test_gaussian_mu_charges_the_lattice",
    )
    yield (
        "noise of sums over Poisson samples",
        rewritten(
            f"{PRIVACY}steps:sampled_step_mu",
            ("mu / math.sqrt((1.0 - rho / sigma) * (1.0 + rho / sigma)) * (1.0 + 1e-15)", "mu"),
        ),
        "privacy/test_noise.py::test_the_account_of_a_sampled_sum_is_that_of_its_random_rounding",
    )
    yield (
        "sums rounded for free",
        rewritten(
            f"{PRIVACY}noise:noise_for_sums",
            ("rounded_sensitivity(sensitivity, 2.0 * lattice, dim)", "sensitivity"),
        ),
        "privacy/test_noise.py::test_rounded_sums_stay_within_the_sensitivity",
    )
    yield (
        "sums on no lattice",
        rewritten(
            f"{PRIVACY}noise:noisy_sum",
            ("units += round_to_lattice(values, noise.lattice)", "pass"),
            ("units.astype(np.float64) * noise.lattice", "units * noise.lattice + values"),
        ),
        "privacy/test_noise.py::test_a_noisy_sum_lies_on_the_lattice",
    )


def _bounds_for_free() -> Iterator[tuple[str, Injection, str]]:
    free = ("if isinstance(limits, DataBounds):", "if True:")
    yield (
        "sketch",
        rewritten(f"{SLICING}plan:plan_sketch", free),
        "slicing/test_released_noise.py::test_private_bounds_are_paid_for_by_more_noise",
    )
    yield (
        "sketches of trajectories",
        rewritten(f"{SLICING}plan:plan_sketch", free),
        "estimators/test_trajectory_privacy.py::"
        "test_epsilon_of_a_sketch_is_that_of_its_noise[private-1]",
    )
    yield (
        "targets of a regressor",
        rewritten(
            f"{ESTIMATORS}fair_regressor:FairPrivateRegressor._fit",
            ("bounds=bounds,", "bounds=None,"),
            (
                "plan.training.settle_bounds",
                "__import__('dataclasses').replace(plan.training, bounds=bounds).settle_bounds",
            ),
        ),
        f"{_DRAWS}[regressor]",
    )
    yield (
        "projected rows",
        rewritten(f"{SLICING}row_plan:plan_rows", free),
        "slicing/test_row_plan.py::test_private_bounds_take_a_tenth",
    )
    yield (
        "training",
        rewritten(
            f"{NETS}training_plan:plan_training",
            ("before = (bounds.event,) if isinstance(bounds, BoundsPlan) else ()", "before = ()"),
        ),
        f"{_DRAWS}[autoencoder]",
    )
    yield (
        "mean-field Langevin",
        rewritten(
            f"{PATHS}langevin:_events_before",
            ('"bounds": bounds if isinstance(bounds, BoundsPlan) else None, ', ""),
        ),
        "estimators/test_trajectory_privacy.py::test_epsilon_of_mfld_is_that_of_its_noise"
        "[options2-1-warm2]",
    )
    yield (
        "schema of a synthesizer",
        rewritten(
            f"{TABLES}plan:plan_tables",
            ("before = () if first.event is None else (first.event,)", "before = ()"),
        ),
        "contract/test_draws_are_charged.py::test_every_noise_of_a_table_is_charged"
        "[synthesizer, nothing known]",
    )
    yield (
        "the second histogram of a feature",
        rewritten(
            f"{PRIVACY}bounds_plan:BoundsPlan.event",
            ("events[0] if len(events) == 1 else ComposedEvent(events=events)", "events[0]"),
        ),
        "privacy/test_bounds.py::test_plan_costs_what_was_asked",
    )


def _several_rows() -> Iterator[tuple[str, Injection, str]]:
    table = rewritten(f"{SLICING}plan:table_sensitivity", ("group_size * n_slices", "n_slices"))
    for kind, test in (
        ("table of a sketch", "slicing/test_sensitivity.py::"
         "test_the_worst_neighbours_reach_the_bound_and_do_not_exceed_it[two rows of a person]"),
        ("table of a sketch, by audit", f"{_AUDIT}[sketch of persons]"),
    ):  # fmt: skip
        yield kind, table, test
    yield (
        "sketches of trajectories",
        rewritten(
            "skdpot.mechanisms.trajectory_sketch:TrajectorySketch.release",
            ("group_size=data.group_size", "group_size=1"),
        ),
        "estimators/test_trajectory_privacy.py::"
        "test_epsilon_of_a_sketch_is_that_of_its_noise[bounds0-3]",
    )
    yield (
        "histograms of bounds",
        rewritten(
            f"{PRIVACY}bounds_plan:_feature_noises",
            ("group_size * math.sqrt(2 * n_features)", "math.sqrt(2 * n_features)"),
        ),
        "privacy/test_bounds.py::test_several_rows_of_a_person_move_as_many_counts[features]",
    )
    yield (
        "bounds of a sketch",
        rewritten(
            f"{SLICING}plan:bounds_or_plan", ("of_bounds, group_size=group_size", "of_bounds")
        ),
        "slicing/test_public_labels.py::test_private_bounds_pool_the_rows_of_a_person[3]",
    )
    yield (
        "rows of different times",
        rewritten(f"{PRIVACY}event_base:Event.grouped", ("if size == 1", "if True")),
        "privacy/test_group_privacy.py::"
        "test_rows_of_different_parts_move_all_parts_together_by_the_root_of_their_number",
    )
    yield (
        "steps of mean-field Langevin",
        rewritten(
            f"{PATHS}langevin:plan_langevin",
            ("event.grouped(group_size)", "event"),
        ),
        "trajectories/test_langevin_plan.py::test_rows_at_different_times_compose",
    )
    yield (
        "warm start",
        all_of(
            rewritten(
                f"{PATHS}warm_start:WarmStartPlan.event",
                ("of_one_row.grouped(self.group_size)", "of_one_row"),
            ),
            rewritten(f"{PATHS}warm_start:plan_warm_start", ("n_iter * group_size)", "n_iter)")),
        ),
        "trajectories/test_warm_start.py::"
        "test_the_event_counts_each_lloyd_step_and_each_row_of_a_person",
    )
    for kind, change, test in (
        ("delta of a chain not added up", ("return steps + (k - 1) * x", "return 0.0"),
         "test_a_group_of_what_leaks_is_bounded_or_nothing_is_said"),
        ("a chain of one statistic by the root", ("mu = k * self", "mu = math.sqrt(k) * self"),
         "test_epsilon_over_k_is_more_than_epsilon_for_k_rows[5-3.583]"),
        ("leaks of a group forgotten", ("return leak + error", "return error"),
         "test_a_group_of_selected_categories_is_bounded"),
    ):  # fmt: skip
        yield (
            kind,
            rewritten(f"{PRIVACY}accounting:PrivacyLoss.group_epsilon", change),
            f"privacy/test_group_privacy.py::{test}",
        )
    yield (
        "leaks of a chain forgotten",
        rewritten(f"{PRIVACY}event_base:Event.group_leak", ("else 1.0", "else 0.0")),
        "privacy/test_group_privacy.py::test_a_group_of_what_leaks_is_bounded_or_nothing_is_said",
    )


def _refused_and_charged() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "too many rows in a stream",
        rewritten(
            f"{SLICING}sketch:SlicedSketch.partial_fit",
            (
                "check_arrivals(0 if first else self._accumulator.n_rows, len(rows), declared)",
                "pass",
            ),
            (
                "self._accumulator.add(rows, codes)",
                "check_arrivals(self._accumulator.n_rows, len(rows), declared)\n"
                "        self._accumulator.add(rows, codes)",
            ),
        ),
        "slicing/test_stream.py::test_more_rows_than_declared_are_refused_before_any_charge",
    )
    yield (
        "steps that diverge",
        rewritten(
            "skdpot.mechanisms.mean_field_langevin:MeanFieldLangevin.release",
            ("check_steps(plan.phases, data.axis.spacings)", "pass"),
        ),
        "estimators/test_trajectory_privacy.py::"
        "test_a_refused_fit_charges_nothing_and_changes_nothing[mfld-too long]",
    )
    yield (
        "a network that mixes records",
        rewritten(
            f"{ESTIMATORS}_generator_mechanisms:NoisyGradients.release",
            (
                'check_per_record(network, (n_latents,), streams.solver, parameter="module")',
                "pass",
            ),
            (
                "bounds = plan.settle_bounds(rows, streams)",
                'check_per_record(network, (n_latents,), streams.solver, parameter="module")\n'
                "    bounds = plan.settle_bounds(rows, streams)",
            ),
        ),
        "estimators/test_generator_privacy.py::"
        "test_what_does_not_go_together_is_refused_free_of_charge[options11-BatchNorm]",
    )
    yield (
        "a budget that is used up",
        rewritten(
            f"{PRIVACY}ledger:Ledger.admit",
            ("if admitted:\n            _append", "if True:\n            _append"),
        ),
        "privacy/test_budget.py::test_a_refused_charge_changes_nothing",
    )
    yield (
        "a device that is not there",
        rewritten(
            f"{SLICING}sketch:SlicedSketch._open",
            ("device = resolve_device(self.device)", "pass"),
            ("streams.secret, device", "streams.secret, resolve_device(self.device)"),
        ),
        "slicing/test_stream.py::test_a_device_that_is_not_there_is_refused_before_any_charge",
    )

    for kind, where, change, case in (
        ("noise of a table that cannot be drawn", f"{TABLES}plan:plan_tables",
         ("_check_drawable(sigma, shares, len(schema))", "pass"), "noise too small"),
        ("a value that the schema does not list",
         f"{ESTIMATORS}table_synthesizer:DPTableSynthesizer._read",
         ("schema.read(table)",
          "{c.name: table.series(c.name) for c in schema}"), "a value of no category"),
    ):  # fmt: skip
        yield (
            kind,
            rewritten(where, change),
            "estimators/test_table_synthesizer_privacy.py::"
            f"test_a_refused_fit_charges_nothing_and_changes_nothing[{case}]",
        )


def _normal_approximation() -> Iterator[tuple[str, Injection, str]]:
    clt = rewritten(
        f"{PRIVACY}events:SampledGaussianEvent._steps",
        ("SubsetStep(mu, rate)", "Step(rate * math.sqrt(math.expm1(mu * mu)))"),
    )
    for kind, test in (
        ("below what is attained",
         "privacy/test_accounting.py::test_limit_for_poisson_samples_lies_below_what_is_attained"),
        ("batches of projected rows",
         "slicing/test_row_plan.py::test_cost_of_given_noise_by_another_route[3.0-500]"),
    ):  # fmt: skip
        yield kind, clt, test
    yield (
        "Poisson account for batches of a fixed size",
        rewritten(
            f"{PRIVACY}events:SampledGaussianEvent._steps",
            ("SubsetStep(mu, rate)", "PoissonClippedSumStep(mu, rate)"),
        ),
        "privacy/test_accounting.py::test_golden_values[5.0]",
    )


def _audit_forgives() -> Iterator[tuple[str, Injection, str]]:
    yield (
        "delta of the claim",
        rewritten("skdpot.audit.guessing:guessing_p_value", ("if delta > 0.0:", "if False:")),
        "audit/test_guessing.py::test_golden_ceiling",
    )
    yield (
        "a trade-off of half of the noise",
        rewritten(
            "skdpot.audit.guessing:mu_lower_bound", ("ndtri(right) - mu", "ndtri(right) - mu / 2")
        ),
        "audit/test_guessing.py::test_gaussian_bound_is_attained[0.72]",
    )
    yield (
        "the bound of Gaussian noise for secret batches",
        rewritten("skdpot.audit.one_run:claimed", ("loss.is_sampled or loss.leak", "loss.leak")),
        "audit/test_one_run.py::test_the_stronger_bound_is_for_gaussian_noise_that_all_records_see",
    )
    missing = "audit/test_missing_noise.py::test_a_defect_is_refuted"
    yield (
        "coins in a residual",
        rewritten(
            "skdpot.audit.matched_filter:EvidenceSum.add", (" - coins @ diff", " + coins @ diff")
        ),
        "audit/test_noise.py::test_p_values_of_correct_noise_are_uniform",
    )
    yield (
        "small releases",
        rewritten(
            "skdpot.audit.noise:NoiseEvidence.of",
            ("if group.n_numbers >= _FEWEST)", "if group.n_numbers < 0)"),
        ),
        "audit/test_noise.py::test_small_releases_are_tested_together",
    )
    yield (
        "outputs beside the releases",
        rewritten(
            "skdpot.audit.audited_fit:AuditTask.leak",
            ("(rows[np.arange(len(rows)) // 2], labels)", "own"),
        ),
        f"{missing}[sketch-exact_used]",
    )


def _few_told() -> Iterator[tuple[str, Injection, str]]:
    selection, event = f"{PRIVACY}category_selection:", f"{PRIVACY}events:"
    account = "privacy/test_thresholded_event.py::"
    for kind, where, change, test in (
        ("a threshold two sigma lower", f"{selection}select_categories",
         ("plan.threshold * units", "(plan.threshold - 2 * plan.sigma) * units"),
         "privacy/test_category_selection.py::"
         "test_counts_of_one_are_shown_as_often_as_the_event_says"),
        ("a plan in which one count moves", f"{selection}plan_category_selection",
         ("math.sqrt(2.0)", "1.0"),
         "privacy/test_category_selection.py::test_a_plan_costs_what_it_was_given"),
        ("an event in which one count moves", f"{event}ThresholdedCountsEvent.sensitivity",
         ("math.sqrt(2.0)", "1.0"), f"{account}test_no_neighbours_exceed_what_is_charged[grid3]"),
        ("a tail that starts a step too far out", f"{event}ThresholdedCountsEvent._passes",
         ("Fraction(1, 2)", "Fraction(3, 2)"),
         f"{account}test_the_tail_is_a_close_bound[3.0-16.0]"),
        ("the tail of one column for all", f"{event}ThresholdedCountsEvent.group_leak",
         ("self.n_columns * ", ""),
         f"{account}test_no_neighbours_of_two_columns_exceed_what_is_charged"),
        ("one column charged for all", f"{event}ThresholdedCountsEvent._steps",
         (", self.n_columns", ", 1"),
         f"{account}test_no_neighbours_of_two_columns_exceed_what_is_charged"),
        ("tails that delta forgets", f"{PRIVACY}accounting:PrivacyLoss.delta",
         ("self.leak + (1.0 - self.leak) * rest", "rest"),
         f"{account}test_no_neighbours_exceed_what_is_charged[grid0]"),
        ("tails that epsilon forgets", f"{PRIVACY}accounting:_epsilon",
         ("leak := leak_of_steps(steps)", "leak := 0.0"),
         f"{account}test_the_account_equals_loss_distributions_with_an_infinite_loss"),
        ("tails that a ledger forgets", f"{PRIVACY}calibration:_certain_leak_units",
         ("leak_cost(loss.leak) + ", ""),
         f"{account}test_a_budget_remembers_the_tail_and_admits_as_many_as_fit"),
    ):  # fmt: skip
        yield kind, rewritten(where, change), test
    yield (
        "the first of equal values stands for the others",
        rewritten(
            f"{selection}_counted", ("totals[type(value).__name__, value]", 'totals["", value]')
        ),
        "privacy/test_category_selection.py::test_equal_values_of_different_types_are_not_merged",
    )


def _uncounted_tables() -> Iterator[tuple[str, Injection, str]]:
    release, plan = f"{SLICING}marginal_release:", f"{TABLES}plan:TablePlan."
    laws, plans = "slicing/test_marginal_release.py::test_", "tables/test_plan.py::test_"
    private = "estimators/test_table_synthesizer_privacy.py::test_"
    replay = f"{_REPLAY}_of_a_table_follows_from_its_releases[synthesizer]"
    exact = (
        "np.array([np.abs(m.counts(codes) - p).sum() "
        "for m, p in zip(marginals, predictions, strict=True)])"
    )
    misfits = "release_misfits(codes, marginals, predictions, sigma, streams.secret)"
    chosen = f"{TABLES}fitting:_candidates"
    for kind, where, change, test in (
        ("misfits without noise", f"{release}release_misfits",
         ("_noise(sigma, len(marginals), mu, stream)", "np.zeros(len(marginals))"),
         f"{laws}noise_of_misfits_has_the_stated_standard_deviation"),
        ("counts are kept before the noise is added", f"{release}release_marginals",
         ("map(NoisyMarginal, marginals, tables,",
          "map(NoisyMarginal, marginals, [m.counts(codes) for m in marginals],"),
         f"{laws}what_is_recorded_has_its_noise"),
        ("a lattice on which no count lies", f"{release}_noise",
         ("noise_lattice(sigma, MARGINAL_LATTICE)", "noise_lattice(sigma, 0.3)"),
         f"{laws}the_noise_of_a_marginal_is_a_multiple_of_its_lattice"),
        ("predictions that lie on no lattice", f"{release}_exact_misfits",
         ("np.round(prediction * _PREDICTED) / _PREDICTED", "prediction"),
         f"{laws}the_noise_of_misfits_is_a_multiple_of_its_lattice[7.0]"),
        ("the sampler is told of one table", f"{release}release_marginals",
         ("marginal.n_cells, mu, stream", "marginal.n_cells, 1.4142 / sigma, stream"),
         f"{laws}the_sampler_is_told_of_the_whole_release"),
        ("rows before noise", f"{release}release_marginals",
         ("counts = _noise(sigma, marginal.n_cells, mu, stream)\n        "
          "counts += marginal.counts(codes)",
          "counts = marginal.counts(codes)\n        "
          "counts = counts + _noise(sigma, marginal.n_cells, mu, stream)"),
         f"{laws}noise_is_drawn_before_the_rows_are_counted"),
        ("one of two counts in a misfit", f"{release}misfit_sensitivity", ("2.0 * ", ""),
         f"{laws}the_worst_predictions_attain_the_sensitivity_of_misfits[4]"),
        ("one of several misfits", f"{release}misfit_sensitivity",
         ("math.sqrt(n_marginals)", "1.0"),
         f"{laws}the_worst_predictions_attain_the_sensitivity_of_misfits[4]"),
        ("one of two counts in a table", f"{plan}marginal_sigmas",
         ("self.sigma * MARGINAL_SENSITIVITY", "self.sigma"),
         f"{plans}marginals_of_a_release_cost_its_share_together[tree-weights1]"),
        ("the whole share for each table", f"{plan}marginal_sigmas",
         ("weights / weights.sum()", "weights / weights.max()"),
         f"{plans}marginals_of_a_release_cost_its_share_together[pairs-weights1]"),
        ("shares of 1.2", f"{TABLES}plan:plan_tables",
         ("sigma, shares, first", 'sigma, shares | {"pairs": 0.2 + shares["pairs"]}, first'),
         f"{private}the_noise_that_is_drawn_is_the_noise_that_is_charged[None]"),
        ("bins by true counts", f"{TABLES}fitting:fit_table",
         ("noisy.counts,", "noisy.marginal.counts(problem.codes),"), replay),
        ("a tree by true strengths", chosen,
         (misfits, f'{exact} if release == "independence" else {misfits}'), replay),
        ("pairs by true misfits", chosen,
         (misfits, f'{exact} if release == "misfit" else {misfits}'), replay),
        ("predictions from private rows", f"{TABLES}fitting:_release_pairs",
         ("pair.counts(particles.codes, particles.weights)", "pair.counts(codes)"), replay),
        ("rows kept for later", f"{ESTIMATORS}table_synthesizer:DPTableSynthesizer._release",
         ("self.n_samples_, self._kind = plan.n_samples, kind",
          "self.n_samples_, self._kind, self._codes = plan.n_samples, kind, problem.codes"),
         replay),
    ):  # fmt: skip
        yield kind, rewritten(where, change), test


def _search_tells() -> Iterator[tuple[str, Injection, str]]:
    drawn = f"{ESTIMATORS}_search_trials:_draw_candidate"
    restated = f"{PRIVACY}spent:PrivateEstimatorMixin._restate"
    tests, stated = (
        f"estimators/test_private_search{part}.py::test_" for part in ("", "_statements")
    )
    winners = f"{stated}everything_that_the_winner_holds_states_the_search"
    borne_by = [
        f"{kind.lower()}_record:{kind}Record._check_statement" for kind in ("Sketch", "Table")
    ]
    borne = f"{stated}a_statement_of_a_search_that_its_noise_does_not_bear_is_refused"
    for kind, where, change, test in (
        ("a short seed for a candidate", drawn, ("random_bits(128)", "random_bits(31)"),
         f"{tests}parameters_do_not_show_the_index_of_their_trial"),
        ("laws that count their draws", drawn, ("deepcopy(distributions)", "distributions"),
         f"{tests}a_law_with_a_state_of_its_own_does_not_count_trials"),
        ("the statement of a trial", restated, ("self.privacy_spent_ = spent", "pass"),
         f"{winners}[classifier]"),
        ("the budget of a trial, in a sketch", restated, ("in self._stated_in", "in ()"),
         f"{winners}[flow]"),
        ("sketches that tell more than a trial", f"{SLICING}{borne_by[0]}",
         ("due > noise_scale * charged", "due > math.inf * charged"), borne),
        ("tables that tell more than a trial", f"{TABLES}{borne_by[1]}",
         ("charged**2", "math.inf"), borne),
        ("a ledger remembered for each trial", f"{PRIVACY}ledger:Ledger.forget",
         ("_SEEN.pop(self.terms.uid, None)", "pass"),
         f"{stated}no_registry_of_the_process_counts_trials"),
    ):  # fmt: skip
        yield kind, rewritten(where, change), test


def _beside_the_gate() -> Iterator[tuple[str, Injection, str]]:
    warm, langevin = f"{PATHS}warm_start:_lloyd_step", f"{PATHS}langevin:mean_field_langevin"
    bounds = f"{PRIVACY}private_bounds:"
    trials = f"{ESTIMATORS}_search_trials:_noisy"
    for kind, where, changes, case in (
        ("true counts of clusters", warm,
         [("    least = max(1.0,", "    counts = np.bincount(_nearest(rows, centers), "
           "minlength=len(centers)).astype(float)\n    least = max(1.0,")],
         "paths, mfld, kmeans"),
        ("particles within the largest private norm", langevin,
         [("            norms = ", "            radius = min(radius, max("
           "np.linalg.norm(r, axis=-1).max() for r in rows))\n            norms = ")],
         "paths, mfld"),
        ("particles start at true means", langevin,
         [("particles = np.array(start, dtype=np.float64)",
           "particles = start + np.stack([r.mean(axis=0) for r in rows])[:, None]")],
         "paths, mfld"),
        ("gradients averaged as far as rows lie", langevin,
         [("averaged_over_neighbours(gradient, particles, smoothing)",
           "averaged_over_neighbours(gradient, particles, smoothing * rows[0].std())")],
         "paths, mfld, batches"),
        ("a threshold by true labels", f"{NETS}tuned_threshold:tuned_threshold",
         [("second = _noisy_count(",
           "second = float(labels.sum()) + 0.0 * _noisy_count(")], "classifier, threshold"),
        ("a learning rate by true targets", f"{ESTIMATORS}_fair_predictor:FairPredictor._train",
         [("plan.learning_rate",
           "plan.learning_rate / float(records.targets.double().std())")],
         "regressor, ranks"),
        ("steps by the largest row", f"{NETS}autoencoder_training:private_steps",
         [("secret, facts, linear)", "secret, facts, linear)\n"
           "        for weights in autoencoder.parameters():"
           "\n            weights.grad /= rows.norm(dim=1).sum()")],
         "autoencoder"),
        ("outputs as wide as the rows", f"{ESTIMATORS}_generator_mechanisms:"
         "NoisyGradients.release",
         [("OutputUnits.of_ball(bounds)", "OutputUnits.of_ball(type(bounds)("
           "bounds.center, bounds.scale, np.abs(bounds.to_ball(rows)).max()))")],
         "generator, gradient"),
        ("projected rows up to the largest", f"{SLICING}row_release:_released",
         [("theta, released(release)", "theta, np.abs(rows).max() * released(release)")],
         "flow, resample"),
        ("ranges of directions by true projections", f"{SLICING}sketch:SlicedSketch._open",
         [("projection_half_widths(self.bounds_, directions)",
           "np.abs(self.bounds_.to_ball(rows) @ directions.T).max(axis=0)")],
         "sketch"),
        ("a reach of true values", f"{bounds}_center",
         [("reach = max(high - center, center - low)",
           "reach = float(np.abs(used / width - center).max())")],
         "flow, automatic"),
        ("a radius of true norms", f"{bounds}_norm_radius",
         [("return float(np.exp2(edges[np.searchsorted(edges, upper[0] - 1e-9)]))",
           "return float(norms.max())")],
         "sketch, norms"),
        ("a warning of rows that are cut", f"{SLICING}accumulator:NoisyAccumulator._add",
         [("    counts = count_projections(",
           "    if np.abs(rows).max() > 100.0:\n"
           "        import warnings\n"
           '        warnings.warn("rows are cut", stacklevel=2)\n'
           "    counts = count_projections(")],
         "sketch, box"),
    ):  # fmt: skip
        yield kind, rewritten(where, *changes), f"{_REPLAY}_follows_from_its_releases[{case}]"
    yield (
        "upper bounds at the largest value",
        rewritten(
            f"{PRIVACY}private_ranges:_range",
            ("max(upper, lower) * width", "max(used.max(), lower * width)"),
        ),
        f"{_REPLAY}_of_a_table_follows_from_its_releases[encoder]",
    )
    yield (
        "trials compared by exact scores",
        rewritten(
            trials,
            ("return noisy", "return total / task.plan.n_scored"),
        ),
        "contract/test_replay.py::test_a_search_follows_from_its_releases[held out]",
    )
    yield (
        "phases with each other's noise",
        rewritten(f"{PATHS}langevin:_iterations", ("plan.noises,", "plan.noises[::-1],")),
        f"{_DRAWS}[trajectories, mfld, phases]",
    )


def _pipelines_leak() -> Iterator[tuple[str, Injection, str]]:
    parts, seen = f"{PRIVACY}parts:", f"{PRIVACY}provenance:"
    tests = "privacy/test_check_pipeline.py::test_"
    for kind, where, change, test in (
        ("within another composite", f"{parts}leaves", ("yield from leaves(", "yield from ("),
         f"{tests}a_step_that_learns_without_noise_is_refused_and_warned_of[before-a nested PCA]"),
        ("an encoder that names unknown values", f"{parts}_is_declared",
         ("in allowed for name, allowed in needed.items()",
          "in allowed or name == 'handle_unknown' for name, allowed in needed.items()"),
         f"{tests}what_is_not_declared_is_learned[changed1]"),
        ("a fit that says nothing", f"{seen}warn_of_composition",
         ("in leaks(around)", "in leaks(around)[:0]"),
         f"{tests}a_step_that_learns_without_noise_is_refused_and_warned_of[before-StandardScaler]"),
        ("a private step in a column transformer", f"{seen}warn_of_composition",
         ("*_statements(parts[:-1])", "*_statements(parts[:0])"),
         f"{tests}private_steps_share_a_budget_or_are_told_their_sum[columns, then a step]"),
        ("two budgets taken for one", f"{seen}_is_shared", ("budget is budgets[0]", "True"),
         f"{tests}private_steps_share_a_budget_or_are_told_their_sum[steps]"),
    ):  # fmt: skip
        yield kind, rewritten(where, change), test


def _other_records() -> Iterator[tuple[str, Injection, str]]:
    columns, files = "skdpot.preprocessing.", "skdpot.cli.table_files:"
    codes = "preprocessing/test_one_row_one_code.py::test_changing_a_row_changes_its_code_alone"
    for kind, where, change, test in (
        ("empty lines passed over", f"{files}_full_rows",
         ("for row in reader:", "for row in filter(None, reader):"),
         "cli/test_table_files.py::test_an_empty_line_of_one_column_is_a_record"),
        ("categories of a data type taken as public",
         f"{columns}table_schema:TableSchema.from_dtypes",
         ("_column_from_dtype(", "_column_with_categories("),
         "preprocessing/test_table_schema.py::"
         "test_categories_that_a_data_type_lists_are_unknown[enum of polars]"),
        ("objects as numbers of one type", f"{columns}numeric_column:NumericColumn._from_objects",
         ("list(map(as_integer if self.integer else as_float, present))",
          "np.clip(np.array(list(present)), -(2**62), 2**62)"),
         "preprocessing/test_table_objects.py::test_one_half_does_not_round_large_integers"),
        ("categories by the first that occurs",
         f"{columns}categorical_column:CategoricalColumn.to_codes",
         ("return table[column.distinct[0]]",
          "codes = column.distinct[0]; return np.where(codes < 0, -1, codes % len(self.levels))"),
         f"{codes}[arrow-String]"),
        ("times by the earliest", f"{columns}column_base:TickColumn.to_unit",
         ("(seconds - first)", "(seconds - seconds.min())"),
         f"{codes}[polars-Datetime(us, None)]"),
    ):  # fmt: skip
        yield kind, rewritten(where, change), test


_FAMILIES = {
    1: lambda: (*_half_of_the_noise(), *_noise_by_audit()),
    2: _no_clipping,
    3: _charged_once,
    4: _charged_after,
    5: _change_of_class,
    6: _particles_one_by_one,
    7: _rate_understated,
    8: _delta_ignored,
    9: _unstable_sort,
    10: _sizes_of_the_data,
    11: _one_permutation,
    12: _order_of_the_data,
    13: _batch_norm,
    14: _truncated_blocks,
    15: _open_sketch,
    16: _lattice_forgotten,
    17: _bounds_for_free,
    18: _several_rows,
    19: _refused_and_charged,
    20: _normal_approximation,
    21: _audit_forgives,
    22: _few_told,
    23: _uncounted_tables,
    24: _search_tells,
    25: _beside_the_gate,
    26: _pipelines_leak,
    27: _other_records,
}
MUTANTS = tuple(
    Mutant(defect, name, inject, f"tests/{test}")
    for defect, family in _FAMILIES.items()
    for name, inject, test in family()
)
FILES = tuple(dict.fromkeys(mutant.caught_by.split("::")[0] for mutant in MUTANTS))


def results(file: str) -> list[tuple[Mutant, Outcome, Outcome]]:
    """Inject all mutants that tests of one file catch.

    Parameters
    ----------
    file : str
        One of `FILES`.

    Returns
    -------
    list of (Mutant, Outcome, Outcome)
        What the named test comes to without the mutant, and with it.
    """
    own = [mutant for mutant in MUTANTS if mutant.caught_by.startswith(f"{file}::")]
    healthy, hurt = run_tests([(mutant.caught_by, mutant.inject) for mutant in own])
    return [(m, healthy[m.caught_by], outcome) for m, outcome in zip(own, hurt, strict=True)]


_COLUMNS = ("mutant", "injected into", "what it writes", "caught by", "what the test says")


def _write_table(path: str) -> None:
    found = [result for file in FILES for result in results(file)]
    found.sort(key=lambda result: MUTANTS.index(result[0]))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for mutant, healthy, hurt in found:
            verdict = hurt.says if healthy.healthy and hurt.caught else "NOT CAUGHT"
            writer.writerow(
                (
                    f"{mutant.defect}. {DEFECTS[mutant.defect]}: {mutant.name}",
                    "; ".join(f"``{place}``" for place in mutant.inject.where.split("; ")),
                    "; ".join(_change(old, new) for old, new in mutant.inject.changes),
                    f"``{mutant.caught_by.removeprefix('tests/')}``",
                    f"``{verdict}``",
                )
            )


def _change(old: str, new: str) -> str:
    if not old:  # described, not quoted
        return new
    return f"``{_line(new)}`` for ``{_line(old)}``" if new else f"without ``{_line(old)}``"


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", required=True, help="where to write the table")
    _write_table(parser.parse_args().csv)
