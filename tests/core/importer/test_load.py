"""Import: what comes out of `load`, and every error that a model can cause."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, parser

import graft
from graft.core.graph.view import NodeView, ValueView
from graft.core.importer.load import load
from graft.core.importer.upgrade import IR_VERSION, OPSET
from graft.core.passes.pipeline import record_of
from graft.core.shapes.inference import require_static
from graft.errors import GraftError, ModelError

RELU = """<ir_version: 10, opset_import: ["" : 20]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"""


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def refusal(source: object, **arguments: object) -> str:
    with pytest.raises(ModelError) as caught:
        load(source, **arguments)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_path_bytes_a_proto_and_an_ir_model_load_alike(tmp_path: Path) -> None:
    proto = model_of(RELU)
    path = tmp_path / "relu.onnx"
    path.write_bytes(proto.SerializeToString())
    sources = [path, str(path), path.read_bytes(), proto, ir.from_proto(proto)]
    texts = {ir.to_proto(load(source)).SerializeToString(deterministic=True) for source in sources}
    assert len(texts) == 1


def test_the_source_is_not_changed() -> None:
    proto = model_of(RELU)
    before = proto.SerializeToString()
    load(proto)
    assert proto.SerializeToString() == before


def test_a_loaded_model_loads_as_itself() -> None:
    model = load(model_of(RELU))
    assert load(model) is model


def test_an_old_model_is_brought_to_the_newest_opset() -> None:
    model = load(
        model_of('<ir_version: 3, opset_import: ["" : 9]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) {y = Softmax(x)}')
    )
    assert (model.opset_imports[""], model.ir_version) == (OPSET, IR_VERSION)
    assert [node.op_type for node in model.graph] == ["Shape", "Flatten", "Softmax", "Reshape"]
    assert "upgrade-opset: opset 9 to 25" in [str(step) for step in record_of(model)]


def test_a_newer_model_whose_operators_did_not_change_is_brought_back() -> None:
    proto = model_of(RELU)
    proto.ir_version, proto.opset_import[0].version = 14, 28
    assert load(proto).opset_imports[""] == OPSET


def test_a_model_that_needs_a_newer_operator_keeps_its_opset() -> None:
    text = '<ir_version: 13, opset_import: ["" : 26]> g (float[3] x, int64 a) => (float[3] y) {y = CumProd(x, a)}'
    assert load(model_of(text)).opset_imports[""] == 26


def test_every_value_is_typed_and_every_node_has_a_name_of_its_own() -> None:
    proto = model_of(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2, 3] x) => (float[2, 3] y) '
        "{ [a] t = Relu(x) [a] u = Abs(t) y = Neg(u) }"
    )
    model = load(proto)
    assert [node.name for node in model.graph] == ["a", "a_2", "y"]
    assert [ValueView(node.outputs[0]).static_shape for node in model.graph] == [(2, 3)] * 3


def test_functions_of_the_model_are_inlined() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>
        g (float[2] x) => (float[2] y) { y = mine.twice(x) }
        <domain: "mine", opset_import: ["" : 20]> twice (a) => (b) { b = Add(a, a) }"""
    model = load(model_of(text))
    assert [node.op_type for node in model.graph] == ["Add"]
    assert not model.functions
    assert "inline-functions: functions inlined: twice" in [str(step) for step in record_of(model)]


def test_nodes_out_of_order_are_sorted() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Neg(t) t = Abs(x) }"""
    model = load(model_of(text))
    assert [node.op_type for node in model.graph] == ["Abs", "Neg"]


def test_an_initialiser_that_is_an_input_becomes_a_constant() -> None:
    proto = model_of(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x, float[2] w) => (float[2] y) {y = Add(x, w)}'
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    model = load(proto)
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert NodeView(model.graph.node(0)).inputs[1].constant.tolist() == [1, 1]  # type: ignore[union-attr]


def test_large_weights_survive_import() -> None:
    weights = np.arange(4096, dtype=np.float32)
    proto = model_of('<ir_version: 10, opset_import: ["" : 9]> g (float[4096] x) => (float[4096] y) {y = Add(x, w)}')
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model = load(proto)
    assert np.array_equal(model.graph.initializers["w"].const_value.numpy(), weights)  # type: ignore[union-attr]


SYMBOLIC = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, 3, h, h] x, float[n] s) => (float[n, 3, h, h] y) { y = Relu(x) }"""


def test_shapes_give_numbers_to_symbols_everywhere() -> None:
    model = load(model_of(SYMBOLIC), shapes={"x": (1, 3, 8, 8)})
    assert ValueView(model.graph.outputs[0]).static_shape == (1, 3, 8, 8)
    assert ValueView(model.graph.inputs[1]).static_shape == (1,)
    require_static(model)


def test_a_symbolic_dimension_is_allowed_until_static_shapes_are_required() -> None:
    model = load(model_of(SYMBOLIC))
    with pytest.raises(ModelError) as caught:
        require_static(model)
    assert str(caught.value) == (
        "the shape of input 'x' float32[n,3,h,h], 's' float32[n] is not fixed; give every dimension a number, as in "
        'shapes={"x": (1, 3, 224, 224), "s": (1,)}'
    )


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "the model has no input 'z'; its inputs are 'x', 's'"),
        ({"x": (1, 4, 8, 8)}, "input 'x' has the shape nx3xhxh, which 1x4x8x8 does not fit"),
        ({"x": (1, 3, 8)}, "input 'x' has the shape nx3xhxh, which 1x3x8 does not fit"),
        ({"x": (1, 3, 8, 9)}, "dimension 'h' is given two values, 8 and 9 (input 'x')"),
        ({"x": (1, 3, 8, 8), "s": (2,)}, "dimension 'n' is given two values, 1 and 2 (input 's')"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    assert refusal(model_of(SYMBOLIC), shapes=shapes) == message


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    assert refusal(path) == f"cannot read '{path}': No such file or directory"


@pytest.mark.parametrize("data", [b"", b"hello, this is text", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04"])
def test_bytes_of_something_else_are_refused(data: bytes) -> None:
    assert refusal(data) == "the data is not an ONNX model; pass the .onnx file that an exporter wrote"


def test_a_truncated_model_is_refused() -> None:
    data = model_of(RELU).SerializeToString()
    assert refusal(data[:-3]) == "the data begins as an ONNX model but is damaged or cut off; copy it again"


def test_an_unknown_operator_is_named_with_the_nearest() -> None:
    assert refusal(model_of(RELU.replace("Relu", "Rellu"))) == (
        "Rellu (node 'y'): operator set 'ai.onnx' has no operator 'Rellu'; did you mean 'Relu'"
    )


def test_an_operator_newer_than_the_opset_is_refused() -> None:
    text = RELU.replace('"" : 20', '"" : 19').replace("Relu", "Gelu")
    assert refusal(model_of(text)) == (
        "Gelu (node 'y'): 'Gelu' came with opset 20 of 'ai.onnx' but the model imports opset 19"
    )


def test_an_unknown_domain_is_refused() -> None:
    text = RELU.replace('"" : 20', '"" : 20, "com.acme" : 1').replace("Relu", "com.acme.Magic")
    assert refusal(model_of(text)) == (
        "Magic (node 'y'): unknown domain 'com.acme'; known are ai.onnx, ai.onnx.ml, ai.onnx.preview, "
        "ai.onnx.preview.training, the model's own functions and what plugins register"
    )


def test_an_operator_set_that_is_not_imported_is_named() -> None:
    text = RELU.replace("Relu", "ai.onnx.ml.Binarizer")
    assert refusal(model_of(text)) == "Binarizer (node 'y'): the model does not import operator set 'ai.onnx.ml'"


def test_an_opset_from_the_future_is_refused() -> None:
    newest = onnx.defs.onnx_opset_version()
    assert refusal(model_of(RELU.replace('"" : 20', '"" : 99'))) == (
        f"model imports opset 99 but onnx {onnx.__version__} knows 1 to {newest}; upgrade onnx"
    )


def test_a_cycle_is_shown() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) {y = Add(x, z) z = Abs(y)}'
    message = refusal(model_of(text))
    assert message == "the graph has a cycle: Add (node 'y') -> Abs (node 'z') -> Add (node 'y')"


def test_a_dangling_input_is_named_with_the_nearest_value() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] data) => (float[2] y) {[n] y = Abs(dta)}'
    assert refusal(model_of(text)) == (
        "Abs (node 'n'): input 'dta' is not computed by any node of graph 'g'; did you mean 'data'"
    )


def test_a_dangling_output_is_named() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] result) {y = Abs(x)}'
    assert refusal(model_of(text)) == "output 'result' is not computed by any node of graph 'g'"


def test_a_value_computed_twice_is_refused() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) {y = Abs(x) [n] y = Neg(x)}'
    assert refusal(model_of(text)) == "Neg (node 'n'): value 'y' is computed twice in graph 'g'"


def test_a_graph_without_outputs_is_refused() -> None:
    proto = model_of(RELU)
    del proto.graph.output[:]
    assert refusal(proto) == "graph 'g' has no outputs, so there is nothing to compute"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "g (float[2, 3] x) => (float[2, 3] y) { [n] y = Softmax <axis: int = @q> (x) }",
            "Softmax (node 'n'): attribute 'axis' refers to 'q'; only nodes of a function may, to its attributes",
        ),
        (
            "g (float[2, 3] x) => (float[2, 3] y) { y = local.F (x) } "
            '<domain: "local", opset_import: ["" : 20]> F <p> (x) => (y) { [n] y = Softmax <axis: int = @q> (x) }',
            "Softmax (node 'n'): attribute 'axis' refers to 'q'; function 'F' has no such attribute",
        ),
    ],
)
def test_an_attribute_that_refers_to_none_is_refused(text: str, message: str) -> None:
    header = '<ir_version: 10, opset_import: ["" : 20, "local" : 1]> '
    assert refusal(onnx.parser.parse_model(header + text)) == message


def test_functions_that_call_each_other_in_a_cycle_are_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>
        g (float[2] x) => (float[2] y) { y = mine.f(x) }
        <domain: "mine", opset_import: ["" : 20, "mine" : 1]> f (a) => (b) { b = mine.f(a) }"""
    assert refusal(model_of(text)) == "the model's functions call each other in a cycle: mine.f -> mine.f"


def test_functions_that_multiply_without_bound_are_refused() -> None:
    bodies = "".join(
        f'<domain: "mine", opset_import: ["" : 20, "mine" : 1]> f{n} (a) => (b) {{ t = mine.f{n + 1}(a) '
        f"b = mine.f{n + 1}(t) }}\n"
        for n in range(24)
    )
    last = '<domain: "mine", opset_import: ["" : 20]> f24 (a) => (b) { b = Abs(a) }'
    text = f"""<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>
        g (float[2] x) => (float[2] y) {{ y = mine.f0(x) }}\n{bodies}{last}"""
    assert refusal(model_of(text)) == (
        "the model's functions stand for 16777216 nodes once inlined, more than the 1000000 that are allowed"
    )


def test_an_initialiser_with_too_few_bytes_is_refused() -> None:
    proto = model_of('<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) {y = Add(x, w)}')
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.raw_data = b"\0" * 12
    assert refusal(proto) == "initialiser 'w' has 12 bytes but its shape [4] needs 16; the file is damaged"
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1, 2, 3])
    assert refusal(proto) == "initialiser 'w' has 3 elements but its shape [4] needs 4; the file is damaged"


def test_shapes_that_contradict_each_other_are_refused() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x, float[3] z) => (float[2] y) {[n] y = Add(x, z)}'
    assert refusal(model_of(text)) == (
        "types or shapes of the model contradict each other: [ShapeInferenceError] Inference error(s): "
        "(op_type:Add, node name: n): [ShapeInferenceError] Incompatible dimensions"
    )


SCAN_8 = """<ir_version: 3, opset_import: ["" : 8]>
    g (float[2, 2] i, float[2, 3, 2] x{lengths}) => (float[2, 2] y, float[2, 3, 2] z) {{
      y, z = Scan <num_scan_inputs = 1, directions = [1],
        body = b (float[2] s, float[2] n) => (float[2] t, float[2] o) {{ t = Add(s, n) o = Identity(t) }}>
        ({given}, i, x) }}"""


def test_scan_of_opset_8_becomes_one_over_the_batch() -> None:
    start, steps = np.arange(4, dtype=np.float32).reshape(2, 2), np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    last, sums = graft.compile(model_of(SCAN_8.format(lengths="", given='""')), ["llvm"])(start, steps)
    expected = start[:, None] + np.cumsum(steps[:, ::-1], axis=1)
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(last, expected[:, -1])


def test_scan_of_opset_8_with_lengths_is_refused() -> None:
    assert refusal(model_of(SCAN_8.format(lengths=", int64[2] n", given="n"))) == (
        "the model cannot be brought from opset 8 to 25: its Scan has a batch axis, and lengths or operators beside it "
        "that opset 9 has otherwise; export it again with opset 25"
    )


def damaged_source() -> bytes:
    proto = model_of(
        """<ir_version: 8, opset_import: ["" : 12]> g (float[2, 3, 4] x, bool c) => (float[2, 12] y) {
            s = Constant<value_ints = [2, -1]>()
            t = If (c) <then_branch = t () => (float[2, 3, 4] a) { a = Softmax<axis = 1>(x) },
                        else_branch = e () => (float[2, 3, 4] b) { b = Add(x, w) }>
            y = Reshape(t, s) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    return proto.SerializeToString()


DAMAGED = damaged_source()


def test_the_source_of_the_damaged_models_is_sound() -> None:
    assert len(load(DAMAGED).graph) > 2


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(DAMAGED) - 1), st.integers(0, 255))
def test_a_flipped_byte_loads_or_is_refused(position: int, byte: int) -> None:
    data = bytearray(DAMAGED)
    data[position] = byte
    with contextlib.suppress(GraftError):
        load(bytes(data))


@pytest.mark.parametrize("length", range(0, len(DAMAGED) - 1, 7))
def test_a_cut_off_model_loads_or_is_refused(length: int) -> None:
    with contextlib.suppress(GraftError):
        load(DAMAGED[:length])


def test_a_copy_of_a_loaded_model_keeps_its_weights_without_copying_them() -> None:
    proto = model_of('<ir_version: 10, opset_import: ["" : 9]> g (float[4096] x) => (float[4096] y) {y = Add(x, w)}')
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4096, np.float32), "w"))
    model = load(proto)
    again = load(model.clone())
    assert again is not model
    assert again.graph.initializers["w"].const_value is model.graph.initializers["w"].const_value


@pytest.mark.parametrize(
    "nodes",
    ["v = GroupNormalization<num_groups = 2>(x, s, s)", "v = MeanVarianceNormalization(x)"],
)
def test_what_follows_a_normalization_has_a_type(nodes: str) -> None:
    """onnx infers nothing of these operators, and so nothing behind them."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2,4,3,3] x, float[4] s) => (float[2,4,9] y)
    <int64[3] to = {{2, 4, 9}}> {{ {nodes} w = Neg(v) y = Reshape(w, to) }}"""
    shapes = {value.name: value.shape for node in load(model_of(text)).graph for value in node.outputs}
    assert shapes["v"] == shapes["w"] == ir.Shape([2, 4, 3, 3])


def test_a_function_of_another_opset_takes_what_another_function_gives() -> None:
    """onnx's inliner would convert it, and knows no type of its argument."""
    source = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22, "own" : 1]> g (float[2,3] x) => (float[2,3] y) {
            a = own.first (x)
            y = own.second (a)
        }
        <opset_import: ["" : 22], domain: "own"> first (x) => (y) { y = Neg (x) }
        <opset_import: ["" : 21], domain: "own"> second (x) => (y) { y = Softplus (x) }"""
    )
    assert [node.op_type for node in load(source).graph] == ["Neg", "Softplus"]
