"""Slice, Split and Gather as pieces of memory, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import CompileOptions, host_target
from graft.core.operators.all import OPERATORS
from graft.plugins.codegen.grouping.fusion import fuse
from graft.plugins.codegen.grouping.slice_views import slices_in_memory
from graft.plugins.llvm.backend import LlvmBackend
from tests.plugins.llvm.execute import execute
from tests.plugins.llvm.graphs import region_of


@st.composite
def slices(draw):
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    bound = st.integers(-5, 5)
    return shape, axes, [(draw(bound), draw(bound), draw(st.sampled_from((1, 1, 1, 2)))) for _ in axes]


@settings(deadline=None)
@given(slices())
def test_a_slice_in_one_piece_begins_where_it_says(case):
    shape, axes, bounds = case
    array = np.arange(int(np.prod(shape))).reshape(shape)
    index = [slice(None)] * len(shape)
    for axis, bound in zip(axes, bounds, strict=True):
        index[axis] = slice(*bound)
    wanted = array[tuple(index)]
    columns = [np.array([bound[i] for bound in bounds], np.int64) for i in range(3)]
    constants = dict(zip("seat", (columns[0], columns[1], np.array(axes, np.int64), columns[2]), strict=True))
    dims = ",".join(map(str, shape))
    declared = ", ".join(f"int64[{len(axes)}] {name}" for name in constants)
    result = ",".join(map(str, wanted.shape))
    region = region_of(
        f"g (float[{dims}] x, {declared}) => (float[{result}] y) {{ y = Slice (x, s, e, a, t) }}", constants
    )
    (node,) = region.nodes()
    found = slices_in_memory(node)
    flat = wanted.reshape(-1)
    if found is not None:
        np.testing.assert_array_equal(flat, np.arange(flat.size) + found[0][1])
    else:
        assert flat.size == 0 or (np.diff(flat) != 1).any()


def views(text: str, constants: dict[str, np.ndarray] | None = None) -> list[str]:
    region = region_of(text, constants)
    groups = fuse(region.nodes(), {value.value for value in region.outputs}, OPERATORS)
    return [f"{value.name}@{offset}" for group in groups for value, offset in group.slices or ()]


def test_splits_of_the_first_axis_that_is_not_one_are_pieces() -> None:
    assert views("""g (float[1,6,5] x) => (float[1,2,5] a, float[1,2,5] b, float[1,2,5] c) {
        a, b, c = Split <axis = 1, num_outputs = 3> (x) }""") == ["a@0", "b@10", "c@20"]


def test_a_slice_backwards_is_none() -> None:
    text = (
        "g (float[4] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[2] y) { y = Slice (x, s, e, a, t) }"
    )
    assert views(text, {"s": np.array([2]), "e": np.array([0]), "a": np.array([0]), "t": np.array([-1])}) == []


def test_splits_of_an_inner_axis_are_not() -> None:
    text = "g (float[2,6] x) => (float[2,3] a, float[2,3] b) { a, b = Split <axis = 1, num_outputs = 2> (x) }"
    assert views(text) == []


@pytest.mark.parametrize(("index", "offset"), [(2, 20), (-1, 20), (0, 0)])
def test_a_gather_of_one_position_is_a_piece(index: int, offset: int) -> None:
    text = "g (float[3,2,5] x, int64 i) => (float[2,5] y) { y = Gather <axis = 0> (x, i) }"
    assert views(text, {"i": np.array(index)}) == [f"y@{offset}"]


def test_a_slice_that_is_computed_in_a_concat_is_a_kernel() -> None:
    text = """g (float[4,5] x, int64[1] z, int64[1] t, int64[1] f) => (float[4,5] y) {
        a = Slice (x, t, f)  b = Slice (x, z, t)  y = Concat <axis = 0> (a, b) }"""
    numbers = {"z": np.array([0]), "t": np.array([1]), "f": np.array([4])}
    assert views(text, numbers) == []


def test_pieces_are_read_where_they_lie(load_image) -> None:
    text = """g (float[4,6] x, int64[1] t, int64[1] f) => (float[2,6] y, float[6] z, float[3,6] u) {
        a = Neg (x)  b, c = Split <axis = 0, num_outputs = 2> (a)  y = Mul (b, c)
        i = Gather <axis = 0> (c, t)  j = Squeeze (i)  z = Exp (j)  u = Slice (a, t, f) }"""
    region = region_of(text, {"t": np.array([1]), "f": np.array([4])})
    x = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    compiled = LlvmBackend().compile(region, CompileOptions(host_target()))
    assert len(compiled.procedure.calls) == 3
    results = execute(compiled, [x], load_image)
    for found, wanted in zip(results, (x[:2] * x[2:], np.exp(-x[3]), -x[1:]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
