"""Boxes that are said to hold every element do, by counting; and those of usual schedules are said to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.primitives.coverage import covers
from graft.core.schedule.primitives.step import bounded
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import static_value
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import statement_children


def said(text: str, size: int, head: str = "x: float32[n]) -> (y: float32[n]") -> tuple[bool, list[ir.Statement]]:
    """Whether boxes that begin where a nest stores are said to cover its buffer, and the way to the store."""
    function = parse_function(f"function f({head}) {{ {text} }}")
    path, inner = [], function.body
    while not isinstance(inner, ir.Store):
        path.append(inner)
        (inner,) = statement_children(inner)
    sizes = [size] * len(inner.indices)
    return covers(path, inner.indices, sizes, inner.buffer.shape, bounded(function.body)), [*path, inner]


def held(path: list[ir.Statement], size: int) -> bool:
    """Whether the boxes hold every element, by going through all iterations."""
    *around, store = path
    assert isinstance(store, ir.Store), store
    found: set[int] = set()

    def go(number: int, point: dict[ir.Variable, int]) -> None:
        if number == len(around):
            begin = static_value(store.indices[0], point)
            found.update(range(begin, begin + size))
            return
        match around[number]:
            case ir.For(variable, extent):
                for value in range(static_value(extent, point)):
                    go(number + 1, {**point, variable: value})
            case ir.Let(variable, value):
                go(number + 1, {**point, variable: static_value(value, point)})
            case ir.If(condition):
                if static_value(condition, point):
                    go(number + 1, point)

    go(0, {})
    return set(range(static_value(store.buffer.shape[0], {}))) <= found


@settings(max_examples=400, deadline=None)
@given(
    st.tuples(*3 * [st.integers(0, 4)]), st.tuples(*3 * [st.integers(1, 9)]), st.integers(1, 4), st.integers(1, 14),
    st.integers(-2, 1), st.sampled_from(("", "if j < {n} - i * 4", "if i < {n} - j", "if k < 2 - j")),
)  # fmt: skip
def test_boxes_that_are_said_to_hold_all_do(extents, factors, size, n, shift, guard):
    (a, b, c), (f, g, h) = extents, factors
    body = f"y[i * {f} + j * {g} + k * {h} + {shift}] = x[0]"
    inner = f"{guard.format(n=n)} {{ {body} }}" if guard else body
    is_said, path = said(
        f"serial i < {a} {{ serial j < {b} {{ serial k < {c} {{ {inner} }} }} }}",
        size,
        f"x: float32[1]) -> (y: float32[{n}]",
    )
    assert not is_said or held(path, size)


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("serial i < n { y[i] = x[i] }", 1, True),
        ("serial i < n - 1 { y[i] = x[i] }", 1, False),
        ("serial i < n - 1 { y[i] = x[i] }", 2, True),
        ("serial i < (n + 3) / 4 { y[i * 4] = x[i] }", 4, True),
        ("serial i < n / 4 { y[i * 4] = x[i] }", 4, False),
        ("serial i < (n + 3) / 4 { serial j < 4 { if j < n - i * 4 { y[i * 4 + j] = x[i] } } }", 1, True),
        ("serial i < (n + 3) / 4 { serial j < 4 { if j < n - i * 5 { y[i * 4 + j] = x[i] } } }", 1, False),
        ("serial i < (n + 3) / 4 { serial j < 4 { if j <= n - i * 4 { y[i * 4 + j] = x[i] } } }", 1, False),
        ("serial i < n { serial j < i { y[j] = x[i] } }", 1, False),
        ("serial i < n { serial j < 4 { y[i] = x[j] } }", 1, True),
        ("serial i < n { serial j < m { y[i] = x[j] } }", 1, False),
    ],
)
def test_an_extent_that_varies_is_covered_by_its_blocks(text, size, expected):
    assert said(text, size, "x: float32[n], z: float32[m]) -> (y: float32[n]")[0] is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("serial t < n * 4 { let i: int64 = t / 4 { let j: int64 = t % 4 { y[i, j] = x[i] } } }", True),
        ("serial t < n * 4 { let i: int64 = t / 4 { let j: int64 = t % 3 { y[i, j] = x[i] } } }", False),
        ("serial t < n * 4 { let i: int64 = t / 4 { let j: int64 = i % 4 { y[i, j] = x[i] } } }", False),
    ],
)
def test_parts_of_a_fused_loop_take_all_values_together(text, expected):
    assert said(text, 1, "x: float32[n]) -> (y: float32[n, 4]")[0] is expected


@pytest.mark.parametrize(
    ("place", "expected"), [("i, j", True), ("i * 2, j", True), ("i, j * 3", False), ("i, i", False)]
)
def test_boxes_hold_a_matrix_where_they_hold_each_of_its_sides(place, expected):
    text = f"serial i < 4 {{ serial j < 3 {{ y[{place}] = x[0] }} }}"
    assert said(text, 2, "x: float32[1]) -> (y: float32[5, 4]")[0] is expected
