"""The built-in compiler as a backend: what it takes, what it says when it does not, what it makes of a region."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from graft.core.graph.view import NodeView
from graft.core.machine.target import CompileOptions, host_target, target_named
from graft.core.reject import Reject
from graft.core.tensor_ir.parser import parse_function
from graft.plugins.llvm.backend import LlvmBackend
from graft.runtime import objects
from tests.plugins.llvm.execute import execute
from tests.plugins.llvm.graphs import HEADER, region_of


def answer(text: str, constants: dict[str, np.ndarray] | None = None) -> bool | Reject:
    (node,) = region_of(text, constants).nodes()
    return LlvmBackend().supports(node)


def test_an_operator_with_a_lowering_is_taken() -> None:
    assert answer("g (float[2] x) => (float[2] y) { y = Relu (x) }") is True


def test_an_operator_without_a_lowering_is_refused() -> None:
    assert answer("g (float[2] x) => (int64[1,n] y) { y = NonZero (x) }") == Reject(
        "no-pattern", "the operator table has no lowering of NonZero"
    )


def test_a_symbolic_shape_is_taken() -> None:
    assert answer("g (float[n,2] x) => (float[n,2] y) { y = Relu (x) }") is True


def test_a_lowering_of_static_shapes_refuses_the_axis_that_varies() -> None:
    assert answer("g (float[n,2] x) => (float[m,2] y) { y = Relu (x) }") == Reject(
        "dynamic-shape", "axis 0 of 'y' is m, which is known only when it is computed"
    )
    assert answer("g (float[n,2] x) => (int64 y) { y = Size (x) }") == Reject(
        "dynamic-shape", "'x' has shape [n,2]; Size is lowered of static ones"
    )


def test_two_dimensions_that_may_differ_are_compared_when_the_program_is_called() -> None:
    assert answer("g (float[n,2] x, float[m,2] z) => (float[n,2] y) { y = Add (x, z) }") is True


def test_strings_are_refused() -> None:
    assert answer("g (string[2] x) => (string[2] y) { y = Identity (x) }") == Reject(
        "dtype", "'x' is string; llvm computes numbers and bool"
    )


def test_an_unknown_type_is_refused() -> None:
    node = ir.Node("", "Relu", [ir.Value(name="x")])
    assert LlvmBackend().supports(NodeView(node)) == Reject(
        "dtype", "'x' is of unknown type; llvm computes numbers and bool"
    )


def check(text: str, load_image: Any, constants: dict[str, np.ndarray] | None = None) -> Any:
    """Compile a graph, compare it with onnx.reference on random inputs, and return what was compiled."""
    region = region_of(text, constants)
    compiled = LlvmBackend().compile(region, CompileOptions(host_target()))
    generator = np.random.default_rng(7)
    feeds = {}
    for value in region.inputs:
        assert value.static_shape is not None
        feeds[value.name] = generator.standard_normal(value.static_shape).astype(value.dtype)
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    wanted = ReferenceEvaluator(model).run(None, {**feeds, **(constants or {})})
    results = execute(compiled, [feeds[value.name] for value in region.inputs], load_image)
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    return compiled


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_a_product_with_bias_and_gelu_is_one_call(load_image: Any) -> None:
    compiled = check(
        "g (float[2,5,16] x, float[16,24] w, float[24] b) => (float[2,5,24] y) {"
        " m = MatMul (x, w)  a = Add (m, b)  y = Gelu (a) }",
        load_image,
        {"w": weights(16, 24), "b": weights(24)},
    )
    (call,) = compiled.procedure.calls
    assert call.function == "r_0_matmul_add_gelu"
    assert call.flops == 2 * 240 * 16 + 240 + 16 * 240


def test_a_convolution_with_what_follows_is_one_call(load_image: Any) -> None:
    compiled = check(
        "g (float[1,3,9,9] x, float[8,3,3,3] w, float[8] b, float[1,8,5,5] r) => (float[1,8,5,5] y) {"
        " c = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w, b)  a = Add (c, r)  y = Relu (a) }",
        load_image,
        {"w": weights(8, 3, 3, 3), "b": weights(8)},
    )
    assert [call.function for call in compiled.procedure.calls] == ["r_0_conv_add_relu"]


def test_a_constant_scalar_becomes_part_of_the_code(load_image: Any) -> None:
    compiled = check("g (float[40] x, float s) => (float[40] y) { y = Mul (x, s) }", load_image, {"s": np.float32(3)})
    assert not compiled.constants
    assert [tensor.storage for tensor in compiled.procedure.tensors] == ["input", "arena"]


def test_a_view_is_no_call(load_image: Any) -> None:
    compiled = check(
        "g (float[4,8] x, int64[1] s) => (float[32] y, float[4,8] z) { y = Reshape (x, s)  z = Relu (x) }",
        load_image,
        {"s": np.array([-1], np.int64)},
    )
    assert [tensor.storage for tensor in compiled.procedure.tensors] == ["input", "view", "arena"]
    assert len(compiled.procedure.calls) == 1


def test_what_follows_a_view_is_computed_over_its_source(load_image: Any) -> None:
    compiled = check(
        "g (float[5,16] x, float[16,8] w, float[1,5,8] r, float[8] b, int64[3] s) => (float[1,5,8] y) {"
        " m = MatMul (x, w)  v = Reshape (m, s)  a = Add (v, b)  t = Tanh (a)  u = Mul (a, t)  y = Add (u, r) }",
        load_image,
        {"w": weights(16, 8), "b": weights(8), "s": np.array([1, 5, 8], np.int64)},
    )
    assert len(compiled.procedure.calls) == 1
    assert compiled.procedure.tensors[compiled.procedure.outputs[0]].shape == (1, 5, 8)


def test_a_sum_with_an_operand_of_higher_rank_keeps_the_order_of_elements(load_image: Any) -> None:
    compiled = check(
        "g (float[5,16] x, float[16,8] w, float[1,1,5,1] r) => (float[1,1,5,8] y) {"
        " m = MatMul (x, w)  y = Add (m, r) }",
        load_image,
        {"w": weights(16, 8)},
    )
    assert len(compiled.procedure.calls) == 1


def test_a_region_of_views_has_no_code(load_image: Any) -> None:
    compiled = check("g (float[4,8] x) => (float[1,32] y) { y = Flatten <axis = 0> (x) }", load_image)
    assert compiled.modules == ()
    assert compiled.procedure.calls == ()


def test_kernels_that_differ_in_names_only_share_their_code(load_image: Any) -> None:
    compiled = check(
        "g (float[4,16] x, float[16,16] v, float[16,16] w, float[16,16] u) => (float[4,16] y) {"
        " a = MatMul (x, v)  b = Tanh (a)  c = MatMul (b, w)  d = Tanh (c)  e = MatMul (d, u)  y = Relu (e) }",
        load_image,
        {"v": weights(16, 16), "w": weights(16, 16) + 1, "u": weights(16, 16) - 1},
    )
    assert [call.function for call in compiled.procedure.calls] == [
        "r_0_matmul_tanh", "r_0_matmul_tanh", "r_2_matmul_relu",
    ]  # fmt: skip
    assert compiled.modules[0].functions == ("r_0_matmul_tanh", "r_2_matmul_relu")


def test_calls_name_the_nodes_that_they_compute(load_image: Any) -> None:
    region = region_of("g (float[4] x) => (float[4] y) { a = Exp (x)  y = Relu (a) }")
    for node, name in zip(region.function, ("first", "second"), strict=True):
        node.name = name
    compiled = LlvmBackend().compile(region, CompileOptions(host_target()))
    assert [call.origin for call in compiled.procedure.calls] == [("first", "second")]


def test_an_empty_result_needs_no_call(load_image: Any) -> None:
    compiled = check("g (float[0,3] x) => (float[0,3] y) { y = Relu (x) }", load_image)
    assert compiled.procedure.calls == ()


@pytest.mark.parametrize("sizes", [(3, 5), (17, 33)])
def test_a_sum_over_rows_takes_what_follows(sizes: tuple[int, int], load_image: Any) -> None:
    m, n = sizes
    check(
        f"g (float[{m},{n}] x, int64[1] a) => (float[{m},1] y) {{ s = ReduceMean (x, a)  y = Abs (s) }}",
        load_image,
        {"a": np.array([1], np.int64)},
    )


STEPS = {
    "Relu": "{0}", "Tanh": "{0}", "Softmax": "{0}", "Transpose": "{0}", "Add": "{0}, {1}", "Mul": "{0}, {1}",
    "Max": "{0}, {1}", "MatMul": "{0}, {1}", "LayerNormalization": "{0}, s", "Reshape": "{0}, n", "Gather": "{0}, i",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_compute_what_the_reference_computes(seed: int, load_image: Any) -> None:
    generator = np.random.default_rng(seed)
    names, lines = ["x", "z"], []
    for number in range(14):
        operator = generator.choice(list(STEPS))
        lines.append(f"v{number} = {operator} ({STEPS[operator].format(*generator.choice(names, 2))})")
        names.append(f"v{number}")
    outputs = ", ".join(f"float[6,6] v{number}" for number in (5, 9, 13))
    check(
        f"g (float[6,6] x, float[6,6] z, float[6] s, int64[2] n, int64[6] i) => ({outputs}) {{ {'  '.join(lines)} }}",
        load_image,
        {"s": weights(6), "n": np.array([6, 6], np.int64), "i": np.array([3, 1, -1, 0, 0, 2], np.int64)},
    )


@pytest.mark.parametrize(
    ("target", "kind"), [("x86-64-v3", "native"), ("wasm32", objects.KIND), ("thumbv7em", objects.KIND)]
)
def test_functions_of_a_machine_without_a_runtime_are_objects_for_another_linker(target: str, kind: str) -> None:
    copy = parse_function("function copy(x: float32[4]) -> (y: float32[4]) { serial i < 4 { y[i] = x[i] } }")
    module = LlvmBackend().emit([copy], target_named(target))
    assert (module.kind, module.functions) == (kind, ("copy",))
