"""Transformers that are private or need no data, and schemas of tables."""

from skdpot.estimators.image_codes import ImageCodes
from skdpot.estimators.private_scaler import PrivateScaler
from skdpot.estimators.table_encoder import TableEncoder
from skdpot.privacy.pipelines import finite_rows
from skdpot.tables.categorical_column import BooleanColumn, CategoricalColumn
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.row_map import Pattern
from skdpot.tables.rules import Forbidden, Implies, LessEqual, SumTo
from skdpot.tables.schema import TableSchema
from skdpot.tables.time_columns import DatetimeColumn, TimedeltaColumn

__all__ = [
    "BooleanColumn",
    "CategoricalColumn",
    "DatetimeColumn",
    "Forbidden",
    "ImageCodes",
    "Implies",
    "LessEqual",
    "NumericColumn",
    "Pattern",
    "PrivateScaler",
    "SumTo",
    "TableEncoder",
    "TableSchema",
    "TimedeltaColumn",
    "finite_rows",
]
