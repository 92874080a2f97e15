"""Fairness between groups: predictors, decisions and features that treat groups alike.

Paper: D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
(sliced) Wasserstein gradients", 2025. The default mechanisms follow other papers, named in their
files.

Files, in the order to read them:

- `predictor`, `mechanism`: the fit of all predictors, and what it asks of a mechanism;
- `classifier`, `bayes_rule` (default): networks that score (`scores`, `score_losses`,
  `group_scores`), noisy counts of scores (`score_lists`, `score_tables`, `score_law`), the best
  rule for them (`fair_rule`), and what follows from it (`decisions`);
- `post_processor`: the same rule for scores of another classifier;
- `notions`: what is to be alike; one object per notion of fairness;
- `penalty_mechanism`, `sketched_outputs`, `ranked_outputs` (the paper): training with a penalty
  (`fair_loss`, `training_rows`, `thresholds`, `target_bins`, `recalibration`);
- `regressor`, `barycenter` (default): predictions moved to one distribution (`transport`), and what
  that costs (`regression_frontier`);
- `transformer`: features moved to one distribution;
- `domain_adapter`, `transported_rows`: domains in the place of groups;
- `rates`, `fairness_display`, `frontier_display`, `biased`: metrics, pictures and made-up data, of
  which all rows are public.

From the core: `nets` (clipped sums, cells, tables of outputs, training), `release` (gate, bounds,
moments, strategies), `ot` (slices, transport), `privacy` (events, noise, budget) and `base`.
"""
