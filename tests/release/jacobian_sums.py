"""What the tests of gradients share: clipped Jacobians, pulls of one side, small chunks."""

from contextlib import contextmanager

import pytest

from skdpot.nets import autoencoder_training
from skdpot.release import gradients as noisy_sums
from skdpot.release.gradients import by_jacobians, pulled_back_sum, shares_of_jacobians
from skdpot.release.output_tables import pulls_between


def clipped_gradient_sum(network, rows, output_gradient, clip, *, chunk_size=None):
    """Sum the gradients of all records, each shortened to a norm of at most `clip`."""
    return pulled_back_sum(
        network, rows, by_jacobians(clip), output_gradient, chunk_size=chunk_size
    )


def clipped_jacobian_sum(network, rows, vectors, clip, *, chunk_size=None):
    """Sum ``min(1, L / |J_i|) J_i' w_i`` over the records."""

    def shortened(_, gram, records):
        return shares_of_jacobians(gram, clip)[:, None] * vectors[records]

    return pulled_back_sum(network, rows, shortened, chunk_size=chunk_size)


def wasserstein_vectors(moving, fixed, directions):
    """Gradient of the squared distance of two samples by each point of the first."""
    return pulls_between([moving, fixed], directions, n_moving=1)[0]


@contextmanager
def chunks_of(size):
    """Take so few records at a time that small batches have several chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_sums, "_first_chunk_size", lambda *_: size)
        patch.setattr(noisy_sums, "_chunk_size", lambda _: size)
        patch.setattr(autoencoder_training, "_CODES_AT_ONCE", size)
        yield
