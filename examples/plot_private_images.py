"""
Private images: an autoencoder before the sampler
=================================================

Images have many pixels, and a small private data set does not suffice to learn all of them
privately. If *public* images of the same kind are available, an autoencoder trained on them maps
each image to a short code. A sampler then draws private codes, which are decoded into images.

Here a third of scikit-learn's digits is public, another third, about 60 images per digit, is
private, and the rest tests a classifier that is trained on the private copy only.
"""

# %%
# The public part
# ---------------
# With ``private=False`` the autoencoder is trained without noise, and its privacy statement says
# that its rows are public. Its codes lie on the unit sphere, so the sampler need not estimate
# bounds.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline

from skdpot import DPSlicedFlowSampler, PrivateSWAutoencoder
from skdpot.mechanisms import DPSGD, Architecture
from skdpot.metrics import train_synthetic_test_real

plt.style.use("skdpot.pictures")
X, y = load_digits(return_X_y=True)
X_public, X_rest, _, y_rest = train_test_split(X, y, train_size=600, random_state=0)
X_private, X_test, y_private, y_test = train_test_split(
    X_rest, y_rest, train_size=600, random_state=0
)
autoencoder = PrivateSWAutoencoder(
    latent_dim=8,
    private=False,
    bounds=(0, 16),
    architecture=Architecture(image_shape=(8, 8)),
    mechanism=DPSGD(1500),
).fit(X_public)
print(f"public training: {autoencoder.privacy_spent_.assumptions}")

# %%
# The private part
# ----------------
# `FrozenEstimator` prevents the pipeline from training the autoencoder again on private rows.

classifier = KNeighborsClassifier(15)
real = train_synthetic_test_real(classifier, X_private, y_private, X_test, y_test)
accuracies, copies = {"real images": real}, {"real images": (X_private, y_private)}
for epsilon in (1.0, 3.0, np.inf):
    pipeline = Pipeline(
        [
            ("encode", FrozenEstimator(autoencoder)),
            ("sample", DPSlicedFlowSampler(epsilon=epsilon, norm_bound=1.0, conditional=True)),
        ]
    ).fit(X_private, y_private)
    codes, labels = pipeline["sample"].sample_labeled(1000)
    images = autoencoder.inverse_transform(codes)
    name = f"ε = {epsilon:g}".replace("inf", "∞")
    copies[name] = (images, labels)
    accuracies[name] = train_synthetic_test_real(classifier, images, labels, X_test, y_test)
print(pd.Series(accuracies, name="accuracy on real held-out images").round(3).to_string())

# %%
# Plot the images
# ---------------
# Three images per digit. The synthetic images depend on the private ones through the released
# sketch only.


def sheet(images, labels, n_rows=3):
    """Return one image with a column of images per digit."""
    columns = [images[labels == digit][:n_rows].reshape(-1, 8, 8) for digit in range(10)]
    return np.block([[np.pad(column[i], 1) for column in columns] for i in range(n_rows)])


figure, axes = plt.subplots(2, 2, figsize=(8.4, 3.9))
for axis, (name, (images, labels)) in zip(axes.flat, copies.items(), strict=True):
    axis.imshow(sheet(images, labels), cmap="gray_r", vmin=0, vmax=16, interpolation="bilinear")
    axis.set_title(f"{name}: accuracy {accuracies[name]:.2f}")
    axis.axis("off")
figure.suptitle(
    "With a public autoencoder, 60 images per digit give legible ones at ε = 3", x=0.01, ha="left"
)
figure.savefig("private_images.png")
plt.show()
