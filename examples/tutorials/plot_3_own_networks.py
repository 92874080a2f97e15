"""
Own images, own networks
========================

*For a researcher with a network of their own.* You have private images, some public ones of the
same kind, and networks in PyTorch that you trust. Which part needs privacy, and where do your
networks go?

=====================  ============================================================================
what goes in           images as an array, ``torch.nn.Module`` objects
what is spent          nothing for the public part; ε = 3 for each of two samplers, one of which
                       you would need, and nothing for trying other networks on what is released
what to hand on        synthetic images, the networks that draw them, ``privacy_spent_``
=====================  ============================================================================
"""

# %%
# Images
# ------
# Scikit-learn's digits stand for yours: 8 × 8 pixels from 0 to 16. A third is public, a third
# private, and a third tests the result. 600 private images are few; :doc:`/synthetic_images` has
# figures for 60,000.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from torch import nn

from skdpot import DPSlicedFlowSampler, DPSlicedGenerator, PrivateSWAutoencoder
from skdpot.mechanisms import DPSGD, Architecture, LatentNetwork
from skdpot.metrics import train_synthetic_test_real

plt.style.use("skdpot.pictures")
X, y = load_digits(return_X_y=True)
X_public, X_rest, _, y_rest = train_test_split(X, y, train_size=600, random_state=0)
X_private, X_test, y_private, y_test = train_test_split(
    X_rest, y_rest, train_size=600, random_state=0
)

# %%
# Your autoencoder, on public images
# ----------------------------------
# ``architecture`` takes your pair (encoder, decoder). The encoder sees tensors of ``image_shape``,
# scaled to [-1, 1] by the bounds. With ``private=False`` the training has no noise, and the
# statement says that its rows are public. **The weights that modules start from are public too:**
# never start from weights that were trained on private images.

encoder = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(16 * 4 * 4, 64),
    nn.ReLU(),
    nn.Linear(64, 8),
)
decoder = nn.Sequential(
    nn.Linear(8, 16 * 4 * 4),
    nn.ReLU(),
    nn.Unflatten(1, (16, 4, 4)),
    nn.ConvTranspose2d(16, 16, 4, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 1, 3, padding=1),
    nn.Tanh(),
)
autoencoder = PrivateSWAutoencoder(
    latent_dim=8,
    private=False,
    bounds=(0, 16),
    architecture=Architecture((encoder, decoder), image_shape=(8, 8)),
    mechanism=DPSGD(1500),
).fit(X_public)
print(autoencoder.privacy_spent_.assumptions)

# %%
# Private codes
# -------------
# The sampler releases one sketch of the private codes, class by class, for all of ε. Codes lie on
# the unit sphere, so ``norm_bound=1.0`` costs nothing. ``FrozenEstimator`` keeps the pipeline from
# training the autoencoder again on private images.

sampler = DPSlicedFlowSampler(epsilon=3.0, norm_bound=1.0, conditional=True)
pipeline = make_pipeline(FrozenEstimator(autoencoder), sampler).fit(X_private, y_private)
codes, labels = pipeline[-1].sample_labeled(1000)
images = autoencoder.inverse_transform(codes)
print(f"spent: ε = {sampler.privacy_spent_.epsilon:g}, δ = {sampler.privacy_spent_.delta:g}")

# %%
# Your generator
# --------------
# A generator is a network from random numbers, and one indicator per class, to a row. Give yours as
# ``module``: a module, or a function that makes one. It is trained on the released sketch, so
# ``retrain`` tries another network at no cost.


def network(width):
    """Return a function that makes a generator of codes."""
    return lambda: nn.Sequential(nn.Linear(16 + 10, width), nn.ReLU(), nn.Linear(width, 8))


generator = DPSlicedGenerator(
    epsilon=3.0, norm_bound=1.0, conditional=True, module=LatentNetwork(network(32), latent_dim=16)
)
generator.fit(autoencoder.transform(X_private), y_private)
drawn = {"flow": (images, labels)}
for width in (32, 256):
    generator.set_params(module=LatentNetwork(network(width), latent_dim=16))
    generator.retrain()
    codes, classes = generator.sample_labeled(1000)
    drawn[f"network, {width} units"] = (autoencoder.inverse_transform(codes), classes)

# %%
# How good is it?
# ---------------
# A classifier is trained on synthetic images only and tested on real ones. Two differences show
# which part to improve. Images that were coded and decoded without noise show the loss due to the
# *autoencoder*. The rest of the loss is due to *noise* and the sampler.

coded = autoencoder.inverse_transform(autoencoder.transform(X_private))
tables = {"real images": (X_private, y_private), "coded, decoded": (coded, y_private)} | drawn
scores = {
    name: train_synthetic_test_real(KNeighborsClassifier(15), *table, X_test, y_test)
    for name, table in tables.items()
}


def sheet(images, labels):
    """Return one picture with a row of six images per digit, for every second digit."""
    rows = [np.reshape(images[labels == digit][:6], (-1, 8, 8)) for digit in range(0, 10, 2)]
    return np.block([[np.pad(image, 1) for image in row] for row in rows])


figure, axes = plt.subplots(1, 4, figsize=(8.4, 2.9))
shown = [name for name in tables if name != "network, 32 units"]
for ax, name in zip(axes, shown, strict=True):
    ax.imshow(sheet(*tables[name]), cmap="gray_r", vmin=0, vmax=16, interpolation="bilinear")
    ax.set_title(f"{name}\naccuracy {scores[name]:.2f}", fontsize=11)
    ax.axis("off")
figure.suptitle("Six hundred private images at ε = 3", x=0.01, ha="left")
plt.show()
for name, score in scores.items():
    print(f"{name:22}{score:.3f}")

# %%
# What to hand on
# ---------------
# Images, ``autoencoder`` (public) and ``generator`` may be published: they depend on the private
# images only through the sketch. `skdpot.audit.privacy_report` writes the statement for an officer,
# as in :ref:`sphx_glr_auto_examples_tutorials_plot_1_hospital_table.py`.
#
# What to do when it is not good enough
# -------------------------------------
# * *"Coded, decoded" is poor:* the autoencoder. More public images, a larger network, more numbers
#   per code. This costs no privacy, but every number per code costs accuracy under noise.
# * *"Coded, decoded" is good and the samples are poor:* noise. Shorter codes, more private images,
#   a larger ε (:doc:`/how_good`).
# * *No public images:* `skdpot.preprocessing.ImageCodes` needs none
#   (:ref:`sphx_glr_auto_examples_plot_private_digits.py`), nor does a generator of pixels,
#   `skdpot.mechanisms.ImageNetwork`.
# * *Your loss is a Wasserstein distance between two private sets:*
#   `skdpot.nets.PrivateWassersteinGradient` gives its private gradient to your training loop.
# * *A GPU:* ``device="auto"`` takes it.
