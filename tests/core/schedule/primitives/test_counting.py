import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule, print_schedule
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Binary, Function
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import statement_expressions, walk_expressions, walk_statements
from graft.errors import ScheduleError

TEXT = """
function f(x: float32[h, w]) -> (y: int64[n]) {{
  serial i < n {{ y[i] = {number} / w / h * 100 + {number} / w % h * 10 + {number} % w }}
}}
"""


def divisions(function: Function) -> int:
    found = {
        id(node)
        for one in walk_statements(function.body)
        for node in walk_expressions(*statement_expressions(one))
        if isinstance(node, Binary) and node.operator in ("div", "mod")
    }
    return len(found)


def test_the_text_is_read_back() -> None:
    assert print_schedule(parse_schedule("count i\n")) == "count i\n"


@pytest.mark.parametrize("number", ["i", "min(i, 20)", "(i + 3)"])
def test_places_that_are_counted_are_those_that_are_divided(number: str) -> None:
    function = parse_function(TEXT.format(number=number))
    counted = apply_schedule(function, "split i 6 -> i0 i tail rest\ncount i")
    assert divisions(counted) <= divisions(function) + 6  # of the first iteration, beside the tail's
    for shape in [(1, 1), (2, 3), (1, 4), (3, 1), (2, 7)]:
        x = np.zeros(shape, np.float32)
        (expected,) = run_function(function, [x], [(25,)])
        for one in (counted, lowered(counted)):
            np.testing.assert_array_equal(run_function(one, [x], [(25,)])[0], expected, err_msg=str(shape))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("i * 2 / w", "what 'i' divides is read, does not go up by one, or its divisor changes"),
        ("i / (w + i)", "what 'i' divides is read, does not go up by one, or its divisor changes"),
        ("(i - 3) / w", "what 'i' divides, or its divisor, may be negative"),
        ("i / (w - 3)", "what 'i' divides, or its divisor, may be negative"),
    ],
)
def test_what_cannot_be_counted_is_refused(value: str, reason: str) -> None:
    text = f"function f(x: float32[h, w]) -> (y: int64[8]) {{ serial i < 8 {{ y[i] = {value} }} }}"
    with pytest.raises(ScheduleError, match=re.escape(f"cannot 'count i': {reason}")):
        apply_schedule(parse_function(text), "count i")


def test_a_loop_that_does_more_than_store_is_refused() -> None:
    text = "function f() -> (y: int64[8, 2]) { serial i < 8 { serial j < 2 { y[i, j] = i / 2 } } }"
    with pytest.raises(ScheduleError, match=r"^cannot 'count i': 'i' does more than store, or is no serial loop$"):
        apply_schedule(parse_function(text), "count i")
