"""Defects of privacy that somebody could write in `skdpot.trajectories`."""
# ruff: noqa: E501

from dataclasses import replace

import numpy as np

from skdpot.trajectories.fit_gradient import softmax_weights
from tests.contract.injection import (
    LARGE,
    Injections,
    given,
    half,
    half_noise,
    instead,
    returning,
    skipped,
    twice,
)


def mean_norm(radius, rows):
    return float(np.linalg.norm(np.concatenate(rows), axis=-1).mean())


def moved_by_true_means(start, rows):
    return start + np.stack([of_time.mean(axis=0) for of_time in rows])[:, None]


def times_the_spread_of_rows(smoothing, rows):
    return smoothing * rows[0].std()


def clipped_particle_by_particle(points, part, bandwidth, weight, clip):
    squares = ((part[:, None] - points) ** 2).sum(axis=2)
    shares = softmax_weights(squares, bandwidth)
    norms = shares * np.sqrt(squares)
    factors = weight * len(points) / bandwidth / bandwidth
    clipped = np.minimum(clip, factors * norms)
    return shares * np.divide(clipped, norms, out=np.zeros_like(norms), where=norms > 1e-140)


def with_true_counts(sums_and_counts, rows, centers):
    distances = ((rows[:, None] - centers) ** 2).sum(axis=2)
    counts = np.bincount(distances.argmin(axis=1), minlength=len(centers))
    return sums_and_counts[0], counts.astype(float)


def with_noises_exchanged(plan):
    return replace(plan, noises=plan.noises[::-1])


# fmt: off
INJECTIONS: Injections = {
    1: [
        (half_noise("mean_field_langevin"), {
            "mean-field Langevin": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[mean-field Langevin]",
            "mean-field Langevin, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[mean-field Langevin]"}),
        (half_noise("_released_sums"), {
            "warm start by means": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[means]",
            "warm start by clusters": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[clusters]",
            "warm start by means, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[mean of a warm start]"}),
    ],
    2: [
        (given("clipped_fit_gradient", clip=LARGE), {"mean-field Langevin": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[mean-field Langevin]"}),
        (given("_shortened", "_released_sums", radius=LARGE), {"rows of a warm start": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[means]"}),
    ],
    3: [
        (given("SampledGaussianEvent.__init__", "plan_langevin", n_steps=1), {"steps of mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_given_noise_is_stated_with_what_it_costs"}),
        (given("GaussianEvent.__init__", "WarmStartPlan.event", n_steps=1), {"Lloyd steps": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[paths, mfld, kmeans]"}),
    ],
    6: [
        (instead("clipped_shares", clipped_particle_by_particle), {
            "one record": "trajectories/test_langevin.py::test_no_neighbour_moves_a_sum_further_than_twice_the_clip",
            "a whole step": "contract/test_replaced_records.py::test_no_release_moves_further_than_its_sensitivity[mean-field Langevin]"}),
    ],
    7: [
        (given("SampledGaussianEvent.__init__", "plan_langevin", sampling_rate=half), {"event of mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_given_noise_is_stated_with_what_it_costs"}),
        (given("poisson_batches", "mean_field_langevin", rate=twice), {"batches of mean-field Langevin": "trajectories/test_langevin.py::test_every_record_takes_part_at_the_rate_of_the_event"}),
    ],
    17: [
        (given("_events_before_steps", bounds=None), {"mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_epsilon_of_mfld_is_that_of_its_noise[options2-1-warm2]"}),
    ],
    18: [
        (given("Event.grouped", "plan_langevin", group_size=1), {"steps of mean-field Langevin": "trajectories/test_trajectory_privacy.py::test_epsilon_of_mfld_is_that_of_its_noise[options0-3-warm0]"}),
        (given("Event.grouped", "WarmStartPlan.event", group_size=1), {"warm start": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[clusters]"}),
    ],
    19: [
        (skipped("check_steps", within="MeanFieldLangevin.release"), {"steps that diverge": "contract/test_refusals.py::test_what_is_refused_charges_and_changes_nothing_and_quotes_no_value[mfld, a long step]"}),
    ],
    23: [
        (returning("LangevinPlan.protects_rows", False), {"fit of particles to private rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld]"}),
    ],
    25: [
        (returning("_released_sums", with_true_counts, within="_lloyd_step"), {"true counts of clusters": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld, kmeans]"}),
        (given("mean_field_langevin", radius=mean_norm), {"particles within the mean private norm": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld]"}),
        (given("mean_field_langevin", start=moved_by_true_means), {"particles start at true means": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld]"}),
        (given("mean_field_langevin", smoothing=times_the_spread_of_rows), {"gradients averaged as far as rows lie": "contract/test_replay.py::test_a_fit_follows_from_its_releases[paths, mfld, batches]"}),
        (given("mean_field_langevin", plan=with_noises_exchanged), {"phases with each other's noise": "contract/test_draws_are_charged.py::test_every_noise_is_charged_as_often_as_it_is_drawn[paths, mfld, rough]"}),
    ],
}
# fmt: on
