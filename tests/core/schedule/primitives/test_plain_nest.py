import pytest

from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import nest


def test_a_stage_with_an_order_of_its_own_has_no_plain_nest():
    text = """
    input x: float32[4]
    carry s: float32[4]
    stage s: float32[4] at (t) = s[t - 1] + x[t]
      scan t from float32(0.0)
    """
    with pytest.raises(ScheduleError, match=r"^the stage of 's' is a scan, which has an order of its own$"):
        nest(text)
