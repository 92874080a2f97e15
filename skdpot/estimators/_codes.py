"""What a trained autoencoder does with rows and codes: nothing here touches private data."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import check_is_fitted, read_rows, validate_rows
from skdpot.estimators._synthetic_rows import check_n_samples, like_input
from skdpot.nets.code_penalties import Prior, prior_samples
from skdpot.nets.networks import evaluate, from_network_units, to_network_units
from skdpot.privacy.data_bounds import DataBounds

__all__ = ["CodeReadings"]

_LARGEST_CODE = 1e8  # of a network in single precision; norms of longer ones would overflow


class CodeReadings(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Encoding, decoding, sampling and scoring: the public half of `PrivateSWAutoencoder`."""

    encoder_: nn.Module
    decoder_: nn.Module
    bounds_: DataBounds
    normalize_codes: bool
    device: str
    _latent_dim: int
    _frame_out: bool

    def transform(self, X: Any) -> np.ndarray:
        """Encode rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, treated as public: codes of private rows are not private.

        Returns
        -------
        ndarray of shape (n_samples, latent_dim)
            Codes, of norm 1 with `normalize_codes`.
        """
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        codes = evaluate(
            self.encoder_, to_network_units(self.bounds_, rows), resolve_device(self.device)
        )
        return codes.astype(rows.dtype, copy=False)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Decode codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, latent_dim)
            Codes; normalised first with `normalize_codes`.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows in the units of the data, inside `bounds_`; an array, as scikit-learn's inverse
            transforms return, also when the autoencoder was fitted on a DataFrame.

        Raises
        ------
        ValueError
            If X has another number of columns.
        """
        check_is_fitted(self)
        codes = read_rows(X)
        if codes.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {codes.shape[1]} columns; a code has latent_dim={self._n_features_out}."
            )
        return self._decode(codes).astype(codes.dtype, copy=False)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Decode codes drawn from the prior; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the autoencoder was fitted on one. They resemble
            the data only as far as codes resemble the prior: use ``penalty="prior"``, or learn
            the codes with a `DPSlicedFlowSampler`.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer.
        """
        check_is_fitted(self)
        n_samples = check_n_samples(n_samples)
        prior: Prior = "sphere" if self.normalize_codes else "normal"
        rng = solver_generator(random_state)
        rows = self._decode(prior_samples(prior, int(n_samples), self._n_features_out, rng))
        return like_input(self, rows)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Negative mean squared reconstruction error.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : object, optional
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            Mean over rows and features, in squared units of the data; higher is better.
        """
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        with np.errstate(over="ignore"):
            errors = ((self._decode(self.transform(X)) - rows) ** 2).mean(axis=1)
        if not np.isfinite(errors).all():
            raise ValueError("X holds numbers so large that their squared errors are not finite.")
        return -float(np.average(errors, weights=sample_weight))

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        codes = np.clip(codes, -_LARGEST_CODE, _LARGEST_CODE)
        if self.normalize_codes:
            norms = np.linalg.norm(codes, axis=1, keepdims=True)
            codes = codes / np.where(norms > 0, norms, 1.0)
        values = evaluate(self.decoder_, codes, resolve_device(self.device))
        return from_network_units(self.bounds_, values)

    @property
    def _n_features_out(self) -> int:
        """Length of a code; names the columns of a transformed DataFrame."""
        return self._latent_dim
