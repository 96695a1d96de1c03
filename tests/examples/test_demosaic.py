"""examples/training/demosaic.py: it begins as bilinear interpolation, and learns to do better."""

from __future__ import annotations

import numpy as np

import graft
from examples.training.demosaic import COLOURS, drawn, model, psnr
from graft.training import Adam, Trainer

SIZE = 16


def test_a_slope_is_interpolated_as_it_is() -> None:
    y, x = np.indices((SIZE, SIZE)).astype(np.float32)
    slopes = np.stack([y + x, 2 * y - x, 3 * x])
    seen = np.take_along_axis(slopes, np.tile(COLOURS, (SIZE // 2, SIZE // 2))[None], axis=0)[None]
    found = np.asarray(graft.compile(model(SIZE), ["llvm"], threads=1)(seen))[0]
    np.testing.assert_allclose(found[:, 2:-2, 2:-2], slopes[:, 2:-2, 2:-2], rtol=1e-5)


def test_the_stencil_learns() -> None:
    data, held_out = drawn(32, SIZE, 0), drawn(8, SIZE, 1)
    trainer = Trainer(model(SIZE), "mse", Adam(0.01), threads=1)
    trainer.fit(data, epochs=15, batch=8)
    assert psnr(trainer.model, held_out) > psnr(model(SIZE), held_out) + 1.5
