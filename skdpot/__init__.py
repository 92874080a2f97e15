"""Differentially private optimal transport with the scikit-learn interface.

Names are loaded on first use, so that a process that only keeps a budget does not pay for
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skdpot._utils import __version__ as __version__

if TYPE_CHECKING:
    from skdpot.estimators.autoencoder import PrivateSWAutoencoder
    from skdpot.estimators.domain_adapter import DPDomainAdapter
    from skdpot.estimators.fair_classifier import FairPrivateClassifier
    from skdpot.estimators.fair_post_processor import FairPrivatePostProcessor
    from skdpot.estimators.fair_regressor import FairPrivateRegressor
    from skdpot.estimators.fair_transformer import FairPrivateTransformer
    from skdpot.estimators.flow_sampler import DPSlicedFlowSampler
    from skdpot.estimators.generator import DPSlicedGenerator
    from skdpot.estimators.private_scaler import PrivateScaler
    from skdpot.estimators.private_search import PrivateSearchCV
    from skdpot.estimators.table_encoder import TableEncoder
    from skdpot.estimators.table_synthesizer import DPTableSynthesizer
    from skdpot.estimators.trajectory_sampler import PrivateTrajectorySampler
    from skdpot.estimators.wasserstein_distance import (
        ClientContribution,
        PrivateWassersteinDistance,
    )
    from skdpot.privacy.budget import PrivacyBudget
    from skdpot.privacy.pipelines import check_pipeline
    from skdpot.privacy.searches import check_search
    from skdpot.release.sketch import SlicedSketch
    from skdpot.tables.schema import TableSchema

__all__ = [
    "ClientContribution",
    "DPDomainAdapter",
    "DPSlicedFlowSampler",
    "DPSlicedGenerator",
    "DPTableSynthesizer",
    "FairPrivateClassifier",
    "FairPrivatePostProcessor",
    "FairPrivateRegressor",
    "FairPrivateTransformer",
    "PrivacyBudget",
    "PrivateSWAutoencoder",
    "PrivateScaler",
    "PrivateSearchCV",
    "PrivateTrajectorySampler",
    "PrivateWassersteinDistance",
    "SlicedSketch",
    "TableEncoder",
    "TableSchema",
    "check_pipeline",
    "check_search",
]


_HOMES = {
    "ClientContribution": "skdpot.estimators.wasserstein_distance",
    "DPDomainAdapter": "skdpot.estimators.domain_adapter",
    "DPSlicedFlowSampler": "skdpot.estimators.flow_sampler",
    "DPSlicedGenerator": "skdpot.estimators.generator",
    "DPTableSynthesizer": "skdpot.estimators.table_synthesizer",
    "FairPrivateClassifier": "skdpot.estimators.fair_classifier",
    "FairPrivatePostProcessor": "skdpot.estimators.fair_post_processor",
    "FairPrivateRegressor": "skdpot.estimators.fair_regressor",
    "FairPrivateTransformer": "skdpot.estimators.fair_transformer",
    "PrivacyBudget": "skdpot.privacy.budget",
    "PrivateSWAutoencoder": "skdpot.estimators.autoencoder",
    "PrivateScaler": "skdpot.estimators.private_scaler",
    "PrivateSearchCV": "skdpot.estimators.private_search",
    "PrivateTrajectorySampler": "skdpot.estimators.trajectory_sampler",
    "PrivateWassersteinDistance": "skdpot.estimators.wasserstein_distance",
    "SlicedSketch": "skdpot.release.sketch",
    "TableEncoder": "skdpot.estimators.table_encoder",
    "TableSchema": "skdpot.tables.schema",
    "check_pipeline": "skdpot.privacy.pipelines",
    "check_search": "skdpot.privacy.searches",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "skorch"):
            raise
        raise ImportError(
            f"skdpot.{name} trains a network and needs torch and skorch: pip install torch skorch",
            name=error.name,
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
