"""Splits of rows for fits that share a budget, and the check of a search."""

from skdpot.privacy.searches import check_search
from skdpot.search.person_folds import PersonKFold

__all__ = ["PersonKFold", "check_search"]
