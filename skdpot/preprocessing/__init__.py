"""Transformers whose fitted state is differentially private, and schemas of tables."""

from skdpot.preprocessing.categorical_column import BooleanColumn, CategoricalColumn
from skdpot.preprocessing.numeric_column import NumericColumn
from skdpot.preprocessing.private_scaler import PrivateScaler
from skdpot.preprocessing.table_encoder import TableEncoder
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.preprocessing.time_columns import DatetimeColumn, TimedeltaColumn

__all__ = [
    "BooleanColumn",
    "CategoricalColumn",
    "DatetimeColumn",
    "NumericColumn",
    "PrivateScaler",
    "TableEncoder",
    "TableSchema",
    "TimedeltaColumn",
]
