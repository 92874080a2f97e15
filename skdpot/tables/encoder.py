"""Rows of a table with mixed columns as points of the unit ball, and back."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from skdpot._utils.parameters import StrOptions, all_or_nothing, check_is_fitted, fit_context
from skdpot._utils.rows import read_rows
from skdpot._utils.streams import spawn_streams
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import SEEDED, charge
from skdpot.privacy.earlier_steps import made_by, warn_of_composition
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.reliability import Reliability
from skdpot.privacy.targets import privacy_target
from skdpot.release.private_scaler import whole_mu
from skdpot.tables.frames import Table, build_table, open_table, table_rows, validate_table
from skdpot.tables.schema import GUESSED, TableSchema, bound_schema, warn_of_guess
from skdpot.tables.schema_release import (
    SchemaEstimate,
    SchemaPlan,
    plan_schema,
    release_schema,
    to_measure,
)

_PUBLIC = (
    "the number of rows",
    "the names and the data types of the columns",
    "what the schema says: kinds of columns, bounds and categories, and where values may miss",
    "every value is of the kind that the schema says; others are refused",
    "each person contributes one row",
)
# Rounding of norms must not lead out of the ball.
_INSIDE = 1 - 1e-12


@dataclass(eq=False, repr=False)
class TableEncoder(PrivateEstimatorMixin, TransformerMixin, BaseEstimator):
    """Encode the rows of a table as points of the unit ball, and decode points to rows.

    Bounded numbers, dates, categories, booleans and missing values become coordinates; every
    column gets the same share of the ball. `inverse_transform` returns a table with the same
    columns, data types and categories. What the schema states costs no privacy; bounds and
    categories that it leaves open are estimated privately in `fit`.

    Parameters
    ----------
    schema : TableSchema or None, default=None
        What is public about the columns. If None, `TableSchema.from_dtypes`: all bounds and
        categories are estimated privately, those that a data type lists too.
    epsilon : float, default=1.0
        Privacy parameter of one fit; ``float("inf")`` adds no noise and protects no one. Not used
        if nothing is estimated.
    delta : float, default=1e-5
        Privacy parameter of one fit, in (0, 1).
    budget : PrivacyBudget or None, default=None
        Shared budget that each fit is charged to, unless it is free. If None, the fit is charged
        to no budget.
    scale : {"auto", "private", "even"}, default="auto"
        How numbers and times are mapped to their coordinate. "even" is proportional to the value,
        or to its logarithm for a column with ``log_scale``. A private scale gives more room to
        regions with many rows, and an interval of its own to a value that many rows share. This is
        better for heavy tails, zeros and clusters, and makes no difference otherwise. With "auto",
        columns without stated bounds have private scales, from the histograms that find the bounds.
        With "private", all columns have them, and the histograms are paid for even if bounds are
        stated.
    random_state : int, RandomState instance or None, default=None
        Seed of the privacy noise. For tests only: anyone who knows it can remove the noise. Not
        used if nothing is estimated.

    Attributes
    ----------
    schema_ : TableSchema
        The schema with all bounds, scales, categories and data types, in the order of the columns.
    column_blocks_ : dict of str to slice
        Coordinates of each column.
    reliability_ : Reliability
        The share of the rows that noise hides from the bounds, the scale or the categories of each
        column; 0 if the schema states them.
    privacy_spent_ : PrivacySpent or None
        The privacy statement of the fit. None if nothing was estimated: then no private value
        influences the encoder, and nothing was charged.
    n_features_in_ : int
        Number of columns seen in `fit`, excluded ones included.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, when X has names.

    Privacy
    -------
    With a resolved schema, unless ``scale="private"``, `fit` releases nothing and charges nothing:
    its result is the same for all tables with the same columns, data types and number of rows.
    Otherwise it releases five noisy histograms per column without bounds or with a private scale,
    and, per column without a list, the categories whose noisy counts pass a threshold
    (`skdpot.tables.schema`), as one event under replace-one that is charged before the noise is
    drawn. The number of rows, the names and data types of the columns and all statements of the
    schema are treated as public. So is the fact that each value is of the stated kind, because a
    refused fit shows it. `transform` and
    `inverse_transform` treat their input as public: encoded private rows are still private rows.

    See Also
    --------
    TableSchema : What is public about a table.

    Notes
    -----
    Values outside the bounds are clipped to them. Categories that are not in the list become
    `other` if the column has one, else missing if it may miss values. All other values survive
    the round trip: integers, categories, booleans and times on the ticks of their column exactly,
    other numbers to 1e-12 of the range of their column. Missing values come back as the data type
    represents them (None among objects); NaN and null are not distinguished, and the index of a
    pandas DataFrame is not kept.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.preprocessing import (
    ...     CategoricalColumn, NumericColumn, TableEncoder, TableSchema,
    ... )
    >>> df = pd.DataFrame({"age": [31, 62, 45], "sex": ["Male", "Female", "Male"]})
    >>> schema = TableSchema([
    ...     NumericColumn("age", lower=0, upper=100),
    ...     CategoricalColumn("sex", categories=["Female", "Male"]),
    ... ])
    >>> encoder = TableEncoder(schema).fit(df)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'sex=Female', 'sex=Male']
    >>> encoder.inverse_transform(encoder.transform(df)).equals(df)
    True
    >>> encoder.privacy_spent_ is None
    True
    """

    schema: TableSchema | None = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    budget: PrivacyBudget | None = None
    scale: Literal["auto", "private", "even"] = "auto"
    random_state: int | np.random.RandomState | None = None

    _parameter_constraints = PrivateEstimatorMixin._parameter_constraints | {
        "schema": [TableSchema, None],
        "scale": [StrOptions({"auto", "private", "even"})],
    }

    def _epsilon_due(self) -> float:
        known = self.schema is not None and self._is_known(self.schema)
        return 0.0 if known else self.epsilon

    def _is_known(self, schema: TableSchema) -> bool:
        """Return whether nothing is left to be estimated."""
        return schema.is_resolved and not to_measure(schema, self.scale)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: object = None) -> Self:
        """Fix how columns are encoded; estimate privately what the schema leaves open.

        Parameters
        ----------
        X : DataFrame, array-like of shape (n_samples, n_columns), or source of rows
            Private table, in memory or read in batches, see `DPTableSynthesizer.fit`.
        y : None
            Ignored.

        Returns
        -------
        self : TableEncoder
            The fitted encoder.

        Raises
        ------
        BudgetExceededError
            If `budget` has too little left. Nothing is charged or changed.
        ValueError
            If a parameter, the schema or the table is invalid. Nothing is charged or changed,
            unless X is read in batches and cannot be read to the end after the charge, which then
            stays. The message names columns and quotes no value.
        ImportError
            If what X needs is not installed, such as pyarrow for files.
        """
        with all_or_nothing(self):
            names = None if self.schema is None else self.schema.names
            table, source = open_table(self, X, names=names, min_samples=1)
            schema = bound_schema(self.schema, table, type(self).__name__)
            rows = table_rows(table, source, schema.names, schema.read, type(self).__name__, 1)
            warn_of_guess(schema, type(self).__name__)
            self.privacy_spent_ = None
            estimates: tuple[SchemaEstimate, ...] = ()
            if not self._is_known(schema):
                plan = self._plan(rows.n_rows, schema)
                self._charge(plan)
                warn_of_composition(X, self.privacy_spent_, self.budget, type(self).__name__)
                streams = spawn_streams(self.random_state, type(self).__name__)
                schema, estimates = release_schema(rows, plan, streams)
            self._store(schema, table, estimates)
        self.reliability_.warn(type(self).__name__)
        return self

    def _plan(self, n_rows: int, schema: TableSchema) -> SchemaPlan:
        """Plan the estimates of open bounds and categories."""
        if n_rows < 2:
            raise ValueError(
                f"Found array with {n_rows} sample(s) while a minimum of 2 is required by "
                "TableEncoder to estimate bounds and categories."
            )
        target = privacy_target(self.epsilon, self.delta, self.budget)
        tail = target.tail_delta
        planned = partial(plan_schema, schema, n_rows, delta=tail, scale=self.scale)
        plan = planned(mu=whole_mu(target))
        if target.admits(plan.event):
            return plan
        # A target of a single fit spends all of delta: less the tails, then.
        return planned(mu=whole_mu(replace(target, delta=self.delta - 1.001 * tail)))

    def _charge(self, plan: SchemaPlan) -> None:
        """Charge the estimates, before noise is drawn."""
        guessed = (GUESSED,) if plan.schema.guessed else ()
        seeded = (SEEDED,) if self.random_state is not None else ()
        names = {"ranges": "noisy histograms", "categories": "counts above a threshold"}
        parts = [text for part, text in names.items() if getattr(plan, part) is not None]
        self.privacy_spent_ = charge(
            self,
            plan.event,
            n_samples=plan.n_samples,
            assumptions=(*_PUBLIC, *guessed, *seeded),
            mechanism=" and ".join(parts),
        )

    def _store(
        self, schema: TableSchema, table: Table, estimates: Sequence[SchemaEstimate]
    ) -> None:
        """Store the schema, the coordinates of each column, and the errors of estimates."""
        self.schema_, self._kind, self._column_names = schema, table.kind, table.names
        self.column_blocks_, start = {}, 0
        for column in schema:
            width = len(column.coordinates)
            self.column_blocks_[column.name] = slice(start, start + width)
            start += width
        estimated = {estimate.column: estimate for estimate in estimates}
        self.reliability_ = Reliability(
            tuple(
                estimated.get(c.name, SchemaEstimate.stated(c.name, c.on_scale)).output
                for c in schema
            ),
            "State bounds and categories that are public, or use more rows or a larger epsilon.",
        )

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """Encode rows.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array-like of shape (n_samples, n_columns)
            Rows, treated as public, with the columns of the table of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_coordinates)
            Points of the unit ball.

        Raises
        ------
        ValueError
            If a column cannot be read; the message names it and quotes no value.
        """
        check_is_fitted(self)
        table = validate_table(self, X, reset=False, names=self._column_names)
        points = [column.encode(table.read(column)) for column in self.schema_]
        return np.column_stack(points) * self._side

    def fit_transform(self, X: Any, y: object = None, **fit_params: Any) -> Any:
        """Fit, then encode the same rows.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array-like of shape (n_samples, n_columns)
            Private table.
        y : None
            Ignored.
        **fit_params : dict
            None are known.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_coordinates)
            Points of the unit ball, as private as X. A private estimator fitted on them warns of
            the total cost, unless it shares the budget of this fit and of those that made X.
        """
        encoded = self.fit(X, y, **fit_params).transform(X)
        return made_by(X, encoded, self.privacy_spent_, self.budget)

    def inverse_transform(self, X: npt.ArrayLike) -> Any:
        """Decode points to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_coordinates)
            Any finite points, in the ball or not; each column gets the nearest value.

        Returns
        -------
        DataFrame of pandas or polars, or ndarray of shape (n_samples, n_columns)
            A table of the same library as the table of the fit.

        Raises
        ------
        ValueError
            If the number of coordinates differs from that of the fit.
        """
        check_is_fitted(self)
        places = read_rows(X, dtype=(np.float64,))
        if places.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {places.shape[1]} coordinates, but {type(self).__name__} encodes rows by "
                f"{self._n_features_out}."
            )
        columns = {
            column.name: column.decode(places[:, self.column_blocks_[column.name]] / self._side)
            for column in self.schema_
        }
        return build_table(self._kind, columns, self.schema_)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the coordinates.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns; they must be those of the fit.

        Returns
        -------
        ndarray of str
            Name of the column, followed by ``=`` and the category for categories, and by
            ``is missing`` for the coordinate of missing values.
        """
        check_is_fitted(self)
        if input_features is not None:
            features = [str(name) for name in np.asarray(input_features, dtype=object)]
            if features != list(self._column_names):
                raise ValueError("input_features is not equal to feature_names_in_.")
        names: list[str] = []
        for name in (name for column in self.schema_ for name in column.coordinates):
            while name in names:
                name += "_"
            names.append(name)
        return np.array(names, dtype=object)

    @property
    def _side(self) -> float:
        """Largest norm of the block of a column, just below 1 / sqrt(d), for rows in the ball."""
        return _INSIDE / math.sqrt(len(self.schema_))

    @property
    def _n_features_out(self) -> int:
        """Number of coordinates."""
        return sum(len(column.coordinates) for column in self.schema_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
