"""Budgets, events, accounting, calibration and noise.

The public names are listed in ``__init__.pyi`` and loaded on first use: a budget needs neither
scikit-learn nor pandas.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
