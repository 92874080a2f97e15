"""Texts that stand for nothing, for every reader of tables."""

from unicodedata import category

# What pandas takes for a missing value in a file.
MISSING_TEXTS = frozenset(
    (
        *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    )
)
_WORDS = {text.lower() for text in (*MISSING_TEXTS, "NaT")}
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")  # controls, spaces, and what has no width


def is_blank(text: str) -> bool:
    """Return whether a text has no visible characters."""
    return not _seen(text)


def is_nothing(text: str) -> bool:
    """Return whether a text is blank, or a word for a missing value where texts are no values."""
    return _seen(text).lower() in _WORDS


def _seen(text: str) -> str:
    """Return a text without invisible characters at its ends."""
    ends = (
        next((n for n, one in enumerate(some) if category(one) not in _UNSEEN), len(text))
        for some in (text, reversed(text))
    )
    return text[next(ends) : len(text) - next(ends)]
