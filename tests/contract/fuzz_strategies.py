"""What the fuzz tests feed to the package: tables, labels and parameters, mostly unusable ones.

Private values are marked: numbers that no message has a reason to hold, and rare texts. Whoever
finds one of them in a text has found a leak.
"""

import datetime
import decimal
import fractions
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
import torch
from hypothesis import strategies as st

# Digits of the marked number at any precision, what float16 and int8 make of it, the rare text.
NUMBER, SMALL, TEXT = 8765.4321, 113, "qzxj-private"
MARKER = re.compile(r"8765|8\.765|8\.77e|qzxj")  # in pages, whose elements are numbered
LEAK = re.compile(
    r"8765|8\.765|8\.77e|87\.65|8766\b|8768\b|qzxj|(?<![\d.\w])113(?:\.0*)?(?![\d.\w])"
)

SPARSE = ("csr", "csc", "coo", "lil", "dok", "dia", "bsr")
DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "longdouble", "bool", "complex64", "complex128", "object"),
    *("U20", "S20", "datetime64[s]", "timedelta64[s]", ">f8", "V8"),
)


class Leaky:
    """An object that is no table and shows a private value when it is printed."""

    def __repr__(self) -> str:
        return f"Leaky({NUMBER}, {TEXT})"


class Hostile:
    """An array of another library that fails with a private value in its text."""

    def __init__(
        self, shape: tuple[int, ...] = (5, 2), error: type[Exception] = ValueError
    ) -> None:
        self.shape, self.error = shape, error

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise self.error(f"row 3 holds {NUMBER} and {TEXT}")


@dataclass(frozen=True)
class Table:
    """A value for X; `name` says how it was made, for whoever reads a failure."""

    name: str
    value: Any
    n_rows: int
    plain: bool  # finite numbers of a real type, two-dimensional

    def __repr__(self) -> str:
        return f"Table({self.name})"


def memmap(rows: np.ndarray) -> np.ndarray:
    """Return rows that lie in a file."""
    if rows.size == 0:
        return rows
    with tempfile.TemporaryDirectory() as directory:  # the map outlives the name of its file
        mapped = np.memmap(f"{directory}/rows", dtype=rows.dtype, mode="w+", shape=rows.shape)
    mapped[...] = rows
    return mapped


def with_object(rows: np.ndarray, value: Any) -> np.ndarray:
    """Return rows as objects, one of which is something else."""
    objects = rows.astype(object)
    if objects.size:
        objects.flat[objects.size // 2] = value
    return objects


def frame(rows: np.ndarray, names: Callable[[int], Any] = "x{}".format) -> pd.DataFrame:
    """Return a DataFrame."""
    return pd.DataFrame(rows, columns=[names(j) for j in range(rows.shape[1])])


def with_column(rows: np.ndarray, make: Callable[[int], Any]) -> pd.DataFrame:
    """Return a DataFrame with one column more."""
    return frame(rows).assign(extra=make(len(rows)))


def cycle(*values: Any) -> Callable[[int], list[Any]]:
    """Return a maker of columns that repeat the values."""
    return lambda n: [values[i % len(values)] for i in range(n)]


def of_pandas(values: tuple[Any, ...], dtype: Any) -> Callable[[int], pd.Series]:
    """Return a maker of columns of a pandas type."""
    return lambda n: pd.Series(cycle(*values)(n), dtype=dtype)


def cast(dtype: str) -> Callable[[np.ndarray], Any]:
    """Return a form of another type; what does not fit is what numpy makes of it."""

    def converted(rows: np.ndarray) -> Any:
        with np.errstate(all="ignore"):
            if dtype == "V8":
                return np.ascontiguousarray(rows).view("V8")
            if dtype.startswith("complex"):
                return rows.astype(dtype) * 1j
            numbers = np.nan_to_num(rows, posinf=SMALL, neginf=0)
            limits = np.iinfo(dtype) if dtype.lstrip("u").startswith("int") else None
            if limits is not None:
                numbers = np.where(numbers > min(limits.max, 1e9), SMALL, numbers)
                numbers = np.where(numbers < max(limits.min, -1e9), 0, numbers)
            return (rows if dtype[0] in ">flo" else numbers).astype(dtype)

    return converted


# Forms that hold the same numbers: where these are usable, so is the form.
PLAIN_FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "ndarray": lambda rows: rows,
    "list": lambda rows: rows.tolist(),
    "tuples": lambda rows: tuple(map(tuple, rows.tolist())),
    "list of arrays": list,
    "Fortran": np.asfortranarray,
    "strided": lambda rows: np.repeat(np.repeat(rows, 2, axis=0), 2, axis=1)[::2, ::2],
    "reversed": lambda rows: rows[::-1].copy()[::-1],
    "read-only": lambda rows: np.broadcast_to(rows, rows.shape),
    "memmap": memmap,
    "DataFrame": frame,
    "polars": lambda rows: pl.DataFrame(rows, schema=[f"x{j}" for j in range(rows.shape[1])]),
    "torch": lambda rows: torch.tensor(rows),
    "object": lambda rows: rows.astype(object),
    "numbers as names": lambda rows: frame(rows, int),
    "index of dates": lambda rows: frame(rows).set_index(
        pd.date_range("2020-01-01", periods=len(rows))
    ),
}

FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    **{dtype: cast(dtype) for dtype in DTYPES},
    **{f"sparse {kind}": (lambda rows, kind=kind: sp.csr_array(rows).asformat(kind))
       for kind in SPARSE},
    "masked": lambda rows: np.ma.masked_array(rows, rows == rows.flat[0]),
    "structured": lambda rows: np.array([(NUMBER, TEXT)] * len(rows), "f8,U12"),
    "0-d": lambda rows: np.array(NUMBER),
    "1-d": np.ravel,
    "text": lambda rows: TEXT,
    "None": lambda rows: None,
    "dict": lambda rows: {"a": rows.tolist()},
    "object()": lambda rows: Leaky(),
    "list of objects": lambda rows: [[Leaky(), Leaky()] for _ in rows],
    "hostile": lambda rows: Hostile(),
    "ragged": lambda rows: [[NUMBER] * (1 + i % 2) for i in range(len(rows))],
    "text among numbers": lambda rows: with_object(rows, TEXT),
    "None among numbers": lambda rows: with_object(rows, None),
    "huge integer": lambda rows: with_object(rows, 8765 * 10**400),
    "signalling NaN": lambda rows: with_object(rows, decimal.Decimal("sNaN")),
    "complex object": lambda rows: with_object(rows, complex(NUMBER, 1)),
    "leaky entry": lambda rows: with_object(rows, Leaky()),
    "texts in a column": lambda rows: with_column(rows, cycle(TEXT, str(NUMBER))),
    "categories": lambda rows: with_column(rows, of_pandas((TEXT, "a"), "category")),
    "numeric categories": lambda rows: with_column(rows, of_pandas((NUMBER, 1.0), "category")),
    "Int64 with NA": lambda rows: with_column(rows, of_pandas((8765, None), "Int64")),
    "Int64": lambda rows: with_column(rows, of_pandas((8765, 1), "Int64")),
    "mixed column": lambda rows: with_column(rows, cycle(NUMBER, TEXT, None)),
    "equal names": lambda rows: frame(rows, lambda j: "a"),
    "names of several levels": lambda rows: pd.DataFrame(
        rows, columns=pd.MultiIndex.from_tuples([("a", j) for j in range(rows.shape[1])])
    ),
    "polars text": lambda rows: pl.DataFrame({"a": [TEXT] * len(rows)}),
    "polars null": lambda rows: pl.DataFrame({"a": cycle(NUMBER, None)(len(rows))}),
    "lazy polars": lambda rows: pl.DataFrame({"a": [NUMBER] * len(rows)}).lazy(),
    "torch bfloat16": lambda rows: torch.tensor(rows).bfloat16(),
    "torch with gradient": lambda rows: torch.tensor(rows).requires_grad_(),
    "torch sparse": lambda rows: torch.tensor(rows).to_sparse(),
}  # fmt: skip

SPECIAL = (
    *(np.nan, np.inf, -np.inf, 1e308, -1e308, 1.7e308, 5e-324, -5e-324, 1e-310, 1e154, 1e200),
    *(-0.0, 1e16, 3e38, 1e39, 1e-45, 2.0**63, 2.0**53 + 2),
)


def undeclared(n_rows: int) -> list[str]:
    """Return labels of which one is not among the classes that are declared anywhere."""
    return cycle("a", TEXT)(n_rows)


def chance(percentage: int) -> Any:
    """Return a strategy of true and false; hypothesis prefers the ends of ranges of numbers."""
    share = percentage // 5
    return st.sampled_from([True] * share + [False] * (20 - share))


@st.composite
def tables(draw: st.DrawFn, *, width: int | None = None, usable: int = 50) -> Table:
    """Draw a table; `width` is the number of columns that a fitted estimator knows."""
    good = draw(chance(usable))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(st.sampled_from((12, 24, 40) if good else (0, 1, 2, 3, 12, 24)))
    n_columns = width or draw(st.sampled_from((1, 2, 3, 4)))
    if not good and draw(st.booleans()):
        n_columns = draw(st.sampled_from((0, 1, 2, 5, 40)))
    rows = rng.uniform(-1, 1, (n_rows, n_columns))
    shape = draw(st.sampled_from(("plain", "plain", "constant", "duplicated", "shifted", "zero")))
    rows = {
        "plain": rows,
        "constant": np.broadcast_to(rows[:1], rows.shape).copy(),
        "duplicated": rows[np.zeros(n_rows, dtype=int)] if n_rows else rows,
        "shifted": rows * 1e-9 + 1e6,
        "zero": rows * 0.0,
    }[shape]
    if rows.size and draw(st.booleans()):
        rows[rng.integers(n_rows), rng.integers(n_columns)] = NUMBER
    special = None
    if rows.size and not good and draw(st.booleans()):
        special = draw(st.sampled_from(SPECIAL))
        rows[rng.random(rows.shape) < draw(st.sampled_from((0.1, 0.9)))] = special
        rows.flat[0], rows.flat[-1] = special, -special
    form = draw(st.sampled_from(list(PLAIN_FORMS if good else PLAIN_FORMS | FORMS)))
    try:
        value = (PLAIN_FORMS | FORMS)[form](rows)
    except Exception:  # the container itself cannot hold these rows
        form, value = "ndarray", rows
    name = f"{form} of {rows.shape[0]}x{rows.shape[1]}, {shape}, special={special}"
    plain = form in PLAIN_FORMS and n_rows >= 2 and n_columns >= 1
    return Table(name, value, n_rows, plain and bool(np.isfinite(rows).all()))


LABELS: dict[str, Callable[[int], Any]] = {
    "integers": lambda n: np.arange(n) % 2,
    "three": lambda n: np.arange(n) % 3,
    "texts": lambda n: np.array(cycle("a", "b")(n)),
    "list of texts": cycle("a", "b"),
    "booleans": lambda n: np.arange(n) % 2 == 0,
    "categories": of_pandas(("a", "b"), "category"),
    "Series": of_pandas((0, 1), None),
    "Int64": of_pandas((0, 1), "Int64"),
    "string": of_pandas(("a", "b"), "string"),
    "polars": lambda n: pl.Series("y", cycle("a", "b")(n)),
    "torch": lambda n: torch.arange(n) % 2,
    "whole floats": lambda n: np.arange(n) % 2.0,
    "objects": lambda n: np.array(cycle("a", "b")(n), dtype=object),
    "frame": lambda n: pd.DataFrame({"y": cycle("a", "b")(n)}),
}
BAD_LABELS: dict[str, Callable[[int], Any]] = {
    "None": lambda n: None,
    "one class": lambda n: np.zeros(n, dtype=int),
    "long": lambda n: np.arange(n + 3) % 2,
    "all different": lambda n: np.arange(n) * 8765,
    "different texts": lambda n: [f"{TEXT}{i}" for i in range(n)],
    "marked": cycle("a", TEXT),
    "marked numbers": cycle(1, 8765),
    "continuous": lambda n: np.linspace(0, NUMBER, n),
    "NaN": lambda n: np.full(n, np.nan),
    "inf": cycle(0.0, np.inf),
    "huge": cycle(1e308, -1e308),
    "text and None": cycle(TEXT, None),
    "NA": of_pandas((8765, None), "Int64"),
    "missing category": of_pandas((TEXT, None), "category"),
    "two columns": lambda n: np.arange(2 * n).reshape(n, 2) % 2,
    "0-d": lambda n: np.array(NUMBER),
    "text": lambda n: TEXT,
    "huge integers": cycle(10**30, 8765 * 10**40),
    "beyond float": cycle(1, 8765 * 10**400),
    "bytes": cycle(b"a", TEXT.encode()),
    "dates": lambda n: np.array(cycle("2020-01-01", "2021-01-01")(n), dtype="datetime64[D]"),
    "durations": lambda n: np.arange(n).astype("timedelta64[s]"),
    "complex": cycle(1j, NUMBER + 0j),
    "fractions": cycle(fractions.Fraction(1, 3), fractions.Fraction(87654321, 10000)),
    "lists": cycle([1, NUMBER], [2]),
    "leaky": lambda n: [Leaky() for _ in range(n)],
    "hostile": lambda n: Hostile(),
    "torch with gradient": lambda n: torch.linspace(0, 1, max(n, 1)).requires_grad_(),
    "longdouble": lambda n: np.linspace(0, 1, n, dtype=np.longdouble),
    "uint64": lambda n: np.arange(n, dtype=np.uint64) + np.uint64(2**64 - 1000),
    "mixed booleans": cycle(True, 0, 2),
    "masked": lambda n: np.ma.masked_equal(np.arange(n) % 2, 1),
    "surrogate": cycle("a", "\ud800"),
}
BAD_TIMES: dict[str, Callable[[int], Any]] = {
    "two far times": cycle(-1e308, 1e308),
    "near": lambda n: 1e16 + np.arange(n) % 3 * 2.0,
    "huge spans": cycle(0.0, 1e-300, 1e300),
    "year 1": lambda n: np.array(cycle("0001-01-01", "2020-01-01")(n), dtype="datetime64[D]"),
    "date and number": cycle(datetime.date(2020, 1, 1), 3.0),
}
TIMES: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: np.arange(n) % 3 * 0.5,
    "integers": lambda n: np.arange(n) % 3,
    "one": lambda n: np.zeros(n),
    "dates": lambda n: np.array(cycle("2020-01-01", "2021-01-01")(n), dtype="datetime64[D]"),
    "Timestamps": lambda n: pd.Series(pd.to_datetime(cycle("2020-01-01", "2021-01-01")(n))),
}


def columns(good: dict[str, Any], bad: dict[str, Any], usable: int) -> Any:
    """Return a strategy of (name, maker) pairs."""
    names = chance(usable).flatmap(
        lambda plain: st.sampled_from(list(good) if plain else list(good | bad))
    )
    return names.map(lambda name: (name, (good | bad)[name]))


def made(maker: Callable[[int], Any], n_rows: int) -> Any:
    """Make a column, or none where its container cannot hold it."""
    try:
        return maker(n_rows)
    except Exception:
        return None


def labels(n_rows: int, *, usable: int = 60) -> Any:
    """Return a strategy of (name, labels) for so many rows."""
    return columns(LABELS, BAD_LABELS, usable).map(lambda c: (c[0], made(c[1], n_rows)))


def times(n_rows: int, *, usable: int = 60) -> Any:
    """Return a strategy of (name, time stamps)."""
    bad = BAD_LABELS | BAD_TIMES
    return columns(TIMES, bad, usable).map(lambda c: (c[0], made(c[1], n_rows)))


CONSTANTS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 0.5, 0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, 1e300, 1e-9),
    *(10**12, 10**30, -(10**30), 2**31, 2**63, 2**64, float("nan"), float("inf"), float("-inf")),
    *("", "auto", "private", "nonsense", "1", "\ud800", b"auto", np.str_("auto")),
    *(
        np.float32(0.5),
        np.float16(3),
        np.longdouble(0.5),
        np.int8(3),
        np.int8(100),
        np.uint64(2),
        np.bool_(True),
    ),
    *(np.float64("nan"), np.array(0.5), np.array(3), np.array([1.0]), np.array([]), np.eye(3)),
    *([], (), {}, (-1, 1), [-1, 1], (1, -1), (0, 0), (float("nan"), 1), (-np.inf, np.inf)),
    *(("a", "b"), (None, None), ([-1, -1], [1, 1]), (-1e308, 1e308), (0, 5e-324), (1, 2, 3)),
    *((np.array([]), np.array([])), ([[0]], [[1]]), ((0, 1), (2, 3), (4,)), [[0.5, None, 2]]),
    *(1j, decimal.Decimal("0.5"), fractions.Fraction(1, 2), datetime.date(2020, 1, 1)),
    *(len, dict, object(), torch.tensor(0.5), torch.nn.Linear(3, 1), pd.Series([1, 2]), pd.NA),
    *(range(3), np.zeros((3, 0)), np.full((2, 3), np.nan), np.zeros((0, 3)), np.datetime64("NaT")),
)

# Data in the place of a parameter: the error may not print them.
MARKED: tuple[Any, ...] = (
    *(Leaky(), np.array([[NUMBER, 1.0]]), pd.DataFrame({"a": [NUMBER]}), [[NUMBER]], {TEXT: 1}),
)


def constants() -> Any:
    """Return a strategy of parameter values, most of which nothing can use."""
    return st.sampled_from(CONSTANTS)


def numbers_of_rows() -> Any:
    """Return a strategy of what may be given as a number of rows to draw."""
    return st.one_of(st.sampled_from((1, 2, 7, np.int64(3), True, 0)), constants())
