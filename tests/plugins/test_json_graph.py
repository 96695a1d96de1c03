import json
from contextlib import suppress

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.errors import ArtifactError, CompileError
from graft.plugins.json_codegen import serialize
from graft.plugins.json_graph import JsonGraph
from tests.plugins.regions import region_of

WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2)
MATMUL_LEAKY = ("npu.matmul_leaky", "(a, b) => (c) { mm = MatMul(a, b) c = LeakyRelu<alpha = 0.5>(mm) }")


def graph_of(body, inputs=None, outputs=None, **options):
    region = region_of(body, inputs or {"x": (1, 4)}, outputs=outputs or {"y": (1, 2)}, **options)
    return serialize(region)


def test_a_composite_becomes_one_kernel_with_its_body():
    graph, constants = graph_of(
        "y = graft.composite.c0(x, w)", constants={"w": WEIGHT}, composites={"c0": MATMUL_LEAKY}
    )
    assert json.loads(graph.to_json()) == {
        "symbol": "r0",
        "nodes": [
            {"op": "input", "name": "x", "attrs": {"dtype": ["float32"], "shape": [[1, 4]]}},
            {"op": "const", "name": "w", "attrs": {"dtype": ["float32"], "shape": [[4, 2]]}},
            {
                "op": "kernel",
                "name": "npu.matmul_leaky",
                "inputs": [[0, 0, 0], [1, 0, 0]],
                "attrs": {
                    "dtype": ["float32"],
                    "shape": [[1, 2]],
                    "attributes": {"alpha": 0.5},
                    "origin": ["mm", "c"],
                    "body": [
                        {"op": "MatMul", "inputs": [[-1, 0], [-1, 1]]},
                        {"op": "LeakyRelu", "inputs": [[0, 0]], "attributes": {"alpha": 0.5}},
                    ],
                    "results": [[1, 0]],
                },
            },
        ],
        "arg_nodes": [0, 1],
        "heads": [[2, 0, 0]],
        "node_row_ptr": [0, 1, 2, 3],
    }
    assert constants["w"].tobytes() == WEIGHT.tobytes()


def test_absent_optional_inputs_are_marked():
    graph, _ = graph_of("y = Clip(x, , high)", constants={"high": np.float32(1)}, outputs={"y": (1, 4)})
    assert [entry.is_absent for entry in graph.kernels[0].inputs] == [False, True, False]
    assert graph.kernels[0].body[0].inputs == ((-1, 0), None, (-1, 2))


def test_schema_defaults_are_written_out():
    graph, _ = graph_of("y = Gemm(x, w)", constants={"w": WEIGHT})
    assert graph.kernels[0].attributes == {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}


def test_an_attribute_of_two_operators_is_asked_for_by_operator():
    body = "(a) => (c) { b = LeakyRelu<alpha = 0.5>(a) c = Elu<alpha = 2.0>(b) }"
    graph, _ = graph_of("y = graft.composite.c0(x)", composites={"c0": ("npu.two", body)})
    (kernel,) = graph.kernels
    assert kernel.attribute("alpha") is None
    assert (kernel.attribute("LeakyRelu.alpha"), kernel.attribute("Elu.alpha")) == (0.5, 2.0)


def test_outputs_of_one_node_are_numbered():
    graph, _ = graph_of("p, q = Split<axis = 1, num_outputs = 2>(x)", outputs={"q": (1, 2), "p": (1, 2)})
    assert graph.node_row_ptr == (0, 1, 3)
    assert [(head.node, head.index) for head in graph.heads] == [(1, 1), (1, 0)]


def test_a_constant_node_becomes_a_constant():
    graph, constants = graph_of("k = Constant<value = float {2.0}>() y = Mul(x, k)", outputs={"y": (1, 4)})
    assert [node.name for node in graph.constants] == ["k"]
    assert constants["k"] == np.float32(2)


def test_tensor_attributes_and_non_finite_floats_are_plain_json():
    region = region_of("y = Elu(x)", {"x": (1, 4)}, outputs={"y": (1, 4)})
    (node,) = region.function
    node.attributes["alpha"] = ir.AttrFloat32("alpha", float("inf"))
    node.attributes["table"] = ir.AttrTensor("table", ir.tensor(np.array([[1, -2]], np.int64)))
    graph, _ = serialize(region)
    table = {"dtype": "int64", "shape": [1, 2], "data": [1, -2]}
    assert graph.kernels[0].attributes == {"alpha": "inf", "table": table}
    assert JsonGraph.from_json(graph.to_json()) == graph


def test_symbolic_dimensions_keep_their_names():
    graph, _ = graph_of("y = Relu(x)", inputs={"x": ("batch", 4)}, outputs={"y": ("batch", 4)})
    assert graph.inputs[0].shape == (("batch", 4),)


def test_an_operator_that_holds_a_graph_is_refused():
    branches = "then_branch = t () => (float a) { a = Neg(x) }, else_branch = e () => (float b) { b = Abs(x) }"
    with pytest.raises(CompileError) as caught:
        graph_of(f"y = If(x) <{branches}>", outputs={"y": (1, 4)})
    assert caught.value.message == (
        "If (node 'y'): attribute 'then_branch' is a graph, which a JSON graph cannot hold; "
        "reject the node in supports()"
    )


def test_an_output_of_unknown_dtype_is_refused():
    region = region_of("y = Relu(x)", {"x": (1, 4)}, outputs={"y": (1, 4)})
    region.outputs[0].value.type = None
    with pytest.raises(CompileError) as caught:
        serialize(region)
    assert caught.value.message == (
        "Relu (node 'y'): output 'y' has no known dtype, but a JSON graph states one for every output; "
        "reject the node in supports()"
    )


def test_a_graph_runs_with_a_function_per_kernel():
    graph, constants = graph_of("t = MatMul(x, w) y = Add(t, t)", constants={"w": WEIGHT})
    kernels = {"MatMul": np.matmul, "Add": np.add}
    x = np.ones((1, 4), np.float32)
    (y,) = graph.run([x], constants, lambda node, arrays: [kernels[node.name](*arrays)])
    assert y.tolist() == (2 * x @ WEIGHT).tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "damaged JSON graph: JSONDecodeError Expecting value: line 1 column 1 (char 0); compile the model again"),
        (b"{}", "damaged JSON graph: KeyError 'nodes'; compile the model again"),
        (
            b'{"symbol":"r","nodes":[],"heads":[[0,0,0]]}',
            "damaged JSON graph: head [0, 0] does not exist; compile the model again",
        ),
        (
            b'{"symbol":"r","nodes":[{"op":"kernel","name":"k","inputs":[[0,0,0]],"attrs":{"dtype":[],"shape":[]}}],'
            b'"heads":[]}',
            "damaged JSON graph: node 0 reads [0, 0], which no earlier node writes; compile the model again",
        ),
        (
            b'{"symbol":"r","nodes":[{"op":"gift","name":"k","attrs":{"dtype":[],"shape":[]}}],"heads":[]}',
            "damaged JSON graph: node 0 is malformed; compile the model again",
        ),
    ],
)
def test_a_damaged_graph_is_an_error(text, message):
    with pytest.raises(ArtifactError) as caught:
        JsonGraph.from_json(text)
    assert caught.value.message == message


@given(st.data())
def test_a_flipped_byte_gives_an_error_or_a_graph(data):
    graph, _ = graph_of("t = MatMul(x, w) y = Relu(t)", constants={"w": WEIGHT})
    text = bytearray(graph.to_json())
    text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(ArtifactError):
        damaged = JsonGraph.from_json(bytes(text))
        assert JsonGraph.from_json(damaged.to_json()) == damaged
