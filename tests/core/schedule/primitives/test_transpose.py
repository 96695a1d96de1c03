import re
from dataclasses import replace

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.errors import ScheduleError
from graft.runtime.dtypes import numpy_dtype

COLUMNS = """function f(x: float32[8, 12]) -> (y: float32[12, 8]) {
  serial i < 8 { serial k < 12 { y[k, i] = x[i, k] * float32(2.0) } }
}"""
SQUARES = "split i 4 -> i0 i\nsplit k 4 -> k0 k\nreorder i0 k0 i k\n"


@pytest.mark.parametrize("order", ["transpose i k", "transpose k i", "reorder k i\ntranspose i k"])
def test_a_square_is_read_along_one_axis_and_stored_along_the_other(order):
    function = parse_function(COLUMNS)
    changed = apply_schedule(function, SQUARES + order)
    along, across = ("x[i0 * 4", "y[k0 * 4") if order.endswith("i k") else ("x[", "y[")
    assert str(changed).count("shuffle") >= 8
    assert along in str(changed) and across in str(changed)
    verify(changed)
    x = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    np.testing.assert_array_equal(run_function(changed, [x])[0], x.T * 2)


def test_what_does_not_change_along_the_vector_is_in_all_lanes():
    function = parse_function("""function f(x: float32[4]) -> (y: float32[4, 4]) {
      serial i < 4 { serial k < 4 { y[k, i] = x[i] } }
    }""")
    x = np.arange(4, dtype=np.float32)
    (found,) = run_function(apply_schedule(function, "transpose i k"), [x])
    np.testing.assert_array_equal(found, np.broadcast_to(x, (4, 4)))


def test_a_word_of_small_numbers_is_an_element():
    text = """function f(x: bfloat16[4, 8]) -> (y: int32[4, 4]) {
      serial i < 4 { serial k < 4 { y[k, i] = bitcast<int32>(x[i, ramp(STEP * k, 1, 2)]) } }
    }"""
    changed = apply_schedule(parse_function(text.replace("STEP", "2")), "transpose i k")
    assert "x[2, ramp(2 * 0, 1, 8)]" in str(changed)
    changed = replace(changed, body=lower_loops(changed.body))
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(numpy_dtype("bfloat16"))
    np.testing.assert_array_equal(run_function(changed, [x])[0], x.view(np.int32).T)
    with pytest.raises(ScheduleError, match="words along 'k' do not lie one after the other"):
        apply_schedule(parse_function(text.replace("STEP", "1")), "transpose i k")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("serial i < 4 { serial k < 8 { y[k, i] = x[i, k] } }", "are no square whose side is a power of 2"),
        ("serial i < 6 { serial k < 6 { y[k, i] = x[i, k] } }", "are no square whose side is a power of 2"),
        ("serial i < 4 { y[0, i] = x[i, i]\nserial k < 4 { y[k, i] = x[i, k] } }", "stands more than loops"),
        (
            "serial i < 4 { serial k < 4 { if k < 3 { y[k, i] = x[i, k] } } }",
            "are more than two loops around one",
        ),
        ("serial i < 4 { serial k < 4 { y[k, i] = y[k, i] + x[i, k] } }", "'y' is read where it is stored"),
        ("vector z < 4 { serial i < 4 { serial k < 4 { y[k, i] = x[i, k] } } }", "'z' is a vector already"),
        ("serial i < 4 { serial k < 4 { y[0, k] = x[i, k] } }", "one iteration of 'i' writes"),
    ],
)
def test_what_is_no_square_of_stores_is_refused(body, reason):
    function = parse_function(f"function f(x: float32[8, 8]) -> (y: float32[8, 8]) {{ {body} }}")
    with pytest.raises(ScheduleError, match=re.escape(reason)):
        apply_schedule(function, "transpose i k")
