import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.plain_nest import plain_nest
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
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


def test_stages_that_write_one_buffer_work_in_place_one_after_another():
    x, axes, k = ir.Buffer("x", "int32", (b.index(2), b.index(3))), b.variables(1), ir.Variable("k")
    y = ir.Buffer("y", "int32", (b.index(2),))
    added = ir.Load(x, (*axes, k))

    def total(initial: ir.Expression) -> ir.Stage:
        return ir.Stage(y, axes, added, ir.Reduction("add", (ir.Axis(k, b.index(3)),), initial))

    doubled = ir.Stage(y, axes, b.multiply(ir.Load(y, axes), 2))
    stages = [total(b.constant(5, "int32")), doubled, total(ir.Load(y, axes))]
    function = plain_nest("sums", stages, [x], [y])
    assert sum("= int32(5)" in line for line in str(function).splitlines()) == 1
    (found,) = run_function(function, [np.array([[1, 2, 3], [4, 5, 6]], np.int32)])
    assert found.tolist() == [2 * (5 + 6) + 6, 2 * (5 + 15) + 15]
