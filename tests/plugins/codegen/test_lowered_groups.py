"""Kernels of groups: the stages that nobody reads are left out, and the anchor's is still found."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import anchor_stage
from graft.core.tensor_ir.ir import Buffer, Stage
from graft.core.types import Type

SPLIT = """<ir_version: 10, opset_import: ["" : 21]>
agraph (float[batch,84,8] x) => ({}) <int64[3] sizes = {{4, 16, 64}}> {{ a, b, c = Split<axis = 1>(x, sizes) }}"""
PARTS = {"a": slice(0, 4), "b": slice(4, 20), "c": slice(20, 84)}


@pytest.mark.parametrize("read", [parts for count in (1, 2, 3) for parts in combinations(PARTS, count)], ids="".join)
def test_any_parts_of_a_split_with_an_open_batch_may_be_unread(read: tuple[str, ...]) -> None:
    outputs = ", ".join(f"float[batch,{PARTS[name].stop - PARTS[name].start},8] {name}" for name in read)
    program = graft.compile(onnx.parser.parse_model(SPLIT.format(outputs)), ["llvm"], strict=True)
    x = np.arange(3 * 84 * 8, dtype=np.float32).reshape(3, 84, 8)
    for name, part in program.run({"x": x}).items():
        np.testing.assert_array_equal(part, x[:, PARTS[name]])


def stage_of(origin: str, *, sums: bool = False) -> Stage:
    source, made = Buffer("source", "float32", (b.index(4), b.index(3))), Buffer(origin, "float32", (b.index(4),))
    if sums:
        stage = b.reduce(made, "add", (3,), lambda axes, k: b.load(source, *axes, *k), b.literal(0.0, Type("float32")))
    else:
        stage = b.compute(made, lambda axes: b.load(source, *axes, 0))
    return replace(stage, origin=(origin,))


def test_the_stage_of_an_anchor_is_found_by_its_origin() -> None:
    node = NodeView(ir.node("ReduceSum", [], name="anchor"))
    before, sums, bias, after = stage_of("x"), stage_of("anchor", sums=True), stage_of("anchor"), stage_of("y")
    assert anchor_stage([before, sums, bias, after], node) == 1
    assert anchor_stage([sums, bias, after], node) == 0
    assert anchor_stage([before, bias, after], node) == 1
    assert anchor_stage([before, after], node) == 1
