"""Synthetic tables with mixed column types, from noisy contingency tables.

`DPTableSynthesizer` releases noisy counts, fits a distribution over rows, and draws rows from it.
`TableEncoder` encodes rows as points of the unit ball. The choice of marginals follows McKenna,
Mullins, Sheldon and Miklau, "AIM", 2022; the weights are those of unbalanced transport (Chizat,
Peyré, Schmitzer and Vialard, 2018).

Read in this order:

1. `synthesizer`: the estimator; `encoder`: the other one.
2. `frames`, `column_values`, `dtypes`: a table of any library as columns of plain values.
3. `column_base`: the interface of a column; `scaled_column` for values between two bounds.
   Kinds: `numeric_column`, `categorical_column`, `datetime_column`, `timedelta_column` (with
   `tick_column`). `texts` parses text, `rounding` describes round values, `identifiers` names that
   identify people.
4. `schema`: what is public; `proposals` guesses it, `metadata` reads other formats,
   `schema_release` estimates what it leaves open (with `category_selection`).
5. `rules`, `pattern`: public rules between columns; `row_map` applies them to rows.
6. `grids`, `conditions`: the cells of a column, and the cells that satisfy a condition.
7. `contingency`: exact counts; `marginal_release`, `choices`: the three noisy releases, with the
   proofs of their sensitivities.
8. `plan`: releases and their noise; `fitting`: the releases of one fit, in their order, with
   `cells`, `bins` and `candidates`.
9. `tree`, `copulas`, `particles`, `model`: the distribution; `marginal_tables`: counts as frames.
10. `record`: the saved file; `marginals`, `marginals_display`: comparison of two tables; `report`,
   `report_figures`, `cautions`: the quality report.

The wing takes accounting, noise and lattices from `skdpot.privacy`, the gate, private bounds and
rows per person from `skdpot.release`, and batches of rows from `skdpot.sources`.
"""
