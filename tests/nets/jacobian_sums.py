"""Sums of clipped Jacobians times given vectors."""

from skdpot.nets.noisy_sums import pulled_back_sum, shares_of_jacobians


def clipped_jacobian_sum(network, rows, vectors, clip, *, chunk_size=None):
    """Sum ``min(1, L / |J_i|) J_i' w_i`` over the records."""

    def shortened(_, gram, records):
        return shares_of_jacobians(gram, clip)[:, None] * vectors[records]

    return pulled_back_sum(network, rows, shortened, chunk_size=chunk_size)
