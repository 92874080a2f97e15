"""Networks: gradients of which no record moves more than its share, and what trains on them."""

__all__: list[str] = []
