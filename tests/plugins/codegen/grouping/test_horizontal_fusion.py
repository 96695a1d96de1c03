"""Horizontal fusion: which kernels become one, and that the one gives what they gave."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.machine.target import CompileOptions, host_target, target_named
from graft.core.operators.all import OPERATORS
from graft.core.rewriting.node_rewrite import RECOMPUTED
from graft.plugins.codegen.grouping.fusion import fuse
from graft.plugins.codegen.grouping.horizontal_fusion import join_horizontally
from graft.plugins.llvm.backend import LlvmBackend
from tests.plugins.llvm.execute import execute
from tests.plugins.llvm.graphs import HEADER, region_of

TARGET = target_named("x86-64-v4")
RANDOM = np.random.default_rng(0)
COPIED = frozenset({"in-place"})
"""Convolutions whose results are computed in the memory of a Concat are not stacked: here it copies them."""
COPYING = CompileOptions(replace(TARGET, without=COPIED))


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


CONSTANTS = {
    "w": numbers(24, 48), "w2": numbers(24, 96), "v": numbers(24, 96), "w3": numbers(24, 40), "wt": numbers(48, 24),
    "c": numbers(48), "c2": numbers(96),
    "k": numbers(8, 6, 1, 1), "k2": numbers(20, 6, 1, 1), "k3": numbers(8, 6, 3, 3),
    "n": numbers(8), "n2": numbers(20),
    "s": numbers(8, 1, 1), "s2": numbers(20, 1, 1), "half": np.float32([0.5]), "third": np.float32([1 / 3]),
}  # fmt: skip
X, IMAGE = "float[1,9,24] x", "float[1,6,5,5] x"


def written(inputs: str, body: str, *outputs: str) -> tuple[str, dict[str, np.ndarray]]:
    """The text of a graph and the constants that it reads."""
    words = body.replace(",", " ").replace(")", " ").replace("(", " ").split()
    used = {name: array for name, array in CONSTANTS.items() if name in words}
    declared = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in used.items())
    return f"g ({inputs}, {declared}) => ({', '.join(outputs)}) {{ {body} }}", used


def groups(inputs: str, body: str, *outputs: str) -> list[str]:
    region = region_of(*written(inputs, body, *outputs))
    leaving = {value.value for value in region.outputs}
    found = join_horizontally(fuse(region.nodes(), leaving, OPERATORS, COPIED), TARGET, leaving)
    return [str(group) for group in found]


@pytest.mark.parametrize("rows", [0, 1, 7, 13])
def test_products_of_rows_of_any_number_stand_side_by_side(rows: int) -> None:
    body = "a = MatMul (x, w) y = Relu (a) b = MatMul (x, w2) z = Sigmoid (b)"
    text, constants = written("float[n,m,24] x", body, "float[n,m,48] y", "float[n,m,96] z")
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    for name in constants:
        model.graph.input.remove(next(one for one in model.graph.input if one.name == name))
    program = graft.compile(model, ["llvm"], threads=1, tuned=False)
    assert len([call for procedure in program.description.procedures for call in procedure.calls]) == 1
    x = numbers(2, rows, 24)
    found = program.run({"x": x})
    for name, wanted in zip("yz", ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_what_is_computed_again_stays_where_it_is() -> None:
    region = region_of(*written(X, "a = MatMul (x, w) y = Relu (a) b = MatMul (x, w2) z = Relu (b)", "y", "z"))
    nodes, leaving = region.nodes(), {value.value for value in region.outputs}
    assert len(join_horizontally(fuse(nodes, leaving, OPERATORS), TARGET, leaving)) == 1
    nodes[2].node.name = f"a{RECOMPUTED}"
    assert len(join_horizontally(fuse(nodes, leaving, OPERATORS), TARGET, leaving)) == 2


def compare(load_image: Any, feeds: dict[str, np.ndarray], calls: int, *graph: str) -> None:
    """The compiled graph has so many calls on a machine that is known, and computes here what the reference does."""
    text, constants = written(*graph)
    backend, here = LlvmBackend(), replace(host_target(), without=COPIED)
    assert len(backend.compile(region_of(text, constants), COPYING).procedure.calls) == calls
    compiled = backend.compile(region_of(text, constants), CompileOptions(here))
    results = execute(compiled, list(feeds.values()), load_image)
    expected = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {text}")).run(None, {**feeds, **constants})
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


PRODUCTS = (
    X,
    "m = MatMul (x, w) y = Add (m, c) p = MatMul (x, w2) q = Add (p, c2) z = Gelu (q) o = MatMul (x, w)",
    "float[1,9,48] y", "float[1,9,96] z", "float[1,9,48] o",
)  # fmt: skip


def test_products_of_one_factor_share_a_kernel_each_with_what_follows_it() -> None:
    assert groups(*PRODUCTS) == ["contraction: MatMul Add | MatMul Add Gelu | MatMul"]


def test_they_give_what_the_reference_gives(load_image: Any) -> None:
    compare(load_image, {"x": numbers(1, 9, 24)}, 1, *PRODUCTS)


def test_gemms_share_a_kernel_if_they_turn_their_factors_alike(load_image: Any) -> None:
    graph = (
        "float[9,24] x", "y = Gemm <alpha = 2.0> (x, w, c) z = Gemm (x, w2)", "float[9,48] y", "float[9,96] z"
    )  # fmt: skip
    assert groups(*graph) == ["contraction: Gemm | Gemm"]
    compare(load_image, {"x": numbers(9, 24)}, 1, *graph)
    apart = groups("float[9,24] x", "y = Gemm (x, w) z = Gemm <transB = 1> (x, wt)", "float[9,48] y", "float[9,48] z")
    assert apart == ["contraction: Gemm", "contraction: Gemm"]


@pytest.mark.parametrize(
    ("inputs", "body", "outputs"),
    [
        (f"{X}, float[48,48] r", "y = MatMul (x, w) z = MatMul (y, r)", ("float[1,9,48] y", "float[1,9,48] z")),
        (f"{X}, float[1,9,24] r", "y = MatMul (x, w) z = MatMul (r, w)", ("float[1,9,48] y", "float[1,9,48] z")),
        (f"{X}, float[24,48] r", "y = MatMul (x, w) z = MatMul (x, r)", ("float[1,9,48] y", "float[1,9,48] z")),
        (X, "y = MatMul (x, w) z = MatMul (x, w3)", ("float[1,9,48] y", "float[1,9,40] z")),
    ],
    ids=["of another factor", "of another input", "by a computed factor", "not in whole vectors"],
)
def test_products_that_stay_apart(inputs: str, body: str, outputs: tuple[str, ...]) -> None:
    assert all(" | " not in group for group in groups(inputs, body, *outputs))


GATE = (X, "u = MatMul (x, w2) g = MatMul (x, v) p = Sigmoid (g) a = Mul (g, p) y = Mul (a, u)", "float[1,9,96] y")


def test_a_gate_and_what_it_lets_through_share_a_kernel(load_image: Any) -> None:
    assert groups(*GATE) == ["contraction: MatMul Sigmoid Mul | MatMul Mul"]
    compare(load_image, {"x": numbers(1, 9, 24)}, 1, *GATE)


def test_what_a_product_reads_of_another_is_stored_only_if_it_is_read_elsewhere(load_image: Any) -> None:
    compiled = LlvmBackend().compile(region_of(*written(*GATE)), COPYING)
    assert [tensor.name for tensor in compiled.procedure.tensors if tensor.storage == "arena"] == ["y"]
    inputs, body, output = GATE
    compare(load_image, {"x": numbers(1, 9, 24)}, 2, inputs, f"{body} z = Softmax (u)", output, "float[1,9,96] z")


def test_of_products_of_which_one_reads_another_of_other_width_the_free_ones_share_a_kernel() -> None:
    body = "a = MatMul (x, w) b = MatMul (x, w) y = Add (b, a) z = MatMul (x, w2)"
    found = groups(X, body, "float[1,9,48] y", "float[1,9,96] z", "float[1,9,48] a")
    assert found == ["contraction: MatMul | MatMul", "contraction: MatMul Add"]


def test_a_product_does_not_move_before_what_it_reads() -> None:
    found = groups(
        f"{X}, float[1,9,48] r", "y = MatMul (x, w) t = Softmax (y) m = MatMul (x, w) z = Add (m, t)", "float[1,9,48] z"
    )
    assert found == ["contraction: MatMul", "row_wise: Softmax", "contraction: MatMul Add"]


MODULE = (
    IMAGE,
    "a = Conv (x, k, n) d = Relu (a) b = Conv (x, k2, n2) e = Relu (b) m = Conv <pads = [1, 1, 1, 1]> (x, k3, n)"
    " f = Concat <axis = 1> (d, e) y = Concat <axis = 1> (f, m)",
    "float[1,36,5,5] y",
)


def test_convolutions_of_one_image_are_stacked(load_image: Any) -> None:
    assert groups(*MODULE)[0] == "convolution: Conv Relu"
    assert [group.count("Conv") for group in groups(*MODULE)] == [1, 1, 0, 0]
    compare(load_image, {"x": numbers(1, 6, 5, 5)}, 4, *MODULE)


def test_their_results_are_parts_of_one_tensor() -> None:
    compiled = LlvmBackend().compile(region_of(*written(*MODULE)), COPYING)
    views = [tensor for tensor in compiled.procedure.tensors if tensor.storage == "view"]
    assert [(view.name, view.shape, view.offset) for view in views] == [
        ("d", (1, 8, 5, 5), 0), ("e", (1, 20, 5, 5), 4 * 8 * 25)
    ]  # fmt: skip
    stacked = next(call for call in compiled.procedure.calls if "conv_relu" in call.function)
    assert len(stacked.origin) == 4


def test_numbers_per_channel_and_single_ones_are_stacked_too(load_image: Any) -> None:
    graph = (
        IMAGE,
        "a = Conv (x, k) d = Mul (a, s) g = Mul (d, half) b = Conv (x, k2) e = Mul (b, s2) h = Mul (e, half)"
        " y = Concat <axis = 1> (h, g)",
        "float[1,28,5,5] y",
    )
    assert groups(*graph) == ["convolution: Conv Mul Mul", "injective: Concat"]
    compare(load_image, {"x": numbers(1, 6, 5, 5)}, 2, *graph)


@pytest.mark.parametrize(
    "body",
    [
        "a = Conv (x, k, n) d = Relu (a) b = Conv (x, k2, n2) e = Sigmoid (b) y = Concat <axis = 1> (d, e)",
        "a = Conv (x, k, n) d = Mul (a, half) b = Conv (x, k2, n2) e = Mul (b, third) y = Concat <axis = 1> (d, e)",
        "d = Conv (x, k, n) e = Conv (x, k2) y = Concat <axis = 1> (d, e)",
        "d = Conv (x, k, n) e = Conv (r, k2, n2) y = Concat <axis = 1> (d, e)",
    ],
    ids=["another activation", "another number", "one without bias", "of another image"],
)
def test_convolutions_that_stay_apart(body: str) -> None:
    found = groups(f"{IMAGE}, float[1,6,5,5] r", body, "float[1,28,5,5] y")
    assert sum("Conv" in group for group in found) == 2


def test_convolutions_of_a_batch_or_of_the_region_s_outputs_stay_apart() -> None:
    body = "d = Conv (x, k, n) e = Conv (x, k2, n2)"
    apart = groups(IMAGE, body, "float[1,8,5,5] d", "float[1,20,5,5] e")
    assert apart == ["convolution: Conv", "convolution: Conv"]
    batch = groups("float[2,6,5,5] x", f"{body} y = Concat <axis = 1> (d, e)", "float[2,28,5,5] y")
    assert batch == ["convolution: Conv", "convolution: Conv", "injective: Concat"]


FOLLOWERS = ("", "Relu", "Sigmoid", "Softmax", "Tanh")
product = st.tuples(st.sampled_from(("w", "w2", "w3")), st.sampled_from(FOLLOWERS), st.integers(0, 3))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(products=st.lists(product, min_size=2, max_size=5))
def test_random_graphs_compute_the_same_with_and_without(products: list[tuple[str, str, int]], load_image: Any) -> None:
    """Products of ``x`` or of what ``x`` became, each maybe followed by something, some added to an earlier one."""
    lines, outputs, made = ["u = Relu (x)"], [], dict[str, str]()
    for number, (weights, follower, choice) in enumerate(products):
        value = f"m{number}"
        lines.append(f"{value} = MatMul ({'xu'[choice % 2]}, {weights})")
        if choice >= 2 and weights in made:
            lines.append(f"a{number} = Add ({value}, {made[weights]})")
            value = f"a{number}"
        if follower:
            lines.append(f"f{number} = {follower} ({value})")
            value = f"f{number}"
        made[weights] = value
        outputs.append(f"float[1,9,{CONSTANTS[weights].shape[1]}] {value}")
    text, constants = written(X, " ".join(lines), *outputs)
    x = numbers(1, 9, 24)
    results = []
    for without in ((), ("horizontal",)):
        target = replace(host_target(), without=frozenset(without))
        compiled = LlvmBackend().compile(region_of(text, constants), CompileOptions(target))
        results.append(execute(compiled, [x], load_image))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_is_computed_in_a_concat_is_not_stacked(load_image: Any) -> None:
    text, constants = written(*MODULE)
    compiled = LlvmBackend().compile(region_of(text, constants), CompileOptions(host_target()))
    assert [call.function.split("_", 2)[2] for call in compiled.procedure.calls] == ["conv_relu", "conv_relu", "conv"]
    x = numbers(1, 6, 5, 5)
    (result,) = execute(compiled, [x], load_image)
    wanted = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {text}")).run(None, {"x": x, **constants})
    np.testing.assert_allclose(result, wanted[0], rtol=1e-5, atol=1e-5)
