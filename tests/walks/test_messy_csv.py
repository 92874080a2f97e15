"""A table as people have them: what is proposed for each column, and what comes back."""

import base64
import json
import re

import numpy as np
import pandas as pd
import pytest

from skdpot import DPTableSynthesizer, TableSchema
from skdpot.cli.main import main

N = 2000


def messy(n, rng):
    """Return a table of texts."""
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    stays = pd.to_timedelta(rng.geometric(0.2, n) - 1, "D")
    forms = rng.choice(["%Y-%m-%d", "%d/%m/%Y", "%d.%m.%Y", "%b %d, %Y"], n)
    hours = days + pd.to_timedelta(rng.integers(0, 24, n), "h")
    amounts, smokes = rng.lognormal(6, 1.5, n), rng.random(n) < 0.4
    swapped = str.maketrans(",.", ".,")
    spelled = rng.choice(["no", "No", "N", "nein"], n), rng.choice(["yes", "Y", "ja", "YES"], n)
    words = "pain fever better worse after before two three days of rest".split()
    return pd.DataFrame(
        {
            "patient_id": [f"P{place:06}" for place in rng.permutation(n)],
            "name": rng.choice(["Zoë Müller", "Łukasz Nowak", "山田 花子", "Иван Петров"], n),
            "remark": [" ".join(rng.choice(words, 6)) + f" {place}" for place in range(n)],
            "postcode": rng.choice([f"{code:05}" for code in range(424, 90_000, 4321)], n),
            "ward": [f"{ward:02}" for ward in rng.integers(1, 12, n)],
            "seen": [day.strftime(form) for day, form in zip(days, forms, strict=True)],
            "opened": days.strftime("%m/%d/%y"),
            "logged": [
                hour.isoformat() + zone
                for hour, zone in zip(hours, rng.choice(["Z", "+02:00"], n), strict=True)
            ],
            "early": rng.choice(["02/01/2024", "03/01/2024"], n),
            "cost": [f"{amount:,.2f} EUR" for amount in amounts],
            "fee": [f"€ {amount:,.2f}".translate(swapped) for amount in amounts],
            "both": np.resize(["$1,234.50", "$1.234,50"], n),
            "weight": [f"{weight:.1f} kg" for weight in rng.normal(70, 9, n)],
            "smoker": np.where(smokes, *spelled[::-1]),
            "insured": np.where(rng.random(n) < 0.9, "Y", "N"),
            "icd": [f"{letter}{k:02}" for letter, k in zip(
                rng.choice([*"ABC"], n), rng.integers(0, 100, n), strict=True)],
            "country": "DE",
            "visits": np.where(rng.random(n) < 0.002, 50_000, rng.poisson(3, n)).astype(str),
            "admitted": days.strftime("%Y-%m-%d"),
            "discharged": (days + stays).strftime("%Y-%m-%d"),
            "city": rng.choice(["Zürich", "Łódź", "東京", "Москва", "القاهرة", "Αθήνα"], n),
            "age": np.where(rng.random(n) < 0.05, "", rng.integers(0, 99, n).astype(str)),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Run all commands; return the table, what was said of each column, and what came back."""
    folder = tmp_path_factory.mktemp("messy")
    names = {name: str(folder / name) for name in ("data.csv", "schema.json", "new.csv", "told")}
    table = messy(N, np.random.default_rng(7))
    table.to_csv(names["data.csv"], index=False)
    with pytest.MonkeyPatch.context() as patch, open(names["told"], "w") as told:
        patch.setattr("sys.stdout", told)
        propose = ["schema", names["data.csv"], "-o", names["schema.json"], "--yes", "--json"]
        assert main([*propose, "--rule", "admitted <= discharged"]) == 0
    options = ["--schema", names["schema.json"], "--epsilon", "8", "--quiet"]
    made = {name: str(folder / name) for name in ("quality.html", "fit.safetensors", "study.db")}
    names_of = zip(("report", "save", "ledger"), made.values(), strict=True)
    options += [f"--{option}={path}" for option, path in names_of]
    assert main(["synth", names["data.csv"], "-o", names["new.csv"], *options]) == 0
    told = ["--ledger", made["study.db"], "--no-audit", "-o", str(folder / "privacy.html")]
    assert main(["report", made["fit.safetensors"], *told, "--quiet"]) == 0
    assert main(["budget", made["study.db"], "-o", str(folder / "budget.html")]) == 0
    rows = {row["column"]: row for row in json.loads((folder / "told").read_text())["columns"]}
    new = pd.read_csv(names["new.csv"], dtype=str, keep_default_na=False)
    return table, rows, new, TableSchema.from_json(folder / "schema.json"), folder


ISO = r"\d{4}-\d\d-\d\d"
CASES = [  # column, kind, what is said of it, and how its synthetic values are written
    ("patient_id", "left out", "identify people", None),
    ("name", "left out", "identify people", None),
    ("remark", "left out", "look like free text", None),
    ("early", "left out", "in March or in April", None),
    ("both", "left out", "others a point", None),
    ("postcode", "categorical", "leading zero are codes", r"\d{5}"),
    ("ward", "categorical", "11 categories: 01, 02", r"[01]\d"),
    ("seen", "datetime", "like (.* or ){3}", ISO),
    ("opened", "datetime", "like 12/31/24", ISO),
    ("logged", "datetime", "come back in UTC", rf"{ISO} \d\d:\d\d:\d\d\+00:00"),
    ("cost", "numeric", r"like 1,234\.50 EUR", r"\d+\.\d+"),
    ("fee", "numeric", r"like €1\.234,50", r"\d+\.\d+"),
    ("weight", "numeric", r"like 1,234\.50 kg", r"\d+\.\d+"),
    ("smoker", "boolean", "True is written Y, YES, ja, yes; False N, No, nein, no", "True|False"),
    ("insured", "categorical", "2 categories: N, Y", "[YN]"),
    ("icd", "categorical", "selected privately.*[23][0-9]+ distinct", r"[ABC]\d\d|other"),
    ("country", "categorical", "1 category: DE.*spends nothing", "DE"),
    ("visits", "numeric", "integers from 0 to 50000.*tell of a few people", r"\d+"),
    ("admitted", "datetime", "days from", ISO),
    ("discharged", "datetime", "never before 'admitted' in any row", ISO),
    ("city", "categorical", "6 categories: Zürich, Łódź", r"\w+"),
    ("age", "numeric", "integers from 0 to 100; may be missing", r"\d*"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "told", "written"), CASES)
def test_what_is_proposed_for_each_kind_of_column_and_comes_back(fitted, name, kind, told, written):
    table, rows, new, *_ = fitted
    assert list(rows) == list(table.columns)
    assert rows[name]["kind"] == kind
    assert re.search(told, "; ".join(rows[name].values()))
    assert (name in new) == (written is not None)
    if written is not None:
        assert new[name].map(lambda text: bool(re.fullmatch(written, text))).all()


@pytest.mark.slow
def test_nobody_is_discharged_before_admission(fitted):
    new = fitted[2]
    assert (new["admitted"] <= new["discharged"]).all()  # in ISO format


def test_nothing_is_spent_on_one_value(fitted):
    fit = DPTableSynthesizer.load(fitted[-1] / "fit.safetensors")
    counted = {name for table in fit.marginals_ for name in table.columns}
    assert "country" not in counted
    assert "city" in counted


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("quality.html", "“admitted” is at most “discharged”"),
        ("quality.html", "What this report cannot see"),
        ("quality.html", "seen after logged"),
        ("privacy.html", "ε = 8"),
        ("budget.html", "1 charge"),
    ],
)
def test_pages_read_like_text(fitted, name, told):
    page = (fitted[-1] / name).read_text("utf-8")
    shown = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert told in " ".join(shown.split())
    assert not re.search(r"\w+\(\w+=|None[,)]|\bnan\b|_holdout|<NA>|dtype", shown)


def test_pictures_hold_names_of_any_script_as_text(fitted):
    page = (fitted[-1] / "quality.html").read_text("utf-8")
    pictures = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)
    drawn = "".join(base64.b64decode(picture).decode() for picture in pictures)
    for city in fitted[0]["city"].unique():
        assert city in drawn


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
def test_the_schema_reads_a_data_frame_of_the_same_texts(fitted):
    table, *_, schema, _ = fitted
    fit = DPTableSynthesizer(schema, epsilon=np.inf).fit(table.replace("", None))
    drawn = fit.sample(N, random_state=0)
    smokes = table["smoker"].str.lower().isin(["yes", "y", "ja"])
    assert abs(drawn["smoker"].mean() - smokes.mean()) < 0.1
    cost = table["cost"].str.removesuffix(" EUR").str.replace(",", "").astype(float)
    assert abs(np.log(drawn["cost"].median() / cost.median())) < 0.3  # six standard errors
    assert fit.score(table.replace("", None)) > -0.25
