from .__about__ import __version__ as __version__
from .distance.client_contribution import (
    ClientContribution as ClientContribution,
)
from .distance.wasserstein_distance import (
    PrivateWassersteinDistance as PrivateWassersteinDistance,
)
from .fair.classifier import FairPrivateClassifier as FairPrivateClassifier
from .fair.domain_adapter import DPDomainAdapter as DPDomainAdapter
from .fair.post_processor import FairPrivatePostProcessor as FairPrivatePostProcessor
from .fair.regressor import FairPrivateRegressor as FairPrivateRegressor
from .fair.transformer import FairPrivateTransformer as FairPrivateTransformer
from .privacy.budget import PrivacyBudget as PrivacyBudget
from .privacy.pipelines import check_pipeline as check_pipeline
from .privacy.searches import check_search as check_search
from .release.private_scaler import PrivateScaler as PrivateScaler
from .release.sketch import SlicedSketch as SlicedSketch
from .sampling.autoencoder import PrivateSWAutoencoder as PrivateSWAutoencoder
from .sampling.flow_sampler import DPSlicedFlowSampler as DPSlicedFlowSampler
from .sampling.generator import DPSlicedGenerator as DPSlicedGenerator
from .search.private_search import PrivateSearchCV as PrivateSearchCV
from .tables.encoder import TableEncoder as TableEncoder
from .tables.schema import TableSchema as TableSchema
from .tables.synthesizer import DPTableSynthesizer as DPTableSynthesizer
from .trajectories.sampler import PrivateTrajectorySampler as PrivateTrajectorySampler
