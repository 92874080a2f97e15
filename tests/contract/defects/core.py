"""Defects of privacy that somebody could write in the sources of rows, and what all rooms share."""
# ruff: noqa: E501

from dataclasses import replace

import numpy as np

from skdpot._utils.rows import _PUBLIC_TEXTS
from skdpot.sources import ExactCounts
from skdpot.sources.source import STOPS, UNKNOWN
from tests.contract.injection import (
    Injections,
    all_of,
    as_any_object,
    given,
    instead,
    reading,
    returning,
    skipped,
)


def the_same_generator(self):
    return np.random.default_rng(7)


def sorted_as_numpy_does(points, directions):
    projected = directions.astype(np.float64) @ points.T.astype(np.float64)
    order = np.argsort(projected, axis=1)
    return np.take_along_axis(projected, order, axis=1), order


def as_many_places_as_records(drawn, n_places, stream):
    return drawn


def with_a_batch_twice(total, other):
    tables = (a + b for a, b in zip(total._tables, other._tables, strict=True))
    return ExactCounts(tuple(tables), total._n_rows)


def all_tables(self):
    return f"ExactCounts({self._tables})"


def the_first_batch(cls, counts):
    counts = list(counts)
    return ExactCounts(counts[0]._tables, sum(batch._n_rows for batch in counts))


def as_if_not_resumed(call):
    return call and replace(call, resumed=None)


def quoted_with_a_known_phrase(refusal, error):
    for phrase, replacement in _PUBLIC_TEXTS.items():
        if phrase in str(error):
            return type(refusal)(replacement or str(error))
    return refusal


def refusing_rows_again(ask):
    def asked(positions):
        if len(np.unique(positions)) < len(positions):
            raise ValueError
        return ask(positions)

    return asked


def in_order(count, stream):
    return np.arange(count)


def with_the_last_twice(messages):
    return [*messages, messages[-1]]


def without_the_last(messages):
    return messages[:-1]


def quoting(read):
    try:
        return read()
    except (ImportError, *STOPS):
        raise
    except BaseException as error:
        problem = str(error)
    raise ValueError(problem)


def letting_panics_out(read):
    try:
        return read()
    except (ImportError, *STOPS):
        raise
    except Exception as error:
        problem = UNKNOWN.format(type(error).__name__)
    raise ValueError(problem)


def unguarded(read):
    return read()


def of_steps_that_quote_nothing(self):
    return replace(self, told=True)


def and_those_of_tests(libraries):
    return (*libraries, "tests")


# fmt: off
INJECTIONS: Injections = {
    3: [
        (returning("current_call", as_if_not_resumed, "spawn_streams"), {"noise of a seed, again on a resumed fit": "core/privacy/test_journal.py::test_noise_of_a_resumed_fit_is_new_and_what_is_public_is_not"}),
        (instead("SecretStream.generator", the_same_generator), {"a generator that starts anew": "contract/test_noise.py::test_noise_has_the_law_that_is_charged[rows, float]"}),
    ],
    9: [
        (instead("ranked_projections", sorted_as_numpy_does), {
            "Wasserstein gradient": "core/nets/test_penalties.py::test_ties_keep_their_order_when_a_record_is_replaced[outputs]",
            "codes of groups": "core/nets/test_penalties.py::test_ties_keep_their_order_when_a_record_is_replaced[codes of groups]",
            "fair sums": "fair/test_fair_sums.py::test_ties_of_a_thousand_clipped_outputs_keep_their_order[0.1]"}),
    ],
    18: [
        (given("SlicedSketch.__init__", "FitContext.sketch", group_size=1), {"sketches of trajectories": "trajectories/test_trajectory_privacy.py::test_epsilon_of_a_sketch_is_that_of_its_noise[bounds0-3]"}),
    ],
    19: [
        (skipped("check_scores", within="FairPrivatePostProcessor.fit"), {"a classifier of other columns": "contract/test_strangers.py::test_what_does_not_fit_a_classifier_is_said_before_the_charge[a missing column]"}),
    ],
    25: [
        (returning("_refusal", quoted_with_a_known_phrase), {"a text that holds a known phrase, in an error": "core/_utils/test_validation.py::test_a_value_that_holds_a_known_phrase_is_not_quoted_either[Found array with]"}),
    ],
    27: [
        (given("answers", ask=refusing_rows_again), {"rounded by how many rows a classifier refuses": "contract/test_strangers.py::test_a_refused_row_changes_no_other_answer"}),
        (instead("_placed", as_many_places_as_records), {"a batch has as many places as records": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[autoencoder]"}),
        (instead("_random_order", in_order, "_placed"), {"a record moves the places of others": "core/privacy/test_subsampling.py::test_places_are_uniform_whoever_else_is_drawn"}),
    ],
    30: [
        (given("_added", messages=with_the_last_twice), {"partitions counted twice": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-dask_many]"}),
        (given("_added", messages=without_the_last), {"partitions left out": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-dask_many]"}),
        (returning("ExactCounts.__add__", with_a_batch_twice), {"a batch added twice": "core/sources/test_exact_counts.py::test_adding_is_exact_in_any_order"}),
        (instead("ExactCounts.total", the_first_batch), {"a batch left out": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-parquet]"}),
        (skipped("_check_different_files"), {"a file counted twice": "core/sources/test_refusals.py::test_paths"}),
        (skipped("_check_same_rows"), {"a pass that read other rows": "core/sources/test_refusals.py::test_rows_that_change_between_passes[fewer rows-sketch]"}),
        (as_any_object("ExactCounts.__reduce_ex__"), {"counts pickled by accident": "core/sources/test_exact_counts.py::test_counts_are_saved_by_no_accident[dumps]"}),
        (instead("ExactCounts.__repr__", all_tables), {"counts shown": "core/sources/test_exact_counts.py::test_counts_are_not_shown"}),
        (instead("quietly", quoting), {"errors of readers": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[a pass-sketch]"}),
        (instead("quietly", letting_panics_out), {"panics of readers": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[a panic of a pass-sketch]"}),
        (instead("quietly", unguarded, "DatasetSource.of_paths"), {"errors of files": "core/sources/test_refusals.py::test_files_that_cannot_be_read[sketch]"}),
        (all_of(given("_Count.__call__", self=of_steps_that_quote_nothing), reading("_Count.__call__", _LIBRARIES=and_those_of_tests)), {"errors of batches": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[rows of another library-sketch]"}),
        (reading("_Count.__call__", _LIBRARIES=and_those_of_tests), {"errors of other libraries": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[rows that have a length-sketch]"}),
    ],
}
# fmt: on
