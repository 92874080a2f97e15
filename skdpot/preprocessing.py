"""Transformers that are private or need no data, and schemas of tables."""

from skdpot.privacy.pipelines import finite_rows
from skdpot.release.private_scaler import PrivateScaler
from skdpot.sampling.image_codes import ImageCodes
from skdpot.tables.categorical_column import BooleanColumn, CategoricalColumn
from skdpot.tables.column_base import TableColumn
from skdpot.tables.datetime_column import DatetimeColumn
from skdpot.tables.encoder import TableEncoder
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.pattern import Pattern
from skdpot.tables.rules import Forbidden, Implies, LessEqual, SumTo
from skdpot.tables.schema import TableSchema
from skdpot.tables.timedelta_column import TimedeltaColumn

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
    "TableColumn",
    "TableEncoder",
    "TableSchema",
    "TimedeltaColumn",
    "finite_rows",
]
