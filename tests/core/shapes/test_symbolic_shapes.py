"""Shapes of models with symbols: what every value gets, and that any binding gives the shape that comes out."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.affine.expressions import Range, names_in
from graft.core.affine.text import parsed
from graft.core.graph.dimensions import ranges_of
from graft.core.graph.view import ValueView
from graft.core.importer.load import load
from graft.core.passes.normalize import PASSES, normalize
from graft.core.shapes.inference import infer_shapes
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.errors import GraftError, ModelError
from graft.runtime.extents import Symbol, evaluate
from tests.core.importer.exported import HEADER, MODELS


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEADER} {text}")


def shapes_in(model: ir.Model) -> dict[str, tuple[int | str | None, ...] | None]:
    values = (value for graph in model.graphs() for node in graph for value in node.outputs)
    return {value.name or "": ValueView(value).shape for value in values}


def shapes_of(text: str, **arguments: object) -> dict[str, tuple[int | str | None, ...] | None]:
    return shapes_in(load(model_of(text), **arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
def test_every_shape_of_an_exported_model_is_over_the_symbols_of_its_inputs(name: str) -> None:
    model = load(MODELS[name][1]())
    known = names_in(extent for value in model.graph.inputs for extent in dimensions_of(value) or ())
    for node in model.graph:
        for value in node.outputs:
            shape = dimensions_of(value)
            assert shape is not None and None not in shape and names_in(shape) <= known, value


@pytest.mark.parametrize("name", MODELS)
def test_any_binding_gives_the_shapes_and_values_of_the_model_with_these_numbers(name: str) -> None:
    exported, make = MODELS[name]
    proto = make()
    model = load(proto)
    normalize(model)
    simplified = ir.to_proto(model)
    for binding in exported.bindings:
        feeds = exported.feeds(binding)
        static = load(proto, dims=binding)
        normalize(static)
        expected = ReferenceEvaluator(proto).run(None, feeds)
        for result in (simplified, ir.to_proto(static)):
            for one, other in zip(ReferenceEvaluator(result).run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        for value, array in zip(model.graph.outputs, expected, strict=True):
            shape = dimensions_of(value)
            assert shape is not None
            assert tuple(evaluate(one, binding) for one in shape if one is not None) == array.shape


@pytest.mark.parametrize("switched_off", PASSES)
@pytest.mark.parametrize("name", ["attention", "guarded"])
def test_any_pass_may_be_left_out(name: str, switched_off: str) -> None:
    exported, make = MODELS[name]
    model = load(make())
    normalize(model, disable=[switched_off])
    feeds = exported.feeds(exported.bindings[1])
    found = ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)
    for one, other in zip(found, ReferenceEvaluator(make()).run(None, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_the_simplified_attention_has_no_arithmetic_but_on_shapes_of_inputs() -> None:
    model = load(MODELS["attention"][1]())
    normalize(model)
    shaped = [node for node in model.graph if node.op_type == "Shape"]
    assert all(node.inputs[0] is not None and node.inputs[0].is_graph_input() for node in shaped)
    targets = [node.inputs[1] for node in model.graph if node.op_type == "Reshape"]
    arrays = [target.const_value.numpy().tolist() for target in targets if target is not None and target.const_value]
    assert arrays == [[0, 0, 2, 4], [0, 0, 2, 4], [0, 0, 2, 4], [0, 0, 8]]


CUT = (
    "(float[batch,seq,4] x, float[64,4] table) => (float[batch,m,4] y) <int64[1] zero = {0}, int64[1] one = {1}> {"
    " shape = Shape <start = 1, end = 2> (x) rows = Slice (table, zero, shape, zero) y = Add (x, rows) }"
)


def test_adding_a_cut_of_a_table_bounds_the_dimension() -> None:
    model = load(model_of(f"g {CUT}"))
    assert ranges_of(model)[Symbol("seq")] == Range(0, 64)
    assert shapes_in(model)["y"] == ("batch", "seq", 4)


def test_a_cut_by_what_an_exporter_computes_bounds_the_dimension_on_both_sides() -> None:
    text = (
        "g (float[1,4,frames] x, float[4,4,3] f, float[200,4] table) => (float[1,n,4] y)"
        " <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}> {"
        " c = Conv <strides = [2], pads = [1, 1]> (x, f) rows = Transpose <perm = [0, 2, 1]> (c)"
        " frames = Shape <start = 2> (x) less = Sub (frames, one) half = Div (less, two) length = Add (half, one)"
        " positions = Slice (table, zero, length, zero) y = Add (rows, positions) }"
    )
    model = load(model_of(text))
    assert shapes_in(model)["y"] == (1, "(frames + 1)//2", 4)
    assert ranges_of(model)[Symbol("frames")] == Range(1, 400)


def test_the_first_row_that_meets_anything_is_there() -> None:
    text = (
        "g (float[nodes,4] x, float[edges,4] z) => (float[n,4] y) <int64[1] zero = {0}, int64[1] one = {1}> {"
        " row = Slice (x, zero, one, zero) y = Add (row, z) }"
    )
    model = load(model_of(text))
    assert shapes_in(model)["y"] == ("edges", 4)
    assert ranges_of(model)[Symbol("nodes")] == Range(1, None)


WINDOW = (
    "(float[batch,seq,past] x, float[batch,past,4] cache, bool[64,64] mask) => (float[r,t] y)"
    " <int64[1] zero = {0}, int64[1] one = {1}, float low = {-1.0}> {"
    " before = Shape <start = 1, end = 2> (cache) new = Shape <start = 1, end = 2> (x) all = Add (before, new)"
    " rows = Slice (mask, before, all, zero) window = Slice (rows, zero, all, one)"
    " width = Concat <axis = 0> (new, all) scores = Expand (low, width) y = Where (window, scores, low) }"
)


def test_a_window_of_a_mask_bounds_the_sum_of_its_dimensions() -> None:
    model = load(model_of(f"g {WINDOW}"))
    ranges = {str(extent): known for extent, known in ranges_of(model).items()}
    assert ranges == {"past + seq": Range(0, 64), "past": Range(0, 64), "seq": Range(0, 64)}
    assert shapes_in(model)["y"] == ("seq", "past + seq")


STRIDED = (
    "(float[1,1,h,w] x, float[1,1,3,3] f) => (float[1,1,a,b] y) <int64[1] four = {4}, int64[1] less = {LESS},"
    " int64[1] more = {MORE}, float[1] zero = {0}, int64[2] ones = {1, 1}> {"
    " p = Conv <strides = [2, 2], pads = [PAD, PAD, PAD, PAD]> (x, f)"
    " q = Conv <strides = [2, 2], pads = [PAD, PAD, PAD, PAD]> (p, f)"
    " height = Shape <start = 2, end = 3> (x) width = Shape <start = 3> (x)"
    " i = Add (height, less) j = Div (i, four) k = Add (j, more)"
    " l = Add (width, less) m = Div (l, four) n = Add (m, more)"
    " size = Concat <axis = 0> (ones, k, n) z = Expand (zero, size) y = Add (q, z) }"
)


@pytest.mark.parametrize(
    ("pad", "less", "more", "least", "extent"),
    [(0, -3, 0, 7, "({} + 1)//4 - 1"), (1, -1, 1, 1, "({} + 3)//4")],
)
def test_what_exporters_compute_of_an_image_is_the_size_that_convolutions_give(
    pad: int, less: int, more: int, least: int, extent: str
) -> None:
    text = STRIDED.replace("PAD", str(pad)).replace("LESS", str(less)).replace("MORE", str(more))
    model = load(model_of(f"g {text}"))
    assert shapes_in(model)["y"] == (1, 1, extent.format("h"), extent.format("w"))
    assert {str(name): known for name, known in ranges_of(model).items()} == dict.fromkeys("hw", Range(least, None))


def test_amounts_of_padding_are_followed_where_an_exporter_reverses_their_pairs() -> None:
    model = load(
        model_of(
            "g (float[h,w] x) => (float[m,n] y) <int64[2] pairs = {-1, 2}, int64[1] last = {-1}, int64[1] zero = {0},"
            " int64[1] begin = {-9223372036854775807}, int64[2] none = {0, 0}> {"
            " size = Shape (x) listed = Concat <axis = 0> (none, size) rows = Reshape (listed, pairs)"
            " reversed = Slice (rows, last, begin, zero, last) transposed = Transpose <perm = [1, 0]> (reversed)"
            " pads = Reshape (transposed, last) y = Pad (x, pads) }"
        )
    )
    assert shapes_in(model)["y"] == ("2*h + w", "w")


def test_a_roll_of_a_padded_image_keeps_its_size() -> None:
    model = load(
        model_of(
            "g (float[h] x) => (float[n] y) <int64[1] zero = {0}, int64[1] four = {4}, int64[1] back = {-2}> {"
            " size = Shape (x) rest = Mod (size, four) minus = Neg (rest)"
            " left = Add (four, minus) pad = Mod (left, four)"
            " pads = Concat <axis = 0> (zero, pad) padded = Pad (x, pads) whole = Shape (padded)"
            " cut = Mod (back, whole)"
            " first = Slice (padded, zero, cut, zero) last = Slice (padded, cut, whole, zero)"
            " y = Concat <axis = 0> (last, first) }"
        )
    )
    assert shapes_in(model)["y"] == ("4*((h + 3)//4)",)
    assert ranges_of(model)[Symbol("h")] == Range(1, None)  # what is divided by is not 0


def test_what_is_declared_of_a_sum_is_known_of_it() -> None:
    model = load(model_of(f"g {WINDOW}"), dims={"seq + past": (1, 32), "seq": (1, None)})
    assert ranges_of(model)[parsed("past + seq")] == Range(1, 32)


def test_a_bound_that_was_declared_and_is_lower_stays() -> None:
    assert ranges_of(load(model_of(f"g {CUT}"), dims={"seq": (2, 16)}))[Symbol("seq")] == Range(2, 16)


def test_dimensions_keep_their_names_and_unnamed_ones_get_one() -> None:
    text = "g (float[batch, ?, 3] x) => (float[a, b, c] y) { y = Relu(x) }".replace("?", "tmp")
    proto = model_of(text)
    proto.graph.input[0].type.tensor_type.shape.dim[1].ClearField("dim_param")
    assert shapes_in(load(proto)) == {"y": ("batch", "x_1", 3)}


def test_a_name_that_is_no_expression_of_other_symbols_is_a_name() -> None:
    proto = model_of("g (float[n, m] x, float[k, m] z) => (float[a, b] y) { y = Concat <axis = 0> (x, z) }")
    names = {"n": "batch-size", "k": "2*m"}
    for value in proto.graph.input:
        dimension = value.type.tensor_type.shape.dim[0]
        dimension.dim_param = names[dimension.dim_param]
    assert shapes_in(load(proto)) == {"y": ("batch_size + 2*m", "m")}


def test_equal_symbols_broadcast_and_others_are_not_taken_for_equal() -> None:
    found = shapes_of(
        "g (float[a, 4] x, float[a, 4] z, float[b, 4] w) => (float[o, 4] y) { s = Add(x, z) y = Add(s, w) }"
    )
    assert found == {"s": ("a", 4), "y": ("max(a, b)*min(a, b, 1)", 4)}


def test_ranges_decide_what_open_symbols_leave_open() -> None:
    text = """g (float[seq] x) => (float[n] y) <int64[1] zero = {0}, int64[1] most = {512}>
              { s = Slice(x, zero, most) y = Neg(s) }"""
    assert shapes_of(text)["s"] == ("min(seq, 512)",)
    assert shapes_of(text, dims={"seq": (1, 512)}) == {"s": ("seq",), "y": ("seq",)}


def test_what_depends_on_data_gets_a_symbol_named_as_the_model_names_it() -> None:
    text = "g (float[n, 4] x) => (int64[2, found] y) { i = NonZero(x) t = Transpose(i) y = Transpose(t) }"
    found = shapes_of(text)
    assert found == {"i": (2, "i_1"), "t": ("i_1", 2), "y": (2, "i_1")}


def test_branches_that_agree_give_their_shape_and_others_a_symbol() -> None:
    text = """g (float[n, 4] x, bool c) => (float[a, b] y) {
        y = If(c) <then_branch = t () => (float[n, 4] u) { u = Relu(x) },
                   else_branch = e () => (float[m, 4] v) { v = Concat <axis = 0> (x, x) }>
    }"""
    assert shapes_of(text)["y"] == ("a", 4)


LOOP = """g (float[n, 4] x, int64 count) => (float[a, b] last, float[i, a, b] all) <bool go = {1}> {
    last, all = Loop(count, go, x) <body = b (int64 step, bool on, float[p, q] h)
        => (bool more, float[p, q] next, float[p, q] row) { more = Identity(on) next = BODY row = Identity(next) }>
}"""


def test_what_a_loop_keeps_has_the_shape_that_it_begins_with() -> None:
    found = shapes_of(LOOP.replace("BODY", "Relu(h)"))
    assert (found["last"], found["all"]) == (("n", 4), ("i", "n", 4))


def test_what_a_loop_grows_has_symbols_of_its_own() -> None:
    found = shapes_of(LOOP.replace("BODY", "Concat <axis = 0> (h, x)"))
    assert found["last"] == ("a", 4)
    assert found["next"] == ("h_0 + n", 4)


def test_a_scan_walks_along_an_axis() -> None:
    found = shapes_of(
        """g (float[n, 4] x, float[4] h) => (float[4] last, float[n, 4] all) {
            last, all = Scan <num_scan_inputs = 1, body = b (float[4] s, float[4] r) => (float[4] t, float[4] u)
                { t = Add(s, r) u = Identity(t) }> (h, x)
        }"""
    )
    assert (found["last"], found["all"]) == ((4,), ("n", 4))


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"seq": -1}, "dimension 'seq' cannot be -1; give a number of at least 0, or the least and the greatest"),
        ({"seq": (5, 2)}, "dimension 'seq' cannot be 5..2; give a number of at least 0, or the least and the greatest"),
        ({"sek": 2}, "the model has no dimension 'sek'; did you mean 'seq'"),
        ({"length": 2}, "the model has no dimension 'length'; it has 'batch', 'seq'"),
    ],
)
def test_dimensions_that_make_no_sense_are_errors(dims: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(model_of("g (float[batch, seq] x) => (float[batch, seq] y) { y = Relu(x) }"), dims=dims)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"seq": 7}, "dimension 'seq' is given two values, 7 (dims) and 5 (input 'x')"),
        ({"seq": (6, 9)}, "dimension 'seq' is given 5 (input 'x'), outside of its range 6..9 (dims)"),
    ],
)
def test_a_shape_and_a_dimension_that_contradict_each_other_are_an_error(dims: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(
            model_of("g (float[batch, seq] x) => (float[batch, seq] y) { y = Relu(x) }"),
            shapes={"x": (2, 5)}, dims=dims,  # type: ignore[arg-type]
        )  # fmt: skip
    assert str(caught.value) == message


def test_shapes_that_an_exporter_states_of_results_are_not_believed() -> None:
    proto = model_of("g (float[batch, 4] x) => (float[1, 4] y) { t = Relu(x) y = Abs(t) }")
    proto.graph.value_info.add(name="t").CopyFrom(onnx.helper.make_tensor_value_info("t", 1, [1, 4]))
    assert shapes_in(load(proto)) == {"t": ("batch", 4), "y": ("batch", 4)}


def test_numbers_that_the_model_cannot_compute_with_are_an_error() -> None:
    with pytest.raises(ModelError) as caught:
        load(
            model_of("g (float[a, b] x, float[c, 5] w) => (float[a, 5] y) { y = MatMul(x, w) }"),
            dims={"b": 3, "c": 4},
        )
    assert str(caught.value) == (
        "the numbers given to dimensions contradict each other: [ShapeInferenceError] Inference error(s): "
        "(op_type:MatMul, node name: y): [ShapeInferenceError] Incompatible dimensions for matrix multiplication"
    )


def test_a_range_above_one_decides_which_operand_is_repeated() -> None:
    text = "g (float[a, 4] x, float[b, 4] w) => (float[c, 4] y) { y = Add(x, w) }"
    assert shapes_of(text, dims={"b": (2, 9)})["y"] == ("b", 4)
    assert shapes_of(text, dims={"a": (1, 9), "b": (1, 9)})["y"] == ("max(a, b)", 4)


def test_numbers_stated_of_outputs_say_extents_before_them_that_data_decide() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (int64 n) => (float[4] y) {
      zero = Constant <value = int64 {0}> ()
      one = Constant <value = int64 {1}> ()
      r = Range(zero, n, one)
      f = Cast <to = 1> (r)
      y = Sqrt(f)
    }"""
    program = graft.compile(onnx.parser.parse_model(text), ["llvm"])
    assert program(np.array(4)).shape == (4,)
    with pytest.raises(GraftError, match="the operands make the extent 5 of axis 0 of the result"):
        program(np.array(5))


def test_numbers_stated_of_outputs_say_nothing_where_inputs_vary() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (int64 n, float[m] x) => (float[4] y, float[m] z) {
      zero = Constant <value = int64 {0}> ()
      one = Constant <value = int64 {1}> ()
      r = Range(zero, n, one)
      y = Cast <to = 1> (r)
      z = Neg(x)
    }"""
    program = graft.compile(onnx.parser.parse_model(text), ["llvm", "reference"])
    assert program.run({"n": np.array(4), "x": np.ones(2, np.float32)})["y"].shape == (4,)


def test_what_a_file_states_of_constants_takes_nothing_from_what_they_say() -> None:
    """As PyTorch's exporter does, where weights are inputs of what onnx infers from: the axes of a Slice were lost."""
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[b, 1] x) => (float[b, 4, 3] y)
      <int64[1] one = {1}, int64[1] last = {5}> { part = Slice (table, one, last, one, one) y = Add (x, part) }"""
    model = onnx.parser.parse_model(text)
    table = np.arange(5 * 12000, dtype=np.float32).reshape(1, 5, 12000)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("one", onnx.TensorProto.INT64, [1]))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    assert shapes_in(load(model))["part"] == (1, 4, 12000)


def test_an_extent_of_0_that_is_known_stays_where_what_said_it_is_cut_off() -> None:
    """A region has the shapes of its model, and its ends are inputs: nothing in it says that there are no elements."""
    model = model_of("cut (float[3,n,1,2] x, int64[2] ends) => (float[3,a,0,2] y) { y = Slice(x, starts, ends, axes) }")
    starts, axes = (
        onnx.numpy_helper.from_array(np.array(row), name) for row, name in (([0, 0], "starts"), ([1, 2], "axes"))
    )
    model.graph.initializer.extend([starts, axes])
    region = ir.from_proto(model)
    infer_shapes(region)
    assert ValueView(region.graph.outputs[0]).shape == (3, "a", 0, 2)
