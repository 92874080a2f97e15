"""What a fitted synthesizer gives beside rows: a file of itself, and a report on its quality."""

from pathlib import Path
from typing import Any, Self

import numpy as np

from skdpot._utils.validation import check_is_fitted
from skdpot.estimators.table_report import TableQualityReport, make_report
from skdpot.tables.table_record import TableRecord

__all__ = ["TableOutputs"]


class TableOutputs:
    """Saving, loading and reporting; all of it is post-processing."""

    def save(self, path: str | Path) -> None:
        """Write the fitted synthesizer as a ``.safetensors`` file; nothing in it is a pickle.

        Parameters
        ----------
        path : str or Path
            File to write; an existing file is replaced.

        Raises
        ------
        ValueError
            If its schema is longer than a file may hold: the header of a file has at most 4 MB.

        Privacy
        -------
        The file holds what was released, the privacy statement and parameters, and can be passed
        on like synthetic rows. Neither `budget` nor `random_state` is in it.
        """
        check_is_fitted(self)
        TableRecord.of(self).save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a synthesizer that `save` wrote; the file is validated and runs no code.

        Parameters
        ----------
        path : str or Path
            File to read.

        Returns
        -------
        DPTableSynthesizer
            Fitted. It draws, scores and reports like the one that was saved. A `schema` that was
            the path of a file has become the schema itself.

        Raises
        ------
        ValueError
            If the file is not a synthesizer of a known version, or contradicts itself.
        """
        parameters, fitted = TableRecord.load(path).restore()
        synthesizer = cls(**parameters)
        vars(synthesizer).update(fitted)
        return synthesizer

    def quality_report(
        self,
        X: Any = None,
        *,
        n_samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> TableQualityReport:
        """Say how well synthetic rows agree with the noisy counts, or with public rows.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array-like of shape (n_rows, n_columns), optional
            **Public** rows to compare with. By default synthetic rows are compared with the noisy
            counts that the synthesizer released itself.
        n_samples : int, optional
            Number of synthetic rows; by default as many as the synthesizer was fitted to (or as X
            has), but at least 20,000 and at most 100,000.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        TableQualityReport
            With an HTML repr, `to_html`, `plot`, and data frames of all columns and pairs.

        Raises
        ------
        ValueError
            If X does not fit the schema, or `n_samples` is not a positive integer.

        Privacy
        -------
        Without X free, and as private as the synthetic rows themselves: the report can be passed
        on. With X the report is computed from these rows without noise; if they are private, so is
        the report, and it says so.
        """
        check_is_fitted(self)
        return make_report(self, X, n_samples, random_state)
