"""A task made from nothing but a seed: ten shapes, one in each noisy colour image of 24 x 24 pixels.

Place, size, angle, colours and noise are drawn; the classes are told apart by the outline alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

CLASSES, SIZE = 10, 24
HERE = Path(__file__).parent
MODELS = {name: HERE / f"{name}.onnx" for name in ("resnet", "mobilenet")}


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images, float32[count, 3, 24, 24] of mean 0, and labels, int64[count]."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    angle = random.uniform(0, 2 * np.pi, (2, count, 1, 1))[0]
    radius = random.uniform(5, 9, (count, 1, 1))
    centre = random.uniform(10, 14, (2, count, 1, 1))
    y, x = (np.arange(SIZE).reshape(shape) for shape in ((1, -1, 1), (1, 1, -1)))
    dy, dx = y - centre[0], x - centre[1]
    u, v = (np.cos(angle) * dx + np.sin(angle) * dy) / radius, (np.cos(angle) * dy - np.sin(angle) * dx) / radius
    inside = np.choose(labels.reshape(-1, 1, 1), _outlines(u, v))
    ground = random.uniform(-1, 1, (count, 3, 1, 1))
    contrast = random.uniform(0.4, 1.2, (count, 3, 1, 1)) * random.choice((-1, 1), (count, 3, 1, 1))
    picture = ground + inside[:, np.newaxis] * contrast + 0.3 * random.standard_normal((count, 3, SIZE, SIZE))
    return picture.astype(np.float32), labels


def _outlines(u: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """Return the ten shapes, by coordinates that the shape is a unit large in."""
    r, turn = np.hypot(u, v), np.arctan2(v, u)
    au, av = np.abs(u), np.abs(v)
    square, cross = np.maximum(au, av) < 0.8, (np.minimum(au, av) < 0.25) & (r < 1)
    return [
        r < 0.9,
        (r < 1) & (r > 0.6),
        square,
        square & (np.maximum(au, av) > 0.5),
        (v > -0.5) & (v < 1 - 2 * au),
        cross,
        (au < 0.95) & (av < 0.3),
        r < 0.55 + 0.4 * np.cos(5 * turn),
        (r < 1) & (u > -0.1),
        ((au - 0.55) ** 2 + v**2 < 0.16),
    ]
