"""Which iterations of loops meet in one element, of loops written as text."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.primitives.dependence import accesses, carried, conflicts, in_order, reads_written
from graft.core.schedule.primitives.step import bounded, loops
from graft.core.tensor_ir.ir import Function, If
from graft.core.tensor_ir.parser import parse_function


def function(body: str, buffers: str = "x: float32[64]) -> (y: float32[64]") -> Function:
    return parse_function(f"function f({buffers}) {{ {body} }}")


def meets(body: str, name: str = "i", buffers: str = "x: float32[64]) -> (y: float32[64]") -> bool:
    """Whether two iterations of a loop meet in an element that one of them writes."""
    made = function(body, buffers)
    (loop,) = (one for one in loops(made.body) if one.variable.name == name)
    return carried(loop.body, loop, bounded(made.body)) is not None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("serial i < 8 { y[i] = x[i] }", False),
        ("serial i < 8 { y[0] = x[i] }", True),
        ("serial i < 8 { y[i + 1] = y[i] }", True),
        ("serial i < 8 { y[i + 8] = y[i] }", False),
        ("serial i < 8 { y[2 * i] = y[2 * i + 1] }", False),
        ("serial i < 8 { y[2 * i] = y[4 * i] }", True),
        ("serial i < 8 { serial j < 4 { y[i * 4 + j] = x[j] } }", False),
        ("serial i < 8 { serial j < 5 { y[i * 4 + j] = x[j] } }", True),
        ("serial i < 8 { y[i] = x[i] y[i + 20] = x[i] }", False),
        ("serial i < 8 { y[i / 2] = x[i] }", True),
        ("serial i < 4 { y[ramp(min(i * 8, 25), 1, 8)] = x[ramp(i, 1, 8)] }", False),
        ("serial i < 5 { y[ramp(min(i * 8, 25), 1, 8)] = x[ramp(i, 1, 8)] }", True),
        ("serial i < 4 { serial j < max(1, i - 1) { y[ramp(min((i + j) * 8, 25), 1, 8)] = x[ramp(i, 1, 8)] } }", False),
        ("serial i < 4 { serial j < max(1, i - 1) { y[ramp(min((i + j) * 8, 25), 1, 9)] = x[ramp(i, 1, 9)] } }", True),
        ("serial i < 4 { serial j < max(1, i) { y[ramp(min((i + j) * 8, 25), 1, 8)] = x[ramp(i, 1, 8)] } }", True),
        ("serial i < 9 { y[max(i - 4, 4 - i)] = x[i] }", True),
        ("serial i < 9 { y[max(i * 4, 7)] = x[i] }", True),
        ("serial i < 9 { y[max(i * 4, 3)] = x[i] }", False),
        ("serial i < 1 { y[0] = x[i] }", False),
        ("serial i < 8 { let k: int64 = i * 2 { y[k] = y[k + 1] } }", False),
        ("serial i < 8 { y[ramp(i * 4, 1, 4)] = x[ramp(i * 4, 1, 4)] }", False),
        ("serial i < 8 { y[ramp(i * 3, 1, 4)] = x[ramp(i * 3, 1, 4)] }", True),
    ],
)
def test_iterations_meet_where_one_writes_what_another_touches(body: str, expected: bool) -> None:
    assert meets(body) is expected


@settings(max_examples=300)
@given(
    st.tuples(*4 * [st.integers(1, 4)]), st.sampled_from(("min", "max")), st.integers(0, 20),
    st.sampled_from(("1", "2", "max(1, i - 1)", "max(1, i)", "4 - i")), st.integers(0, 3), st.sampled_from((1, 4, 9)),
)  # fmt: skip
def test_iterations_said_to_be_apart_are(
    numbers: tuple[int, ...], kind: str, bound: int, inside: str, shift: int, lanes: int
) -> None:
    side, step, rows, factor = numbers
    place = f"{kind}((i + j) * {side * step}, {bound}) * {factor} + {shift}"
    first = f"ramp({place}, 1, {lanes})" if lanes > 1 else place
    made = function(
        f"serial i < 5 {{ serial j < {inside} {{ serial k < {rows} {{ y[{first}] = x[i] y[{place} + k] = x[j] }} }} }}",
        "x: float32[512]) -> (y: float32[512]",
    )
    loop = loops(made.body)[0]
    touched: list[set[int]] = []
    for i in range(5):
        counts = {"1": 1, "2": 2, "max(1, i - 1)": max(1, i - 1), "max(1, i)": max(1, i), "4 - i": 4 - i}
        starts = [
            (min if kind == "min" else max)((i + j) * side * step, bound) * factor + shift
            for j in range(counts[inside])
        ]
        touched.append({start + more for start in starts for more in (*range(lanes), *range(rows))})
    met = carried(loop.body, loop, bounded(made.body))
    if met is None or met.distance[loop.variable] == 0:
        assert all(one.isdisjoint(other) for one, other in combinations(touched, 2))


def test_memory_of_an_iteration_is_its_own() -> None:
    body = "serial i < 8 { allocate t: float32[1] in scratch t[0] = x[i] y[i] = t[0] }"
    assert not meets(body)
    assert {one.buffer.name for one in accesses(loops(function(body).body)[0].body)} == {"x", "y"}


def test_a_call_may_write_anywhere_in_what_it_is_given() -> None:
    assert meets("serial i < 8 { call store(y[i], x[i]) }")


def test_parts_of_a_fused_loop_tell_its_iterations_apart() -> None:
    assert not meets("serial t < 32 { let i: int64 = t / 4 let j: int64 = t % 4 y[i * 4 + j] = x[t] }", "t")
    assert meets("serial t < 32 { let i: int64 = t / 4 let j: int64 = t % 4 y[i] = x[t] }", "t")


def test_a_conflict_says_how_far_apart_the_iterations_are() -> None:
    made = function(
        "serial i < 4 { serial j < 4 { y[i + 1, j] = y[i, j + 1] } }", "x: float32[4]) -> (y: float32[5, 5]"
    )
    chain = loops(made.body)
    found = list(conflicts(chain[-1].body, chain, bounded(made.body)))
    distances = [[one.distance[loop.variable] for loop in chain] for one in found]
    assert [-1, 1] in distances or [1, -1] in distances
    (met,) = (one for one in found if one.distance[chain[0].variable])
    assert str(met) == "'y'"
    assert not in_order(met, chain, chain[::-1])
    assert in_order(met, chain, chain)


@pytest.mark.parametrize(
    ("dtype", "operator", "free"),
    [("int32", "+", True), ("int32", "*", True), ("float32", "+", False), ("int32", "-", False)],
)
def test_only_exact_sums_may_change_their_order(dtype: str, operator: str, free: bool) -> None:
    made = function(f"serial i < 4 {{ y[0] = y[0] {operator} x[i] }}", f"x: {dtype}[4]) -> (y: {dtype}[1]")
    (loop,) = loops(made.body)
    met = carried(loop.body, loop, bounded(made.body))
    assert met is not None and met.reassociates is free


@pytest.mark.parametrize(
    "statement",
    [
        "y[0] = y[0; i < 3] + x[i]",  # which begins anew where the mask is off
        "y[0; y[0] < int32(5)] = y[0] + x[i]",
        "y[cast<int64>(y[0])] = y[cast<int64>(y[0])] + x[i]",
        "y[0] = y[0] + x[cast<int64>(y[0])]",
    ],
)
def test_a_sum_that_asks_what_it_has_keeps_its_order(statement: str) -> None:
    made = function(f"serial i < 4 {{ {statement} }}", "x: int32[4]) -> (y: int32[4]")
    (loop,) = loops(made.body)
    found = list(conflicts(loop.body, [loop], bounded(made.body)))
    assert found and not all(one.reassociates for one in found)


def test_blocks_of_a_loop_without_a_bound_are_told_apart() -> None:
    blocks = "serial i < n { serial j < 8 { y[i * 8 + j] = x[j] } }"
    assert not meets(blocks, "i", "x: float32[8], z: float32[n]) -> (y: float32[64]")
    assert meets(blocks.replace("* 8", "* 7"), "i", "x: float32[8], z: float32[n]) -> (y: float32[64]")


@pytest.mark.parametrize(
    ("inside", "expected"),
    [("y[i] = x[i]", True), ("z[i] = y[i]", False), ("call f(y[0])", True), ("z[0] = x[i]", False)],
)
def test_what_a_body_writes_is_not_the_same_before_and_in_it(inside: str, expected: bool) -> None:
    made = function(
        f"serial i < 4 {{ if y[0] < float32(1.0) {{ {inside} }} }}", "x: float32[4]) -> (y: float32[4], z: float32[4]"
    )
    (loop,) = loops(made.body)
    assert isinstance(loop.body, If)
    assert reads_written(loop, loop.body.condition) is expected
    assert not reads_written(loop, loop.extent)
