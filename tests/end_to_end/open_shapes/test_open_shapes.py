"""Random models with open extents: one program gives at every size what ONNX says.

``GRAFT_OPEN_MODELS`` says how many seeds the full run (``-m conformance``) draws, of which about three in four have
something open; ``python -m tests.end_to_end.open_shapes FIRST COUNT`` is the same with counts.
"""

from __future__ import annotations

import os

import pytest

from graft.testkit.models.check import peer

from .checking import check_models
from .opening import open_model

SEEDS = int(os.environ.get("GRAFT_OPEN_MODELS", "400"))
GROUP = 50
SAMPLE = range(2000, 2006)
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # NumPy's of numbers that models are meant to have
    pytest.mark.skipif(peer() is None, reason="onnxruntime is not installed"),
]


def test_models_with_open_extents_compute_what_onnx_says() -> None:
    outcome = check_models(SAMPLE)
    assert outcome.models >= len(SAMPLE) // 2
    assert not outcome.wrong, "\n".join(outcome.wrong)


def test_a_seed_opens_the_same_extents_always() -> None:
    first, second = (open_model(3) for _ in range(2))
    assert first is not None and second is not None
    assert first.model.symbols == second.model.symbols
    assert [sorted((name, array.shape) for name, array in feeds.items()) for feeds, _ in first.runs] == [
        sorted((name, array.shape) for name, array in feeds.items()) for feeds, _ in second.runs
    ]


@pytest.mark.conformance
@pytest.mark.parametrize("group", range(-(-SEEDS // GROUP)))
def test_many_models_with_open_extents_compute_what_onnx_says(group: int) -> None:
    outcome = check_models(range(group * GROUP, min(SEEDS, (group + 1) * GROUP)))
    assert not outcome.wrong, "\n".join(outcome.wrong)
