"""Defects of privacy that somebody could write in `skdpot.cli`."""
# ruff: noqa: E501

from skdpot.cli.table_files import read_guessable
from tests.contract.injection import Injections, given, instead, returning


def without_empty_lines(reader):
    return filter(None, reader)


def rows_of_all_persons(args, table):
    return table.n_rows


def without_refusal(problem):
    return "" if problem.startswith("What you chose") else problem


def whatever_is_shown(shown, self):
    return self.shown


def table_of_values(path, form):
    return read_guessable(path, form)


# fmt: off
INJECTIONS: Injections = {
    8: [
        (instead("_public_n_rows", rows_of_all_persons), {"delta of a fit of persons by their rows": "cli/test_synth_command.py::test_delta_of_a_fit_does_not_follow_from_a_private_number_of_rows[--unit who-1e-05]"}),
    ],
    22: [
        (returning("Page._unstated", ""), {"bounds of a guess where none were stated": "cli/test_page.py::test_an_empty_statement_cannot_be_confirmed"}),
        (given("Page._build_proposal", problem=without_refusal), {"bounds of a guess where others were refused": "cli/test_page.py::test_an_empty_statement_cannot_be_confirmed"}),
        (given("Page._confirm", shown=whatever_is_shown), {"a guess that is no longer shown": "cli/test_page.py::test_the_schema_that_was_shown_is_confirmed_and_no_other"}),
    ],
    27: [
        (instead("read_header", table_of_values), {"a schema that reads no value, of inferred types": "cli/test_private_schema.py::test_no_row_has_a_part_in_what_comes_out[stated]"}),
        (given("_opened", "_read_texts", errors="strict"), {"a row beyond the header that is decoded": "cli/test_private_schema.py::test_no_row_has_a_part_in_what_comes_out[stated]"}),
        (given("_read_columns", reader=without_empty_lines), {"empty lines passed over": "cli/test_table_files.py::test_an_empty_line_of_one_column_is_a_record"}),
    ],
}
# fmt: on
