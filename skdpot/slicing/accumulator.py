"""The open state of a sketch: noise first, counts on top."""

import os
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from skdpot._utils.rng import SecretStream
from skdpot.exceptions import OpenSketchError
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.noise import lattice_noise
from skdpot.privacy.recording import Release, released
from skdpot.slicing.histogram import binned_rows, count_projections
from skdpot.slicing.plan import SketchPlan

if TYPE_CHECKING:
    import torch

__all__ = ["NoisyAccumulator"]


class NoisyAccumulator:
    """A table of noise to which the statistic of each chunk of rows is added.

    The noise is drawn when the accumulator is made, so there is never a table of counts
    without it. Reading it twice, before and after a row is added, would reveal that row:
    until `close` it can be neither read nor copied nor pickled.

    Parameters
    ----------
    plan : SketchPlan
        Shape, strategy and noise.
    bounds : DataBounds
        How rows are mapped and clipped.
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.
    half_widths : ndarray of shape (n_slices,)
        Binned range along each direction.
    stream : SecretStream
        Where the noise comes from.
    device : torch.device or None
        Where projections are counted; None is numpy.

    Privacy
    -------
    The caller has charged ``plan.event`` before making an accumulator.
    """

    def __init__(
        self,
        plan: SketchPlan,
        bounds: DataBounds,
        directions: np.ndarray,
        half_widths: np.ndarray,
        stream: SecretStream,
        device: "torch.device | None",
    ) -> None:
        self._plan, self._bounds, self._device = plan, bounds, device
        self._directions, self._half_widths = directions, half_widths
        # The statistic in units of the noise's lattice, an integer fraction of the strategy's.
        self._factor = round(plan.strategy.lattice / plan.lattice)
        shape = (plan.n_classes, plan.n_slices, plan.strategy.n_bins)
        if plan.sigma > 0:
            self._table = lattice_noise(plan.sigma, shape, stream, lattice=plan.lattice, mu=plan.mu)
        else:
            self._table = np.zeros(shape, dtype=np.int64)
        self.n_rows = 0
        # Where labels are public their numbers need no noise; otherwise they are not even counted.
        self.label_counts = np.zeros(plan.n_classes, dtype=np.int64) if plan.public_labels else None
        self._process = os.getpid()

    def add(self, rows: np.ndarray, codes: np.ndarray | None) -> None:
        """Add rows; `codes` (n_rows,) holds the position of each row's class.

        When a chunk is interrupted half-way the table is dropped: adding the chunk again
        would count some rows twice, which the sensitivity does not cover.
        """
        self._check_whole()
        try:
            self._add(rows, codes)
            self.n_rows += len(rows)
            if self.label_counts is not None and codes is not None:
                self.label_counts += np.bincount(codes, minlength=self._plan.n_classes)
        except BaseException:
            del self._table
            raise

    def _add(self, rows: np.ndarray, codes: np.ndarray | None) -> None:
        # A chunk's sums stay far below 2^53, so that double precision multiplies them exactly,
        # and much faster than integers.
        strategy = self._plan.strategy.integer_matrix.T.astype(np.float64)
        counts = count_projections(
            rows,
            self._directions,
            self._half_widths,
            self._plan.strategy.n_bins,
            codes=codes,
            n_classes=self._plan.n_classes,
            bounds=self._bounds,
            device=self._device,
        )
        for table, part in zip(self._table, counts.reshape(self._table.shape), strict=True):
            table += (part @ strategy).astype(np.int64) * self._factor

    def close(self) -> np.ndarray:
        """Return the released statistic (n_classes, n_slices, n_bins), float64, and end."""
        self._check_whole()
        statistic: np.ndarray = self._table * self._plan.lattice
        del self._table
        facts = {
            "strategy": self._plan.strategy,
            "bounds": self._bounds,
            "directions": self._directions,
            "half_widths": self._half_widths,
        }
        release = Release(
            "sketch",
            statistic,
            facts,
            sigma=float(self._plan.sigma),
            lattice=self._plan.lattice,
            sensitivity=self._plan.sensitivity,
            event=self._plan.event,
            linear=binned_rows,
        )
        noisy: np.ndarray = released(release)
        return noisy

    def _check_whole(self) -> None:
        if os.getpid() != self._process:
            raise OpenSketchError(
                "This sketch was opened in another process, and a fork is a copy: two copies of "
                "one noise draw reveal the rows added in between. Open a sketch in each process, "
                "close them and merge."
            )
        if not hasattr(self, "_table"):
            raise OpenSketchError(
                "Adding a chunk was interrupted, so this sketch cannot be completed. Fit again; "
                "what it was charged is spent."
            )

    def _refuse(self, *args: object) -> NoReturn:
        raise OpenSketchError(
            "This sketch is open: it still accumulates rows and can be neither pickled nor "
            "copied, because two copies of one noise draw reveal the rows added in between. "
            "Call close() first."
        )

    __getstate__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse
