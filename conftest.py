"""What pytest must not collect."""

from importlib.util import find_spec

import skdpot.release  # noqa: F401 - pytest would load its modules a second time for their examples

# The transport over Flower is an extra; its examples cannot be imported without it.
collect_ignore = [] if find_spec("flwr") else ["skdpot/distance/flower.py"]
