r"""Networks trained on noisy sums of clipped gradients: the part of the core that needs torch.

Files, in the order to read them:

- `per_sample`: the gradient of each record, or its Jacobian, without a loop over records
  (`layers`: layers of this package, which it supports);
- `gradients`: clipped vectors and Jacobians, and their sum over a batch;
- `training_plan`: batches, steps and noise of a training, fixed before any row is read;
- `gradient_release`: noise on the sum of a step, and the gate;
- `training`: skorch trains a network whose gradients are such releases;
- `per_record_check`: refuses networks in which one record reaches another's output;
- `networks`: networks of callers, default predictors, evaluation;
- `cells`, `compared_outputs`, `parity_penalty`: groups of records, the bounded values of their
  outputs that are compared, the squared distances between them and their sensitivities;
- `output_tables`, `local_penalty`: released distributions of these values, and the penalty that
  follows from them, a sum over records;
- `loss_curve`: losses during a training without privacy;
- `wasserstein_gradient`: `PrivateWassersteinGradient`, for objectives of users.

It uses `release` (gate, bounds, histograms), `ot` (slices, transport) and `privacy` (events,
calibration, lattice noise, secret batches). The estimators of `sampling` and `fair` train with it;
nothing here depends on their tasks.
"""

from skdpot.nets.wasserstein_gradient import PrivateWassersteinGradient

__all__ = ["PrivateWassersteinGradient"]
