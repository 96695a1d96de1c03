"""The choice of a strategy: the first row that takes a kernel, and why those before it do not."""

from graft.core.schedule.parameters import ContractionParameters, WinogradParameters
from graft.core.schedule.selection.select import schedule
from graft.report.quantities import dearer
from tests.core.schedule.convolutions import WIDE, convolution
from tests.core.schedule.selection.test_table import CASES


def test_why_winograds_algorithm_was_not_taken_is_said() -> None:
    wanted = schedule(CASES["winograd"], WIDE, ContractionParameters())
    assert (wanted.strategy, wanted.refusals["winograd"].code) == ("direct_convolution", "cost")
    assert schedule(CASES["direct_convolution"], WIDE).refusals["winograd"].code == "size"
    small, _ = convolution((1, 16, 4, 4), (16, 16, 3, 3), pads=[1] * 4)
    scheduled = schedule(small, WIDE)
    why = "cost: 4,671 cycles, where direct_convolution takes 3,944"
    assert str(scheduled.refusals["winograd"]) == why
    assert scheduled.report["cycles"] == 3944
    assert dearer(scheduled.report).startswith(f"winograd ({why})")
    assert schedule(small, WIDE, WinogradParameters(2, 1)).strategy == "winograd"
