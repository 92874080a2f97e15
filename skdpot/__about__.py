"""The version of the package, which the build and the documentation read."""

__version__ = "0.1.0"
