"""From noisy marginals of a table to a model that rows are drawn from."""
