r"""The first hour with a messy CSV: skdpot, SDV and SmartNoise, each as its quickstart has it.

The table (30,000 x 18) has three formats of dates in one column, two currencies, spelled truth
values, 300 diagnoses, ages of 999, a constant, identifiers, names, free text and five scripts. Each
try is a process of its own. The script prints its processor time, warnings and last error, and of
what it wrote how many discharges are before the admission and how many texts of the private columns
"notes", "MRN" and "Patient Name" came back. The later tries prepare the table by hand, as the
errors of the first ones ask for it. SDV makes no promise of privacy.

    python -m venv /tmp/sdv; /tmp/sdv/bin/pip install sdv
    python -m venv /tmp/sn; /tmp/sn/bin/pip install smartnoise-synth
    python examples/benchmarks/bench_first_hour.py sdv=/tmp/sdv/bin/python \
        smartnoise=/tmp/sn/bin/python
"""

import functools
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

FORMS = ("%Y-%m-%d", "%d/%m/%Y", "%b %d, %Y", "%d.%m.%Y", "%Y-%m")
PREPARED = f"""
import pandas as pd
data = pd.read_csv("patients.csv").drop(columns=["MRN", "Patient Name", "notes"])
for name in ("date of birth", "admitted", "discharged"):
    read = [pd.to_datetime(data[name], format=form, errors="coerce") for form in {FORMS}]
    data[name] = read[0].fillna(read[1]).fillna(read[2]).fillna(read[3]).dt.strftime("%Y-%m-%d")
data["total cost"] = data["total cost"].str[1:].str.replace(",", "").astype(float)
deposit = data["deposit"].str[:-2].str.replace(".", "").str.replace(",", ".")
data["deposit"] = deposit.astype(float)
data["weight"] = data["weight"].str[:-3].astype(float)
"""
BINNED = """
for name in ("date of birth", "admitted", "discharged"):
    data[name] = data[name].str[:7]
for name in ("age", "total cost", "deposit", "weight", "prior visits"):
    data[name] = pd.qcut(data[name], 20, duplicates="drop").astype(str)
data = data.fillna("")
"""
SDV = """
from sdv.metadata import Metadata
from sdv.single_table import GaussianCopulaSynthesizer
metadata = Metadata.detect_from_dataframes({"patients": data})
synthesizer = GaussianCopulaSynthesizer(metadata)
synthesizer.fit({"patients": data})
rows = synthesizer.sample(num_rows=len(data))
(rows["patients"] if isinstance(rows, dict) else rows).to_csv("new.csv", index=False)
"""
SMARTNOISE = """
from snsynth import Synthesizer
synthesizer = Synthesizer.create("mst", epsilon=1.0)
synthesizer.fit_sample(data, preprocessor_eps=0.5).to_csv("new.csv", index=False)
"""
CATEGORICAL = SMARTNOISE.replace("preprocessor_eps=0.5", "categorical_columns=list(data)")
READ = 'import pandas as pd\ndata = pd.read_csv("patients.csv")\n'
PROGRAM = "from skdpot.cli.main import main\nassert main({}) == 0\n"
COMMANDS = (
    [*"schema patients.csv --yes -q -o schema.json --rule".split(), "admitted <= discharged"],
    "synth patients.csv --schema schema.json --epsilon 1 --delta 1e-6 -q -o new.csv".split()
    + "--report quality.html --save fit.safetensors --ledger study.db".split(),
    "report fit.safetensors --ledger study.db -q -o privacy.html".split(),
    "budget study.db -o budget.html".split(),
)
TRIES = {
    "skdpot": [("", "".join(map(PROGRAM.format, COMMANDS)))],
    "sdv": [("as in the quickstart", READ + SDV), ("prepared", PREPARED + SDV)],
    "smartnoise": [
        ("as in the quickstart", READ + SMARTNOISE),
        ("prepared", PREPARED + SMARTNOISE),
        ("prepared and binned", PREPARED + BINNED + CATEGORICAL),
    ],
}
LIMIT = 300  # seconds of a processor


def patients(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Make the private table."""
    admitted = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 1200, n), "D")
    stay = rng.gamma(1.4, 4, n).astype(int)
    born = pd.Timestamp("1925-01-01") + pd.to_timedelta(rng.beta(2, 1.5, n) * 33_000 // 1, "D")
    forms = rng.choice(["%Y-%m-%d", "%d/%m/%Y", "%b %d, %Y"], n, p=[0.6, 0.3, 0.1])
    age = ((admitted - born).days // 365.25).astype(int).astype(str).to_numpy(object)
    age[rng.choice(n, 600)], age[rng.choice(n, 40)] = "", "999"
    visits = rng.poisson(2, n)
    visits[rng.choice(n, 5)] = 100_000
    cost, deposit = np.exp(rng.normal(7.2, 1, n)) * (1 + stay / 6), rng.gamma(2, 200, n)
    swapped, law = str.maketrans(",.", ".,"), 1 / np.arange(1, 301) ** 1.05
    left = (admitted + pd.to_timedelta(stay, "D")).strftime("%d.%m.%Y").to_numpy(object)
    left[rng.choice(n, n // 33)] = ""
    codes = [f"{chr(65 + i % 26)}{i % 100:02}.{i % 7}" for i in range(300)]
    names = rng.choice(["Ana", "Bo", "Chen", "Dmitri", "Émile", "Fatima"], n)
    places = ["01067", "04103", "10115", "20095", "50667", "80331", "99084"]
    return pd.DataFrame(
        {
            "MRN": [f"P-{100_000 + i}" for i in rng.permutation(n)],
            "Patient Name": [f"{name} Nm{rng.integers(4000)}" for name in names],
            "date of birth": born.strftime("%Y-%m-%d"),
            "sex": rng.choice(["F", "M", "f", "m", "unknown"], n, p=[0.45, 0.43, 0.05, 0.05, 0.02]),
            "age": age,
            "admitted": [day.strftime(form) for day, form in zip(admitted, forms, strict=True)],
            "discharged": left,
            "total cost": [f"£{c:,.2f}" for c in cost],
            "deposit": [f"{c:,.2f}".translate(swapped) + " €" for c in deposit],
            "diagnosis": rng.choice(codes, n, p=law / law.sum()),
            "smoker": rng.choice(["yes", "no", "Y", "N", "Yes", "No", ""], n),
            "insured": rng.choice(["TRUE", "FALSE"], n, p=[0.8, 0.2]),
            "prior visits": visits,
            "hospital": "St. Mary",
            "postcode": rng.choice(places, n),
            "weight": [f"{w:.1f} kg" for w in rng.normal(78, 15, n).clip(35)],
            "ward": rng.choice(["心内科", "Хирургия", "طوارئ", "Ortopädie", "Maternité"], n),
            "notes": [f"stable, review in {rng.integers(1, 30)} days; ref {i}" for i in range(n)],
        }
    )


def attempt(python: str, code: str, folder: Path) -> dict[str, object]:
    """Run a program in the folder; return what was seen."""
    (folder / "new.csv").unlink(missing_ok=True)
    used, command = resource.getrusage(resource.RUSAGE_CHILDREN), [python, "-c", code]
    limited = ["bash", "-c", f'ulimit -t {LIMIT}; exec "$@"', "try", *command]
    ran = subprocess.run(limited, check=False, cwd=folder, capture_output=True, text=True)
    told = ran.stderr.strip().splitlines()
    error = (told or [""])[-1][:150] if ran.returncode else ""
    error = f"not done in {LIMIT} s" if ran.returncode < 0 else error
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    seen: dict[str, object] = {"seconds": round(seconds)}
    seen["warnings"] = sum(bool(re.search(r"\w*Warning: ", line)) for line in told)
    return seen | ({"error": error} if error else checked(folder))


def checked(folder: Path) -> dict[str, object]:
    """Return what is wrong with the rows that were written."""
    real, new = (pd.read_csv(folder / f"{n}.csv", dtype=str) for n in ("patients", "new"))
    first, last = (
        functools.reduce(
            pd.Series.fillna,
            [pd.to_datetime(new[name], format=form, errors="coerce") for form in FORMS],
        )
        for name in ("admitted", "discharged")
    )
    both = first.notna() & last.notna()
    texts = [name for name in ("notes", "MRN", "Patient Name") if name in new]
    return {
        "columns": len(new.columns),
        "discharged before admission": f"{(last < first)[both].mean():.1%}",
        "private texts that came back": int(sum(new[n].isin(real[n]).sum() for n in texts)),
    }


def main() -> None:
    """Make the table and run all tries."""
    pythons = {"skdpot": sys.executable} | dict(text.split("=", 1) for text in sys.argv[1:])
    found = []
    for tool, python in pythons.items():
        for name, code in TRIES[tool]:
            with tempfile.TemporaryDirectory() as folder:
                table = patients(30_000, np.random.default_rng(7))
                table.to_csv(Path(folder) / "patients.csv", index=False)
                found.append({"tool": tool, "try": name} | attempt(python, code, Path(folder)))
                print(found[-1], flush=True)
    print(pd.DataFrame(found).to_string(index=False))


if __name__ == "__main__":
    main()
