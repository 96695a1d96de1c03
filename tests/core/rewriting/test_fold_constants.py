"""What folding may use of memory: what it reads no longer is given back."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx import helper, numpy_helper

from graft.core.importer.load import load
from graft.core.rewriting.fold_constants import FoldConstants

COUNT, BYTES = 6, 256


def unpacking() -> ir.Model:
    """Return a model that takes weights apart, two numbers a byte, and adds them up with its input."""
    constants = {"four": np.array([0, 4], np.uint8), "mask": np.array(15, np.uint8)}
    nodes, total = [], "x"
    for number in range(COUNT):
        constants[f"w{number}"] = np.arange(BYTES, dtype=np.uint8).reshape(BYTES, 1) + np.uint8(number)
        nodes += [
            helper.make_node("BitShift", [f"w{number}", "four"], [f"s{number}"], direction="RIGHT"),
            helper.make_node("BitwiseAnd", [f"s{number}", "mask"], [f"a{number}"]),
            helper.make_node("Add", [total, f"a{number}"], [f"t{number}"]),
        ]
        total = f"t{number}"
    nodes[-1].output[0] = "y"
    x, y = (helper.make_tensor_value_info(name, 2, [BYTES, 2]) for name in "xy")
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "unpacking", [x], [y], initializers)
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def test_as_many_packed_weights_as_there_are_become_constants() -> None:
    model = unpacking()
    assert FoldConstants(limit=0, total=3 * BYTES).run(model)
    assert [node.op_type for node in model.graph] == ["Add"] * COUNT
    contents = model.graph.initializers["a1"].const_value
    assert contents is not None
    expected = np.arange(BYTES, dtype=np.uint8) + np.uint8(1)
    np.testing.assert_array_equal(contents.numpy(), np.stack([expected & 15, expected >> 4], -1))
    assert not {"w0", "s0"} & set(model.graph.initializers)


def test_what_has_no_room_is_left_for_the_run() -> None:
    model = unpacking()
    FoldConstants(limit=0, total=-COUNT * BYTES).run(model)
    assert "BitShift" in {node.op_type for node in model.graph}
