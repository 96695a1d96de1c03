import warnings

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest
from onnx.backend.test.loader import load_model_tests

import graft
from graft.core.graph.view import NodeView, ValueView, is_packed
from graft.core.machine.target import CompileOptions, target_named
from graft.core.reject import Reject
from graft.errors import ArtifactError, CompileError
from graft.partition.region import Region
from graft.plugins.reference.backend import ReferenceBackend
from graft.plugins.reference.loader import load
from graft.runtime.packed_values import pack, unpack
from tests.plugins.regions import region_of

OPTIONS = CompileOptions(target_named("x86-64"))
RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Dropout"}


def first_case_of_every_operator():
    """Return one of ONNX's node cases per operator: single-node models on tensors, but for the random operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    found = {}
    for case in cases:
        graph = case.model.graph
        arrays = [array for pair in case.data_sets for side in pair for array in side]
        if len(graph.node) == 1 and all(isinstance(array, np.ndarray) for array in arrays):
            name, opset = graph.node[0].op_type, case.model.opset_import[0].version
            if name not in found or found[name].model.opset_import[0].version < opset:
                found[name] = case
    return [pytest.param(case, id=name) for name, case in sorted(found.items()) if name not in RANDOM]


def region_from(model: onnx.ModelProto) -> Region:
    """Return a single-node model as a region."""
    graph = ir.from_proto(model).graph
    function = ir.Function("graft.region", "r0", graph=graph, attributes=[])
    inputs = tuple(ValueView(value) for value in function.inputs)
    return Region("r0", "reference", function, {}, inputs, tuple(ValueView(value) for value in function.outputs))


def run(region, *arrays):
    module = ReferenceBackend().compile(region, OPTIONS)
    assert (module.kind, module.functions) == ("reference", (region.name,))
    given = [pack(one) if is_packed(port.value) else one for port, one in zip(region.inputs, arrays, strict=True)]
    results = load(module.name, module.data, module.constants)[region.name](given)
    return [unpack(one) if is_packed(port.value) else one for port, one in zip(region.outputs, results, strict=True)]


@pytest.mark.parametrize("case", first_case_of_every_operator())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_operator_that_is_taken_is_computed_as_onnx_says(case):
    region = region_from(case.model)
    verdict = ReferenceBackend().supports(region.nodes()[0])
    if isinstance(verdict, Reject):
        assert verdict.code == "no-pattern"
        assert verdict.text.startswith("onnx.reference ")
        return
    for inputs, outputs in case.data_sets:
        results = run(region, *inputs)
        for result, expected in zip(results, outputs, strict=True):
            assert result.shape == expected.shape
            if expected.dtype == object:
                assert result.tolist() == expected.tolist()
            else:
                assert result.dtype == expected.dtype
                wide = np.complex128 if np.iscomplexobj(expected) else np.float64
                np.testing.assert_allclose(result.astype(wide), expected.astype(wide), case.rtol, max(case.atol, 1e-6))


def test_constants_and_composites_are_part_of_the_module():
    region = region_of(
        "t = graft.composite.c0(x, w) y = Neg(t)",
        {"x": (1, 2)},
        constants={"w": np.eye(2, dtype=np.float32) * 3},
        composites={"c0": ("npu.matmul_relu", "(a, b) => (c) { m = MatMul(a, b) c = Relu(m) }")},
        outputs={"y": (1, 2)},
    )
    assert run(region, np.array([[1, -2]], np.float32))[0].tolist() == [[-3, 0]]
    assert list(ReferenceBackend().compile(region, OPTIONS).constants) == ["w"]


def test_string_constants_are_embedded():
    text = np.array(["a", "b"], dtype=object)
    region = region_of("y = StringConcat(x, s)", {"x": (2,)}, constants={"s": text}, outputs={"y": (2,)})
    for value in (region.inputs[0].value, region.outputs[0].value):
        value.dtype = ir.DataType.STRING
    assert ReferenceBackend().compile(region, OPTIONS).constants == {}
    assert run(region, np.array(["1", "2"], dtype=object))[0].tolist() == ["1a", "2b"]


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_codes_of_few_bits_with_zero_points_are_computed_as_onnx_says(dtype):
    text = f"""<ir_version: 11, opset_import: ["" : 25]> g (float[6] x) => (float[6] y)
        <float s = {{0.5}}, {dtype} z = {{1}}> {{
        q = QuantizeLinear (x, s, z)
        y = DequantizeLinear (q, s, z) }}"""
    model, x = onnx.parser.parse_model(text), np.float32([-9, -0.6, 0, 0.3, 1.2, 9])
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(graft.compile(model, ["reference"])(x), wanted)
    assert len(set(wanted.tolist())) > 2


def test_the_model_of_a_region_passes_the_checker():
    region = region_of("y = Relu(x)", {"x": (1, 2)}, outputs={"y": (1, 2)})
    onnx.checker.check_model(onnx.load_model_from_string(ReferenceBackend().compile(region, OPTIONS).data))


def test_an_operator_of_a_foreign_domain_is_refused():
    node = NodeView(ir.Node("com.microsoft", "FastGelu", [ir.Value(name="x")]))
    assert ReferenceBackend().supports(node) == Reject(
        "no-pattern", "onnx.reference knows no operators of domain 'com.microsoft'"
    )


def test_an_operator_without_implementation_is_refused():
    node = NodeView(ir.Node("", "NoSuchOperator", [ir.Value(name="x")], version=21))
    assert ReferenceBackend().supports(node) == Reject(
        "no-pattern", "onnx.reference does not implement NoSuchOperator of opset 21"
    )


def test_an_operator_that_holds_an_unsupported_node_is_refused():
    inner = ir.Node("com.example", "Odd", [], name="odd")
    body = ir.Graph([], list(inner.outputs), nodes=[inner], opset_imports={"": 21, "com.example": 1})
    node = ir.Node("", "If", [ir.Value(name="c")], [ir.AttrGraph("then_branch", body)], version=21)
    assert ReferenceBackend().supports(NodeView(node)) == Reject(
        "no-pattern", "onnx.reference knows no operators of domain 'com.example'"
    )


def test_an_input_of_unknown_type_is_an_error():
    region = region_of("y = Relu(x)", {"x": (1, 2)}, outputs={"y": (1, 2)})
    region.inputs[0].value.type = None
    with pytest.raises(CompileError) as caught:
        ReferenceBackend().compile(region, OPTIONS)
    assert caught.value.message == (
        "region 'r0' (Relu (node 'y')): the type of input 'x' is unknown; run shape inference before partitioning"
    )


def test_a_damaged_model_is_an_error_at_load():
    with pytest.raises(ArtifactError) as caught:
        load("r0", b"\xff\xff", {})
    assert caught.value.message.startswith("module 'r0' of kind 'reference' cannot be loaded: ")


def test_a_result_of_another_dtype_is_cast_to_the_one_that_the_model_states():
    region = region_of(
        "y = Clip(x, low, high)",
        {"x": (3,)},
        constants={"low": np.float32(0), "high": np.float32(1)},
        outputs={"y": (3,)},
    )
    (y,) = run(region, np.array([-1, 0.5, 3], np.float32))
    assert (y.dtype, y.tolist()) == (np.float32, [0, 0.5, 1])
