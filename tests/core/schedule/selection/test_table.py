import pytest

from graft.core.schedule.selection.select import schedule, strategy_of
from graft.core.schedule.selection.table import TABLE
from tests.core.schedule.convolutions import WIDE, convolution
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul

CASES = {
    "winograd": convolution((1, 64, 28, 28), (64, 64, 3, 3), pads=[1] * 4)[0],
    "direct_convolution": convolution((1, 3, 9, 9), (8, 3, 3, 3))[0],
    "depthwise_nchw": convolution((1, 8, 9, 9), (8, 1, 3, 3), group=8)[0],
    "few_columns": matmul((4, 80), (80, 2), constant=True)[0],
    "blocked_product": matmul((4, 8), (8, 6), constant=True)[0],
}


@pytest.mark.parametrize("name", CASES)
def test_every_anchor_has_its_strategy_and_what_it_builds_is_valid(name: str) -> None:
    scheduled = schedule(CASES[name], WIDE, strategies=TABLE.checked())
    assert scheduled.strategy == name
    assert scheduled.knobs
    assert not any(reject.code == "compile-failed" for reject in scheduled.refusals.values())
    chosen = strategy_of(CASES[name], WIDE)
    assert chosen is not None
    assert chosen.name == name
