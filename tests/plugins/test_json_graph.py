import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.core.affine.text import parsed, text
from graft.errors import ArtifactError, CompileError, GraftError
from graft.plugins.graph_symbols import GraphSymbols
from graft.plugins.json_codegen import serialize
from graft.plugins.json_graph import GraphSymbol, JsonGraph
from graft.runtime.extents import Operation, Symbol
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


def test_symbolic_dimensions_are_expressions_over_what_axes_of_inputs_say():
    graph, _ = graph_of("y = Concat<axis = 0>(x, x)", inputs={"x": ("batch", 4)}, outputs={"y": ("2*batch", 4)})
    assert graph.symbols == (GraphSymbol("batch", 0, 0),)
    text = json.loads(graph.to_json())
    assert text["symbols"] == [{"name": "batch", "input": 0, "axis": 0}]
    assert text["extents"] == [["mul", 2, "s0"]]
    assert [node["attrs"]["shape"] for node in text["nodes"]] == [[["s0", 4]], [["e0", 4]]]
    assert JsonGraph.from_json(graph.to_json()) == graph


def test_a_graph_of_numbers_has_no_symbols():
    graph, _ = graph_of("y = Relu(x)", outputs={"y": (1, 4)})
    assert not {"symbols", "extents"} & json.loads(graph.to_json()).keys()


def test_shapes_of_inputs_give_the_graph_of_numbers():
    graph, _ = graph_of("y = Concat<axis = 0>(x, x)", inputs={"x": ("batch", 4)}, outputs={"y": ("2*batch", 4)})
    at = graph.at([(3, 4)])
    assert (at.symbols, [node.shape for node in at.nodes]) == ((), [((3, 4),), ((6, 4),)])


def test_attributes_that_depend_on_shapes_are_numbers_for_some():
    graph, _ = graph_of("y = Relu(x)", inputs={"x": ("batch", 4)}, outputs={"y": ("batch", 4)})
    kernel = replace(graph.nodes[1], attributes={"pads": [Operation("add", Symbol("batch"), 1), 0]})
    graph = replace(graph, nodes=(graph.nodes[0], kernel))
    assert JsonGraph.from_json(graph.to_json()) == graph
    assert graph.at([(3, 4)]).nodes[1].attributes == {"pads": [4, 0]}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 5), "region 'r0': input 'x' has 5 at axis 1, but '4' is 4 (batch = 3)"),
        ((3, 4, 1), "region 'r0': input 'x' has 3 axes, not 2"),
        ((2, 4), "Relu (node 'y'): 'batch - 3' is -1, but an extent is at least 0 (batch = 2)"),
    ],
)
def test_shapes_that_contradict_the_graph_are_errors(shape, message):
    graph, _ = graph_of("y = Relu(x)", inputs={"x": ("batch", 4)}, outputs={"y": ("batch - 3", 4)})
    with pytest.raises(GraftError) as caught:
        graph.at([shape])
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("inputs", "extents"),
    [
        (
            {"x": ("2*seq", 4), "y": ("seq + past", 4)},
            {"seq": "x_0//2", "past": "y_0 - x_0//2", "2*seq": "x_0", "3*seq": "3*(x_0//2)"},
        ),
        ({"x": ("batch*seq", 4)}, {"batch*seq": "x_0", "64*batch*seq": "64*x_0", "batch": None}),
        ({"x": ("past + seq", "seq")}, {"past": "-seq + x_0", "2*past": "-2*seq + 2*x_0"}),
        ({"x": ("n//2", "n_1")}, {"n//2": "x_0", "n": None, "n//2 + n_1": "n_1 + x_0"}),
        ({"x": ("n//2 + 2", "m")}, {"n//2 + 4": "x_0 + 2", "n//2": "x_0 - 2", "n//2 + m": "m + x_0 - 2", "n//3": None}),
        ({"x": ("n//2", 4)}, {"(n + 2)//4": "(x_0 + 1)//2", "n//8": "x_0//4", "(n + 1)//4": None, "n//3": None}),
    ],
)
def test_extents_are_said_by_what_the_axes_of_inputs_tell(inputs, extents):
    symbols = GraphSymbols.of(list(inputs), [tuple(map(parsed, map(str, shape))) for shape in inputs.values()])
    said = {one: symbols.said(parsed(one)) for one in extents}
    assert {one: None if extent is None else text(extent) for one, extent in said.items()} == extents


def test_a_symbol_of_an_axis_out_of_range_is_damage():
    graph, _ = graph_of("y = Relu(x)", inputs={"x": ("batch", 4)}, outputs={"y": ("batch", 4)})
    with pytest.raises(ArtifactError) as caught:
        JsonGraph.from_json(graph.to_json().replace(b'"axis":0', b'"axis":2'))
    assert caught.value.message == (
        "damaged JSON graph: axis 2 of input 0, of symbol 'batch', is out of range; compile the model again"
    )


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
