"""Transformers whose fitted state is differentially private, and schemas of tables."""

from skdpot.preprocessing.private_scaler import PrivateScaler
from skdpot.preprocessing.table_columns import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
)
from skdpot.preprocessing.table_encoder import TableEncoder
from skdpot.preprocessing.table_schema import TableSchema

__all__ = [
    "BooleanColumn",
    "CategoricalColumn",
    "DatetimeColumn",
    "NumericColumn",
    "PrivateScaler",
    "TableEncoder",
    "TableSchema",
]
