"""The data of the digits model, and the accuracy of anything that computes it.

scikit-learn's bundled handwritten digits: 1797 grey images of 8 x 8 pixels in 10 classes. A fifth, chosen by seed and
balanced over the classes, is held out from training.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

MODEL = Path(__file__).parent / "digits.onnx"
HELD_OUT = 0.2
SEED = 0


def load_split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training images, held-out images (float32[n, 1, 8, 8] in 0..1) and both's labels (int64[n])."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, np.newaxis]
    labels = digits.target.astype(np.int64)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    return train, test, train_labels, test_labels


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Return the images that training never saw, float32[360, 1, 8, 8], and their labels, int64[360]."""
    _, images, _, labels = load_split()
    return images, labels


def accuracy(classify: Callable[[np.ndarray], np.ndarray], images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of ``images`` that ``classify`` (float32[1, 1, 8, 8] to float32[1, 10]) gets right."""
    right = [int(np.argmax(classify(images[row : row + 1]))) == labels[row] for row in range(len(labels))]
    return float(np.mean(right))
