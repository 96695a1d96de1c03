"""Every graph pass: what it changes, what it leaves alone, and that the model computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from graft.core.importer.load import load
from graft.core.importer.small_integers import widen_small_integers
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Operator, Trait
from graft.core.passes.canonicalize_shapes import CanonicalizeShapes
from graft.core.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from graft.core.passes.move_transposes import MoveTransposes
from graft.core.passes.normalize import PASSES, normalize, standard_pipeline
from graft.core.passes.pipeline import Pipeline, record_of
from graft.core.rewriting.fold_constants import FoldConstants
from graft.core.rewriting.node_rewrite import ORIGIN
from graft.errors import GraftError

CHANNELS = (
    "<float[4] s = {1, 2, 3, 4}, float[4] b = {0.5, 0, -1, 2}, "
    "float[4] m = {1, 0, 2, -1}, float[4] v = {1, 4, 9, 0.25}>"
)


def model_of(graph: str, opset: int = 20) -> ir.Model:
    return load(parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}'))


def evaluate(model: ir.Model) -> list[np.ndarray]:
    """Run a model on seeded inputs."""
    generator = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        array = generator.standard_normal(value.shape.numpy()) * 4
        feeds[value.name] = array.astype(value.dtype.numpy())
    return [np.asarray(result) for result in ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)]


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def after(graph: str, *passes: str, opset: int = 20) -> ir.Model:
    """Run passes, dead code last, on a model, and check that the result stays the same."""
    model = model_of(graph, opset)
    expected = evaluate(model)
    pipeline = Pipeline(tuple(PASSES[name]() for name in (*passes, "eliminate-dead-code")))
    pipeline.run(model)
    for old, new in zip(expected, evaluate(model), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    return model


@pytest.mark.parametrize(
    "node",
    [
        "Identity(x)", "Sum(x)", "Max(x)", "Concat<axis = 0>(x)", "Dropout(x)", "Dropout(x, ratio)", "Cast<to = 1>(x)",
        "Reshape(x, shape)", "Flatten<axis = 1>(x)", "Expand(x, shape)", "Transpose<perm = [0, 1]>(x)", "Pad(x, zeros)",
        "Slice(x, zero, two)", "Tile(x, ones)", "Mul(x, one)", "Div(x, one)", "Sub(x, nought)",
    ],
)  # fmt: skip
def test_identity_disappears(node: str) -> None:
    constants = (
        "<float ratio = {0.5}, int64[2] shape = {2, 3}, int64[4] zeros = {0, 0, 0, 0}, int64[1] zero = {0}, "
        "int64[1] two = {2}, int64[2] ones = {1, 1}, float one = {1}, float nought = {0}>"
    )
    model = after(f"g (float[2, 3] x) => (float[2, 3] y) {constants} {{ t = {node} y = Abs(t) }}", "eliminate-identity")
    assert operators(model) == ["Abs"]


@pytest.mark.parametrize(
    "node",
    [
        "Cast<to = 1>(x)", "Transpose(x)", "Slice(x, start, end, axis, step)", "Add(x, zero)", "Sub(x, minus_zero)",
        "Mul(x, two)", "Reshape(x, shape)",
    ],
)  # fmt: skip
def test_what_only_looks_like_identity_stays(node: str) -> None:
    constants = (
        "<int64[1] start = {1}, int64[1] end = {-9}, int64[1] axis = {0}, int64[1] step = {-1}, double zero = {0}, "
        "double minus_zero = {-0.0}, double two = {2}, int64[2] shape = {1, 4}>"
    )
    result = "float" if node.startswith("Cast") else "double"
    shape = "1, 4" if node.startswith("Reshape") else "2, 2"
    model = after(
        f"g (double[2, 2] x) => ({result}[{shape}] y) {constants} {{ t = {node} y = Abs(t) }}", "eliminate-identity"
    )
    assert len(operators(model)) == 2


def test_identity_between_input_and_output_stays() -> None:
    assert operators(after("g (float[2] x) => (float[2] y) { y = Identity(x) }", "eliminate-identity")) == ["Identity"]


def test_identity_before_an_output_keeps_the_output_name() -> None:
    model = after("g (float[2] x) => (float[2] y) { t = Abs(x) y = Identity(t) }", "eliminate-identity")
    assert operators(model) == ["Abs"]
    assert [value.name for value in model.graph.outputs] == ["y"]


def test_identity_that_hands_an_outer_value_out_of_a_branch_stays() -> None:
    model = after(
        """g (float[2] x, bool c) => (float[2] y) { t = Abs(x) y = If (c) <
            then_branch = a () => (float[2] p) { p = Identity(t) },
            else_branch = b () => (float[2] q) { q = Neg(t) }> }""",
        "eliminate-identity",
    )
    onnx.checker.check_model(ir.to_proto(model))
    branch = model.graph.node(1).attributes["then_branch"].as_graph()
    assert [node.op_type for node in branch] == ["Identity"]


def test_dropout_stays_where_its_mask_is_read() -> None:
    graph = "g (float[2] x) => (float[2] y, bool[2] m) { y, m = Dropout(x) }"
    assert operators(after(graph, "eliminate-identity")) == ["Dropout"]


def test_constants_are_folded_and_keep_the_output_name() -> None:
    model = after(
        """g (float[2, 6] x) => (float[3, 4] y) <int64[1] two = {2}> {
            s = Shape(x) h = Gather(s, two_scalar) q = Constant<value_ints = [4]>() p = Div(h, two)
            t = Concat<axis = 0>(p, q) y = Reshape(x, t) two_scalar = Constant<value_ints = [1]>() }""",
        "lift-constants",
        "fold-constants",
    )
    assert operators(model) == ["Reshape"]
    shape = model.graph.node(0).inputs[1]
    assert shape is not None
    assert shape.name == "t"
    assert shape.const_value is not None
    assert shape.const_value.numpy().tolist() == [3, 4]


@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_filled_and_reshaped_constants_are_folded_as_the_reference_computes_them(dtype: str) -> None:
    number = onnx.TensorProto.FLOAT if dtype == "float" else onnx.TensorProto.INT64
    model = after(
        f"""g ({dtype}[1, 3, 2] x) => (bool[1, 3, 2] y)
            <int64[2] shape = {{3, 2}}, int64[1] first = {{0}}, int64[2] rows = {{1, 1}}> {{
            f = ConstantOfShape <value: tensor = {dtype}[1] {{4}}> (shape) u = Unsqueeze(f, first)
            z = ConstantOfShape(rows) s = Squeeze(z) c = Cast <to = {number}> (s) t = Add(u, c) y = Equal(x, t) }}""",
        "fold-constants",
    )
    assert operators(model) == ["Equal"]


def test_folding_stops_at_the_limit_and_at_the_total() -> None:
    graph = """g (float[9] x) => (float[9] y) <int64[1] n = {9}> {
        a = ConstantOfShape(n) b = ConstantOfShape(n) t = Add(x, a) y = Add(t, b) }"""
    for folding, left in ((FoldConstants(limit=35), 2), (FoldConstants(limit=36, total=44), 1), (FoldConstants(), 0)):
        model = model_of(graph)
        folding.run(model)
        assert operators(model).count("ConstantOfShape") == left


def test_a_huge_constant_costs_no_memory() -> None:
    model = model_of(
        "g (float[1] x) => (float[1099511627776] y) <int64[1] n = {1099511627776}> { "
        "a = ConstantOfShape(n) y = Add(x, a) }"
    )
    normalize(model)
    assert operators(model) == ["ConstantOfShape", "Add"]


def test_random_operators_are_neither_folded_nor_merged() -> None:
    graph = """g () => (float[3] y) {
        a = RandomNormal<shape = [3]>() b = RandomNormal<shape = [3]>() y = Sub(a, b) }"""
    model = model_of(graph)
    normalize(model)
    assert operators(model) == ["RandomNormal", "RandomNormal", "Sub"]


def test_a_node_that_cannot_be_computed_stays() -> None:
    graph = """g (float[2] x) => (int64[1] y, float[2] z) <int64[1] one = {1}, int64[1] zero = {0}> {
        t = Div(one, zero) y = Neg(t) z = Abs(x) }"""
    model = model_of(graph)
    normalize(model)
    assert operators(model) == ["Div", "Neg", "Abs"]


def test_the_branch_of_a_known_condition_takes_the_place_of_if() -> None:
    graph = """g (float[2] x) => (float[2] y, float[2] z) <bool yes = {1}, bool no = {0}> {
        y = If (yes) <then_branch = a () => (float[2] p) { c = Constant<value = float {2}>() t = Mul(x, c) p = Abs(t) },
                      else_branch = b () => (float[2] q) { q = Neg(x) }>
        z = If (no) <then_branch = d () => (float[2] p) { p = Neg(x) },
                     else_branch = e () => (float[2] q) { t = Add(x, y) q = Abs(t) }> }"""
    model = after(graph, "lift-constants", "inline-conditions", "eliminate-identity")
    assert operators(model) == ["Mul", "Abs", "Add", "Abs"]
    assert [value.name for value in model.graph.outputs] == ["y", "z"]


def test_a_condition_known_only_at_run_time_stays() -> None:
    graph = """g (float[2] x, bool c) => (float[2] y) { y = If (c) <
        then_branch = a () => (float[2] p) { p = Neg(x) }, else_branch = b () => (float[2] q) { q = Abs(x) }> }"""
    assert operators(after(graph, "inline-conditions")) == ["If"]


def test_an_operand_that_a_known_condition_takes_throughout_takes_the_place_of_where() -> None:
    graph = """g (float[2] x, float[1] s) => (float[2] y, float[2] z)
        <bool[1] yes = {1}, bool[2] no = {0, 0}, bool[2] some = {0, 1}> {
        a = Abs(x) b = Where(yes, a, s) c = Where(no, s, b) d = Where(some, c, s) y = Where(yes, s, d) z = Neg(d) }"""
    model = after(graph, "inline-conditions", "eliminate-identity")
    assert operators(model) == ["Abs", "Where", "Where", "Neg"], "what is broadcast, and what is chosen in part, stay"


def test_equal_nodes_and_equal_constants_are_merged() -> None:
    model = after(
        """g (float[2] x) => (float[2] y) <float one = {1.5}, float uno = {1.5}> {
            [p] a = Add(x, one) [q] b = Add(x, uno) y = Mul(a, b) }""",
        "eliminate-common-subexpressions",
    )
    assert operators(model) == ["Add", "Mul"]
    assert model.graph.node(0).metadata_props[ORIGIN] == "p,q"


def test_nodes_that_differ_in_an_attribute_are_not_merged() -> None:
    graph = "g (float[2, 2] x) => (float[2, 2] y) { a = Softmax<axis = 0>(x) b = Softmax<axis = 1>(x) y = Mul(a, b) }"
    assert len(operators(after(graph, "eliminate-common-subexpressions"))) == 3


def test_sum_of_two_becomes_add_with_the_constant_second() -> None:
    model = after("g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { y = Sum(c, x) }", "canonicalize-operators")
    assert operators(model) == ["Add"]
    assert [value.name for value in model.graph.node(0).inputs if value] == ["x", "c"]


def test_attention_gets_its_heads_as_an_axis() -> None:
    model = after(
        """g (float[2, 5, 24] q, float[2, 7, 12] k, float[2, 7, 18] v) => (float[2, 5, 36] y) {
            y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1>(q, k, v) }""",
        "split-heads",
        opset=23,
    )
    assert operators(model) == [*3 * ["Reshape", "Transpose"], "Attention", "Transpose", "Reshape"]
    (attention,) = (node for node in model.graph if node.op_type == "Attention")
    assert [value.shape for value in attention.inputs if value] == [(2, 4, 5, 6), (2, 2, 7, 6), (2, 2, 7, 9)]
    assert attention.outputs[0].shape == (2, 4, 5, 9)
    assert {node.metadata_props[ORIGIN] for node in model.graph if node is not attention} == {attention.name}


def test_attention_that_returns_its_caches_reads_concats_of_them() -> None:
    graph = """g (float[1, 2, 3, 8] x, float[1, 2, 3, 8] k, float[1, 2, 3, 8] v, float[1, 2, 5, 8] pk,
        float[1, 2, 5, 8] pv) => (float[1, 2, 3, 8] y, float[1, 2, 8, 8] nk, float[1, 2, 8, 8] nv) {
            y, nk, nv = Attention<is_causal = CAUSAL>(x, k, v, , pk, pv) }"""
    free = after(graph.replace("CAUSAL", "0"), "explicit-caches", opset=24)
    assert operators(free) == ["Concat", "Concat", "Attention"]
    assert [value.name for value in free.graph.outputs] == ["y", "nk", "nv"]
    assert [value.name for value in free.graph.node(2).inputs if value] == ["x", "nk", "nv"]
    causal = after(graph.replace("CAUSAL", "1"), "explicit-caches", opset=24)
    assert operators(causal) == ["Concat", "Concat", "Shape", "Shape", "Expand", "Attention"]


def test_reshapes_get_literal_shapes_and_follow_one_another_once() -> None:
    model = after(
        """g (float[2, 3, 4] x) => (float[4, 6] y) <int64[2] a = {0, -1}, int64[2] b = {4, -1}> {
            [p] t = Reshape(x, a) [q] y = Reshape(t, b) }""",
        "canonicalize-shapes",
    )
    assert operators(model) == ["Reshape"]
    assert model.graph.node(0).metadata_props[ORIGIN] == "p,q"


CONV = "<float[4, 2, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[4] c = {1, -1, 2, -2},"


def test_batch_normalization_goes_into_the_convolution() -> None:
    model = after(
        f"""g (float[1, 2, 3, 3] x) => (float[1, 4, 3, 3] y) {CONV} {CHANNELS[1:]} {{
            [conv] t = Conv(x, w, c) [bn] y = BatchNormalization<epsilon = 0.001>(t, s, b, m, v) }}""",
        "fold-batch-normalization",
    )
    assert operators(model) == ["Conv"]
    assert model.graph.node(0).name == "conv"
    assert model.graph.node(0).metadata_props[ORIGIN] == "conv,bn"


def test_scale_and_shift_behind_batch_normalization_go_along() -> None:
    model = after(
        f"""g (float[1, 2, 3, 3] x) => (float[1, 4, 3, 3] y) {CONV} {CHANNELS[1:-1]},
            float[4, 1, 1] p = {{2, 3, 4, 5}}, float[1, 4, 1, 1] q = {{1, 2, 3, 4}}, float r = {{3}}> {{
            t = Conv(x, w) u = BatchNormalization(t, s, b, m, v) z = Mul(u, p) k = Add(z, q) l = Div(k, r)
            y = Relu(l) }}""",
        "fold-batch-normalization",
    )
    assert operators(model) == ["Conv", "Relu"]


def test_batch_normalization_goes_into_transposed_convolution_and_gemm() -> None:
    transposed = after(
        f"""g (float[1, 4, 2, 2] x) => (float[1, 4, 3, 3] y) {CHANNELS[:-1]},
            float[4, 4, 2, 2] w = {{ {_numbers(64)} }}> {{
            t = ConvTranspose(x, w) y = BatchNormalization(t, s, b, m, v) }}""",
        "fold-batch-normalization",
    )
    product = after(
        f"""g (float[5, 3] x) => (float[5, 4] y) {CHANNELS[:-1]}, float[3, 4] w = {{ {_numbers(12)} }}> {{
            t = Gemm<alpha = 2.0>(x, w, s) y = BatchNormalization(t, s, b, m, v) }}""",
        "fold-batch-normalization",
    )
    assert [operators(transposed), operators(product)] == [["ConvTranspose"], ["Gemm"]]


def _numbers(count: int) -> str:
    return ", ".join(str((7 * index) % 11 - 5) for index in range(count))


def test_a_convolution_that_others_read_keeps_its_weights() -> None:
    model = after(
        f"""g (float[1, 2, 3, 3] x) => (float[1, 4, 3, 3] y, float[1, 4, 3, 3] t) {CONV} {CHANNELS[1:]} {{
            t = Conv(x, w, c) y = BatchNormalization(t, s, b, m, v) }}""",
        "fold-batch-normalization",
    )
    assert operators(model) == ["Conv", "Mul", "Add"]


def test_batch_normalization_in_training_takes_the_mean_of_the_batch() -> None:
    model = model_of(
        f"""g (float[1, 4, 3, 3] x) => (float[1, 4, 3, 3] y, float[4] p, float[4] q) {CHANNELS} {{
            y, p, q = BatchNormalization<training_mode = 1>(x, s, b, m, v) }}"""
    )
    normalize(model)
    found = operators(model)
    assert (found.count("ReduceMean"), found.count("ReduceSumSquare")) == (1, 1)


def test_an_operand_that_varies_along_another_axis_stays() -> None:
    model = after(
        f"""g (float[1, 2, 2, 2] x) => (float[1, 4, 2, 2] y) {CONV} float[2] e = {{3, 4}}> {{
            t = Conv(x, w, c) y = Mul(t, e) }}""",
        "fold-batch-normalization",
    )
    assert operators(model) == ["Conv", "Mul"]


def test_sums_are_computed_before_their_terms_are_transposed() -> None:
    graph = """g (float[2,3,4] x, float[2,3,4] y, float[1,1,4] z) => (float[4,2,3] a, float[2,3,4] b) {
        xt = Transpose<perm = [2, 0, 1]>(x)  yt = Transpose<perm = [2, 0, 1]>(y)  zt = Transpose<perm = [2, 0, 1]>(z)
        s = Add(xt, yt)  t = Sub(s, zt)  a = Mul(xt, t)  b = Transpose<perm = [1, 2, 0]>(t)
    }"""
    model = after(graph, "move-transposes", "eliminate-identity")
    assert sorted(operators(model)) == ["Add", "Mul", "Sub", "Transpose"]
    assert [output.producer().op_type for output in model.graph.outputs] == ["Transpose", "Sub"]


BLOCK = """g (float[1,3,5,4] x, float[3,1,3,3] w, float[3] scale) => (float[1,5,4,3] b, float[1,3,5,4] a) {
        r = Relu(x)
        c = Conv<group = 3, pads = [1, 1, 1, 1]>(r, w)  t = Transpose<perm = [0, 2, 3, 1]>(c)
        m = Mul(t, scale)  mt = Transpose<perm = [0, 3, 1, 2]>(m)  s = Add(READ, mt)
        d = Conv<group = 3, pads = [1, 1, 1, 1]>(s, w)  b = Transpose<perm = [0, 2, 3, 1]>(d)  a = Relu(s)
    }"""


def test_depthwise_convolutions_of_a_residual_stream_stand_between_transposes() -> None:
    model = after(BLOCK.replace("READ", "r"), "move-transposes", "eliminate-identity")
    around = [
        (node.inputs[0].producer().op_type, next(iter(node.outputs[0].consumers())).op_type)
        for node in model.graph
        if node.op_type == "Conv"
    ]
    assert around == [("Transpose", "Transpose")] * 2
    (addition,) = [node for node in model.graph if node.op_type == "Add"]
    assert addition.outputs[0].shape == [1, 5, 4, 3]


def of_plugin(monkeypatch: pytest.MonkeyPatch, trait: Trait, graph: str) -> ir.Model:
    """A model with the operator Own of a plugin, which has a trait."""
    row = Operator("Own", frozenset({trait}), domain="com.example")
    monkeypatch.setitem(OPERATORS._rows, ("com.example", "Own"), row)
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20, "com.example" : 1]> g {graph}')
    for node in model.graph:
        for value in node.outputs:
            value.shape, value.type = value.shape or ir.Shape([2, 3]), ir.TensorType(ir.DataType.FLOAT)
    return model


def test_passes_read_the_traits_of_a_plugins_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "a = Transpose <perm = [1, 0]> (x) b = Transpose <perm = [1, 0]> (z)"
    same = "(float[3,2] x, float[3,2] z) => (float[2,3] y)"
    model = of_plugin(monkeypatch, Trait.ELEMENTWISE, f"{same} {{ {before} y = com.example.Own <alpha = 2> (a, b) }}")
    assert MoveTransposes().run(model)
    own = next(node for node in model.graph if node.op_type == "Own")
    assert (own.domain, own.attributes["alpha"].value) == ("com.example", 2)
    assert [node.op_type for node in own.outputs[0].consumers()] == ["Transpose"]

    shaped = "s = Constant <value_ints = [6]> () y = Reshape (a, s)"
    view = f"(float[3,2] x) => (float[6] y) {{ a = com.example.Own (x) {shaped} }}"
    model = of_plugin(monkeypatch, Trait.VIEW, view)
    assert CanonicalizeShapes().run(model)
    assert model.graph.node(-1).inputs[0] is model.graph.inputs[0]

    twice = "(float[2,3] x) => (float[2,3] y) { a = com.example.Own (x) b = com.example.Own (x) y = Add (a, b) }"
    assert EliminateCommonSubexpressions().run(of_plugin(monkeypatch, Trait.ELEMENTWISE, twice))
    assert not EliminateCommonSubexpressions().run(of_plugin(monkeypatch, Trait.NONDETERMINISTIC, twice))

    small = of_plugin(
        monkeypatch,
        Trait.DATA_MOVEMENT,
        """(float s) => (float[2,3] y) {
        c = Constant <value = int4[2,3] {1, 2, 3, 4, 5, 6}> () a = com.example.Own (c) y = DequantizeLinear (a, s) }""",
    )
    for node in list(small.graph)[:2]:
        node.outputs[0].type = ir.TensorType(ir.DataType.INT4)
    assert widen_small_integers(small) == 1
    assert small.graph.node(1).outputs[0].dtype is ir.DataType.INT8


def test_what_is_scaled_and_transposed_back_is_scaled_before() -> None:
    text = """g (float[2,3,4] x, float[1] s) => (float[2,4,3] y, float[2,3,4] z) {
        t = Transpose <perm = [0, 2, 1]> (x) m = Mul (t, s) y = Neg (m) READ }"""
    back = text.replace("READ", "b = Transpose <perm = [0, 2, 1]> (m) z = Relu (b)")
    aside = text.replace("READ", "z = Reshape <allowzero = 0> (m, shape)").replace(
        "{\n", "<int64[3] shape = {2, 3, 4}> {\n"
    )
    found = after(back, "move-transposes", "eliminate-identity", "eliminate-dead-code")
    relu = next(node for node in found.graph if node.op_type == "Relu")
    assert [relu.inputs[0].producer().op_type, operators(found).count("Transpose")] == ["Mul", 1]
    assert operators(after(aside, "move-transposes")) == operators(model_of(aside))


def test_a_sum_with_what_no_depthwise_convolution_reads_stays() -> None:
    model = after(BLOCK.replace("READ", "x"), "move-transposes", "eliminate-identity")
    assert operators(model) == operators(model_of(BLOCK.replace("READ", "x")))


@pytest.mark.parametrize(
    "sums",
    [
        "yt = Transpose<perm = [0, 2, 1]>(y)  a = Add(xt, yt)",
        "yt = Identity(y)  a = Add(xt, yt)",
        "yt = Transpose<perm = [2, 1, 0]>(y)  s = Add(xt, yt)  p = Mul(xt, yt)  a = Concat<axis = 0>(s, p, xt, yt)",
    ],
)
def test_a_sum_of_differently_transposed_terms_stays(sums: str) -> None:
    graph = f"""g (float[3,3,3] x, float[3,3,3] y) => (float[n,3,3] a) {{
        xt = Transpose<perm = [2, 1, 0]>(x)  {sums}
    }}"""
    model = model_of(graph)
    assert operators(after(graph, "move-transposes")) == operators(model)


def test_dead_code_disappears_and_inputs_stay() -> None:
    model = after("g (float[2] x, float[2] z) => (float[2] y) { t = Neg(z) y = Abs(x) }")
    assert operators(model) == ["Abs"]
    assert [value.name for value in model.graph.inputs] == ["x", "z"]


def test_the_pipeline_prints_as_text_that_parses_back() -> None:
    text = (
        "lift-constants,fold-constants{limit=99},inline-conditions,eliminate-identity,"
        "canonicalize-operators,state-pads,split-einsums,split-heads,explicit-caches,canonicalize-shapes,derive-shapes,"
        "keep-row-axes,fold-batch-normalization,interleave-convolutions,split-resizes,move-transposes,"
        "eliminate-common-subexpressions,eliminate-dead-code"
    )
    assert str(standard_pipeline(fold_limit=99)) == text
    assert str(Pipeline.parse(text, PASSES)) == text


def test_an_unknown_pass_is_named_with_the_nearest() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { y = Abs(x) }")
    with pytest.raises(GraftError) as caught:
        normalize(model, disable=["fold-constant"])
    assert str(caught.value) == "there is no pass 'fold-constant'; did you mean 'fold-constants'"
    with pytest.raises(GraftError) as caught:
        Pipeline.parse("fold-constants{size=3}", PASSES)
    assert (
        str(caught.value)
        == "pass 'fold-constants' has no option 'size=3'; its options are ['dequantize', 'limit', 'total']"
    )


def test_a_pass_that_breaks_the_model_is_named() -> None:
    class Break:
        name = "break"
        __dataclass_fields__: dict[str, object] = {}  # noqa: RUF012 -- what a dataclass has

        def run(self, model: ir.Model) -> bool:
            model.graph.node(0).op_type = "Nonsense"
            return True

    model = model_of("g (float[2] x) => (float[2] y) { y = Abs(x) }")
    with pytest.raises(AssertionError, match="pass 'break' left a model that is not valid ONNX: "):
        Pipeline((Break(),)).run(model)  # type: ignore[arg-type]


def test_what_changed_is_on_record() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { t = Identity(x) y = Abs(t) }")
    normalize(model)
    assert "eliminate-identity: 2 -> 1 nodes" in [str(step) for step in record_of(model)]


def test_normalizing_twice_changes_nothing() -> None:
    model = model_of(
        f"""g (float[1, 2, 3, 3] x) => (float[1, 4, 3, 3] y) {CONV} {CHANNELS[1:]} {{
            t = Conv(x, w, c) y = BatchNormalization(t, s, b, m, v) }}"""
    )
    normalize(model)
    assert not any(result.changed for result in normalize(model))


@pytest.mark.parametrize(
    ("shapes", "stays"),
    [("float[4,1] x, float[3] z", False), ("float[3] x, float[4,1] z", False), ("float[4,1] x, float[1] z", True)],
)
def test_an_operand_is_not_expanded_that_the_others_expand_as_far(shapes: str, stays: bool) -> None:
    text = f"g ({shapes}) => (float[4,3] y) <int64[2] wide = {{4, 3}}> {{ e = Expand (x, wide) y = Sub (e, z) }}"
    model = load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}'))
    normalize(model)
    assert ("Expand" in [node.op_type for node in model.graph]) == stays


@pytest.mark.parametrize(
    ("factors", "stays"),
    [("float[b,4,3] x", False), ("float[1,4,3] x", True), ("float[4,3] x", True), ("float[b,c,4,3] x", True)],
)
def test_weights_are_not_expanded_to_the_batch_of_the_other_factor(factors: str, stays: bool) -> None:
    result = "b,c,4,5" if "c" in factors else "b,4,5"
    text = f"""g ({factors}, float[b,2] z, float[3,5] w) => (float[{result}] y) <int64[2] rest = {{3, 5}}> {{
        n = Shape <start = 0, end = 1> (z) shape = Concat <axis = 0> (n, rest) e = Expand (w, shape)
        y = MatMul (x, e) }}"""
    model = load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}'))
    normalize(model)
    assert ("Expand" in [node.op_type for node in model.graph]) == stays


@pytest.mark.parametrize(("last", "shape"), [("5, 6, 7, 8", (2, 2, 2)), ("1, 2, 3, 4", (2, 2))])
def test_a_constant_factor_that_is_the_same_for_a_batch_is_one_matrix(last: str, shape: tuple[int, ...]) -> None:
    text = f"g (float[2,3,2] x) => (float[2,3,2] y) <float[2,2,2] w = {{1, 2, 3, 4, {last}}}> {{ y = MatMul (x, w) }}"
    model = after(text, "canonicalize-operators")
    factor = model.graph.node(0).inputs[1]
    assert factor is not None and tuple(factor.shape or ()) == shape
