"""A small GPT learns characters as PyTorch's does."""

from __future__ import annotations

import numpy as np

from benchmarks.training.characters import CHARACTERS, batches, losses
from benchmarks.training.networks import gpt


def test_a_small_gpt_reaches_the_losses_of_pytorch_within_a_hundredth() -> None:
    drawn = batches(8, 32, seed=0)
    given = [next(drawn) for _ in range(60)]
    ours, theirs = losses(gpt(2, 32, 2, 32, CHARACTERS, batch=8), given, threads=1)
    np.testing.assert_allclose(ours, theirs, rtol=0.01)
    assert ours[-10:].mean() < 0.75 * ours[0]
