"""Where onnx.reference is wrong: computed as ONNX Runtime does, or refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graft
from graft.errors import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")
F, ML = np.float32, "ai.onnx.ml"
RANDOM = np.random.default_rng(2)
X = RANDOM.standard_normal((4, 3)).astype(F)


def model_of(
    operator: str, inputs: dict[str, np.ndarray], outputs: dict[str, tuple[int, list[int | None]]], **settings: Any
) -> onnx.ModelProto:
    domain = settings.pop("domain", "")
    node = helper.make_node(operator, list(inputs), list(outputs), domain=domain, name="it", **settings)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()]
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(ML, 1)]
    return helper.make_model(helper.make_graph([node], "g", given, results), opset_imports=opsets, ir_version=10)


def check(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    """Compare the reference backend with ONNX Runtime."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = graft.compile(model, ["reference"], threads=1).run(inputs)
    for output, expected in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(results[output.name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_logarithms_of_probabilities_far_below_the_largest_are_numbers(axis: int) -> None:
    inputs = {"x": np.array([[0, 1, 10000], [-5000, 2, 0.5]], F)}
    check(model_of("LogSoftmax", inputs, {"y": (TensorProto.FLOAT, [2, 3])}, axis=axis), inputs)


@pytest.mark.parametrize("form", [(), (1,)], ids=["scalar", "vector"])
@pytest.mark.parametrize("limits", [1, 2, 3])
@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression_takes_limits_of_either_form(form: tuple[int, ...], limits: int, centred: int) -> None:
    boxes = RANDOM.random((2, 8, 4)).astype(F)
    if not centred:
        boxes[..., 2:] += boxes[..., :2]
    given = {"m": np.full(form, 4, np.int64), "i": np.full(form, 0.3, F), "q": np.full(form, 0.2, F)}
    inputs = {"b": boxes, "s": RANDOM.random((2, 3, 8)).astype(F), **dict(list(given.items())[:limits])}
    check(
        model_of("NonMaxSuppression", inputs, {"y": (TensorProto.INT64, [None, 3])}, center_point_box=centred), inputs
    )


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("pads", [[-1, 2, 1, -2], [0, -1, -2, -1]])
def test_negative_pads_take_elements_away(mode: str, pads: list[int]) -> None:
    given = {"x": RANDOM.standard_normal((6, 7)).astype(F), "p": np.array(pads)}
    check(model_of("Pad", given, {"y": (TensorProto.FLOAT, [None, None])}, mode=mode), given)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_gathered_out_of_any_number(axis: int) -> None:
    given = {"x": RANDOM.standard_normal((70, 80)).astype(F), "i": RANDOM.integers(-70, 70, (9, 5))}
    check(model_of("GatherElements", given, {"y": (TensorProto.FLOAT, [9, 5])}, axis=axis), given)


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique_keeps_the_order_of_first_occurrence(axis: int | None, is_sorted: int) -> None:
    x = RANDOM.integers(0, 2, (8, 3)).astype(F)
    rank = 1 if axis is None else 2
    outputs: dict[str, tuple[int, list[int | None]]] = {"y": (TensorProto.FLOAT, [None] * rank)}
    outputs |= {name: (TensorProto.INT64, [None]) for name in ("i", "v", "c")}
    settings = {} if axis is None else {"axis": axis}
    check(model_of("Unique", {"x": x}, outputs, sorted=is_sorted, **settings), {"x": x})


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_support_vector_classifier_couples_the_probabilities_of_pairs(classes: int) -> None:
    vectors = [2, 3, 2, 2][:classes]
    count, pairs = sum(vectors), classes * (classes - 1) // 2
    model = model_of(
        "SVMClassifier", {"x": X}, {"l": (TensorProto.INT64, [4]), "p": (TensorProto.FLOAT, [4, classes])}, domain=ML,
        kernel_type="RBF", kernel_params=[0.5, 0.1, 2.0], vectors_per_class=vectors,
        support_vectors=RANDOM.standard_normal(count * 3).tolist(),
        coefficients=RANDOM.standard_normal(count * (classes - 1)).tolist(), rho=RANDOM.standard_normal(pairs).tolist(),
        prob_a=RANDOM.standard_normal(pairs).tolist(), prob_b=RANDOM.standard_normal(pairs).tolist(),
        classlabels_ints=list(range(classes)), post_transform="NONE",
    )  # fmt: skip
    check(model, {"x": X})


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_a_normalizer_divides_by_the_norm_of_a_row(norm: str) -> None:
    check(model_of("Normalizer", {"x": X}, {"y": (TensorProto.FLOAT, [4, 3])}, domain=ML, norm=norm), {"x": X})


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_the_length_of_integers_does_not_overflow(backend: str) -> None:
    x = np.array([[70000] * 50, [-3, 4] + [0] * 48], np.int32)
    node = helper.make_node("ReduceL2", ["x", "a"], ["y"], keepdims=0)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.INT32, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [2])],
        [helper.make_tensor("a", TensorProto.INT64, [1], [1])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert graft.compile(model, [backend], threads=1)(x).tolist() == [494974, 5]


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(
    ("ignored", "attributes"), [("clip", {"clip": 0.3}), ("sequence_lens", {}), ("activations", None)]
)
def test_what_onnx_reference_ignores_in_a_recurrent_layer_is_refused(
    kind: str, ignored: str, attributes: dict[str, float] | None
) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    count = {"RNN": 1, "GRU": 2, "LSTM": 3}[kind]
    settings = {"activations": ["Relu"] * count} if attributes is None else attributes
    shapes = {"x": (5, 2, 3), "w": (1, gates * 4, 3), "r": (1, gates * 4, 4)}
    inputs = {name: np.zeros(shape, F) for name, shape in shapes.items()}
    if ignored == "sequence_lens":
        inputs |= {"b": np.zeros((1, 2 * gates * 4), F), "n": np.array([5, 2], np.int32)}
    model = model_of(kind, inputs, {"y": (TensorProto.FLOAT, [5, 1, 2, 4])}, hidden_size=4, **settings)
    with pytest.raises(UnsupportedError) as caught:
        graft.compile(model, ["reference"])
    assert str(caught.value) == (
        f"no backend takes {kind} (node 'it'): reference: attribute: onnx.reference ignores '{ignored}' of {kind}; "
        "add 'llvm' to the backends"
    )


def trees(weights: list[float], transform: str, class_id: int) -> onnx.ModelProto:
    return model_of(
        "TreeEnsembleClassifier", {"x": X}, {"l": (TensorProto.INT64, [4]), "p": (TensorProto.FLOAT, [4, 2])},
        domain=ML,
        nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2], nodes_featureids=[0] * 3, nodes_values=[0.1, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        nodes_hitrates=[1.0] * 3, nodes_missing_value_tracks_true=[0] * 3, class_treeids=[0] * 2, class_nodeids=[1, 2],
        class_ids=[class_id] * 2, class_weights=weights, classlabels_int64s=[0, 1], post_transform=transform,
    )  # fmt: skip


@pytest.mark.parametrize(("weights", "transform"), [([0.9, -0.5], "LOGISTIC"), ([0.9, 0.2], "NONE")])
def test_trees_with_one_score_for_two_classes_agree_where_they_are_taken(weights: list[float], transform: str) -> None:
    check(trees(weights, transform, 0), {"x": X})


@pytest.mark.parametrize(
    ("weights", "transform", "class_id"),
    [([0.9, -0.5], "SOFTMAX", 0), ([0.9, -0.5], "NONE", 0), ([0.9, 0.2], "LOGISTIC", 0)],
)
def test_trees_with_one_score_for_two_classes_agree_where_onnx_reference_does_not(
    weights: list[float], transform: str, class_id: int
) -> None:
    check(trees(weights, transform, class_id), {"x": X})


def test_trees_with_the_score_of_the_second_class_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="ignores 'class_ids' of TreeEnsembleClassifier"):
        graft.compile(trees([0.9, 0.2], "NONE", 1), ["reference"])


@pytest.mark.parametrize(
    ("operator", "shape", "settings"),
    [
        ("LRN", (2, 6, 3, 3), {"size": 3, "alpha": 0.3}),
        ("LRN", (1, 6, 3, 3), {"size": 5, "alpha": 0.3, "beta": 0.6, "bias": 2.0}),
        ("LpNormalization", (3, 4), {"p": 1, "axis": 1}),
        ("LpNormalization", (3, 4), {"p": 2, "axis": 0}),
        ("GlobalMaxPool", (2, 3, 5), {}),
        ("GlobalMaxPool", (2, 3, 5, 4, 3), {}),
    ],
)
def test_normalisations_and_global_pooling_are_right(
    operator: str, shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    x = RANDOM.standard_normal(shape).astype(F)
    made = (*shape[:2], *(1 for _ in shape[2:])) if operator == "GlobalMaxPool" else shape
    check(model_of(operator, {"x": x}, {"y": (TensorProto.FLOAT, list(made))}, **settings), {"x": x})


REDUCED = {
    "ReduceSum": 4096.0, "ReduceMean": 1.0, "ReduceL1": 4096.0, "ReduceL2": 64.0, "ReduceSumSquare": 4096.0,
    "ReduceLogSum": float(np.log(4096)), "ReduceLogSumExp": 1 + float(np.log(4096)),
}  # fmt: skip


@pytest.mark.parametrize("operator", REDUCED)
def test_many_numbers_of_bfloat16_are_added_in_float32(operator: str) -> None:
    model = model_of(operator, {"x": np.ones(4096, ml_dtypes.bfloat16)}, {"y": (TensorProto.BFLOAT16, [])}, keepdims=0)
    (found,) = graft.compile(model, ["reference"], threads=1).run({"x": np.ones(4096, ml_dtypes.bfloat16)}).values()
    assert float(found) == pytest.approx(REDUCED[operator], rel=2**-8)


def test_products_of_bfloat16_are_added_in_float32_within_branches_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (bfloat16[1,2048] a, bfloat16[2048,1] b, bool c) =>
        (bfloat16[1,1] y) { y = If (c) <then_branch = t () => (bfloat16[1,1] p) { p = MatMul (a, b) },
                                        else_branch = e () => (bfloat16[1,1] q) { q = ReduceSum (a, axes) }> }"""
    model = onnx.parser.parse_model(text.replace("(a, axes)", "<keepdims = 1> (a)"))
    feeds = {name: np.ones(shape, ml_dtypes.bfloat16) for name, shape in (("a", (1, 2048)), ("b", (2048, 1)))}
    program = graft.compile(model, ["reference"], threads=1)
    for choice in (True, False):
        assert float(program.run({**feeds, "c": np.array(choice)})["y"].squeeze()) == 2048


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize(
    ("aligned", "expected"),
    [(0, [0.9032971, 0.3241356, -0.4320]), (1, [0.7347623, 0.4145789, 0.2694933])],
    ids=["centres", "corners"],
)
def test_a_cubic_sample_beyond_the_border_is_what_pytorch_computes(
    backend: str, aligned: int, expected: list[float]
) -> None:
    inputs = {
        "x": np.array([[[[1, 2, 4], [3, -1, 0]]]], F),
        "g": np.array([[[[-1.3, -1.2], [0.2, 0.1], [1.4, 0.9]]]], F),
    }
    model = model_of("GridSample", inputs, {"y": (TensorProto.FLOAT, [1, 1, 1, 3])}, mode="cubic",
                     padding_mode="border", align_corners=aligned)  # fmt: skip
    found = graft.compile(model, [backend], threads=1).run(inputs)["y"]
    np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-5)


@pytest.mark.parametrize("settings", [{"pads": [2, 1, 2, 1]}, {}])
@pytest.mark.parametrize("strides", [[1, 1], [2, 1]])
def test_a_dilated_kernel_meets_no_infinity_between_its_elements(settings: dict[str, Any], strides: list[int]) -> None:
    model, inputs = dilated(strides, settings)
    check(model, inputs)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 1]])
def test_a_dilated_kernel_is_padded_as_asked(auto_pad: str, strides: list[int]) -> None:
    model, inputs = dilated(strides, {"auto_pad": auto_pad})  # which ONNX Runtime refuses
    results = [graft.compile(model, [name], threads=1).run(inputs)["y"] for name in ("reference", "llvm")]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def dilated(strides: list[int], settings: dict[str, Any]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    x = RANDOM.standard_normal((2, 4, 9, 6)).astype(F)
    x[1, 2, 4, 3] = np.inf
    inputs = {"x": x, "w": RANDOM.standard_normal((6, 2, 3, 2)).astype(F), "b": RANDOM.standard_normal(6).astype(F)}
    shape = (TensorProto.FLOAT, [None, 6, None, None])
    return model_of("Conv", inputs, {"y": shape}, group=2, dilations=[2, 1], strides=strides, **settings), inputs


@pytest.mark.parametrize("settings", [
    {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, {"nearest_mode": "round_prefer_ceil"},
])  # fmt: skip
def test_the_nearest_element_of_an_infinity_is_no_sum(settings: dict[str, Any]) -> None:
    x = RANDOM.standard_normal((1, 2, 3, 4)).astype(F)
    x[0, 1, 1, 1:] = [np.inf, -np.inf, np.nan]
    inputs = {"x": x, "s": np.array([1, 1, 2, 1.5], F)}
    model = model_of("Resize", {"x": x, "": x[:0], "s": inputs["s"]}, {"y": (TensorProto.FLOAT, [None] * 4)},
                     mode="nearest", **settings)  # fmt: skip
    del model.graph.input[1]
    check(model, inputs)


@pytest.mark.parametrize("backend", ["reference", "llvm", "c_source"])
@pytest.mark.parametrize("axes", [[0], [0, 1]])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("operator", "value"),
    [
        ("ReduceLogSum", lambda x, axes: np.log(x.sum(axes))),
        ("ReduceLogSumExp", lambda x, axes: np.log(np.exp(x).sum(axes))),
    ],
)
def test_logarithms_of_sums_of_integers_are_truncated(
    operator: str, value: Any, dtype: str, axes: list[int], backend: str
) -> None:
    x = RANDOM.integers(1, 9, (4, 3)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = {"x": x, "axes": np.array(axes)}
    model = model_of(operator, given, {"y": (kind, [3] if len(axes) == 1 else [])}, keepdims=0)
    found = graft.compile(model, [backend], threads=1).run(given)["y"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, value(x.astype(np.float64), tuple(axes)).astype(dtype))


POOLS = [
    ((4, 5), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}),
    ((3,), {"kernel_shape": [5], "strides": [3], "ceil_mode": 1}),
    ((7,), {"kernel_shape": [2], "strides": [3], "dilations": [3], "ceil_mode": 1, "pads": [1, 1]}),
    ((5, 6), {"kernel_shape": [4, 2], "strides": [3, 4], "ceil_mode": 1, "pads": [0, 1, 2, 0]}),
    ((5, 1), {"kernel_shape": [4, 2], "strides": [2, 2], "auto_pad": "VALID"}),
    ((3,), {"kernel_shape": [5], "strides": [1], "auto_pad": "SAME_LOWER"}),
    ((4, 2, 5), {"kernel_shape": [2, 1, 3], "strides": [1, 2, 2], "pads": [1, 0, 1, 0, 0, 2]}),
]


@pytest.mark.parametrize("place", range(len(POOLS)))
@pytest.mark.parametrize("operator", ["AveragePool", "LpPool", "MaxPool"])
def test_a_pool_takes_what_its_windows_meet(operator: str, place: int) -> None:
    extents, settings = POOLS[place]
    x = RANDOM.standard_normal((2, 2, *extents)).astype(F)
    outputs = {"y": (TensorProto.FLOAT, [None] * x.ndim)}
    if operator == "MaxPool":
        outputs["i"] = (TensorProto.INT64, [None] * x.ndim)
        settings = settings | {"storage_order": place % 2}
    check(model_of(operator, {"x": x}, outputs, **settings), {"x": x})


def test_a_mean_with_padding_counts_none_that_is_behind_it() -> None:
    x = np.arange(1, 4, dtype=F).reshape(1, 1, 3)
    settings = {"kernel_shape": [3], "strides": [3], "pads": [1, 1], "ceil_mode": 1, "count_include_pad": 1}
    model = model_of("AveragePool", {"x": x}, {"y": (TensorProto.FLOAT, [None] * 3)}, **settings)
    assert graft.compile(model, ["reference"])(x).ravel().tolist() == [1.0, 1.5]


def test_a_hot_infinity_makes_no_nan() -> None:
    given = {"i": np.array([0, 2]), "d": np.array(3), "v": F([np.inf, -1])}
    (found,) = (
        graft.compile(model_of("OneHot", given, {"y": (TensorProto.FLOAT, [None] * 2)}), ["reference"])
        .run(given)
        .values()
    )
    np.testing.assert_array_equal(found, [[-1, np.inf, np.inf], [np.inf, np.inf, -1]])


def test_dropout_that_trains_has_a_ratio_of_a_half_where_it_is_left_out() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 12]> g (float[64] x) => (float[64] y) <bool t = {1}> '
        "{ y = Dropout(x, , t) }"
    )
    assert set(graft.compile(model, ["reference"])(np.ones(64, F))) == {0.0, 2.0}
