"""Trajectories of a population from one point per person.

Each person is observed once, at a public time. A fit releases the distribution at each time, moves
particles to it, and joins the particles of neighbouring times to whole paths.

Paper: Gu, Chien and Greenewald, "Private continuous-time synthetic trajectory generation via
mean-field Langevin dynamics", 2025. The mechanism "mfld" is its Algorithm 1. "sketch" is ours.

Files, in the order to read them:

- ``sampler``: the estimator; ``time_axis`` and ``timed_rows`` read its input
- ``mechanism``: what a mechanism must define
- ``sketch_mechanism``: one release of tables; ``coupled_flow`` moves particles to them,
  ``smoothing`` and ``followed_flow`` smooth them over time
- ``langevin_mechanism``: a release in every step; ``langevin_release`` has the dynamics and the
  proof, ``fit_gradient`` the clipped gradients, ``warm_start_release`` the starting points
- ``schedule`` and ``time_coupling``: phases, and the steps for which the coupling is stable
- ``path_measure``: the law of paths, from ``couplings`` and bridges
- ``path_metrics`` and ``display``: distances and pictures
- ``observed_once``, ``moving_clusters``, ``ornstein_uhlenbeck``, ``lineage``, ``commuters``:
  made-up data with known laws

From the core: the sketch and its tables (``release``), events, noise and calibration
(``privacy``), Sinkhorn, exact plans and the sliced flow (``ot``), the bounds of rows (``release``),
and ``FitContext`` and ``PrivateSampler`` (``base``).
"""
