from .base import (
    FitContext as FitContext,
)
from .base import (
    Mechanism as Mechanism,
)
from .base import MechanismResult as MechanismResult
from .base import (
    chosen_mechanism as chosen_mechanism,
)
from .distance.distance_protocol import DistanceProtocol as DistanceProtocol
from .distance.fedwad import FedWad as FedWad
from .distance.sliced import Sliced as Sliced
from .distance.triangle import Triangle as Triangle
from .fair.barycenter import Barycenter as Barycenter
from .fair.bayes_rule import BayesRule as BayesRule
from .fair.mechanism import FairMechanism as FairMechanism
from .fair.penalty_mechanism import PenaltyMechanism as PenaltyMechanism
from .fair.ranked_outputs import RankedOutputs as RankedOutputs
from .fair.sketched_outputs import SketchedOutputs as SketchedOutputs
from .fair.transported_rows import TransportedRows as TransportedRows
from .sampling.architecture import (
    Architecture as Architecture,
)
from .sampling.autoencoder_mechanism import AutoencoderMechanism as AutoencoderMechanism
from .sampling.code_penalties import (
    CodeParity as CodeParity,
)
from .sampling.code_penalties import CodePenalty as CodePenalty
from .sampling.code_penalties import (
    PriorPenalty as PriorPenalty,
)
from .sampling.dpsgd import (
    DPSGD as DPSGD,
)
from .sampling.generator_gradient import (
    Gradient as Gradient,
)
from .sampling.generator_mechanism import TrainingMechanism as TrainingMechanism
from .sampling.generator_network import (
    LatentNetwork as LatentNetwork,
)
from .sampling.image_edges import (
    image_projections as image_projections,
)
from .sampling.image_edges import (
    with_edges as with_edges,
)
from .sampling.image_network import (
    ImageNetwork as ImageNetwork,
)
from .sampling.moments import Moments as Moments
from .sampling.noisy_rows import Presample as Presample
from .sampling.noisy_rows import Resample as Resample
from .sampling.row_mechanism import FlowMechanism as FlowMechanism
from .sampling.row_mechanism import RowMechanism as RowMechanism
from .sampling.sketch import Sketch as Sketch
from .trajectories.langevin_mechanism import MeanFieldLangevin as MeanFieldLangevin
from .trajectories.mechanism import TrajectoryMechanism as TrajectoryMechanism
from .trajectories.sketch_mechanism import TrajectorySketch as TrajectorySketch
