"""Conditions as they are typed."""

import pytest

from skdpot.cli.conditions import check_conditions, read_conditions
from skdpot.cli.console import CommandError
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
    TimedeltaColumn,
)

SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=0, upper=99, integer=True, missing=True),
        NumericColumn("a=b", lower=-9, upper=9),
        CategoricalColumn("sex", categories=["Female", "Male"], missing=True),
        CategoricalColumn("job", categories=["cook, chef", "cook", "chef", "<=50K"]),
        CategoricalColumn("level", categories=[1, 2]),
        BooleanColumn("smokes", missing=True),
        DatetimeColumn("visit", lower="2024-01-01", upper="2024-12-31"),
        TimedeltaColumn("stay", lower="0 h", upper="240 h"),
    ]
)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["sex=Female"], {"sex": "Female"}),
        (["job=cook, chef"], {"job": "cook, chef"}),
        (["job=chef, cook"], {"job": ["chef", "cook"]}),
        (["job=<=50K"], {"job": "<=50K"}),
        (["level=2"], {"level": 2}),
        (["sex="], {"sex": None}),
        (["age="], {"age": None}),
        (["smokes=true"], {"smokes": True}),
        (["age=40"], {"age": (40, 40)}),
        (["age=30..40"], {"age": (30, 40)}),
        (["age=..40"], {"age": (None, 40)}),
        (["age>=30", "age<=40"], {"age": (30, 40)}),
        (["a=b=-1.5..2"], {"a=b": (-1.5, 2)}),
        (["a=b<=-1e1"], {"a=b": (None, -10)}),
        (["visit=2024-01-01..2024-02-01"], {"visit": ("2024-01-01", "2024-02-01")}),
        (["stay>=36 h"], {"stay": ("36 h", None)}),
        (["visit>=2024-06-01"], {"visit": ("2024-06-01", None)}),
        (['{"age": [30, null], "sex": "Male"}'], {"age": (30, None), "sex": "Male"}),
        (['{"age": 30, "visit": null}'], {"age": (30, 30), "visit": None}),
        (['{"sex": ["Male"]}', "age>=1"], {"sex": ["Male"], "age": (1, None)}),
    ],
)
def test_conditions(texts, expected):
    assert read_conditions(texts, SCHEMA) == expected


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        (["sex"], "this is not a condition"),
        (["age>30"], "this is not a condition"),
        (["height=3"], "names the column 'height'"),
        (["{broken"], "not a JSON object"),
        (["age=old"], "'age' must be a number, got 'old'"),
        (["age>=1..2"], "give one value"),
        (["visit=yesterday-ish"], "'visit' must be a date"),
        (["stay=soon"], "must be a duration with a unit"),
        (["smokes=maybe"], "True or False"),
        (["sex>=Female"], "has no order; use ="),
        (["sex=Female", "sex=Male"], "names 'sex' twice"),
        (['{"age": [1, 2, 3]}'], r"takes \[smallest, largest\]"),
    ],
)
def test_what_is_no_condition_is_status_2(texts, match):
    with pytest.raises(CommandError, match=match) as caught:
        read_conditions(texts, SCHEMA)
    assert caught.value.code == 2


@pytest.mark.parametrize("text", ["a=b=", "job=", "level=3"])  # more in `test_refusals`
def test_what_no_row_can_satisfy_is_refused_before_the_fit(text):
    with pytest.raises(ValueError, match=r"cannot be|never missing"):
        check_conditions(read_conditions([text], SCHEMA), SCHEMA, kept=True)
