"""Synthetic rows and codes: flows, generators, autoencoders.

The flow and its mechanisms on rows are those of "Differentially private gradient flow based on the
sliced Wasserstein distance" (Sebag et al., 2023). The default mechanism is the sketch of this
package. The penalties of codes are those of Rodríguez-Vítores et al., 2025, appendix B.3.

Files, in the order to read them:

- `synthetic_rows`: the base of both samplers, with `fit` and `sample`;
- `flow_sampler`: `DPSlicedFlowSampler`, particles that flow to the release;
- `row_mechanism`: what samplers ask of their mechanisms; `sketch`, `moments` and `noisy_rows` are
  mechanisms, and `row_releases` are the sensitivity, plan and noise of the last;
- `generator`: `DPSlicedGenerator`, a network; `generator_network`, `image_network`, `image_edges`:
  its architecture; `generator_training`, `output_units`: its training on a release;
- `generator_mechanism`, `generator_gradient`, `generator_gradient_steps`: training by noisy
  gradients, in which each step is a release;
- `autoencoder`: `PrivateSWAutoencoder`; `architecture`: its networks; `autoencoder_mechanism`: what
  it asks of its mechanism, `dpsgd`; `code_penalties`, `code_distances`: penalties of codes with
  their sensitivities; `autoencoder_training`: loss and steps;
- `image_codes`: `ImageCodes`, public codes of images, without training;
- `flow_display`, `train_on_synthetic`: a display of flows, and a score of synthetic rows.

From the core: `base` (mechanisms, context of a fit, samplers), `release` (sketch, moments, bounds,
gate), `ot` (flow, slices), `nets` (training on noisy gradients) and `privacy` (accounting, noise).
"""
