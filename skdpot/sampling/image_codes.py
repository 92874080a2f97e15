"""Codes of images by a fixed, public linear transform."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.fft import dct
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from skdpot._utils.parameters import Interval, StrOptions, fit_context
from skdpot._utils.rows import image_rows, validate_rows


@dataclass(eq=False, repr=False)
class ImageCodes(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Low frequencies of images, as short codes that can be turned back into images.

    Images are mapped to the coefficients of a cosine or wavelet transform that describe coarse
    shapes. The map is fixed before any image is read, so it costs no privacy. Samplers need far
    fewer images for a few dozen codes than for all pixels.

    Parameters
    ----------
    image_shape : tuple of int, optional
        ``(height, width)`` or ``(channels, height, width)`` of the images, which are rows of X in
        this order, as for `skdpot.mechanisms.ImageNetwork`. By default a square, or a single line
        of pixels if the number of features is not a square.
    basis : {"cosine", "haar"}, default="cosine"
        Cosines of the type-II transform, or Haar wavelets; both are orthonormal. Three channels
        are mapped to their mean and two differences.
    size : int, default=8
        Number of coefficients kept along each side, the lowest frequencies first; all of a side
        that is shorter. All channels are kept.
    pixel_range : (float, float), default=(0, 1)
        Public range of the pixels. Values outside are clipped.
    background : float, optional
        Public value of a pixel that the zero code stands for, by default the middle of the range. A
        value near the mean of the images needs less noise: 0 for white ink on black.
    contrast : float, default=0.35
        Root mean square difference of a pixel from the background, as a share of the range, that
        `norm_bound` leaves room for.
    decay : float, default=0.5
        The coefficient of frequency f, the sum of those along both sides, is multiplied by
        ``(1 + f) ** decay``. Amplitudes of photographs fall like 1 / f, so 1 makes them equal and 0
        does not change them. A common factor preserves the mean square of such images.

    Attributes
    ----------
    n_features_in_ : int
        Number of pixels times channels.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the pixels, when X has names that are all strings.

    Privacy
    -------
    `fit` reads the number of features and nothing else. Each image is transformed by itself, so
    guarantees for codes hold for images. `check_pipeline` accepts the transformer.

    See Also
    --------
    DPSlicedFlowSampler, DPSlicedGenerator : Learn the codes.
    PrivateSWAutoencoder : Learns codes, which needs public images or a large part of the budget.

    References
    ----------
    Ahmed, Natarajan and Rao, "Discrete cosine transform", IEEE Transactions on Computers, 1974.
    Amplitudes of photographs: Field, "Relations between the statistics of natural images and the
    response properties of cortical cells", Journal of the Optical Society of America A, 1987.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.preprocessing import ImageCodes
    >>> X, y = load_digits(return_X_y=True)
    >>> images = ImageCodes((8, 8), size=5, pixel_range=(0, 16), background=5)
    >>> codes = images.fit_transform(X)
    >>> codes.shape
    (1797, 25)
    >>> sampler = DPSlicedFlowSampler(epsilon=5.0, norm_bound=images.norm_bound)
    >>> images.inverse_transform(sampler.fit(codes).sample(3)).shape
    (3, 64)
    """

    image_shape: Sequence[int] | None = None
    _: KW_ONLY
    basis: str = "cosine"
    size: int = 8
    pixel_range: Sequence[float] = (0.0, 1.0)
    background: float | None = None
    contrast: float = 0.35
    decay: float = 0.5

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "image_shape": [tuple, list, None],
        "basis": [StrOptions({"cosine", "haar"})],
        "size": [Interval(Integral, 1, None, closed="left")],
        "pixel_range": [tuple, list],
        "background": [Interval(Real, None, None, closed="neither"), None],
        "contrast": [Interval(Real, 0, 1, closed="right")],
        "decay": [Interval(Real, 0, 4, closed="both")],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the shape of the images; nothing is learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, ..., height, width)
            Images.
        y : object, optional
            Ignored.

        Returns
        -------
        self : ImageCodes
            The transformer.

        Raises
        ------
        ValueError
            If the images do not have the given shape, or the range of the pixels is empty.
        """
        self._shape(validate_rows(self, image_rows(X), reset=True).shape[1])
        self._limits()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the codes of images.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, ..., height, width)
            Images.

        Returns
        -------
        ndarray of shape (n_samples, n_codes)
            Codes, of the same floating-point type.

        Raises
        ------
        ValueError
            If the images do not have the shape of the fit.
        """
        rows = validate_rows(self, image_rows(X), reset=False)
        shape, (low, high, background) = self._shape(rows.shape[1]), self._limits()
        pixels = np.clip(rows, low, high) - rows.dtype.type(background)
        codes = pixels.reshape(-1, *shape)
        for axis, part in enumerate(self._bases(shape), start=1):
            codes = _along(part.astype(rows.dtype), codes, axis)
        return codes.reshape(len(rows), -1) * self._weights(shape).astype(rows.dtype)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the images of codes; higher frequencies are zero.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_codes)
            Codes, for instance synthetic ones.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows of pixels within the range.

        Raises
        ------
        ValueError
            If the rows do not have as many codes as `transform` makes.
        """
        codes = np.asarray(X, dtype=np.result_type(X, np.float32))
        shape, (low, high, background) = self._shape(), self._limits()
        bases, weights = self._bases(shape), self._weights(shape)
        if codes.ndim != 2 or codes.shape[1] != len(weights):
            raise ValueError(f"X has shape {codes.shape}; codes have {len(weights)} columns.")
        images = (codes / weights.astype(codes.dtype)).reshape(-1, *map(len, bases))
        for axis, part in enumerate(bases, start=1):
            images = _along(part.T.astype(codes.dtype), images, axis)
        pixels: np.ndarray = np.clip(images + codes.dtype.type(background), low, high)
        return pixels.reshape(len(codes), -1)

    @property
    def norm_bound(self) -> float:
        """Norm of an image of the given contrast: a public bound to declare for the codes.

        Samplers shorten the codes of images with more contrast to this norm. A bound near the
        typical norm is better than one that no image exceeds, because the noise grows with it.
        """
        low, high, _ = self._limits()
        return self.contrast * (high - low) * math.sqrt(math.prod(self._shape()))

    @property
    def _n_features_out(self) -> int:
        return len(self._weights(self._shape()))

    def _shape(self, n_features: int | None = None) -> tuple[int, ...]:
        """Return the shape of an image, checked against the number of features."""
        n_features = getattr(self, "n_features_in_", None) if n_features is None else n_features
        if self.image_shape is None:
            if n_features is None:
                raise ValueError("image_shape=None needs a fit, which counts the pixels.")
            side = math.isqrt(n_features)
            return (side, side) if side * side == n_features else (n_features,)
        shape = tuple(self.image_shape)
        whole = [isinstance(side, Integral) and not isinstance(side, bool) for side in shape]
        if len(shape) not in (1, 2, 3) or not all(whole) or min(shape) < 1:
            raise ValueError(
                f"image_shape={self.image_shape!r} must be (height, width) or (channels, "
                "height, width)."
            )
        if n_features not in (None, math.prod(shape)):
            raise ValueError(
                f"X has {n_features} features; images of shape {shape} have {math.prod(shape)}."
            )
        return shape

    def _limits(self) -> tuple[float, float, float]:
        """Return both ends of the range of pixels, and the background."""
        ends = [float(end) for end in self.pixel_range]
        if len(ends) != 2 or not np.isfinite(ends).all() or not ends[0] < ends[1]:
            raise ValueError(f"pixel_range={self.pixel_range!r} must be (low, high), low < high.")
        background = (ends[0] + ends[1]) / 2 if self.background is None else self.background
        return ends[0], ends[1], float(background)

    def _bases(self, shape: tuple[int, ...]) -> list[np.ndarray]:
        """Return orthonormal rows along each axis, (n_kept, side); all of the channels."""
        make = _cosines if self.basis == "cosine" else _haar
        channels = [_cosines(number) for number in shape[:-2]]
        return channels + [make(side)[: self.size] for side in shape[-2:]]

    def _weights(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the factor of each code, with mean square 1 where amplitudes are 1 / f."""
        along = [np.minimum(self.size, side) for side in shape[-2:]]
        frequencies = reduce(np.add.outer, [np.arange(float(kept)) for kept in along])
        weights = (1 + frequencies) ** self.decay
        powers = (1 + frequencies) ** -2.0
        weights = weights / np.sqrt(np.sum(powers * weights**2) / np.sum(powers))
        return np.tile(weights.ravel(), math.prod(shape[:-2]))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _along(matrix: np.ndarray, values: np.ndarray, axis: int) -> np.ndarray:
    """Multiply values along an axis by a matrix."""
    return np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)


def _cosines(side: int) -> np.ndarray:
    """Return cosines of rising frequency, orthonormal, as rows."""
    waves: np.ndarray = dct(np.eye(side), axis=0, norm="ortho")
    return waves


def _haar(side: int) -> np.ndarray:
    """Return means of blocks, then differences within blocks of falling width, as rows."""
    if side % 2:
        return np.eye(side)
    mean, difference = (np.kron(np.eye(side // 2), [1.0, s]) / math.sqrt(2) for s in (1.0, -1.0))
    return np.concatenate([_haar(side // 2) @ mean, difference])
