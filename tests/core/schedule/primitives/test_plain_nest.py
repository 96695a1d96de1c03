import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.plain_nest import plain_nest
from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from tests.core.schedule.primitives.nests import check, nest

SCANS = {
    "of lines": """
    input x: float32[3, 40]
    stage s: float32[3, 40] in scratch at (t, i) = s[t - 1, i] + x[t, i]
      scan t from x[0, i]
    stage y: float32[3, 40] at (t, i) = s[t, i] * s[t - 1, i]
      scan t
    """,
    "of positions": """
    input x: float32[3, 40]
    stage s: float32[3, 40] at (t, i) = s[t + 1, 39 - i] + x[t, i]
      scan t reverse from x[2, i]
    """,
    "scattered": """
    input x: float32[3, 40]
    stage y: float32[3, 40] at (t, i) = x[t, i]
      scatter add over k < 3, i < 40 at (min(k, 1), i): x[k, i]
    """,
}


@pytest.mark.parametrize("text", SCANS.values(), ids=SCANS)
@pytest.mark.parametrize(
    "schedule", ["", "split i 16 -> i0 i1\nvectorize i1\nparallel i0", "split i 16 -> i0 i1 tail rest\nunroll i1"]
)
def test_what_has_an_order_is_scheduled_by_steps_as_all_else_is(text: str, schedule: str):
    stages, function = nest(text)
    check(stages, apply_schedule(function, schedule))


@pytest.mark.parametrize("ranks", [7, 18, 90])
@pytest.mark.parametrize("schedule", ["parallel i", "split k 8 -> k0 k\nskip k\nparallel i"])
def test_rows_of_a_selection_are_shared_and_candidates_looked_at_together(ranks: int, schedule: str):
    text = """
    input x: float32[3, 90]
    stage p: int64[{ranks}, 3] at (r, i) = choose largest over k < 90 by r: x[i, k]
    """
    stages, function = nest(text.format(ranks=ranks))
    check(stages, apply_schedule(function, schedule))


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
