"""The motion of a population's mean, as a release shows it, and how far the noise hides it."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.release.decoding import measured_cdf
from skdpot.release.sketch import SlicedSketch
from skdpot.trajectories.smoothing import smoothed_with_errors

# Features lie in [-1, 1]: no standard deviation is larger.
_MOST = 1.0
# An error that is good enough: 5 % of the range of a feature.
_MARGIN = 0.1
# Variance of a mean, before the release, around the middle of the bounds: that of the uniform law.
_PRIOR_VARIANCE = 1 / 3
# A bin beyond which a time has less than this share of its rows is not reached by them.
_BEYOND = 0.002
_ADVICE = "Use more rows at these times, fewer times (n_times=) or a larger epsilon"


@dataclass(frozen=True, eq=False)
class MeanMotion:
    """Released means of all times, and what all times together tell of each.

    Lengths are in mapped units. The `measured` means (T, d) are those of the rows plus Gaussian
    noise of the `deviations` (T,) in each of `dimension` directions. `spread` is the root mean
    square distance, per feature, of all rows from their mean.
    """

    times: FloatArray
    counts: FloatArray
    measured: FloatArray
    deviations: FloatArray
    dimension: int
    spread: float

    @classmethod
    def of(cls, sketch: SlicedSketch, times: FloatArray) -> Self:
        """Read the means and the spread of a sketch, with the errors of the means.

        The mean along a direction of half width w is ``w`` less the integral of the distribution
        function, and the mean square is ``w²`` less that of ``2 x F(x)``; the function is linear
        within a bin. Directions together give the mean by least squares.

        Means are linear in the measured functions, whose noise is known. If the noise of all bins
        together leaves a time visible, the decoded function tells where its rows are; in bins
        beyond them it replaces the measured one. The spread is that of decoded functions, which
        have less noise.
        """
        strategy, widths = sketch.strategy_, sketch.half_widths_
        unit = sketch.bounds_.radius / math.sqrt(sketch.bounds_.n_features)
        step = 2.0 * widths / strategy.n_bins
        decoded = np.stack(list(sketch.cdf_))[:, :, 1:-1]
        counts = sketch.class_counts_
        pooled = np.tensordot(counts / counts.sum(), decoded, 1)
        positions = np.linspace(-1.0, 1.0, strategy.n_bins + 1)[1:-1] * widths[:, None]
        squares = widths**2 - step * widths + step**2 / 3.0
        squares -= 2.0 * step * (positions * pooled).sum(axis=1)
        squares -= (widths - step / 2.0 - step * pooled.sum(axis=1)) ** 2
        spread = np.mean(squares) / np.mean(np.sum(sketch.directions_**2, axis=1))
        spread = math.sqrt(max(float(spread), 0.0)) / unit

        inverse = np.linalg.pinv(sketch.directions_)
        dimension = int(np.linalg.matrix_rank(sketch.directions_))

        def deviations(reached: BoolArray) -> FloatArray:
            """Return the deviations (T,) of means whose bins are measured where `reached`."""
            sums = np.sum((reached @ strategy.known_total_covariance) * reached, axis=2)
            traces = np.sum((sums * step**2) @ (inverse**2).T, axis=1) / dimension
            return sketch.noise_scale_ * np.sqrt(traces) / (unit * counts)

        reached = np.minimum(decoded, 1.0 - decoded) > _BEYOND
        reached[..., 1:] |= reached[..., :-1]
        reached[..., :-1] |= reached[..., 1:]
        reached |= (deviations(np.ones_like(reached)) > spread)[:, None, None]
        measured = np.stack([measured_cdf(sketch, label)[0][:, 1:-1] for label in sketch.classes_])
        along = widths - step / 2.0 - step * np.where(reached, measured, decoded).sum(axis=2)
        return cls(
            times=times,
            counts=counts,
            measured=along @ inverse.T / unit,
            deviations=deviations(reached),
            dimension=dimension,
            spread=spread,
        )

    @classmethod
    def of_particles(
        cls, particles: FloatArray, times: FloatArray, counts: IntArray, deviations: FloatArray
    ) -> Self:
        """Read the means of particles (T, m, d) whose errors are known."""
        means, shares = particles.mean(axis=1), counts / counts.sum()
        squares = np.square(particles - np.average(means, axis=0, weights=shares))
        return cls(
            times=times,
            counts=counts.astype(np.float64),
            measured=means,
            deviations=deviations,
            dimension=particles.shape[2],
            spread=math.sqrt(shares @ squares.mean(axis=(1, 2))),
        )

    @cached_property
    def _posterior(self) -> tuple[FloatArray, FloatArray]:
        means, errors = smoothed_with_errors(
            self.measured, self.times, self.deviations**2, self.dimension
        )
        kept = 1.0 / (1.0 + errors**2 / _PRIOR_VARIANCE)
        return means * kept[:, None], errors * np.sqrt(kept)

    @property
    def means(self) -> FloatArray:
        """Means (T, d) of all times, smoothed over times.

        They are drawn to the middle of the bounds, as far as their error leaves them unknown.
        """
        return self._posterior[0]

    @property
    def errors(self) -> FloatArray:
        """Standard errors (T,) of the smooth means, per feature."""
        return self._posterior[1]

    @property
    def hidden(self) -> BoolArray:
        """Whether the noise of the mean of a time exceeds the spread of the population, (T,)."""
        return self.deviations > self.spread

    @cached_property
    def distances(self) -> FloatArray:
        """Distances (T,), per feature, of the smooth means from that of all rows, less their error.

        For a single time it is the distance from the middle of the bounds.
        """
        pooled = np.zeros(self.means.shape[1])
        if len(self.times) > 1:
            pooled = np.average(self.measured, axis=0, weights=self.counts)
        squares = np.square(self.means - pooled).sum(axis=1) / self.dimension
        return np.sqrt(np.maximum(squares - self.errors**2, 0.0))

    def reliability(
        self, stamps: np.ndarray, errors: FloatArray, replaced: BoolArray, advice: str = ""
    ) -> Reliability:
        """State the errors (T,) of all times, beside the distance from the mean of all times.

        The own error of a time that is replaced stands beside that of the flow of the other times.

        Privacy
        -------
        Post-processing of the release.
        """
        several = len(self.times) > 1
        trivial = "the mean of all times" if several else "the middle of the bounds"
        flow = trivial if replaced.all() else "the flow of the other times"
        return Reliability(
            tuple(
                OutputError(
                    output=f"rows at time {_as_text(stamp)}",
                    standard_error=min(float(self.deviations[i] if gone else errors[i]), _MOST),
                    trivial=flow if gone else trivial,
                    trivial_error=min(float(self.errors[i]), _MOST)
                    if gone
                    else float(self.distances[i]),
                    margin=_MARGIN,
                    replaced=gone,
                )
                for i, (stamp, gone) in enumerate(zip(stamps, replaced.tolist(), strict=True))
            ),
            f"{_ADVICE}{advice}.",
        )


def _as_text(stamp: Any) -> str:
    """Return a number or a date for a message."""
    if isinstance(stamp, np.datetime64):
        return str(np.datetime_as_string(stamp, unit="auto"))
    return f"{stamp:.6g}"
