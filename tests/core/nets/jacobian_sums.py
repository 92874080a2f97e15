"""What the tests of gradients share: pulls of one side, small chunks."""

from contextlib import contextmanager

import pytest

from skdpot.nets import gradients
from skdpot.ot.transport import pulls_between
from skdpot.sampling import autoencoder_training


def wasserstein_vectors(moving, fixed, directions):
    """Gradient of the squared distance of two samples by each point of the first."""
    return pulls_between([moving, fixed], directions, n_moving=1)[0]


@contextmanager
def chunks_of(size):
    """Take so few records at a time that small batches have several chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "_first_chunk_size", lambda *_: size)
        patch.setattr(gradients, "_chunk_size", lambda _: size)
        patch.setattr(autoencoder_training, "_CODES_AT_ONCE", size)
        yield
