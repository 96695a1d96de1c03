"""Concats whose parts are computed in their memory: text of a graph in, what is computed and copied where out."""

from __future__ import annotations

import numpy as np

from graft.core.operators.all import OPERATORS
from graft.plugins.codegen.grouping.concat_in_place import placed_concats
from graft.plugins.codegen.grouping.fusion import fuse
from tests.plugins.llvm.graphs import region_of

IMAGE, WIDE, WIDER = "float[1,8,6,6]", "float[1,16,6,6]", "float[1,24,6,6]"


def placed(text: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Return, by Concat that is no kernel, its parts with their offsets; copied ones in brackets."""
    region = region_of(text)
    groups = fuse(region.nodes(), {value.value for value in region.outputs}, OPERATORS, without)
    found = {}
    for one in (group.placed for group in groups if group.placed is not None):
        parts = [(offset, f"{value.name}@{offset}") for value, offset in one.computed]
        parts += [(offset, f"({value.name}@{offset})") for value, offset in one.copied]
        found[one.node.outputs[0].name] = " ".join(shown for _, shown in sorted(parts))
    return found


def test_parts_that_kernels_compute_are_computed_in_place() -> None:
    text = f"""g ({IMAGE} x) => ({WIDE} y) {{
        a = Relu (x)  b = Neg (x)  c = Concat <axis = 1> (a, b)  y = Exp (c) }}"""
    assert placed(text) == {"c": "a@0 b@288"}
    assert placed(text, ("in-place",)) == {}


def test_a_concat_is_the_beginning_of_the_next() -> None:
    assert placed(f"""g ({IMAGE} x) => ({WIDER} y) {{
        a = Relu (x)  b = Neg (x)  c = Concat <axis = 1> (a, b)  d = MaxPool <kernel_shape = [1, 1]> (a)
        y = Concat <axis = 1> (c, d) }}""") == {"c": "a@0 b@288", "y": "c@0 d@576"}


def test_a_concat_of_what_another_has_put_together_takes_it_whole() -> None:
    assert placed(f"""g ({IMAGE} x) => ({WIDE} c, {WIDER} y) {{
        a = Relu (x)  b = Neg (x)  d = Exp (x)  c = Concat <axis = 1> (a, b)
        y = Concat <axis = -3> (d, a, b) }}""") == {"c": "a@0 b@288", "y": "d@0 c@288"}


def test_concats_of_all_that_came_before_are_a_chain() -> None:
    assert placed(f"""g ({IMAGE} x) => (float[1,32,6,6] y) {{
        a = Relu (x)  b = Neg (x)  c = Concat <axis = 1> (a, b)
        d = MaxPool <kernel_shape = [1, 1]> (a)  e = Concat <axis = 1> (a, b, d)  h = Exp (e)
        i = MaxPool <kernel_shape = [1, 1]> (b)  y = Concat <axis = 1> (a, b, d, i) }}""") == {
        "c": "a@0 b@288",
        "e": "c@0 d@576",
        "y": "e@0 i@864",
    }


def test_what_another_concat_takes_whole_stays_a_result() -> None:
    region = region_of(f"""g ({IMAGE} x, {WIDE} r) => ({WIDER} y, float[1,32,6,6] z) {{
        a = Relu (x)  c = Concat <axis = 1> (a, r)  y = Neg (c)
        d = MaxPool <kernel_shape = [1, 1]> (a)  z = Concat <axis = 1> (a, r, d) }}""")
    groups = fuse(region.nodes(), {value.value for value in region.outputs}, OPERATORS)
    assert [str(group) for group in groups] == [
        "elementwise: Relu",
        "injective: Concat",
        "elementwise: Neg",
        "pooling: MaxPool",
        "view: Concat",
    ]


def test_an_input_of_the_region_is_copied() -> None:
    assert placed(f"""g ({IMAGE} x) => ({WIDE} y) {{ a = Relu (x)  y = Concat <axis = 1> (x, a) }}""") == {
        "y": "(x@0) a@288"
    }


def test_where_the_next_would_join_the_copying_kernel_nothing_is_copied() -> None:
    text = f"""g ({IMAGE} x, {IMAGE} r) => ({WIDE} y) {{
        a = Relu (x)  c = Concat <axis = 1> (a, r)  y = Neg (c) }}"""
    assert placed(text) == {}
    assert placed(text.replace("y = Neg (c)", "y = MaxPool <kernel_shape = [1, 1]> (c)")) == {"c": "a@0 (r@288)"}


def test_what_comes_twice_is_computed_once_and_copied_once() -> None:
    assert placed(f"""g ({IMAGE} x) => ({WIDE} y, {WIDE} z) {{
        a = Relu (x)  b = Neg (x)  y = Concat <axis = 1> (a, a)  z = Concat <axis = 1> (b, a) }}""") == {
        "y": "a@0 (a@288)",
        "z": "b@0 (a@288)",
    }


def test_mostly_copied_parts_are_copied_by_one_kernel() -> None:
    assert (
        placed(f"""g ({IMAGE} x, {IMAGE} r) => ({WIDER} y) {{
        a = Relu (x)  y = Concat <axis = 1> (x, r, a) }}""")
        == {}
    )


def test_parts_that_are_not_one_behind_another_are_no_views() -> None:
    assert (
        placed("""g (float[2,3] x) => (float[2,6] y) {
        a = Relu (x)  b = Neg (x)  y = Concat <axis = 1> (a, b) }""")
        == {}
    )


def test_what_a_part_is_a_view_of_is_computed_in_place() -> None:
    text = """g (float[2,3] x) => (float[1,12] y) {
        a = Relu (x)  b = Neg (x)  c = Flatten <axis = 0> (a)  d = Flatten <axis = 0> (b)
        y = Concat <axis = 1> (c, d) }"""
    assert placed(text) == {"y": "a@0 b@6"}
    assert placed(text, ("views",)) == {"y": "c@0 d@6"}


def test_a_part_that_is_a_view_of_what_has_symbols_is_copied() -> None:
    region = region_of(
        """g (float[16, n, m] x, int64[3] s) => (float[2, 4, 16] y) {
        a = Exp (x)  b = Reshape (a, s)  y = Concat <axis = 0> (b, b) }""",
        {"s": np.array([1, 4, 16])},
    )
    nodes = region.nodes()
    found = placed_concats(
        nodes, (), lambda node: node.op_type == "Concat", lambda node: node.op_type == "Reshape", lambda _: True
    )
    assert found == []
