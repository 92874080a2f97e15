"""Texts that denote a missing value, for every reader of tables."""

from unicodedata import category

# The texts that pandas reads as missing values.
MISSING_TEXTS = frozenset(
    (
        *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    )
)
_WORDS = {text.lower() for text in (*MISSING_TEXTS, "NaT")}
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")  # controls, spaces and characters without width


def is_blank(text: str) -> bool:
    """Whether a text has no visible characters."""
    return not _seen(text)


def is_nothing(text: str) -> bool:
    """Whether a text is blank or a word for a missing value."""
    return _seen(text).lower() in _WORDS


def _seen(text: str) -> str:
    """Return a text without invisible characters at its ends."""
    ends = (
        next((n for n, letter in enumerate(side) if category(letter) not in _UNSEEN), len(text))
        for side in (text, reversed(text))
    )
    return text[next(ends) : len(text) - next(ends)]
