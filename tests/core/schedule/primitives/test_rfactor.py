import re
from dataclasses import replace

import numpy as np
import pytest

from graft.core.schedule.primitives.rfactor import identity_of
from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule, print_schedule
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir import numerics
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import BinaryOperator
from graft.core.tensor_ir.parser import parse_function
from graft.core.types import BOOL, FLOAT32, Type
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import check, matmul, nest
from tests.core.schedule.primitives.random_steps import check_same

NUMBERS = {
    "float32": [-np.inf, -1.5, 0.0, 3.0, np.inf], "int8": [-128, -1, 0, 127], "uint8": [0, 1, 255],
    "int64": [-(2**63), 5, 2**63 - 1],
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("operator", ["add", "mul", "min", "max"])
def test_the_identity_of_an_operator_changes_nothing(operator: BinaryOperator, dtype: str) -> None:
    neutral = numerics.constant(identity_of(operator, Type(dtype)).value, dtype)
    for number in NUMBERS[dtype]:
        value = np.array(number, dtype)
        assert numerics.binary(operator, neutral, value) == value


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("operator", ["and", "or", "xor"])
def test_the_identity_of_a_bitwise_operator_changes_nothing(operator: BinaryOperator, dtype: str) -> None:
    neutral = numerics.constant(identity_of(operator, Type(dtype)).value, dtype)
    for number in NUMBERS[dtype]:
        value = np.array(number, dtype)
        assert numerics.binary(operator, neutral, value) == value


@pytest.mark.parametrize(("operator", "neutral"), [("and", True), ("min", True), ("or", False), ("max", False)])
def test_of_bools_all_hold_or_any_does(operator: BinaryOperator, neutral: bool) -> None:
    assert identity_of(operator, BOOL).value is neutral


def test_the_identity_of_a_vector_is_a_scalar() -> None:
    assert identity_of("add", FLOAT32.with_lanes(8)).type == FLOAT32


def test_a_split_sum_has_parts_of_its_own_that_are_added_up_behind_it():
    stages, function = matmul(dtype="int32")
    steps = "split k 2 -> k0 k1\nreorder i j k0 k1\nrfactor c at k0 in scratch -> parts\nparallel k0"
    changed = apply_schedule(function, steps)
    assert "allocate parts: int32[3, 1, 1]" in str(changed)
    check(stages, changed)


def test_parts_may_be_of_elements_that_differ_between_iterations():
    stages, function = matmul(dtype="int32")
    check(stages, apply_schedule(function, "reorder j i\nrfactor c at j in scratch -> parts"))


@pytest.mark.parametrize(("operator", "first"), [("add", "0"), ("mul", "1"), ("min", "2000"), ("max", "-2000")])
@pytest.mark.parametrize(
    "steps", ["rfactor c at k in scratch -> p\nparallel k", "reorder k i\nrfactor c at k in scratch -> p"]
)
def test_parts_begin_with_what_changes_nothing(operator, first, steps):
    stages, function = nest(f"""
    input a: int32[4, 5]
    stage c: int32[4] at (i) = reduce {operator} over k < 5 from int32({first}): a[i, k]
    """)
    check(stages, apply_schedule(function, steps), seed=3)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
@pytest.mark.parametrize("operator", ["&", "|", "^"])
def test_parts_of_bits_begin_with_what_changes_none(operator, dtype):
    text = f"""function f(a: {dtype}[4, 5]) -> (c: {dtype}[4]) {{
      serial z < 4 {{ c[z] = a[z, 0] }}
      serial i < 4 {{ serial k < 5 {{ c[i] = c[i] {operator} a[i, k] }} }}
    }}"""
    function = parse_function(text)
    a = np.random.default_rng(0).integers(0, 100, (4, 5)).astype(dtype)
    changed = apply_schedule(function, "rfactor c at k in scratch -> parts\nparallel k")
    check_same(changed, [a], run_function(function, [a]))


@pytest.mark.parametrize("operator", ["min", "max"])
def test_extremes_of_floats_keep_their_bits(operator):
    text = f"""function f(a: float32[4, 5]) -> (c: float32[4]) {{
      serial z < 4 {{ c[z] = a[z, 0] }}
      serial i < 4 {{ serial k < 5 {{ c[i] = {operator}(c[i], a[i, k]) }} }}
    }}"""
    a = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    function = parse_function(text)
    changed = apply_schedule(function, "reorder k i\nrfactor c at k in shared -> parts\nbind k thread.x")
    check_same(changed, [a], run_function(function, [a]))


def test_sums_of_floats_stay_within_the_bound():
    function = parse_function("""function f(a: float32[64]) -> (c: float32[1]) {
      c[0] = float32(0.0)
      serial k < 64 { c[0] = fma(a[k], a[k], c[0]) }
    }""")
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    changed = apply_schedule(function, "split k 8 -> k0 k1\nrfactor c at k0 in scratch -> parts\nparallel k0")
    (one,), (other,) = run_function(function, [a])[0], run_function(changed, [a])[0]
    assert one != other
    assert abs(one - other) <= 2 * 64 * np.finfo(np.float32).eps * float(a @ a)


@pytest.mark.parametrize(
    ("body", "steps", "reason"),
    [
        ("c[0] = a[k]", "", "'k' does not just add to 'c', or reduce into it by one operation"),
        ("c[0] = c[0] + c[0]", "", "'k' does not just add to 'c', or reduce into it by one operation"),
        (
            "c[0] = c[0] + a[k]\nc[0] = c[0] * a[k]",
            "",
            "'k' does not just add to 'c', or reduce into it by one operation",
        ),
        ("c[0] = c[0] + a[k]\nd[k] = c[0]", "", "'k' does not just add to 'c', or reduce into it by one operation"),
        ("c[0] = c[0] - a[k]", "", "'k' does not just add to 'c', or reduce into it by one operation"),
        ("c[0] = c[0] + a[k]", "unroll k", "'k' is unrolled already; split its sums before"),
    ],
)
def test_what_is_no_reduction_by_one_operation_is_not_split(body, steps, reason):
    function = parse_function(f"""function f(a: int32[6]) -> (c: int32[2], d: int32[6]) {{
      c[0] = int32(0)
      serial k < 6 {{ {body} }}
    }}""")
    step = "rfactor c at k in scratch -> p"
    with pytest.raises(ScheduleError, match=f"^{re.escape(f'cannot {step!r}: {reason}')}$"):
        apply_schedule(function, f"{steps}\n{step}")


def test_a_part_may_be_of_all_iterations_of_the_loops_around():
    """Neighbouring units reduce neighbouring elements: the loop that is split is the inner one."""
    stages, function = nest("""
    input a: int32[4, 23]
    stage c: int32[4] at (i) = reduce add over k < 23 from int32(1): a[i, k]
    """)
    steps = "split k 5 -> turn unit\nrfactor c at unit in shared -> parts around turn\nreorder unit turn\n"
    changed = apply_schedule(function, f"{steps}merge parts.in unit -> unit\nparallel unit")
    assert "allocate parts: int32[5, 1] in shared" in str(changed)
    check(stages, changed)


@pytest.mark.parametrize(
    ("function", "outer", "reason"),
    [
        (
            "serial t < 2 { serial k < 3 { c[0] = c[0] + a[t, k] } }",
            "k",
            "'k' does more to 'c' than 'k' in it",
        ),
        (
            "serial t < 2 { c[0] = c[0] + a[t, 0] serial k < 3 { c[0] = c[0] + a[t, k] } }",
            "t",
            "'t' does more to 'c' than 'k' in it",
        ),
    ],
)
def test_parts_of_other_loops_are_refused(function, outer, reason):
    text = f"function f(a: float32[2, 3]) -> (c: float32[1]) {{ c[0] = float32(0.0) {function} }}"
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(parse_function(text), f"rfactor c at k in shared -> parts around {outer}")
    assert str(caught.value).endswith(reason)


ROWS = """function f(a: float32[3, n]) -> (c: float32[3]) {
  serial i < 3 { c[i] = float32(0.0) }
  serial j < 3 { serial k < n { c[j] = c[j] + a[j, k] } }
}"""
ALONG = "split k 4 -> v k\nrfactor c at k in register -> parts around v\nunswitch v else cut\n"


def test_all_iterations_of_a_loop_around_go_on_with_the_same_parts():
    function = parse_function(ROWS)
    steps = ALONG + "vectorize parts.in\nvectorize k\nvectorize k.cut\nhorizontal parts.turn"
    changed = apply_schedule(function, steps)
    assert "+ horizontal<add>(parts[ramp(0, 1, 4), 0])" in str(changed)
    vectors = replace(changed, body=lower_loops(changed.body))
    assert "select(" in str(vectors) and "parts[ramp(0, 1, 4), 0;" not in str(vectors)  # lanes that are off stay
    for extent in (0, 1, 3, 4, 11):
        a = np.random.default_rng(0).standard_normal((3, extent)).astype(np.float32)
        (wanted,) = run_function(function, [a], [(3,)])
        for one in (changed, vectors):
            np.testing.assert_allclose(run_function(one, [a], [(3,)])[0], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "sign"), [("add", "c[j] + "), ("mul", "c[j] * "), ("min", "min(c[j], "), ("max", "max(c[j], ")]
)
def test_a_loop_that_reduces_neighbours_is_one_operation_across_lanes(operator, sign):
    end = ")" * sign.count("(")
    function = parse_function(f"""function f(a: float32[3, 8]) -> (c: float32[3]) {{
      serial i < 3 {{ c[i] = a[i, 0] }}
      serial j < 3 {{ serial k < 8 {{ c[j] = {sign}a[j, k]{end} }} }}
    }}""")
    changed = apply_schedule(function, "horizontal k")
    assert f"horizontal<{operator}>(a[j, ramp(0, 1, 8)])" in str(changed)
    a = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(run_function(changed, [a])[0], run_function(function, [a])[0], rtol=1e-5)


def test_a_maximum_that_loses_nan_is_split_and_loses_it_still():
    function = parse_function("""function f(a: float32[16]) -> (c: float32[1]) {
      c[0] = float32(-inf)
      serial k < 16 { c[0] = select(a[k] > c[0], a[k], c[0]) }
    }""")
    changed = apply_schedule(
        function, "split k 4 -> v k\nrfactor c at k in register -> parts around v\nhorizontal parts.turn"
    )
    a = np.random.default_rng(0).standard_normal(16).astype(np.float32)
    a[5] = np.nan
    assert run_function(changed, [a])[0] == run_function(function, [a])[0] == np.nanmax(a)


@pytest.mark.parametrize(
    ("body", "step", "reason"),
    [
        ("c[0] = c[0] + a[2 * k]", "horizontal k", "'k' does more than reduce neighbouring elements"),
        ("c[0] = c[0] + a[k] * a[k]", "horizontal k", "'k' does more than reduce neighbouring elements"),
        ("c[k] = c[k] + a[k]", "horizontal k", "'k' does more than reduce neighbouring elements"),
        ("c[0] = c[0] + a[k]", "rfactor c at k in scratch -> p around k", "'k' does more to 'c' than 'k' in it"),
        ("c[0] = c[0] + a[k]", "rfactor c at k in scratch -> p around z", "there is no loop 'z'"),
    ],
)
def test_what_is_no_row_of_neighbours_stays_a_loop(body, step, reason):
    function = parse_function(f"""function f(a: int32[12]) -> (c: int32[6]) {{
      serial z0 < 6 {{ c[z0] = int32(0) }}
      serial k < 6 {{ {body} }}
    }}""")
    with pytest.raises(ScheduleError, match=re.escape(reason)):
        apply_schedule(function, step)


def test_a_row_of_one_element_is_no_vector():
    function = parse_function("""function f(a: int32[8]) -> (c: int32[1]) {
      c[0] = int32(0)
      serial v < 8 { serial k < 1 { c[0] = c[0] + a[v + k] } }
    }""")
    with pytest.raises(ScheduleError, match="'k' has 1 iteration, and a vector has two lanes or more"):
        apply_schedule(function, "horizontal k")


def test_parts_are_not_kept_around_a_loop_that_uses_the_sum():
    function = parse_function("""function f(a: int32[6, 4]) -> (c: int32[1], d: int32[6]) {
      c[0] = int32(0)
      serial v < 6 { serial k < 4 { c[0] = c[0] + a[v, k] } d[v] = c[0] }
    }""")
    with pytest.raises(ScheduleError, match="'v' does more to 'c' than 'k' in it"):
        apply_schedule(function, "rfactor c at k in register -> parts around v")


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_subtotal_begins_anew_in_each_iteration(dtype: str) -> None:
    stages, function = matmul(dtype=dtype)
    steps = "split k 4 -> k0 k1\nreorder i k0 k1 j\nsubtotal c at k0 in scratch -> part\nclip k1\n"
    assert print_schedule(parse_schedule(steps)) == steps
    changed = apply_schedule(function, steps)
    assert "allocate part: " in str(changed)
    check(stages, changed)
    check(stages, apply_schedule(changed, "vectorize part.in.1\nvectorize j\nvectorize part.out.1"))


def test_errors_of_a_subtotal_grow_with_the_length_of_a_part() -> None:
    loop = "serial k < 40000 { y[0] = y[0] + x[k] }"
    function = parse_function(f"function f(x: float32[40000]) -> (y: float32[1]) {{ y[0] = float32(0.0)\n{loop} }}")
    x = np.full(40000, 0.1, np.float32)
    parts = apply_schedule(function, "split k 200 -> k0 k1\nsubtotal y at k0 in register -> part")
    (whole,), (better,) = (run_function(one, [x])[0] for one in (function, parts))
    assert abs(better - 4000) < abs(whole - 4000) / 20


def test_a_subtotal_of_what_is_not_reduced_is_refused() -> None:
    text = "function f(x: float32[8]) -> (y: float32[8]) { serial k < 8 { y[k] = x[k] } }"
    reason = "'k' does not just add to 'y', or reduce into it by one operation"
    with pytest.raises(ScheduleError, match=re.escape(f"cannot 'subtotal y at k in scratch -> part': {reason}")):
        apply_schedule(parse_function(text), "subtotal y at k in scratch -> part")
