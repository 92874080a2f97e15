"""Texts of files as missing values and numbers, each read on its own."""

import math
import sys
from collections.abc import Container, Iterable, Sequence

import pandas as pd

from skdpot._utils.nothing import is_blank
from skdpot.tables.dtypes import pandas_dtype


def present_texts(
    texts: Sequence[str], missing: frozenset[str], listed: Container[str] = ()
) -> list[str | None]:
    """Return the texts, None for blank texts and those that mean missing, unless listed."""
    known = set(texts)
    lost = {text for text in known if (text in missing or is_blank(text)) and text not in listed}
    return [None if text in lost else text for text in texts]


def strings(values: Sequence[str | None]) -> pd.Series:
    """Return a column of texts."""
    return pd.Series(values, dtype=pandas_dtype("str", True))


def plain_number(text: str) -> int | float | None:
    """Return the number that every program reads in a text, None if it is none."""
    return (text_numbers([text]) or [None])[0]


def text_numbers(values: Iterable[str | None]) -> list[int | float | None] | None:
    """Return integers, else the nearest doubles, None for NaN; None if a text is no number."""
    try:
        return [None if value is None else _parse_number(value) for value in values]
    except ValueError:  # its message quotes the text
        return None


def _parse_number(text: str) -> int | float | None:
    if "_" in text or not text.isascii():  # Python reads more forms than other programs
        raise ValueError
    return None if math.isnan(float(text)) else finite_number(text)


def finite_number(digits: str) -> int | float:
    """Return an integer or the nearest double; only the word is infinite."""
    try:
        return int(digits)
    except ValueError:  # no integer, or thousands of digits
        number = float(digits)
    beyond = math.isinf(number) and any(map(str.isdigit, digits))
    return math.copysign(sys.float_info.max, number) if beyond else number
