"""Networks: gradients of which no record moves more than its share, and what trains on them."""

from skdpot.nets.wasserstein_gradient import PrivateWassersteinGradient

__all__ = ["PrivateWassersteinGradient"]
