"""Transformers whose fitted state is differentially private, and schemas of tables."""

from skdpot.preprocessing.boolean_column import BooleanColumn
from skdpot.preprocessing.categorical_column import CategoricalColumn
from skdpot.preprocessing.datetime_column import DatetimeColumn
from skdpot.preprocessing.numeric_column import NumericColumn
from skdpot.preprocessing.private_scaler import PrivateScaler
from skdpot.preprocessing.table_encoder import TableEncoder
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.preprocessing.timedelta_column import TimedeltaColumn

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
