"""Memory that is fetched ahead of use: how much of it, from where, and that results stay."""

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.errors import ScheduleError
from tests.core.schedule.primitives.random_steps import check_same

SUM = """
function sums(w: float32[512], p: int64[4]) -> (y: float32[16]) {
  serial i < 16 { y[i] = float32(0.0) }
  serial k < 4 {
    serial i.sum < 16 { y[i.sum] = y[i.sum] + w[k * 32 + i.sum] * w[k * 32 + i.sum + 16] }
  }
  serial j < 4 { y[j] = y[j] + w[p[j]] }
}
"""


def test_an_iteration_fetches_each_line_that_it_reads_so_far_ahead() -> None:
    function = parse_function(SUM)
    w = np.random.default_rng(0).random(512).astype(np.float32)
    inputs = [w, np.arange(4)]
    changed = apply_schedule(function, "vectorize i.sum\nprefetch w at k 512")
    text = str(changed)
    assert "call prefetch(w[k * 32 + 128], 2)" in text and "call prefetch(w[k * 32 + 128 + 16], 2)" in text
    assert text.count("call prefetch") == 2
    check_same(changed, inputs, run_function(function, inputs))


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("prefetch w at i 64", "'i' does not read 'w', or not as one flat piece of memory"),
        ("prefetch w at k 64", "where it reads 'w' changes within an iteration of 'k'"),
        ("prefetch v at k 64", "'k' does not read 'v'"),
        ("prefetch w at l 64", "no loop is called 'l'"),
    ],
)
def test_what_cannot_be_fetched_is_refused(steps: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        apply_schedule(parse_function(SUM), steps)
