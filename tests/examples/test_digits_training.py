"""Training of digits by Graft alone: from random weights to 98 % of the images that were held out."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_eight_epochs_reach_98_percent(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from examples.digits.train_here import train

    trainer, accuracy = train(epochs=8, threads=1)
    assert accuracy >= 0.98
    assert trainer.steps == 8 * (1437 // 32)
