"""Small trajectory samplers with both mechanisms."""

import warnings

from skdpot.exceptions import PrivacyWarning

SKETCH = {
    "bounds": (-1, 1),
    "n_projections": 4,
    "n_bins": 16,
    "n_particles": 12,
    "schedule": [(1.0, None, 3)],
}
MFLD = {
    "mechanism": "mfld",
    "bounds": (-1, 1),
    "n_particles": 12,
    "schedule": [(0.01, None, 3), (0.005, 0.1, 2)],
    "batch_fraction": 0.3,
    "clip_gradient": 0.8,
    "regularization": 1.0,
    "noise_multiplier": 3.0,
}


def quiet_fit(estimator, rows, t):
    """Bounds from few rows, and seeds, are worth a warning that is not the matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return estimator.fit(rows, t)
