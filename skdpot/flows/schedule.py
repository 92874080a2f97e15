"""How long the steps of a flow are."""

from dataclasses import dataclass

__all__ = ["FlowSchedule"]


@dataclass(frozen=True)
class FlowSchedule:
    """Lengths of the steps, as shares of a full step.

    Parameters
    ----------
    n_steps : int
        Number of steps.
    step_size : float
        Share of a full step at the start, in (0, 1].
    diffusion : float
        Entropic regularisation λ; each step adds ``sqrt(2 λ h)`` standard normal noise.
    momentum : float
        Share of the last displacement that is carried on, in [0, 1) (Nesterov's method).
        With 0 the iteration is the Euler-Maruyama scheme of the flow, and so it is when
        batches of fewer directions than there are features take turns.
    decay : bool
        Whether steps become shorter in the second half; otherwise all are of equal length.
    """

    n_steps: int = 200
    step_size: float = 1.0
    diffusion: float = 0.0
    momentum: float = 0.9
    decay: bool = True

    def share(self, step: int) -> float:
        """Return the share of a full step taken at `step`.

        With `decay` constant for the first half, then falling linearly to a twentieth:
        particles first find their place, then average over the directions that do not agree,
        because of the noise of the release.
        """
        if not self.decay:
            return self.step_size
        progress = step / self.n_steps
        return self.step_size * min(1.0, max(0.05, 2.0 * (1.0 - progress)))
