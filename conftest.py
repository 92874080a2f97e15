"""What pytest must not collect."""

from importlib.util import find_spec

# The transport over Flower is an extra; its examples cannot be imported without it.
collect_ignore = [] if find_spec("flwr") else ["skdpot/federated/flower.py"]
