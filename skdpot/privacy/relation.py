"""What two neighbouring data sets are."""

from enum import StrEnum

__all__ = ["Relation"]


class Relation(StrEnum):
    """The change of one record against which a release must be insensitive.

    Attributes
    ----------
    REPLACE_ONE
        One record is replaced by another; the number of records is public.
    ADD_REMOVE
        One record is added or removed; the number of records is protected too.
    """

    REPLACE_ONE = "replace_one"
    ADD_REMOVE = "add_or_remove_one"
