"""Defects of privacy that somebody could write in `skdpot.cli`."""
# ruff: noqa: E501

from tests.contract.injection import (
    Injections,
    given,
    rewritten,
)


def without_empty_lines(reader):
    return filter(None, reader)


# fmt: off
INJECTIONS: Injections = {
    8: [
        (rewritten("_fit", ("None if args.unit else table.n_rows", "table.n_rows")), {"delta of a fit of persons by their rows": "cli/test_synth_command.py::test_delta_of_a_fit_does_not_follow_from_a_private_number_of_rows[--unit who-1e-05]"}),
    ],
    22: [
        (rewritten("Page._propose", ("if example and (not detail)", "if False")), {"bounds of a guess where none were stated": "cli/test_page.py::test_an_empty_statement_cannot_be_confirmed"}),
        (rewritten("Page._propose", ("if facts else _REFUSED", "")), {"bounds of a guess where others were refused": "cli/test_page.py::test_an_empty_statement_cannot_be_confirmed"}),
        (rewritten("Page._confirm", ("shown is not self.shown", "False")), {"a guess that is no longer shown": "cli/test_page.py::test_the_schema_that_was_shown_is_confirmed_and_no_other"}),
    ],
    27: [
        (rewritten("run_schema", ("read_header(args.data, form)", "read_guessable(args.data, form)")), {"a schema that reads no value, of inferred types": "cli/test_private_schema.py::test_no_row_has_a_part_in_what_comes_out[stated]"}),
        (rewritten("_read_texts", ("'strict' if rows else 'replace'", "'strict'")), {"a row beyond the header that is decoded": "cli/test_private_schema.py::test_no_row_has_a_part_in_what_comes_out[stated]"}),
        (given("_read_columns", reader=without_empty_lines), {"empty lines passed over": "cli/test_table_files.py::test_an_empty_line_of_one_column_is_a_record"}),
    ],
}
# fmt: on
