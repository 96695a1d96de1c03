"""Operators that join more operands than a kernel can be deep."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import graft
from graft.core.passes.canonicalize_operators import MOST


def joined(operator: str, count: int) -> tuple[graft.Program, dict[str, np.ndarray]]:
    names = [f"x{number}" for number in range(count)]
    node = helper.make_node(operator, names, ["y"], name="join", **({"axis": 0} if operator == "Concat" else {}))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in names]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    random = np.random.default_rng(count)
    return graft.compile(model, ["llvm"], threads=1, cache=False), {
        name: random.integers(-9, 9, (2, 3)).astype(np.float32) for name in names
    }


@pytest.mark.parametrize("operator", ["Sum", "Max", "Min", "Concat"])
@pytest.mark.parametrize("count", [MOST, MOST + 1, pytest.param(1500, marks=pytest.mark.slow)])
def test_any_number_of_operands_is_joined(operator: str, count: int) -> None:
    program, feeds = joined(operator, count)
    arrays = [*feeds.values()]
    wanted = {"Sum": np.sum, "Max": np.max, "Min": np.min}
    expected = np.concatenate(arrays) if operator == "Concat" else wanted[operator](arrays, axis=0)
    np.testing.assert_array_equal(program.run(feeds)["y"], expected)
