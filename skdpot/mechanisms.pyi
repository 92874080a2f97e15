from .base import (
    FitContext as FitContext,
)
from .base import (
    Mechanism as Mechanism,
)
from .base import (
    chosen_mechanism as chosen_mechanism,
)
from .distance.fedwad import FedWad as FedWad
from .distance.sliced import Sliced as Sliced
from .distance.triangle import Triangle as Triangle
from .fair.barycenter import Barycenter as Barycenter
from .fair.bayes import BayesRule as BayesRule
from .fair.penalties import RankedOutputs as RankedOutputs
from .fair.penalties import SketchedOutputs as SketchedOutputs
from .fair.transported_rows import TransportedRows as TransportedRows
from .sampling.architecture import (
    Architecture as Architecture,
)
from .sampling.architecture import (
    ImageNetwork as ImageNetwork,
)
from .sampling.architecture import (
    LatentNetwork as LatentNetwork,
)
from .sampling.architecture import (
    image_projections as image_projections,
)
from .sampling.architecture import (
    with_edges as with_edges,
)
from .sampling.dpsgd import (
    DPSGD as DPSGD,
)
from .sampling.dpsgd import (
    CodeParity as CodeParity,
)
from .sampling.dpsgd import (
    Gradient as Gradient,
)
from .sampling.dpsgd import (
    PriorPenalty as PriorPenalty,
)
from .sampling.frozen import Moments as Moments
from .sampling.frozen import Sketch as Sketch
from .sampling.noisy_rows import Presample as Presample
from .sampling.noisy_rows import Resample as Resample
from .trajectories.mean_field_langevin import MeanFieldLangevin as MeanFieldLangevin
from .trajectories.trajectory_sketch import TrajectorySketch as TrajectorySketch
