"""Distances between parties who cannot share their data.

The task: estimate how far the data sets of several parties are apart, value rows and clients by
these distances, and find a barycentre. By default each party publishes one private sketch. The
protocols of the literature are there to be compared with: their messages reveal every row.

Papers: W. Li, Y. Pang, "Private Wasserstein distance", 2024 (TriangleWad); A. Rakotomamonjy,
K. Nadjahi, L. Ralaivola, "Federated Wasserstein distance", ICLR 2024 (FedWad); W. Li, S. Fu,
F. Zhang, Y. Pang, "Data valuation and detections in federated learning", CVPR 2024 (FedBary).

Read in this order:

- `wasserstein_distance` is the estimator, and `client_contribution` the one built on it.
- `distance_protocol` declares what a protocol is. `sliced` is the private one; `triangle` and
  `fedwad` share `not_private`.
- `party` holds rows and answers with `messages`; `exchange` delivers and `transcript` records them.
- `estimates` are the results, `reliability` the errors that a fit states. `debiased` corrects a
  distance for noise: `compared_tables` are its two sides, `support` the bins that hold the data,
  `simulated_distances` and `sampling_errors` what noise and sampling add.
- `remote` and `flower` carry the same messages between machines.
- `reconstruction` is the attack on the protocols that are not private, with its proofs.

From the core it takes the sketch (`release`), sliced and exact transport (`ot`), budgets and events
(`privacy`), and the terms of a fit (`base`). The joint sketch of `SecureSum` is core
(`skdpot.release.joint`).
"""
