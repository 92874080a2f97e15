"""Synthetic tables from noisy marginals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from tqdm.auto import tqdm

from skdpot._utils.arguments import check_count
from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.parameters import (
    Interval,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
)
from skdpot._utils.streams import Streams, solver_generator, spawn_streams
from skdpot.exceptions import warn_unreliable
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import SEEDED, charge
from skdpot.privacy.earlier_steps import warn_of_composition
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import privacy_target
from skdpot.release.contributions import WEIGHTINGS, Unit, count_records
from skdpot.release.releases import Records, Release
from skdpot.sources import Rows
from skdpot.tables.column_values import PlainColumn
from skdpot.tables.conditions import Condition, parse_conditions
from skdpot.tables.fitting import TableFit
from skdpot.tables.frames import Table, build_table, open_table, table_rows, validate_table
from skdpot.tables.marginal_tables import PUBLISHED, fit_published, frames_of
from skdpot.tables.marginals import as_columns, marginal_total_variation
from skdpot.tables.model import TableModel, draw_cells
from skdpot.tables.pattern import Pattern
from skdpot.tables.plan import TablePlan, plan_marginals
from skdpot.tables.record import TableRecord
from skdpot.tables.reliability import table_reliability
from skdpot.tables.report import TableQualityReport, make_report
from skdpot.tables.row_map import RowMap
from skdpot.tables.schema import GUESSED, TableSchema, bound_schema, warn_of_guess
from skdpot.tables.schema_release import SchemaEstimate, release_schema

_ASSUMPTIONS = (
    "the names, the data types and the order of the columns; a data type that a file reader "
    "inferred from the values is treated as public too, though one row can change it",
    "everything that the schema states: which columns there are, kinds, bounds, categories, whole "
    "numbers, scales, resolutions of dates, whether values may be missing, rules between columns",
    "every value is of the kind that the schema states; others are refused",
)
_MOST_NOISE = 0.1  # share of the rows; more noise on the counts of a column calls for a warning
_STAGES = ("columns", "tree", "pairs", "particles")  # of the progress bar
_FEWEST_PARTICLES, _MOST_PARTICLES = 20_000, 100_000
_SCORED_ROWS = 20_000  # least number of synthetic rows in a score


@dataclass(eq=False, repr=False)
class DPTableSynthesizer(PrivateEstimatorMixin, BaseEstimator):
    """Differentially private synthesizer of tables with mixed column types.

    The synthesizer releases noisy contingency tables, fits a distribution over whole rows to
    them, and draws any number of synthetic rows. It counts single columns first, then the pairs
    of a tree of columns, chosen by their distance from independence, and then the pairs that the
    tree describes worst. Particles drawn from the tree are reweighted by unbalanced Sinkhorn
    scaling until they agree with all counts as well as the noise allows.

    Parameters
    ----------
    schema : TableSchema, path of a JSON file or None, default=None
        What is public about the table. Bounds and categories that it leaves open are estimated
        privately, for at most a fifth of the squared mu. If None, only the names and data types
        of the columns are public.
    epsilon : float, default=1.0
        Privacy parameter of one fit; ``float("inf")`` adds no noise and protects no one.
    delta : float, default=1e-5
        Privacy parameter of one fit, in (0, 1); choose it well below one over the number of
        rows.
    target : str or None, default=None
        Name of the column that matters most, such as the label or the sensitive attribute. Pairs
        with the target get a larger share of the budget.
    budget : PrivacyBudget or None, default=None
        Shared budget that each fit is charged to. If None, the fit is charged to no budget.
    unit : str or None, default=None
        Column that identifies the person, if a person may have several. It is not modelled. The
        guarantee is then for a person with all rows. If None, each row is a person.
    max_rows : int or None, default=None
        Largest number of rows of a person that count, drawn at random. With ``weighting="person"``
        at most 16, the default; ``weighting="row"`` needs it.
    weighting : {"person", "row"}, default="person"
        With "person", the rows drawn of a person weigh as much as one row together: the noise is
        that of one row per person, and the synthetic rows are distributed like a random row of a
        random person. With "row", each row drawn weighs one, and the noise is `max_rows` times as
        large.
    n_particles : int or None, default=None
        Number of particles that represent the distribution. If None, four per row (per person
        with `unit`), but at least 20,000 and at most 100,000.
    random_state : int, RandomState instance or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    schema_ : TableSchema
        The schema with everything resolved.
    releases_ : tuple of Release
        The noisy contingency tables as released, with their noise and event: of single columns,
        of the pairs of the tree, and of the pairs that the tree describes worst.
    marginals_ : tuple of DataFrame
        The noisy counts of each column, then of pairs and triples, one row per cell. The first
        columns of a table are named like those of X and say what the cell holds: a value, an
        interval of numbers or dates, a tuple of rare categories that are counted together, or a
        missing value. "count" is the noisy count, "standard_error" the standard deviation of its
        noise, and "n_releases" the number of releases that were averaged. An interval includes its
        ends, except for values that have a cell of their own.
    model_ : TableModel
        The fitted distribution.
    reliability_ : Reliability
        The error that noise leaves in the distribution of each column, in its mean if it holds
        numbers, and in each pair of columns with released counts, beside that of a uniform
        distribution, of the middle of the bounds, and of independent columns.
    n_samples_ : int
        Number of rows, or of persons with `unit`.
    privacy_spent_ : PrivacySpent
        The privacy statement of the fit.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, when X has names.

    Privacy
    -------
    A fit is one event under replace-one, charged before the data are read. It covers what the
    schema leaves open and five Gaussian releases with fixed shares of the squared mu
    (`skdpot.tables.fitting`); later releases are chosen by earlier ones. The sensitivities are
    proved in `skdpot.tables.contingency`. The noise is discrete Gaussian, on a lattice that holds
    the counts exactly. The number of rows and what ``privacy_spent_.assumptions`` lists are
    treated as public. With `unit` one record is one person, the number of persons is public, and
    that of rows is not: it may change with all rows of a person
    (`skdpot.release.contributions`). Bounds and categories are estimated from one row per person.
    Sampling costs no privacy. `score` treats its rows as public: a score on
    private rows is not private.

    See Also
    --------
    TableSchema : What is public about a table.
    DPSlicedFlowSampler : Synthetic numbers, images and codes.

    References
    ----------
    The choice of marginals follows McKenna, Mullins, Sheldon and Miklau, "AIM: an adaptive and
    iterative mechanism for differentially private synthetic data", 2022, in two rounds, and Zhang
    et al., "PrivSyn", 2021. The tree is that of Chow and Liu, 1968. The scaling is Chizat, Peyré,
    Schmitzer and Vialard, "Scaling algorithms for unbalanced optimal transport problems", 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpot import DPTableSynthesizer
    >>> from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema
    >>> rng = np.random.default_rng(0)
    >>> smokes = rng.random(5000) < 0.3
    >>> private = pd.DataFrame({
    ...     "age": rng.integers(18, 90, 5000),
    ...     "smokes": np.where(smokes, "yes", "no"),
    ...     "coughs": np.where(rng.random(5000) < 0.1 + 0.6 * smokes, "yes", "no"),
    ... })
    >>> schema = TableSchema([
    ...     NumericColumn("age", lower=18, upper=90, integer=True),
    ...     CategoricalColumn("smokes", categories=["no", "yes"]),
    ...     CategoricalColumn("coughs", categories=["no", "yes"]),
    ... ])
    >>> synthesizer = DPTableSynthesizer(schema, epsilon=1.0, target="coughs").fit(private)
    >>> synthetic = synthesizer.sample(1000)
    >>> list(synthetic.columns)
    ['age', 'smokes', 'coughs']
    >>> smokers = synthesizer.sample(1000, conditions={"smokes": "yes", "age": (40, 60)})
    >>> smokers["smokes"].unique().tolist(), smokers["age"].between(40, 60).all()
    (['yes'], np.True_)
    >>> bool((smokers["coughs"] == "yes").mean() > 0.5)
    True
    """

    schema: TableSchema | str | None = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    target: str | None = None
    budget: PrivacyBudget | None = None
    unit: str | None = None
    max_rows: int | None = None
    weighting: str = "person"
    n_particles: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    _canaries = "half a scale apart"
    _parameter_constraints = PrivateEstimatorMixin._parameter_constraints | {
        "schema": [TableSchema, str, PathLike, None],
        "target": [str, None],
        "unit": [str, None],
        "max_rows": [Interval(Integral, 1, 10_000, closed="both"), None],
        "weighting": [StrOptions(set(WEIGHTINGS))],
        "n_particles": [Interval(Integral, 100, None, closed="left"), None],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: object = None) -> Self:
        """Release noisy counts and fit a distribution to them.

        Parameters
        ----------
        X : DataFrame, array-like of shape (n_samples, n_columns), or source of rows
            Private rows, at least two: in memory, or read in batches from the paths of files,
            datasets of pyarrow, relations of DuckDB, LazyFrames of polars, DataFrames of Dask or
            Spark, or a `skdpot.sources.Source`. `unit` needs rows in memory.
        y : object, optional
            Ignored; a column to predict belongs in X, see `target`.

        Returns
        -------
        self : DPTableSynthesizer
            Fitted synthesizer.

        Raises
        ------
        ValueError
            If a parameter, the schema or the data are invalid. Nothing is charged, unless X is read
            in batches and cannot be read to the end after the charge, which then stays.
        ImportError
            If what X needs is not installed, such as pyarrow for files.
        BudgetExceededError
            If `budget` has too little left. Nothing is charged and nothing changes.

        Warns
        -----
        ReliabilityWarning
            Before the charge if the noise on the counts of a column exceeds a tenth of the number
            of rows, or else after the fit if noise hides a part of `reliability_`.
        """
        name = type(self).__name__
        streams = spawn_streams(self.random_state, name)
        with all_or_nothing(self):
            unit = Unit.of_parameters(self.unit, self.max_rows, self.weighting)
            rows, rules, persons, kind = self._validate(X)
            n_samples = count_records(rows, persons)
            target = privacy_target(self.epsilon, self.delta, self.budget)
            plan = plan_marginals(target, rules.model, n_samples, unit.weight)
            warned = _warn_of_small_table(plan, name)
            self._charge(plan, unit, rules.schema)
            warn_of_composition(X, self.privacy_spent_, self.budget, name)
            schema, estimates, model = self._release(plan, unit, rows, persons, rules, streams)
            self.model_ = model
            self._store(rules.resolved(schema), n_samples, kind, estimates)
        if not warned:
            self.reliability_.warn(name)
        return self

    def _charge(self, plan: TablePlan, unit: Unit, schema: TableSchema) -> None:
        """Charge the whole fit, before noise is drawn."""
        guessed = (GUESSED,) if schema.guessed else ()
        seeded = (SEEDED,) if self.random_state is not None else ()
        before = "" if plan.schema.event is None else "private schema, "
        self.privacy_spent_ = charge(
            self,
            plan.event,
            n_samples=plan.n_samples,
            assumptions=(*unit.assumptions, *_ASSUMPTIONS, *guessed, *seeded),
            mechanism=f"{before}noisy counts of columns and of chosen pairs",
        )

    def _release(
        self,
        plan: TablePlan,
        unit: Unit,
        rows: Rows,
        persons: IntArray | None,
        rules: RowMap,
        streams: Streams,
    ) -> tuple[TableSchema, tuple[SchemaEstimate, ...], TableModel]:
        """Draw rows of persons, resolve the schema, release counts and fit a model to them."""
        with tqdm(total=len(_STAGES), desc="synthesizer", disable=not self.verbose) as bar:

            def advance(stage: str) -> None:
                bar.set_postfix_str(stage, refresh=False)
                bar.update()

            weights, one_each = None, rows
            if persons is not None:
                drawn = unit.draw(persons, streams.secret)
                one_each = rows.map(partial(_take_rows, rows=drawn.one_each))
                rows, weights = rows.map(partial(_take_rows, rows=drawn.rows)), drawn.weights
            schema, estimates = release_schema(one_each, plan.schema, streams)
            fit = TableFit(
                plan,
                streams,
                rows.map(partial(_with_weights, weights=weights)),
                grids=tuple(column.grid() for column in schema),
                target=rules.place(self.target),
                n_particles=self._n_particles(plan.n_samples),
                advance=advance,
            )
            return schema, estimates, fit.model()

    def _validate(self, X: Any) -> tuple[Rows, RowMap, IntArray | None, str]:
        """Validate the table, its schema, the unit and the target; number the persons."""
        stated = self._stated_schema()
        names, name = None if stated is None else stated.names, type(self).__name__
        fewest = 2 if self.unit is None else 1  # rows; persons are counted later
        table, source = open_table(self, X, names=names, min_samples=fewest)
        if source is not None and self.unit is not None:
            raise ValueError("unit needs X in memory, as a DataFrame.")
        persons = None if self.unit is None else table.persons(self.unit)
        schema = bound_schema(stated, table, name, self.unit)
        self._check_target(schema)
        rules = RowMap(schema)
        rules.place(self.target)  # refuses a target before rows are read
        rows = table_rows(table, source, schema.names, rules.read, name, fewest)
        warn_of_guess(schema, name)
        return rows, rules, persons, table.kind

    def _store(
        self,
        rules: RowMap,
        n_samples: int,
        kind: str,
        estimates: tuple[SchemaEstimate, ...] = (),
    ) -> None:
        """Store the rules, the schema, the errors, and the kind of table that samples need."""
        self._rules, self._grids = rules, self.model_.grids
        self._rules = rules.learned(partial(self._draw, rng=solver_generator(0)))
        self.schema_ = self._rules.schema
        self.n_samples_, self._kind = n_samples, kind
        self._estimates = estimates
        self.reliability_ = table_reliability(self.model_, self._target_place(), estimates)

    def _target_place(self) -> int | None:
        """Return the place of the target among several columns of the model."""
        return self._rules.place(self.target) if len(self._grids) > 1 else None

    def _stated_schema(self) -> TableSchema | None:
        if self.schema is None or isinstance(self.schema, TableSchema):
            return self.schema
        return TableSchema.from_json(self.schema)

    def _check_target(self, schema: TableSchema) -> None:
        if self.target is not None and self.target not in schema.names:
            raise ValueError(
                f"target={self.target!r} is not a column of the table; its columns are "
                f"{', '.join(map(repr, schema.names))}."
            )

    def _n_particles(self, n_rows: int) -> int:
        if self.n_particles is not None:
            return self.n_particles
        return int(np.clip(4 * n_rows, _FEWEST_PARTICLES, _MOST_PARTICLES))

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return the cells of rows, or the bins in which pairs are counted, for the gate."""
        if release.kind not in ("marginals", "misfits"):
            return X, y
        values = self._rules.to_model(dict(zip(self.schema_.names, np.transpose(X), strict=True)))
        return self.model_.seen_by(release, list(values.values())), y

    def _restate(self, spent: PrivacySpent) -> None:
        super()._restate(spent)
        releases = tuple(replace(release, event=spent.event) for release in self.releases_)
        self.model_ = replace(self.model_, releases=releases)

    @property
    def releases_(self) -> tuple[Release, ...]:
        """The released contingency tables; none of `fit_marginals`."""
        return tuple(release for release in self.model_.releases if release.kind != PUBLISHED)

    @property
    def marginals_(self) -> tuple[pd.DataFrame, ...]:
        """Noisy counts of each column, then of pairs and triples, with their standard errors."""
        return frames_of(self.model_)

    def fit_marginals(
        self,
        marginals: Iterable[pd.DataFrame],
        n_samples: int,
        *,
        statement: PrivacySpent | None = None,
    ) -> Self:
        """Fit the distribution to noisy counts that somebody else has released.

        Parameters
        ----------
        marginals : iterable of DataFrame
            Tables such as `marginals_`, of one column or more each. Their columns are named like
            those of the schema, which must be complete, and list values, lists of categories,
            intervals (`pandas.Interval`) and missing values, so that every value is in one cell.
            "count" is the noisy count and "standard_error" the standard deviation of its noise;
            other columns are ignored. Cells of one table are fitted with their mean noise. Every
            column must be in a table.
        n_samples : int
            Number of rows that were counted.
        statement : PrivacySpent, optional
            The privacy statement of whoever released the tables; becomes `privacy_spent_`.

        Returns
        -------
        self : DPTableSynthesizer
            Fitted synthesizer, whose samples are DataFrames of pandas.

        Raises
        ------
        TypeError, ValueError
            If the schema leaves something open, or a table does not fit it, lacks cells, or does
            not add up to `n_samples`.

        Privacy
        -------
        No private row is read and nothing is charged. The result is computed from the tables, and
        is covered by the statement of their release, which ``privacy_spent_`` holds if it is
        passed.
        """
        self._validate_params()
        n_rows = check_count(n_samples, "n_samples")
        schema = self._stated_schema()
        if schema is None or not schema.is_resolved:
            raise ValueError("fit_marginals needs a schema that states all bounds and categories.")
        with all_or_nothing(self):
            schema = replace(schema, columns=tuple(column.stated() for column in schema))
            self._check_target(schema)
            rules = RowMap(schema)
            self.model_ = fit_published(
                marginals,
                rules.model,
                n_rows,
                rules.place(self.target) if len(rules.model) > 1 else None,
                self._n_particles(n_rows),
                solver_generator(self.random_state),
                NonPrivateEvent() if statement is None else statement.event,
            )
            self._store(rules.resolved(rules.model), n_rows, "pandas")
            self.privacy_spent_, self.n_features_in_ = statement, len(schema)
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        self.reliability_.warn(type(self).__name__)
        return self

    def sample(
        self,
        n_samples: int = 1,
        conditions: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Any:
        """Draw synthetic rows, at no privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        conditions : mapping of str to object, optional
            Conditions that every row satisfies: for each named column a value or a list of
            values; for numbers, dates and ordered categories also a tuple ``(smallest, largest)``,
            in which None means no limit. Numbers and dates can be listed if the column has at most
            512 possible values. None, alone or in a list, stands for missing values.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        DataFrame or ndarray of shape (n_samples, n_columns)
            A table of the same library, columns and data types as the table of the fit.

        Raises
        ------
        TypeError, ValueError
            If `n_samples` is not a positive integer, a condition cannot be satisfied, or conditions
            and rules of the schema contradict each other.
        """
        check_is_fitted(self)
        return self._sampled(n_samples, conditions, random_state, self._rules.patterns)

    def _sampled(
        self,
        n_samples: int,
        conditions: Mapping[str, Any] | None,
        random_state: int | np.random.RandomState | None,
        patterns: Sequence[Pattern] = (),
    ) -> Any:
        """Draw rows, with codes that follow patterns."""
        n_samples = check_count(n_samples, "n_samples")
        conditions, tested = self._rules.split(conditions)
        wanted = parse_conditions(conditions, self._grids)
        rng = solver_generator(random_state)
        draw = partial(self._draw, rng=rng, wanted=wanted)
        columns = self._rules.sample(n_samples, draw, tested, rng)
        columns |= {rule.column: rule.draw(n_samples, rng) for rule in patterns}
        order = [*getattr(self, "feature_names_in_", ()), *columns]
        columns = {name: columns[name] for name in order if name in columns}
        return build_table(self._kind, columns, self._rules.described)

    def _draw(
        self, n_rows: int, rng: np.random.Generator, wanted: Mapping[int, Condition] | None = None
    ) -> dict[str, pd.Series]:
        """Draw values of the model's columns."""
        wanted, model = wanted or {}, self.model_
        allowed = {p: model.bins[p].satisfied(condition.kept) for p, condition in wanted.items()}
        impossible = self._rules.impossible(self._grids, model.bins, wanted)
        codes = model.draw(n_rows, rng, allowed, impossible)
        columns = {}
        for place, grid in enumerate(self._grids):
            if (condition := wanted.get(place)) is None:
                cells = draw_cells(codes[:, place], model.bins[place], rng)
                tilts = grid.tilts(model.bins[place].cell_shares)
                columns[grid.column.name] = grid.values(cells, rng, tilts=tilts)
            else:
                cells = draw_cells(codes[:, place], model.bins[place], rng, condition.kept)
                values = grid.values(cells, rng, condition.within)
                columns[grid.column.name] = condition.enforce(values)
        return columns

    def score(self, X: Any, y: object = None) -> float:
        """Return the negative mean total variation distance over all pairs of columns.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array-like of shape (n_samples, n_columns)
            **Public** rows; the score is computed from them without noise.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            Between -1 and 0; higher is better. It is minus the
            `skdpot.metrics.marginal_total_variation` of X and max(20,000, len(X)) synthetic rows;
            for a table of one column, of that column.
        """
        check_is_fitted(self)
        table = validate_table(self, X, reset=False, names=self.schema_.names)
        drawn = self._sampled(max(_SCORED_ROWS, table.n_rows), None, 0)
        real, synthetic = map(self._scored, (table, Table.of(drawn, self.schema_.names)))
        return -marginal_total_variation(real, synthetic, n_way=min(2, len(self.schema_)))

    def _scored(self, table: Table) -> pd.DataFrame:
        """Return the columns of the schema, with times and texts as the schema reads them."""
        columns = dict(zip(table.names, as_columns(table.data, "X").values(), strict=True))
        columns |= {
            c.name: c.compared(c.from_unit(c.to_unit(columns[c.name])))
            for c in self.schema_
            if c.reads_texts and columns[c.name].dtype.kind not in "biuf"
        }
        return pd.DataFrame({name: columns[name] for name in self.schema_.names})

    def save(self, path: str | Path) -> None:
        """Save the fitted synthesizer as a ``.safetensors`` file, without pickle.

        Parameters
        ----------
        path : str or Path
            File to write; an existing file is replaced.

        Raises
        ------
        ValueError
            If the schema does not fit into the header of the file, which has at most 4 MB, or the
            synthesizer was fitted by `fit_marginals`, whose tables hold all that it knows.

        Privacy
        -------
        The file holds the releases, the privacy statement and the parameters, without `budget`
        and `random_state`. It can be shared like synthetic rows.
        """
        check_is_fitted(self)
        if not self.releases_:
            raise ValueError(
                "Save the tables that were passed to fit_marginals, and fit them again."
            )
        TableRecord.of(self).save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a saved synthesizer; the file is validated and runs no code.

        Parameters
        ----------
        path : str or Path
            File to read.

        Returns
        -------
        DPTableSynthesizer
            Fitted synthesizer that samples, scores and reports like the saved one. A `schema`
            given as a path is replaced by the schema itself.

        Raises
        ------
        ValueError
            If the file is not a synthesizer of a known version or contradicts itself.
        """
        parameters, fitted = TableRecord.load(path).restore()
        synthesizer = cls(**parameters)
        for name, value in fitted.items():
            setattr(synthesizer, name, value)
        return synthesizer

    def quality_report(
        self,
        X: Any = None,
        *,
        n_samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> TableQualityReport:
        """Report how well synthetic rows agree with the noisy counts, or with public rows.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array-like of shape (n_rows, n_columns), optional
            **Public** rows to compare with. By default, synthetic rows are compared with the noisy
            counts that the synthesizer released.
        n_samples : int, optional
            Number of synthetic rows; by default the number of private rows (or of rows in X), but
            at least 20,000 and at most 100,000.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        TableQualityReport
            Report with an HTML representation, the methods `to_html` and `plot`, and the data
            frames `columns` and `pairs`: total variation distance, its expected value, its limit
            and whether it exceeds that, per column and per pair.

        Raises
        ------
        ValueError
            If X does not fit the schema or `n_samples` is not a positive integer.

        Privacy
        -------
        Without X the report costs nothing and can be shared like the synthetic rows. With X it is
        computed from these rows without noise, so it is as confidential as the rows, and says so.
        """
        check_is_fitted(self)
        return make_report(self, X, n_samples, random_state)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags: missing values and texts are allowed; results depend on noise."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.non_deterministic = True
        return tags


def _with_weights(values: dict[str, PlainColumn], weights: FloatArray | None) -> tuple[Any, Any]:
    return tuple(values.values()), weights


def _take_rows(readings: dict[str, PlainColumn], rows: IntArray) -> dict[str, PlainColumn]:
    return {name: column.take(rows) for name, column in readings.items()}


def _warn_of_small_table(plan: TablePlan, caller: str) -> bool:
    """Warn of noise that hides most of a table, by public facts alone; return whether it does."""
    sigma = float(plan.marginal_sigmas("columns", np.ones(len(plan.schema.schema)))[0])
    if sigma <= _MOST_NOISE * plan.n_samples:
        return False
    warn_unreliable(
        f"{caller}: The table is too small for this epsilon: it has {plan.n_samples:,} records, "
        f"and the noise on the counts of a column has a standard deviation of {sigma:,.3g} rows. "
        "Use more rows, fewer columns or a larger epsilon."
    )
    return True
