"""The kernels of irregular operators: what NumPy, ml_dtypes and onnx.reference give, and what they refuse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graft
from graft.errors import GraftError, UnsupportedError

FLOATS = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
}
INTEGERS = {
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
    TensorProto.INT2: ml_dtypes.int2,
    TensorProto.UINT2: ml_dtypes.uint2,
}


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 13, opset_import: ["" : 25, "ai.onnx.ml" : 4]>\n{text}')


def run(text: str, *inputs: Any) -> Any:
    return graft.compile(model_of(text), backends=["irregular"])(*inputs)


def cast(array: np.ndarray, source: int, target: int, **attributes: Any) -> np.ndarray:
    node = helper.make_node("Cast", ["x"], ["y"], to=target, **attributes)
    values = [helper.make_tensor_value_info(name, kind, array.shape) for name, kind in (("x", source), ("y", target))]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, ir_version=13, opset_imports=[helper.make_opsetid("", 25)])
    return graft.compile(model, backends=["irregular"])(array)


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8 if array.itemsize == 1 else np.uint16)


# ---- Narrow types ----


@pytest.mark.parametrize("target", FLOATS, ids=TensorProto.DataType.Name)
def test_every_float16_is_rounded_as_ml_dtypes_rounds_it(target: int) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = ~np.isnan(every)
    result = cast(every, TensorProto.FLOAT16, target, saturate=0)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = every.astype(FLOATS[target])
    np.testing.assert_array_equal(bits(result[numbers]), bits(expected[numbers]))
    if target != TensorProto.FLOAT4E2M1:  # which has no NaN
        assert np.isnan(result[~numbers].astype(np.float32)).all()


@pytest.mark.parametrize("source", FLOATS, ids=TensorProto.DataType.Name)
def test_every_code_of_a_narrow_float_is_the_number_it_stands_for(source: int) -> None:
    kind = np.dtype(FLOATS[source])
    codes = 16 if source == TensorProto.FLOAT4E2M1 else 1 << 8 * kind.itemsize
    every = np.arange(codes, dtype=np.uint8 if kind.itemsize == 1 else np.uint16).view(kind)
    np.testing.assert_array_equal(cast(every, source, TensorProto.FLOAT), every.astype(np.float32))


def test_a_saturated_cast_ends_at_the_largest_number() -> None:
    given = np.array([1e9, -1e9, np.inf, -np.inf], np.float32)
    result = cast(given, TensorProto.FLOAT, TensorProto.FLOAT8E5M2)
    np.testing.assert_array_equal(result.astype(np.float32), [57344, -57344, 57344, -57344])


@pytest.mark.parametrize("target", [TensorProto.FLOAT16, TensorProto.BFLOAT16], ids=TensorProto.DataType.Name)
def test_only_casts_to_8_bits_saturate(target: int) -> None:
    given = np.array([1e39, -1e39, np.inf, -np.inf], np.float64)
    result = cast(given, TensorProto.DOUBLE, target)
    np.testing.assert_array_equal(result.astype(np.float32), [np.inf, -np.inf, np.inf, -np.inf])


@pytest.mark.parametrize("target", INTEGERS, ids=TensorProto.DataType.Name)
def test_integers_of_a_few_bits_wrap(target: int) -> None:
    given = np.arange(-20, 20, dtype=np.int32)
    result = cast(given, TensorProto.INT32, target)
    np.testing.assert_array_equal(result.astype(np.int32), given.astype(INTEGERS[target]).astype(np.int32))


def test_scales_of_blocks_dequantise_their_blocks() -> None:
    text = """g (int4[2,5] x, float[2,3] s, int4[2,3] z) => (float[2,5] y) {
      y = DequantizeLinear <axis = 1, block_size = 2> (x, s, z) }"""
    x = np.arange(-5, 5).reshape(2, 5).astype(ml_dtypes.int4)
    s, z = np.float32([[1, 2, 3], [0.5, 4, 8]]), np.array([[1, 0, -1], [2, -2, 0]]).astype(ml_dtypes.int4)
    places = np.array([0, 0, 1, 1, 2])
    expected = (x.astype(np.float32) - z.astype(np.float32)[:, places]) * s[:, places]
    np.testing.assert_array_equal(run(text, x, s, z), expected)


def test_a_cast_to_text_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Cast of float32 to string writes or reads numbers as text"):
        run("g (float[2] x) => (string[2] y) { y = Cast <to = 8> (x) }", np.float32([1, 2]))


# ---- What data decide the size of ----


def test_nan_is_one_unique_value_and_the_last() -> None:
    x = np.float32([np.nan, 2, -0.0, np.nan, 0.0, -1])
    y, first, inverse, counts = run(
        "g (float[6] x) => (float[a] y, int64[b] f, int64[c] i, int64[d] n) { y, f, i, n = Unique (x) }", x
    )
    np.testing.assert_array_equal(y, [-1, 0, 2, np.nan])
    np.testing.assert_array_equal(first, [5, 2, 1, 0])
    np.testing.assert_array_equal(inverse, [3, 2, 1, 3, 1, 0])
    np.testing.assert_array_equal(counts, [1, 2, 1, 2])


def test_slices_that_are_not_sorted_stay_in_the_order_in_which_they_come() -> None:
    x = np.array([[3, 1, 3, 0], [0, 2, 0, 9]], np.int64)
    text = "g (int64[2,4] x) => (int64[2,a] y, int64[b] f) { y, f = Unique <axis = -1, sorted = 0> (x) }"
    y, first = run(text, x)
    np.testing.assert_array_equal(y, x[:, [0, 1, 3]])
    np.testing.assert_array_equal(first, [0, 1, 3])


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0), (3, 4, 2)])
def test_places_of_what_is_not_zero(shape: tuple[int, ...]) -> None:
    x = np.asarray(np.random.default_rng(1).integers(-1, 2, shape) * -1.0, np.float32)
    kind = f"float[{','.join(map(str, shape))}]" if shape else "float"
    found = run(f"g ({kind} x) => (int64[{len(shape)},n] y) {{ y = NonZero (x) }}", x)
    expected = np.array(np.nonzero(x)) if shape else np.zeros((0, int(x != 0)), np.int64)
    np.testing.assert_array_equal(found, expected)


def test_a_condition_that_chooses_behind_the_end_is_an_error() -> None:
    text = "g (float[2] x, bool[3] c) => (float[n] y) { y = Compress <axis = 0> (x, c) }"
    np.testing.assert_array_equal(run(text, np.float32([1, 2]), np.array([False, True, False])), [2])
    with pytest.raises(GraftError, match="node 'y': the condition chooses what is behind the end of the input"):
        run(text, np.float32([1, 2]), np.array([False, True, True]))


def test_of_boxes_with_equal_scores_the_first_one_is_kept() -> None:
    text = """g (float[1,4,4] b, float[1,1,4] s) => (int64[n,3] y)
      <int64[1] m = {9}, float[1] o = {0.5}> { y = NonMaxSuppression (b, s, m, o) }"""
    boxes = np.float32([[[0, 0, 1, 1], [0, 0, 1, 1.1], [5, 5, 6, 6], [0, 0, 1, 1]]])
    found = run(text, boxes, np.float32([[[0.9, 0.9, np.nan, 0.9]]]))
    np.testing.assert_array_equal(found, [[0, 0, 0]])


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_are_sampled_about_once_a_pixel(mode: str) -> None:
    text = f"""g (float[2,3,9,7] x, float[4,4] r, int64[4] b) => (float[4,3,2,3] y) {{
      y = RoiAlign <output_height = 2, output_width = 3, mode = "{mode}", spatial_scale = 0.5> (x, r, b) }}"""
    rng = np.random.default_rng(2)
    x, b = rng.standard_normal((2, 3, 9, 7), dtype=np.float32), np.array([0, 1, 1, 0])
    r = np.float32([[0, 0, 13, 17], [2, 1, 9, 4], [-4, -4, 40, 40], [3, 3, 3.5, 3.2]])
    expected = ReferenceEvaluator(model_of(text)).run(None, {"x": x, "r": r, "b": b})[0]
    np.testing.assert_allclose(run(text, x, r, b), expected, rtol=1e-4, atol=1e-5)


def test_the_largest_pixel_of_each_bin_of_a_region_is_pooled() -> None:
    """By the definition of Fast R-CNN: ends are rounded and belong to the region, bins overlap, an empty one is 0."""
    text = """g (float[2,3,9,7] x, float[5,5] r) => (float[5,3,2,3] y) {
      y = MaxRoiPool <pooled_shape = [2, 3], spatial_scale = 0.5> (x, r) }"""
    x = np.random.default_rng(2).standard_normal((2, 3, 9, 7), dtype=np.float32)
    r = np.float32([[0, 0, 0, 13, 17], [1, 2, 1, 9, 4], [1, -4, -4, 40, 40], [0, 3, 3, 3.5, 3.2], [0, 90, 90, 99, 99]])
    expected = np.zeros((5, 3, 2, 3), np.float32)
    for region, (image, *box) in enumerate(r):
        left, top, right, bottom = (int(np.floor(one * 0.5 + 0.5)) for one in box)
        for row, column in np.ndindex(2, 3):
            size = [max(bottom - top + 1, 1) / 2, max(right - left + 1, 1) / 3]
            ends = [(top + int(np.floor(row * size[0])), top + int(np.ceil((row + 1) * size[0])), 9)]
            ends += [(left + int(np.floor(column * size[1])), left + int(np.ceil((column + 1) * size[1])), 7)]
            (y0, y1), (x0, x1) = ((min(max(low, 0), most), min(max(high, 0), most)) for low, high, most in ends)
            if y0 < y1 and x0 < x1:
                expected[region, :, row, column] = x[int(image), :, y0:y1, x0:x1].max((1, 2))
    np.testing.assert_array_equal(run(text, x, r), expected)
    with pytest.raises(GraftError, match="image"):
        run(text, x, r + np.float32([2, 0, 0, 0, 0]))


def test_determinants_of_singular_and_of_transposed_matrices() -> None:
    x = np.array([[[0, 1], [1, 0]], [[1, 2], [2, 4]], [[3, 1], [4, 2]]], np.float64)
    np.testing.assert_allclose(run("g (double[3,2,2] x) => (double[3] y) { y = Det (x) }", x), [-1, 0, 2], atol=1e-15)


# ---- Random numbers ----


def test_seeded_numbers_are_those_of_numpy() -> None:
    uniform = run("g () => (float[5] y) { y = RandomUniform <shape = [5], low = -1.0, high = 3.0, seed = 7.0> () }")
    expected = np.random.RandomState(7).uniform(-1, 3, 5).astype(np.float32)
    np.testing.assert_array_equal(uniform, expected)
    normal = run("g () => (double[5] y) { y = RandomNormal <shape = [5], dtype = 11, seed = 7.0> () }")
    np.testing.assert_allclose(normal, np.random.RandomState(7).randn(5), rtol=1e-14)


def test_numbers_without_a_seed_differ_from_run_to_run() -> None:
    program = graft.compile(model_of("g () => (float[9] y) { y = RandomNormal <shape = [9]> () }"))
    assert not np.array_equal(program(), program())


def test_draws_of_classes_come_as_often_as_their_chances_say() -> None:
    text = "g (float[1,3] x) => (int32[1,20000] y) { y = Multinomial <sample_size = 20000, seed = 3.0> (x) }"
    counts = np.bincount(run(text, np.log(np.float32([[0.2, 0.5, 0.3]])))[0], minlength=3) / 20000
    np.testing.assert_allclose(counts, [0.2, 0.5, 0.3], atol=0.02)


# ---- Texts ----


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


def test_text_is_split_at_the_white_space_of_unicode() -> None:
    parts, counts = run(
        "g (string[3] x) => (string[3,n] y, int64[3] z) { y, z = StringSplit <maxsplit = 1> (x) }",
        texts(" a\u2003b  c ", "", "\u00e4"),
    )
    assert parts.tolist() == [["a", "b  c "], ["", ""], ["\u00e4", ""]]
    assert counts.tolist() == [2, 0, 1]


def test_cases_are_those_of_unicode() -> None:
    text = 'g (string[3] x) => (string[n] y) { y = StringNormalizer <case_change_action = "UPPER"> (x) }'
    assert run(text, texts("stra\u00dfe", "\u0438", "a")).tolist() == ["STRASSE", "\u0418", "A"]


def test_stop_words_that_are_all_leave_an_empty_text() -> None:
    text = 'g (string[1,2] x) => (string[1,n] y) { y = StringNormalizer <stopwords = ["AB"]> (x) }'
    assert run(text, texts("ab", "aB").reshape(1, 2)).tolist() == [[""]]


def test_labels_that_are_not_known_get_the_default() -> None:
    text = """g (float[4] x) => (string[4] y) {
      y = ai.onnx.ml.LabelEncoder <keys_floats = [1.0, 2.0, nan], values_strings = ["a", "b", "n"]> (x) }"""
    text = text.replace("nan", "3.0")
    assert run(text, np.float32([2, 1, 5, 3])).tolist() == ["b", "a", "_Unused", "n"]


# ---- Sequences ----


def test_a_position_outside_of_a_sequence_is_an_error() -> None:
    text = "g (float[2] x, int64 i) => (float[2] y) { s = SequenceConstruct (x, x)  y = SequenceAt (s, i) }"
    np.testing.assert_array_equal(run(text, np.float32([1, 2]), np.array(-2)), [1, 2])
    with pytest.raises(GraftError, match="node 'y': the position is outside of the sequence"):
        run(text, np.float32([1, 2]), np.array(2))


def test_the_parts_of_a_tensor_go_together_again() -> None:
    text = """g (float[2,5] x, int64[3] n) => (float[2,5] y) {
      s = SplitToSequence <axis = 1> (x, n)
      y = ConcatFromSequence <axis = -1> (s)
    }"""
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    np.testing.assert_array_equal(run(text, x, np.array([1, 0, 4])), x)
    with pytest.raises(GraftError, match="node 's': the parts are together not as long as the axis"):
        run(text, x, np.array([1, 0, 3]))


def test_a_sequence_grows_in_a_loop() -> None:
    text = """g (int64 n, float[2] x) => (seq(float[2]) y) <bool c = {1}> {
      s = SequenceEmpty ()
      y = Loop (n, c, s) <body = b (int64 i, bool go, seq(float[2]) q) => (bool more, seq(float[2]) p) {
        more = Identity (go)  f = CastLike (i, x)  v = Add (x, f)  p = SequenceInsert (q, v) }>
    }"""
    result = graft.compile(model_of(text), backends=["llvm", "irregular"])(np.array(3), np.float32([1, 2]))
    np.testing.assert_array_equal(result, [[1, 2], [2, 3], [3, 4]])


# ---- Moves by computed numbers ----


def moved(operator: str, array: np.ndarray, *numbers: Any, **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return what the kernel makes of an array and of computed numbers, and what ONNX's evaluator makes."""
    given = {"x": array, **{f"n{place}": np.asarray(one, np.int64) for place, one in enumerate(numbers)}}
    node = helper.make_node(operator, list(given), ["y"], **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(one.dtype) for name, one in given.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], one.shape) for name, one in given.items()]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kinds["x"], None)])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    (expected,) = ReferenceEvaluator(model).run(None, given)
    return graft.compile(model, backends=["irregular"], threads=1)(*given.values()), expected


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.float16, np.bool_])
@pytest.mark.parametrize(
    ("operator", "numbers"),
    [
        ("Slice", ([0, 1], [2, 3])),
        ("Slice", ([-1, 3], [-9, 0], [2, 1], [-2, -1])),
        ("Slice", ([5], [9], [1])),
        ("Tile", ([2, 1, 3],)),
        ("Tile", ([0, 1, 1],)),
        ("Expand", ([2, 1, 2, 1, 4],)),
        ("Expand", ([1],)),
    ],
)
def test_elements_move_where_computed_numbers_say(kind: type, operator: str, numbers: tuple[list[int], ...]) -> None:
    shape = (2, 1, 4) if operator == "Expand" else (2, 3, 4)
    found, expected = moved(operator, (np.arange(np.prod(shape)).reshape(shape) % 5).astype(kind), *numbers)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_that_are_computed_go_as_their_mode_says(mode: str) -> None:
    found, expected = moved("Pad", np.arange(24.0, dtype=np.float32).reshape(2, 3, 4), [0, 2, 3, 1, 1, 0], mode=mode)
    np.testing.assert_array_equal(found, expected)


def test_a_constant_has_the_shape_that_is_computed() -> None:
    filled = run(
        "g (int64[n] s) => (int64[?, ?] y) { y = ConstantOfShape <value = int64[1] {9007199254740993}> (s) }",
        np.array([2, 3]),
    )
    np.testing.assert_array_equal(filled, np.full((2, 3), 9007199254740993))
    true = run("g (int64[1] s) => (bool[?] y) { y = ConstantOfShape <value = bool[1] {1}> (s) }", np.array([2]))
    assert true.tolist() == [True, True]


@pytest.mark.parametrize("bounds", [(0, 7, 2), (5, -3, -3), (2, 2, 1), (0.5, 3, 0.5)])
def test_a_range_is_as_long_as_its_bounds_say(bounds: tuple[float, ...]) -> None:
    given = [np.array(one, np.float32 if isinstance(bounds[0], float) else np.int64) for one in bounds]
    kind = "float" if isinstance(bounds[0], float) else "int64"
    found = run(f"g ({kind} a, {kind} b, {kind} c) => ({kind}[?] y) {{ y = Range(a, b, c) }}", *given)
    np.testing.assert_array_equal(found, np.arange(*given))


@pytest.mark.parametrize(("limits", "expected"), [("", [1, 2, 3]), (" <start = 1>", [2, 3]), (" <end = -2>", [1])])
def test_the_shape_of_what_data_sized_is_told(limits: str, expected: list[int]) -> None:
    text = f"g (float[1, 1, 3] x, int64[3] s) => (int64[?] y) {{ z = Expand(x, s) y = Shape{limits}(z) }}"
    assert run(text, np.zeros((1, 1, 3), np.float32), np.array([1, 2, 3])).tolist() == expected


@pytest.mark.parametrize(
    ("text", "inputs", "said"),
    [
        ("g (float[3] x, int64[1] s, int64[1] e, int64[1] a, int64[1] p) => (float[?] y) { y = Slice(x, s, e, a, p) }",
         ([1, 2, 3], [0], [3], [0], [0]), "a step is 0"),
        ("g (float[3] x, int64[1] s) => (float[?] y) { y = Expand(x, s) }", ([1, 2, 3], [2]), "does not broadcast"),
        ("g (int64[1] s) => (float[?] y) { y = ConstantOfShape(s) }", ([-1],), "an extent is negative"),
    ],
    ids=["step", "shape", "extent"],
)  # fmt: skip
def test_numbers_that_no_move_follows_are_told(text: str, inputs: tuple[list[int], ...], said: str) -> None:
    kinds = [np.float32] + [np.int64] * (len(inputs) - 1) if len(inputs) > 1 else [np.int64]
    with pytest.raises(GraftError, match=said):
        run(text, *(np.array(one, kind) for one, kind in zip(inputs, kinds, strict=True)))


# ---- Strings that move ----

TEXTS = np.array([["red", "grün", ""], ["a", "bb", "ccc"]], object)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("s = Constant <value_ints = [0, -1, 1]> ()  y = Reshape (x, s)", TEXTS.reshape(2, 3, 1)),
        ("y = Flatten <axis = 0> (x)", TEXTS.reshape(1, 6)),
        ("a = Constant <value_ints = [0, -1]> ()  y = Unsqueeze (x, a)", TEXTS[None, :, :, None]),
        ("a = Constant <value_ints = [1]> ()  z = Unsqueeze (x, a)  y = Squeeze (z)", TEXTS),
        ("i = Constant <value_ints = [2, -3]> ()  y = Gather <axis = 1> (x, i)", TEXTS[:, [2, -3]]),
        ("i = Constant <value_int = 1> ()  y = Gather (x, i)", TEXTS[1]),
    ],
)
def test_strings_move_as_numbers_do(nodes: str, expected: np.ndarray) -> None:
    shape = ",".join(map(str, expected.shape))
    result = run(f"g (string[2,3] x) => (string[{shape}] y) {{ {nodes} }}", TEXTS)
    assert result.shape == expected.shape and result.tolist() == expected.tolist()


def test_an_index_of_strings_that_is_out_of_range_is_an_error() -> None:
    program = graft.compile(model_of("g (string[3] x, int64[1] i) => (string[1] y) { y = Gather (x, i) }"))
    assert program(TEXTS[0], np.array([-3])).tolist() == ["red"]
    with pytest.raises(GraftError, match="out of range"):
        program(TEXTS[0], np.array([3]))


@pytest.mark.parametrize(
    "nodes",
    [
        "y, p = LinearClassifier <classlabels_strings = [{labels}], coefficients = [1.0, 0.0, 0.0, 1.0, -1.0, -1.0], "
        "intercepts = [0.0, 0.0, 0.0]> (x)",
        "y, p = TreeEnsembleClassifier <classlabels_strings = [{labels}], nodes_treeids = [0, 0, 0], "
        "nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0], nodes_values = [0.5, 0.0, 0.0], "
        'nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], '
        "class_treeids = [0, 0], class_nodeids = [1, 2], class_ids = [2, 0], class_weights = [1.0, 1.0]> (x)",
    ],
    ids=["linear", "trees"],
)
def test_classes_that_are_text_are_chosen_in_native_code(nodes: str) -> None:
    nodes = nodes.replace("{labels}", '"red", "green", "blue"')
    for name in ("LinearClassifier", "TreeEnsembleClassifier"):
        nodes = nodes.replace(name, f"ai.onnx.ml.{name}")
    model = model_of(f"g (float[n,2] x) => (string[n] y) {{ {nodes} }}")
    x = np.array([[2, 1], [0, 0.5], [-3, -1]], np.float32)
    result = graft.compile(model)(x)
    assert result.tolist() == ReferenceEvaluator(model).run(["y"], {"x": x})[0].tolist()
    assert {row.backend for row in graft.plan(model).placements}.isdisjoint({"reference"})


def test_text_is_encoded_in_native_code() -> None:
    text = (
        'g (string[n] x) => (float[n,3] y) { y = ai.onnx.ml.OneHotEncoder <cats_strings = ["a", "red", "grün"]> (x) }'
    )
    result = graft.compile(model_of(text))(TEXTS[0])
    np.testing.assert_array_equal(result, [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert {row.backend for row in graft.plan(model_of(text)).placements}.isdisjoint({"reference"})


NUMBERS = {
    "bool": np.bool_, "uint8": np.uint8, "int16": np.int16, "uint64": np.uint64, "int64": np.int64,
    "float16": np.float16, "float": np.float32, "double": np.float64,
}  # fmt: skip


def every_kind_of_number(kind: str) -> np.ndarray:
    """Zeros of both signs, numbers without order, the largest, and a row of nothing: 5 x 3 x 11."""
    values = np.random.default_rng(5).integers(0, 3, 165).astype(NUMBERS[kind])
    if values.dtype.kind == "f":
        values[:12:2] = [-0.0, np.nan, -np.inf, np.inf, -np.nan, np.finfo(values.dtype).smallest_subnormal]
    elif values.dtype.kind != "b":
        values[:4] = [np.iinfo(values.dtype).max, np.iinfo(values.dtype).min, np.iinfo(values.dtype).max // 2 + 1, 1]
    values[33:88] = 0
    return values.reshape(5, 3, 11)


@pytest.mark.parametrize("kind", NUMBERS)
def test_places_of_what_is_not_0_are_those_of_numpy(kind: str) -> None:
    x = every_kind_of_number(kind)
    found = run(f"g ({kind}[5,3,11] x) => (int64[3,n] y) {{ y = NonZero (x) }}", x)
    np.testing.assert_array_equal(found, np.stack(np.nonzero(x)))


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("kind", [one for one in NUMBERS if one != "bool"])
def test_unique_numbers_are_those_of_numpy(kind: str, is_sorted: int) -> None:
    x = every_kind_of_number(kind)
    node = f"y, first, inverse, counts = Unique <sorted = {is_sorted}> (x)"
    outputs = f"{kind}[n] y, int64[n] first, int64[165] inverse, int64[n] counts"
    y, first, inverse, counts = run(f"g ({kind}[5,3,11] x) => ({outputs}) {{ {node} }}", x)
    values, at, back, times = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(at)) if is_sorted else np.argsort(at)
    np.testing.assert_array_equal(y, values[order])
    np.testing.assert_array_equal(first, at[order])
    np.testing.assert_array_equal(inverse, np.argsort(order)[back.ravel()])
    np.testing.assert_array_equal(counts, times[order])


def test_the_size_of_what_data_decide_is_counted() -> None:
    text = "g (float[n] x) => (int64 y) { z = NonZero (x) y = Size (z) }"
    assert run(text, np.array([1, 0, 2, 3], np.float32)) == 3
