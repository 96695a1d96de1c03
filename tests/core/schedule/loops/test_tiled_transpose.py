from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.printer import print_function
from tests.core.schedule.loops.test_moved_elements import DTYPES, compiled, loops, numbers


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_axes_of_any_extents_change_places(data: st.DataObject) -> None:
    shape = tuple(
        data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 20, 35]), min_size=2, max_size=4))
    )
    order, kind = data.draw(st.permutations(range(len(shape)))), data.draw(st.sampled_from(sorted(DTYPES)))
    x = numbers(shape, kind)
    wanted = x.transpose(order)
    made = ",".join(map(str, wanted.shape))
    given_ = ",".join(map(str, shape))
    program = compiled(f"({kind}[{given_}] x) => ({kind}[{made}] y) {{ y = Transpose <perm = {list(order)}> (x) }}")
    np.testing.assert_array_equal(program(x), wanted)


@pytest.mark.parametrize(("rows", "columns"), [(20, 34), (7, 5), (57, 56), (16, 33)])
def test_tiles_at_an_end_begin_earlier_instead_of_leaving_single_elements(rows: int, columns: int) -> None:
    function = loops(
        f"input a: float32[{rows}, {columns}]\nstage c: float32[{columns}, {rows}] at (i, j) = a[j, i] as elementwise()"
    )
    x = numbers((rows, columns))
    np.testing.assert_array_equal(run_function(function, [x.ravel()])[0], x.T.ravel())
    stores = re.findall(r"^ *c\[(.*)\] =", print_function(function), re.MULTILINE)
    assert stores
    assert all(store.startswith("ramp") for store in stores), stores


def test_a_transposition_that_is_added_where_an_operand_lies_computes_nothing_twice() -> None:
    """The result may lie over the second operand: what is computed again would be added again."""
    program = compiled(
        """(float[35,20] x, float[20,35] y) => (float[20,35] z) {
            a = Transpose <perm = [1, 0]> (x)
            b = Neg (y)
            c = MatMul (b, x)
            d = MatMul (c, b)
            z = Add (a, d)
        }"""
    )
    x, y = numbers((35, 20)) / 113, numbers((20, 35)) / 113
    np.testing.assert_allclose(program(x, y), x.T + (-y @ x) @ -y, rtol=1e-5)


def test_many_transposed_operands_come_one_after_another() -> None:
    """Bindings of all of them within each other were deeper than Python's functions may call each other."""
    names = [f"x{number}" for number in range(12)]
    transposed = "\n".join(f"t{name} = Transpose <perm = [1, 0]> ({name})" for name in names)
    sums = "\n".join(f"s{n} = Add ({f's{n - 1}' if n else 'tx0'}, t{name})" for n, name in enumerate(names[1:]))
    inputs = ", ".join(f"float[48,35] {name}" for name in names)
    program = compiled(f"({inputs}) => (float[35,48] y) {{ {transposed} {sums} y = Neg (s10) }}")
    arrays = [numbers((48, 35)) + number for number in range(12)]
    np.testing.assert_array_equal(program(*arrays), -sum(array.T for array in arrays))


@pytest.mark.parametrize(("rows", "columns"), [(2, 40), (3, 16), (3, 21), (2, 9)])
def test_a_few_rows_are_interleaved_in_whole_vectors(rows: int, columns: int) -> None:
    function = loops(
        f"input a: float32[{rows}, {columns}]\nstage c: float32[{columns}, {rows}] at (i, j) = a[j, i] as elementwise()"
    )
    x = numbers((rows, columns))
    np.testing.assert_array_equal(run_function(function, [x.ravel()])[0], x.T.ravel())
    stores = re.findall(r"^ *c\[(.*)\] =", print_function(function), re.MULTILINE)
    assert len(stores) == rows
    assert all(store.startswith("ramp") for store in stores), stores


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_pixels_of_larger_images_are_interleaved(size: int, mode: str) -> None:
    shape = (1, 2 * size * size, 5, 19)
    text = f'''(float[n,{shape[1]},h,w] x) => (float[n,2,a,b] z) {{
        y = DepthToSpace <blocksize = {size}, mode = "{mode}"> (x)
        z = Relu (y)
    }}'''
    x = numbers(shape) - 100
    blocks = (2, size, size) if mode == "CRD" else (size, size, 2)
    order = (0, 1, 4, 2, 5, 3) if mode == "CRD" else (0, 3, 4, 1, 5, 2)
    wanted = x.reshape(1, *blocks, 5, 19).transpose(order).reshape(1, 2, 5 * size, 19 * size)
    for one in (text, text.replace("n,", "1,").replace("h,w", "5,19").replace("a,b", f"{5 * size},{19 * size}")):
        np.testing.assert_array_equal(compiled(one)(x), np.maximum(wanted, 0))


@pytest.mark.parametrize(("rows", "columns"), [(2, 33), (3, 7), (4, 35), (6, 30), (12, 19)])
def test_of_open_extents_as_many_elements_change_places(rows: int, columns: int) -> None:
    program = compiled(f"(float[{rows},n] x) => (float[n,{rows}] z) {{ y = Transpose (x)\n z = Neg (y) }}")
    for count in (columns, 1, 0, 16):
        x = numbers((rows, count))
        np.testing.assert_array_equal(program(x), -x.T)


@pytest.mark.parametrize(("rows", "columns", "blocked"), [(300, 50, True), (1000, 35, True), (300, 700, False)])
def test_rows_are_transposed_in_blocks_that_stay_in_the_nearest_cache(rows: int, columns: int, blocked: bool) -> None:
    function = loops(
        f"input a: float32[{rows}, {columns}]\nstage c: float32[{columns}, {rows}] at (i, j) = a[j, i] as elementwise()"
    )
    x = numbers((rows, columns))
    np.testing.assert_array_equal(run_function(function, [x.ravel()])[0], x.T.ravel())
    assert ("_block" in print_function(function)) == blocked
    apart = f"input a: float32[{rows}, 3, {columns}]\nstage c: float32[{columns}, {rows}] at (i, j) = a[j, 1, i]"
    assert "_block" not in print_function(loops(f"{apart} as elementwise()"))
