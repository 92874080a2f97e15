"""Directions that see a few columns each."""

import numpy as np


def sparse_directions(groups, n_projections, n_features, rng, *, always=None):
    """Draw directions with random weights on two columns each, one of them `always`."""
    others = [k for k in range(len(groups)) if k != always]
    rows = np.zeros((n_projections, n_features))
    for row in rows:
        chosen = list(rng.choice(others, 2 - (always is not None), replace=False))
        if always is not None:
            chosen.append(always)
        support = np.concatenate([np.asarray(groups[k], dtype=int) for k in chosen])
        row[support] = rng.standard_normal(len(support))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
