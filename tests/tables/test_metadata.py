"""Metadata of other formats become schemas; what they do not say is left open."""

import json

import pandas as pd
import pytest

from skdpot import DPTableSynthesizer
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
    TimedeltaColumn,
)

SDV = {
    "patient_id": {"sdtype": "id", "regex_format": "P-[0-9]{6}"},
    "age": {"sdtype": "numerical", "computer_representation": "Int64"},
    "cost": {"sdtype": "numerical", "computer_representation": "Float"},
    "ward": {"sdtype": "categorical"},
    "insured": {"sdtype": "boolean"},
    "admitted": {"sdtype": "datetime", "datetime_format": "%d/%m/%Y"},
    "seen": {"sdtype": "datetime"},
    "contact": {"sdtype": "email", "pii": True},
}
READ = (
    NumericColumn("age", integer=True, missing=True),
    NumericColumn("cost", missing=True),
    CategoricalColumn("ward", missing=True),
    BooleanColumn("insured", missing=True),
    DatetimeColumn("admitted", formats=["%d/%m/%Y"], resolution="D", missing=True),
    DatetimeColumn("seen", missing=True),
)
FRICTIONLESS = {
    "primaryKey": "no",
    "fields": [
        {"name": "no", "type": "integer"},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}},
        {"name": "cost", "type": "number", "decimalChar": ",", "constraints": {"required": True}},
        {"name": "sex", "type": "string", "constraints": {"enum": ["F", "M"], "required": True}},
        {"name": "stage", "type": "integer", "categories": [{"value": 1, "label": "I"}]},
        {"name": "mail", "type": "string", "format": "email"},
        {"name": "visit", "type": "date", "constraints": {"minimum": "2024-01-01"}},
        {"name": "stay", "type": "duration"},
        {"name": "alive", "type": "boolean"},
        {"name": "code", "type": "string", "constraints": {"unique": True}},
        {"name": "name", "type": "string"},
        {"name": "place", "type": "geopoint"},
        {"name": "ward"},
    ],
}
CROISSANT = {
    "@type": "sc:Dataset",
    "recordSet": [
        {
            "@type": "cr:RecordSet",
            "name": "visits",
            "field": [
                {"name": "visits/age", "dataType": "sc:Integer"},
                {"name": "w", "dataType": "sc:Float", "source": {"extract": {"column": "weight"}}},
                {"name": "ward", "dataType": ["sc:Text", "sc:Enumeration"]},
                {"name": "ill", "dataType": "https://schema.org/Boolean"},
                {"name": "day", "dataType": "sc:Date"},
                {"name": "photo", "dataType": "sc:ImageObject"},
            ],
        }
    ],
}


@pytest.mark.parametrize(
    "content",
    [
        {"columns": SDV, "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1"},
        {"tables": {"visits": {"columns": SDV, "primary_key": "patient_id"}}},
        {"tables": {"visits": {"columns": SDV}, "wards": {"columns": {}}}},
    ],
)
def test_metadata_of_sdv(content):
    schema = TableSchema.from_json(json.dumps(content), table="visits")
    assert schema.columns == READ
    assert schema.excluded == ("patient_id", "contact")
    assert not schema.guessed


@pytest.mark.parametrize("packaged", [False, True])
def test_metadata_of_frictionless(packaged, tmp_path):
    content = {"resources": [{"name": "a", "schema": FRICTIONLESS}]} if packaged else FRICTIONLESS
    path = tmp_path / "datapackage.json"
    path.write_text(json.dumps(content), "utf-8")
    schema = TableSchema.from_json(path)
    assert schema.columns == (
        NumericColumn("age", lower=0, upper=120, integer=True, missing=True),
        NumericColumn("cost", written="1.234,50"),
        CategoricalColumn("sex", categories=["F", "M"]),
        CategoricalColumn("stage", categories=[1], missing=True),
        DatetimeColumn("visit", lower="2024-01-01", resolution="D", missing=True),
        TimedeltaColumn("stay", missing=True),
        BooleanColumn("alive", missing=True),
        CategoricalColumn("ward", missing=True),
    )
    assert schema.excluded == ("no", "mail", "code", "name", "place")


def test_metadata_of_croissant():
    schema = TableSchema.from_json(json.dumps(CROISSANT))
    assert schema.columns == (
        NumericColumn("age", integer=True, missing=True),
        NumericColumn("weight", missing=True),
        CategoricalColumn("ward", missing=True),
        BooleanColumn("ill", missing=True),
        DatetimeColumn("day", resolution="D", missing=True),
    )
    assert schema.excluded == ("photo",)


def test_a_fit_by_metadata_and_the_way_back():
    table = pd.DataFrame({"patient_id": ["P-1"] * 60, "age": range(60), "insured": [True] * 60})
    columns = {name: SDV[name] for name in table}
    fit = DPTableSynthesizer(TableSchema.from_json(json.dumps({"columns": columns})), epsilon=20)
    drawn = fit.fit(table).sample(30)
    told = fit.schema_.to_sdv()
    assert told["columns"] == {name: columns[name] for name in drawn}
    assert TableSchema.from_json(json.dumps(told)).names == tuple(drawn)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"columns": {"age": {}}}, "schema: 'columns' cannot be read"),
        ({"fields": [{"type": "string"}]}, "schema: 'fields' cannot be read"),
        ({"fields": [3]}, "cannot be read"),
        ({"recordSet": [{"field": 3}]}, "cannot be read"),
        ({"resources": []}, "describe no table"),
        ({"tables": {"a": {"columns": {}}, "b": {"columns": {}}}}, "describe a, b: state table="),
        ({"tables": {"a": {"columns": {}}}}, "lacks"),
        ({"columns": {"id": {"sdtype": "id"}}}, "one or more of"),
    ],
)
def test_what_is_no_metadata_is_refused(content, match):
    with pytest.raises(ValueError, match=match):
        TableSchema.from_json(json.dumps(content))
