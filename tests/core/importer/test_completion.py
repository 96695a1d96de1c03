"""What exporters leave out or write twice: loaded as it is meant, and said in the record."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.graph.view import ValueView
from graft.core.importer.load import load
from graft.core.passes.pipeline import record_of
from graft.errors import ModelError

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
ONES = np.ones((2, 3), np.float32)


def model_of(
    nodes: list[onnx.NodeProto],
    outputs: list[onnx.ValueInfoProto],
    constants: list[onnx.TensorProto] | None = None,
    inputs: list[onnx.ValueInfoProto] | None = None,
    opsets: tuple[tuple[str, int], ...] = (("", 21),),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs or [X], outputs, constants or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets], ir_version=10)


def typed(name: str, kind: int | None) -> onnx.ValueInfoProto:
    """An output without a shape, and without a type where ``kind`` is None."""
    value = onnx.ValueInfoProto(name=name)
    if kind is not None:
        value.type.tensor_type.elem_type = kind
    return value


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, None], ids=["typed", "untyped"])
def test_an_output_without_a_shape_gets_the_one_that_is_inferred(kind: int | None) -> None:
    model = load(model_of([helper.make_node("Relu", ["x"], ["y"])], [typed("y", kind)]))
    (output,) = map(ValueView, model.graph.outputs)
    assert (output.dtype, output.shape) == ("float32", (2, 3))
    assert "complete-outputs: shapes inferred of y" in [str(step) for step in record_of(model)]


def test_an_output_without_a_shape_may_depend_on_a_folded_shape() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Concat", ["s", "one"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.array([1]), "one")]
    model = load(model_of(nodes, [typed("y", TensorProto.FLOAT)], constants))
    assert ValueView(model.graph.outputs[0]).shape == (2, 3, 1)


def test_a_group_normalization_has_the_shape_of_its_input() -> None:
    nodes = [
        helper.make_node("GroupNormalization", ["x", "s", "s"], ["t"], num_groups=3),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    model = load(model_of(nodes, [typed("y", None)], [numpy_helper.from_array(np.ones(3, np.float32), "s")]))
    assert [ValueView(node.outputs[0]).static_shape for node in model.graph] == [(2, 3)] * 2


def test_an_output_of_a_rank_known_at_run_time_is_refused() -> None:
    shape = helper.make_tensor_value_info("n", TensorProto.INT64, ["k"])
    model = model_of([helper.make_node("Reshape", ["x", "n"], ["y"])], [typed("y", None)], inputs=[X, shape])
    with pytest.raises(ModelError) as caught:
        load(model)
    assert str(caught.value) == (
        "output 'y' has no shape in the model, and none can be inferred: its rank depends on what is computed at run "
        "time; give it a shape, with names for the dimensions that vary"
    )


RELU = [helper.make_node("Relu", ["x"], ["y"])]
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])


@pytest.mark.parametrize("names", [("", "ai.onnx"), ("ai.onnx", "ai.onnx"), ("ai.onnx", "")])
def test_an_operator_set_may_be_imported_twice_in_one_version(names: tuple[str, str]) -> None:
    model = load(model_of(RELU, [Y], opsets=tuple((name, 21) for name in names)))
    assert [node.op_type for node in model.graph] == ["Relu"]


def test_of_two_versions_of_an_operator_set_the_last_counts() -> None:
    model = load(model_of(RELU, [Y], opsets=(("", 21), ("ai.onnx", 22))))
    (note,) = [one.note for one in record_of(model) if one.name == "merge-imports"]
    assert note == "operator set 'ai.onnx' was imported in versions 21, 22"


def classifier() -> onnx.ModelProto:
    """What skl2onnx makes of a logistic regression, in short."""
    ml, ints = "ai.onnx.ml", [7, 8, 9]
    weights = {"coefficients": [0.1, 0.2, 0.3, -0.1, 0.5, -0.2, 0.3, 0.3, 0.3], "intercepts": [0.1, 0.2, 0.3]}
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["label", "p"], domain=ml, classlabels_ints=ints, **weights),
        helper.make_node("Normalizer", ["p"], ["q"], domain=ml, norm="L1"),
        helper.make_node("ZipMap", ["q"], ["probabilities"], domain=ml, classlabels_int64s=ints),
    ]
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [2])
    row = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    rows = onnx.ValueInfoProto(name="probabilities", type=helper.make_sequence_type_proto(row))
    return model_of(nodes, [label, rows], opsets=(("", 21), ("ai.onnx", 21), (ml, 1)))


def test_a_classifier_gives_its_probabilities_as_a_tensor_instead_of_dictionaries() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = classifier()
    results = graft.compile(model, threads=1).run({"x": ONES})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    labels, rows = session.run(None, {"x": ONES})
    np.testing.assert_array_equal(results["label"], labels)
    expected = [[row[name] for name in (7, 8, 9)] for row in rows]
    np.testing.assert_allclose(results["probabilities"], expected, rtol=1e-5)


def test_the_record_says_which_class_a_column_is() -> None:
    steps = [str(step) for step in record_of(load(classifier()))]
    assert "drop-zip-maps: 'probabilities' is a tensor with a column per class, which are 7, 8, 9" in steps


NUMBERS = np.arange(-6, 6).reshape(3, 4)
ZEROS, SCALES = np.array([0, 1, 2, 3]), np.array([0.5, 1, 2, 4], np.float32)


def quantised(kind: int, middle: list[onnx.NodeProto], last: str, *, as_node: bool = False) -> onnx.ModelProto:
    numbers = NUMBERS if kind == TensorProto.INT4 else NUMBERS + 6
    weights = helper.make_tensor("w", kind, [3, 4], numbers.reshape(-1).tolist())
    constants = [helper.make_tensor("z", kind, [4], ZEROS.tolist()), numpy_helper.from_array(SCALES, "s")]
    first = [helper.make_node("Constant", [], ["w"], value=weights)] if as_node else []
    nodes = [
        *first,
        *middle,
        helper.make_node("DequantizeLinear", [last, "s", "z"], ["f"], axis=1),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    return model_of(nodes, [output], [*constants, *([] if as_node else [weights])])


TRANSPOSED = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("Transpose", ["t"], ["u"])]


@pytest.mark.parametrize("as_node", [False, True], ids=["initialiser", "node"])
@pytest.mark.parametrize(("middle", "last"), [([], "w"), (TRANSPOSED, "u")], ids=["plain", "moved"])
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4], ids=["int4", "uint4"])
def test_constants_of_four_bits_are_dequantised(
    kind: int, middle: list[onnx.NodeProto], last: str, as_node: bool
) -> None:
    program = graft.compile(quantised(kind, middle, last, as_node=as_node), ["llvm"], threads=1, strict=True)
    numbers = NUMBERS if kind == TensorProto.INT4 else NUMBERS + 6
    np.testing.assert_allclose(program(ONES), ONES @ ((numbers - ZEROS) * SCALES), rtol=1e-6)


def test_a_constant_of_four_bits_that_something_else_reads_stays() -> None:
    model = quantised(TensorProto.INT4, [], "w")
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.INT4, [3, 4]))
    assert ValueView(load(model).graph.initializers["w"]).dtype == "int4"


@pytest.mark.parametrize("stated", [[1, 3, 8, 2], None], ids=["stated", "unknown"])
def test_a_spectrum_is_half_of_one_where_the_model_says_nothing(stated: list[int] | None) -> None:
    """That is the operator's default; ONNX's inference takes the whole one, and models state what it said."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 1])
    y = typed("y", TensorProto.FLOAT)
    if stated:
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, stated)
    constants = [numpy_helper.from_array(np.array(n), name) for name, n in (("step", 4), ("length", 8))]
    model = model_of([helper.make_node("STFT", ["x", "step", "", "length"], ["y"])], [y], constants, [x])
    signal = np.sin(np.arange(16, dtype=np.float32)).reshape(1, 16, 1)
    (found,) = (graft.compile(model)(signal),)
    frames = np.stack([signal[0, at : at + 8, 0] for at in (0, 4, 8)])
    wanted = np.fft.rfft(frames)
    np.testing.assert_allclose(found[0], np.stack([wanted.real, wanted.imag], -1), atol=1e-5)
