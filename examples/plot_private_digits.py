"""
A private copy of the handwritten digits
========================================

We publish a synthetic copy of scikit-learn's digits under differential privacy, train a
classifier on the copy alone, and test it on real digits that nobody published.

There are 898 training images of 64 pixels in ten classes: about 90 images a class, which is
little for privacy at ε = 1. So we first reduce the dimension with a *public* projection: the
sixteen lowest frequencies of the discrete cosine transform, which are known to describe small
images well and do not depend on these. Nothing else is known about the data but that pixels
run from 0 to 16.
"""

# %%
# Public choices
# --------------
# The mean image is guessed to be a uniform grey of 5, and rows of cosine coefficients to be no
# longer than 45 (longer ones are shortened). Both are guesses made without the data.

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.fft import dctn, idctn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import DPSlicedFlowSampler
from skdpot.slicing import orthogonal_directions, sliced_wasserstein_distance

GREY, RADIUS, SIDE = 5.0, 45.0, 4


def to_cosines(images):
    """Return the SIDE x SIDE lowest cosine coefficients of rows of 64 pixels."""
    waves = dctn(images.reshape(-1, 8, 8) - GREY, axes=(1, 2), norm="ortho")
    return waves[:, :SIDE, :SIDE].reshape(len(images), -1)


def to_pixels(cosines):
    """Return rows of 64 pixels in [0, 16]."""
    waves = np.zeros((len(cosines), 8, 8))
    waves[:, :SIDE, :SIDE] = cosines.reshape(-1, SIDE, SIDE)
    images = idctn(waves, axes=(1, 2), norm="ortho") + GREY
    return np.clip(images, 0, 16).reshape(len(cosines), -1)


# %%
# Fit, sample, train, test
# ------------------------
# One class-conditional sketch is released at each ε. Sampling, and everything below, is
# post-processing.

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)
directions = orthogonal_directions(512, 64, np.random.default_rng(0))


def evaluate(images, labels):
    """Accuracy on real held-out digits and sliced distance to them."""
    classifier = make_pipeline(FunctionTransformer(to_cosines), KNeighborsClassifier(10))
    accuracy = classifier.fit(images, labels).score(X_test, y_test)
    return accuracy, sliced_wasserstein_distance(images, X_test, directions)


accuracy, distance = evaluate(X_train, y_train)
rows = [("real", 0.0, accuracy, accuracy, distance, 0.0)]
copies = {"real": (X_train, y_train)}
for epsilon in (1.0, 3.0, np.inf):
    start = time.perf_counter()
    sampler = DPSlicedFlowSampler(epsilon=epsilon, norm_bound=RADIUS, conditional=True)
    sampler.fit(to_cosines(X_train), y_train)
    cosines, labels = sampler.sample_labeled(len(X_train))
    images = to_pixels(cosines)
    seconds = time.perf_counter() - start
    spent = sampler.privacy_spent_.epsilon
    name = f"ε = {spent:g}".replace("inf", "∞")
    rows.append((name, spent, accuracy, *evaluate(images, labels), seconds))
    copies[name] = (images, labels)

table = pd.DataFrame(
    rows,
    columns=[
        "training set",
        "ε spent",
        "train on real",
        "train on this set",
        "sliced W2 to held-out",
        "seconds",
    ],
).set_index("training set")
print(table.round(3).to_string())

# %%
# Look at the copies
# ------------------
# Four digits of each class. The copies keep what a class looks like; at ε = 1 the noise, not the
# sampler, decides how much.

figure, axes = plt.subplots(len(copies), 1, figsize=(10, 1.05 * 2 * len(copies)))
for axis, (name, (images, labels)) in zip(axes, copies.items(), strict=True):
    columns = [
        np.concatenate([np.pad(image.reshape(8, 8), 1) for image in images[labels == k][i::2][:2]])
        for k in range(10)
        for i in range(2)
    ]
    axis.imshow(np.concatenate(columns, axis=1), cmap="gray_r", vmin=0, vmax=16)
    title = "real digits" if name == "real" else f"synthetic digits, {name}, δ = 1e-5"
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_axis_off()
figure.tight_layout()
plt.show()
