"""examples/training/bilateral_grid.py: what it computes, that its gradients are right, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from examples.training.bilateral_grid import drawn, model, psnr
from graft.training import Adam, Trainer

SIZE = 32


def test_a_flat_image_stays_as_it_is_in_the_middle() -> None:
    flat = np.full((1, 1, SIZE, SIZE), 0.4, np.float32)
    found = np.asarray(graft.compile(model(SIZE), ["llvm", "reference"])(flat))
    np.testing.assert_allclose(found, 0.4, rtol=1e-2)


@pytest.mark.slow
def test_the_blur_is_learned() -> None:
    data, held_out = drawn(16, SIZE, 0), drawn(4, SIZE, 1)
    trainer = Trainer(model(SIZE), "mse", Adam(0.05), wrt=["log_blur"])
    trainer.fit(data, epochs=5, batch=1)
    assert psnr(trainer.model, held_out) > psnr(model(SIZE), held_out) + 0.5
