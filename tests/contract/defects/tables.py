"""Defects of privacy that somebody could write in `skdpot.tables`."""
# ruff: noqa: E501

import decimal
import math
import warnings
from dataclasses import replace

import numpy as np

from skdpot.tables.contingency import exact_counts
from tests.contract.defects.changes import of_a_costly_search
from tests.contract.injection import (
    Injections,
    all_of,
    given,
    half,
    half_noise,
    instead,
    returning,
    skipped,
    twice,
)


def columns_as_they_are(self, table):
    return {column.name: table.series(column.name) for column in self}


def columns_of_the_model(self, values):
    return {name: values[name] for name in self.model.names}


def with_true_counts(release, rows, marginals):
    return replace(release, value=exact_counts(rows, marginals))


def first_alone(marginals):
    return marginals[:1]


def for_one_count(sigmas):
    return sigmas / math.sqrt(2.0)


def true_counts(predictions, rows, marginals):
    return list(exact_counts(rows, marginals))


def true_misfits(noisy, rows, marginals, predictions):
    pairs = zip(exact_counts(rows, marginals), predictions, strict=True)
    return np.array([np.abs(counts - p).sum() for counts, p in pairs])


def since_the_earliest(unit):
    return unit - np.nanmin(unit)


def with_more_for_pairs(shares):
    return shares | {"pairs": 0.2 + shares["pairs"]}


def without_weights(rows):
    return type(rows)(rows._rows.map(lambda batch: (batch[0], None)))


def counted_before_noise(rows, marginals):
    exact_counts(rows, marginals)
    return rows


def plan_for_the_weight_of_all_rows(self, cells):
    return replace(self.plan, n_samples=int(self.rows.value[1].sum()))


def two_sigma_lower(units, event):
    return np.flatnonzero(units > (event.threshold - 2 * event.sigma) / (event.lattice or 1.0))


def without_type(key):
    return "", key[1]


def twice_each(tables):
    return tuple(2 * table for table in tables)


def the_largest(self, stream):
    return int(np.argmax(np.where(self.is_open, self._scores, -math.inf)))


def in_floating_point(exponent, shift, log2):
    return decimal.Decimal(math.exp(float(shift * log2 - exponent)))


def that_of_all_steps(sensitivity, n_steps):
    return sensitivity * math.sqrt(n_steps)


def true_choices(places, rows, marginals, predictions):
    misfits = true_misfits(None, rows, marginals, predictions)
    return tuple(np.argsort(-misfits)[: len(places)].tolist())


def as_if_alone(sigmas, weights):
    return sigmas * np.sqrt(weights.max() / weights.sum())


def true_cells(release, rows, marginals, name):
    return (
        with_true_counts(release, rows, marginals) if name in ("magnitudes", "cells") else release
    )


def true_roundness(release, rows, marginals, name):
    return with_true_counts(release, rows, marginals) if name == "roundness" else release


def true_columns(release, rows, marginals, name):
    return with_true_counts(release, rows, marginals) if name == "columns" else release


def the_first_round(name):
    return "roundness" if name in ("magnitudes", "cells") else name


def kept_for_later(read, self):
    self._values = read[0].value
    return read


def learned_from_private_rows(rules, self):
    return rules.learned(lambda n_rows: self._values)


def warned_of_broken_rules(values, self, table):
    if any(wrong.any() for wrong in self.faults(self.schema.read(table)).values()):
        warnings.warn("broken", stacklevel=1)
    return values


def text_of_the_type(dtype):
    return str(dtype)


def with_listed_categories(column, table, name):
    listed = table.categories(name)
    return column.replace(categories=listed[0]) if listed else column


def of_one_type(self, numbers):
    return np.clip(np.array(numbers), -(2**62), 2**62)


def all_that_are_listed(codes, categories):
    return codes, categories


def without_known_clocks(seconds):
    return seconds.astype("datetime64[s]")


def read_in_another_way(self, objects):
    return self if len(objects) % 2 else self.replace(written="1,234.50 EUR")


def below_the_largest(numbers):
    return np.maximum(np.nanmax(numbers) - numbers, 0.0)


def places_of_first_occurrence(self, values):
    codes = self.read(values).distinct[0]
    return np.where(codes < 0, -1, codes % len(self.levels))


def below_the_largest_number(storable, value):
    return storable and abs(value) < 1e290


# fmt: off
INJECTIONS: Injections = {
    1: [
        (half_noise("select_categories"), {
            "counts of categories": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[categories of a column]",
            "counts of categories, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[counts of categories]"}),
        (half_noise("release_marginals"), {
            "counts of a synthesizer": "tables/test_marginal_release.py::test_noise_of_marginals_has_the_stated_standard_deviation[40.0]",
            "counts of a synthesizer, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[counts of a synthesizer]"}),
        (half_noise("release_misfits"), {
            "misfits of a synthesizer": "tables/test_marginal_release.py::test_noise_of_misfits_has_the_stated_standard_deviation",
            "misfits of a synthesizer, by audit": "contract/test_claims_by_audit.py::test_no_audit_proves_more_than_the_claim[misfits of a synthesizer]"}),
    ],
    17: [
        (returning("SchemaPlan.event", None, "plan_marginals"), {"schema of a synthesizer": "contract/test_draws_are_charged.py::test_every_noise_of_a_table_is_charged[synthesizer, nothing known]"}),
    ],
    18: [
        (given("TablePlan.__init__", "plan_marginals", weight=1.0), {"the noise of one row for several": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[row-known]"}),
        (given("release_choices", "TableFit._chosen", rows=without_weights), {"rows of a person that weigh one each in a choice": "contract/test_unit_of_privacy.py::test_rows_that_a_person_repeats_change_nothing"}),
        (returning("TablePlan.choice_sigma", half), {"a choice with less noise than the rows of a person need": "contract/test_unit_of_privacy.py::test_all_rows_of_a_person_move_no_release_further_than_charged[row-known]"}),
        (instead("TableFit._counted_plan", plan_for_the_weight_of_all_rows), {"a private weight of all rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer, nothing known, rows]"}),
    ],
    19: [
        (returning("_is_storable", below_the_largest_number), {"numbers that a learned rule cannot hold": "contract/test_finite_tables.py::test_values_by_which_this_failed[large numbers]"}),
        (skipped("TickColumn._possible", returns="numbers"), {"a warning of far times": "contract/test_finite_tables.py::test_values_by_which_this_failed[far times in a chain]"}),
        (skipped("SumTo._check_open_bounds"), {"bounds that a fit finds against a stated one": "contract/test_finite_tables.py::test_open_bounds_that_a_fit_could_find_against_a_stated_one_are_refused"}),
        (skipped("_check_drawable"), {"noise of a table that cannot be drawn": "tables/test_table_synthesizer_privacy.py::test_a_refused_fit_charges_and_changes_nothing_and_quotes_no_value[synthesizer, noise too small]"}),
        (all_of(instead("TableSchema.read", columns_as_they_are, "DPTableSynthesizer.fit"), instead("RowMap.to_model", columns_of_the_model, "DPTableSynthesizer.fit")), {"a value that the schema does not list": "tables/test_table_synthesizer_privacy.py::test_a_refused_fit_charges_and_changes_nothing_and_quotes_no_value[synthesizer, a value of no category]"}),
    ],
    22: [
        (instead("_visible", two_sigma_lower), {"a threshold two sigma lower": "tables/test_category_selection.py::test_counts_of_one_are_shown_as_often_as_the_event_says"}),
        (given("calibrate_lattice", "plan_category_selection", sensitivity=1.0), {"a plan in which one count moves": "contract/test_plans.py::test_a_plan_costs_what_it_was_given[categories]"}),
        (returning("_typed_key", without_type), {"the first of equal values stands for the others": "tables/test_category_selection.py::test_equal_values_of_different_types_are_not_merged"}),
    ],
    23: [
        (given("TablePlan.__init__", "plan_marginals", shares=with_more_for_pairs), {"shares of 1.2": "contract/test_draws_are_charged.py::test_every_noise_of_a_table_is_charged[synthesizer]"}),
        (given("discrete_gaussian", "release_misfits", s=1.0), {"misfits without noise": "tables/test_marginal_release.py::test_noise_of_misfits_has_the_stated_standard_deviation"}),
        (returning("release_marginals", with_true_counts), {"counts are kept before the noise is added": "tables/test_marginal_release.py::test_what_is_recorded_has_its_noise"}),
        (given("noise_lattice", "_draw_table_noise", data_lattice=0.3), {"a lattice on which no count lies": "contract/test_draws_are_charged.py::test_whatever_is_released_is_on_its_lattice[synthesizer]"}),
        (skipped("on_lattice", returns="prediction"), {"predictions that lie on no lattice": "contract/test_draws_are_charged.py::test_whatever_is_released_is_on_its_lattice[synthesizer]"}),
        (given("_draw_table_noise", "release_marginals", mu=half), {"the sampler is told of one table": "tables/test_marginal_release.py::test_the_sampler_is_told_of_the_whole_release"}),
        (given("release_marginals", rows=counted_before_noise), {"rows before noise": "tables/test_marginal_release.py::test_noise_is_drawn_before_the_rows_are_counted"}),
        (returning("JointTables.count", twice_each), {"rows of a joint table counted twice": "tables/test_marginal_release.py::test_counts_by_joint_tables_are_those_of_single_marginals[16384-False]"}),
        (returning("misfit_sensitivity", half), {"one of two counts in a misfit": "tables/test_marginal_release.py::test_the_worst_predictions_attain_the_sensitivity_of_misfits[4]"}),
        (returning("choice_sensitivity", half), {
            "a score moves and others stay": "tables/test_choices.py::test_no_neighbours_exceed_what_is_charged[5.0-1]"}),
        (returning("largest_change", 2.0), {
            "a triple charged as a pair": "tables/test_marginal_release.py::test_the_worst_triple_attains_its_sensitivity"}),
        (instead("_ExponentialDraw.next", the_largest), {
            "choices without noise": "tables/test_choices.py::test_choices_have_the_law_of_the_exponential_mechanism[1-3.0]"}),
        (given("_ExponentialDraw.__init__", rate=twice), {
            "choices with half of their noise": "tables/test_choices.py::test_choices_have_the_law_of_the_exponential_mechanism[2-6.0]"}),
        (instead("_relative_weight", in_floating_point), {
            "weights in floating point": "tables/test_choices.py::test_weights_are_exact_to_the_last_bit"}),
        (given("ChoiceEvent.__init__", "_planned_event", sensitivity=that_of_all_steps), {
            "one of several choices": "tables/test_fitting.py::test_a_plan_costs_what_was_asked_and_no_less[SingleFitTarget-1.0-1e-05-known]"}),
        (returning("release_choices", true_choices, "TableFit._chosen"), {
            "triples by true misfits": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (given("misfit_sensitivity", marginals=first_alone), {"one of several misfits": "tables/test_marginal_release.py::test_the_worst_predictions_attain_the_sensitivity_of_misfits[4]"}),
        (returning("TablePlan.marginal_sigmas", for_one_count), {"one of two counts in a table": "tables/test_fitting.py::test_marginals_of_a_release_cost_its_share_together[tree-weights1]"}),
        (returning("TablePlan.marginal_sigmas", as_if_alone), {"the whole share for each table": "tables/test_fitting.py::test_marginals_of_a_release_cost_its_share_together[pairs-weights1]"}),
        (returning("TableFit._released", true_cells), {"cells split by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (returning("TableFit._released", true_roundness), {"round values by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (given("TableFit._released", name=the_first_round), {"rounds of cells under one charge": "contract/test_draws_are_charged.py::test_every_noise_of_a_table_is_charged[synthesizer]"}),
        (returning("TableFit._released", true_columns), {"bins by true counts": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (returning("release_misfits", true_misfits, "TableFit._release_tree"), {"a tree by true strengths": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (returning("release_misfits", true_misfits, "TableFit._release_pairs"), {"pairs by true misfits": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (given("TableFit._candidates", "TableFit._release_pairs", predictions=true_counts), {"predictions from private rows": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
        (returning("DPTableSynthesizer._validate", kept_for_later), {"rows kept for later": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer]"}),
    ],
    24: [
        (returning("check_statement", of_a_costly_search, "TableRecord._check_statement"), {"tables that tell more than a trial": "search/test_private_search_winners.py::test_a_statement_of_a_search_that_its_noise_does_not_bear_is_refused"}),
    ],
    25: [
        (all_of(returning("DPTableSynthesizer._validate", kept_for_later), given("DPTableSynthesizer._store", rules=learned_from_private_rows)), {"a table of what private columns imply": "contract/test_replay.py::test_a_fit_follows_from_its_releases[synthesizer, rules]"}),
        (returning("RowMap.read", warned_of_broken_rules), {"a warning of rows that break rules": "tables/test_rules.py::test_rows_that_break_rules_are_not_told_of"}),
        (instead("_class_name", text_of_the_type), {"what a data type fills with, in an error": "tables/test_table_schema.py::test_no_message_shows_the_categories_or_the_filling_of_a_type[sparse int]"}),
    ],
    27: [
        (returning("column_from_dtype", with_listed_categories, "TableSchema.from_dtypes"), {"categories of a data type taken as public": "tables/test_table_schema.py::test_categories_that_a_data_type_lists_are_unknown[enum of polars]"}),
        (instead("NumericColumn._plain_numbers", of_one_type), {"objects as numbers of one type": "tables/test_table_columns.py::test_what_a_value_becomes[one half beside large integers]"}),
        (instead("without_unused", all_that_are_listed), {"categories of a data type that no row has": "tables/test_table_columns.py::test_categories_that_no_row_has_are_not_read[no list]"}),
        (instead("_with_clocks", without_known_clocks), {"days of a zone beyond 9999": "tables/test_table_columns.py::test_no_day_of_a_zone_is_too_far[Asia/Tokyo]"}),
        (returning("constants_of", (), "RowMap"), {"columns with one value paid for": "tables/test_table_synthesizer_privacy.py::test_nothing_is_spent_on_columns_with_one_value"}),
        (given("NumericColumn._numbers_of", self=read_in_another_way), {"a decimal mark by all texts": "tables/test_one_row_one_code.py::test_changing_a_row_changes_its_code_alone[pandas-amounts as text]"}),
        (skipped("_summable", returns="numbers"), {"a warning of large numbers": "tables/test_rules.py::test_no_private_value_is_too_large[doubles]"}),
        (given("NumericColumn.from_numbers", "LessEqual.encode", numbers=below_the_largest), {"differences from the largest": "tables/test_rules.py::test_a_row_is_mapped_by_itself_and_obeys_rules_afterwards"}),
        (instead("CategoricalColumn.to_codes", places_of_first_occurrence), {"categories by the first that occurs": "tables/test_one_row_one_code.py::test_changing_a_row_changes_its_code_alone[arrow-String]"}),
        (returning("TickColumn.to_unit", since_the_earliest), {"times by the earliest": "tables/test_one_row_one_code.py::test_changing_a_row_changes_its_code_alone[polars-Datetime(us, None)]"}),
    ],
}
# fmt: on
