"""Defects of privacy that somebody could write in the sources of rows, and what all rooms share."""
# ruff: noqa: E501

import numpy as np

from skdpot.sources import ExactCounts
from tests.contract.injection import (
    Injections,
    as_any_object,
    given,
    instead,
    returning,
    rewritten,
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


# fmt: off
INJECTIONS: Injections = {
    3: [
        (rewritten("spawn_streams", ("resumed is not None", "False")), {"noise of a seed, again on a resumed fit": "core/privacy/test_journal.py::test_noise_of_a_resumed_fit_is_new_and_what_is_public_is_not"}),
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
        (rewritten("_refusal", ("text.startswith(phrase) or (replacement and phrase in text)", "phrase in text")), {"a text that holds a known phrase, in an error": "core/_utils/test_validation.py::test_a_value_that_holds_a_known_phrase_is_not_quoted_either[Found array with]"}),
    ],
    27: [
        (rewritten("answers", ("scores = scores if again is None else again", "pass")), {"rounded by how many rows a classifier refuses": "contract/test_strangers.py::test_a_refused_row_changes_no_other_answer"}),
        (instead("_placed", as_many_places_as_records), {"a batch has as many places as records": "core/nets/test_steps.py::test_batches_are_fresh_and_as_large_as_is_charged[autoencoder]"}),
        (rewritten("_placed", ("_random_order(n_places, stream)", "np.arange(n_places)")), {"a record moves the places of others": "core/privacy/test_subsampling.py::test_places_are_uniform_whoever_else_is_drawn"}),
    ],
    30: [
        (rewritten("DaskSource.sum", ("parts[k:k + _AT_ONCE]", "parts[k:k + _AT_ONCE + 1]")), {"partitions counted twice": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-dask_many]"}),
        (rewritten("DaskSource.sum", ("parts[k:k + _AT_ONCE]", "parts[k:k + _AT_ONCE - 1]")), {"partitions left out": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-dask_many]"}),
        (returning("ExactCounts.__add__", with_a_batch_twice), {"a batch added twice": "core/sources/test_exact_counts.py::test_adding_is_exact_in_any_order"}),
        (instead("ExactCounts.total", the_first_batch), {"a batch left out": "core/sources/test_same_release.py::test_every_form_of_the_same_rows_gives_the_same_release[sketch, classes-parquet]"}),
        (skipped("_check_different_files"), {"a file counted twice": "core/sources/test_refusals.py::test_paths"}),
        (skipped("_check_same_rows"), {"a pass that read other rows": "core/sources/test_refusals.py::test_rows_that_change_between_passes[fewer rows-sketch]"}),
        (as_any_object("ExactCounts.__reduce_ex__"), {"counts pickled by accident": "core/sources/test_exact_counts.py::test_counts_are_saved_by_no_accident[dumps]"}),
        (instead("ExactCounts.__repr__", all_tables), {"counts shown": "core/sources/test_exact_counts.py::test_counts_are_not_shown"}),
        (rewritten("quietly", ("UNKNOWN.format(type(error).__name__)", "str(error)")), {"errors of readers": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[a pass-sketch]"}),
        (rewritten("quietly", ("except BaseException", "except Exception")), {"panics of readers": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[a panic of a pass-sketch]"}),
        (rewritten("DatasetSource.of_paths", ("quietly(lambda: dataset.dataset(paths, format=options))", "dataset.dataset(paths, format=options)")), {"errors of files": "core/sources/test_refusals.py::test_files_that_cannot_be_read[sketch]"}),
        (rewritten("_Count.__call__", ("UNKNOWN.format(type(error).__name__)", "str(error)")), {"errors of batches": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[rows of another library-sketch]"}),
        (rewritten("_Count.__call__", ("type(batch).__module__.partition('.')[0] in _LIBRARIES", "True")), {"errors of other libraries": "core/sources/test_refusals.py::test_errors_of_readers_quote_nothing[rows that have a length-sketch]"}),
    ],
}
# fmt: on
