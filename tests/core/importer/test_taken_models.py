"""What the importer takes though ONNX's checker does not: models as exporters, tools and hubs leave them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node as node
from onnx.helper import make_opsetid as opset

import graft
from graft.core.importer.load import load
from graft.core.passes.pipeline import record_of
from graft.errors import ModelError

F = TensorProto.FLOAT
X = np.array([[-1.5, -1.0, -0.5], [0.0, 0.5, 1.0]], np.float32)
IMAGE = (np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4) % 7 - 3) / 2
W = np.array([1.0, 2.0, 3.0], np.float32)


def info(name: str, shape: tuple[int | str | None, ...] | None = (2, 3), kind: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def tensor(name: str, values: object, dtype: type = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def made(*nodes: onnx.NodeProto, **parts: object) -> onnx.ModelProto:
    """Return a model of x and y, both 2x3, of opset 17 and IR version 8 unless ``parts`` say otherwise."""
    given = {"inputs": [info("x")], "outputs": [info("y")], "constants": [], "opsets": [("", 17)], "ir_version": 8}
    assert parts.keys() <= {*given, "functions", "value_info"}
    given |= parts  # type: ignore[assignment]
    graph = helper.make_graph(
        nodes, "g", given["inputs"], given["outputs"], given["constants"], value_info=given.get("value_info", [])
    )  # type: ignore[arg-type]
    imports = [opset(*one) for one in given["opsets"]]  # type: ignore[attr-defined]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=given["ir_version"], functions=given.get("functions", [])
    )


def answer(model: onnx.ModelProto | Path, x: np.ndarray = X) -> np.ndarray:
    return graft.compile(model, ["llvm", "reference"], threads=1, cache=False).run({"x": x})["y"]


RELU, LOST = node("Relu", ["x"], ["y"]), node("Relu", ["x"], ["z"])


def without_name() -> onnx.ModelProto:
    model = made(RELU)
    model.graph.name = ""
    return model


def from_the_future() -> onnx.ModelProto:
    model = made(RELU)
    model.ir_version = 99
    return model


def with_properties_twice() -> onnx.ModelProto:
    model = made(RELU)
    for value in "ab":
        model.metadata_props.add(key="k", value=value)
    return model


TAKEN: dict[str, Callable[[], onnx.ModelProto]] = {
    "an output with a wrong shape": lambda: made(RELU, outputs=[info("y", (5, 3))]),
    "an output of a wrong rank": lambda: made(RELU, outputs=[info("y", (6,))]),
    "an inner value with a wrong shape": lambda: made(LOST, node("Relu", ["z"], ["y"]), value_info=[info("z", (4, 4))]),
    "a dimension of -1": lambda: made(RELU, inputs=[info("x", (-1, 3))], outputs=[info("y", (-1, 3))]),
    "a graph without a name": without_name,
    "an IR version from the future": from_the_future,
    "an IR version before initialisers": lambda: made(RELU, ir_version=1),
    "properties twice": with_properties_twice,
    "an unused unknown operator set": lambda: made(RELU, opsets=[("", 17), ("mine", 999)]),
    "the long name of ONNX's domain": lambda: made(node("Relu", ["x"], ["y"], domain="ai.onnx")),
    "an uncalled function of unknown operators": lambda: made(
        RELU, functions=[helper.make_function("d", "f", ["a"], ["b"], [node("Nope", ["a"], ["b"])], [opset("", 17)])]
    ),
    "a called function without an import": lambda: made(
        node("f", ["x"], ["y"], domain="d"),
        functions=[helper.make_function("d", "f", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [opset("", 17)])],
    ),
    "an initialiser without a name": lambda: made(RELU, constants=[tensor("", [1])]),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_model_is_taken_with(case: str) -> None:
    np.testing.assert_array_equal(answer(TAKEN[case]()), np.maximum(X, 0))


def test_initialisers_of_an_old_model_need_not_be_inputs() -> None:
    model = made(node("Add", ["x", "w"], ["y"]), constants=[tensor("w", W)], opsets=[("", 9)], ir_version=3)
    np.testing.assert_array_equal(answer(model), X + W)


def test_stated_shapes_that_are_wrong_stand_in_the_record() -> None:
    (step,) = [one for one in record_of(load(made(RELU, outputs=[info("y", (5, 3))]))) if "forget" in one.name]
    assert "dimension 0: (2) vs (5)" in step.note


def test_a_newer_model_that_uses_what_came_later_is_refused() -> None:
    data = from_the_future().SerializeToString() + bytes([0xFA, 0x3F, 2, 65, 66])
    with pytest.raises(ModelError) as caught:
        load(data)
    assert str(caught.value) == (
        f"the model has IR version 99 but onnx {onnx.__version__} reads 1 to {onnx.IR_VERSION}, and it uses what came "
        "later; upgrade onnx"
    )


def test_attributes_of_a_function_have_its_defaults() -> None:
    inner = node("LeakyRelu", ["a"], ["b"])
    inner.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    function = helper.make_function(
        "d", "f", ["a"], ["b"], [inner], [opset("", 17)], attribute_protos=[helper.make_attribute("alpha", 0.25)]
    )
    calls = node("f", ["x"], ["z"], domain="d"), node("f", ["z"], ["y"], domain="d", alpha=0.5)
    model = made(*calls, opsets=[("", 17), ("d", 1)], functions=[function], ir_version=9)
    np.testing.assert_allclose(answer(model), np.where(X < 0, X / 8, X))


def test_an_operator_of_onnx_runtime_needs_no_import() -> None:
    model = made(node("QuickGelu", ["x"], ["y"], domain="com.microsoft"))
    np.testing.assert_allclose(answer(model), X / (1 + np.exp(-1.702 * X)), rtol=1e-5)


def test_an_input_without_a_shape_takes_the_one_that_is_given() -> None:
    model = made(RELU, inputs=[info("x", None)], outputs=[info("y", None)])
    assert str(load(model, shapes={"x": (2, 3)}).graph.outputs[0].shape) == "[2,3]"
    with pytest.raises(ModelError) as caught:
        load(model)
    assert str(caught.value) == (
        "input 'x' has no shape in the model, so none behind it is known; give it one by shapes={'x': (...)}"
    )


def test_a_loop_may_hand_on_what_comes_from_outside() -> None:
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"])], "body", [info("i", (), TensorProto.INT64), info("c", (), TensorProto.BOOL)],
        [info("d", (), TensorProto.BOOL), info("x", (2, 3))],
    )  # fmt: skip
    loop = node("Loop", ["n", ""], ["y"], body=body)
    model = made(loop, constants=[tensor("n", 4, np.int64)], outputs=[info("y", (4, 2, 3))])
    np.testing.assert_array_equal(answer(model), np.stack([X] * 4))


SPARSE = [[4, 1], [[1, 1], [0, 1]]]


@pytest.mark.parametrize("indices", SPARSE, ids=["flat", "by axes"])
@pytest.mark.parametrize("is_node", [False, True], ids=["initialiser", "node"])
def test_a_sparse_tensor_becomes_dense(indices: list[int], is_node: bool) -> None:
    values = helper.make_sparse_tensor(tensor("w", [5, 7]), tensor("i", indices, np.int64), [2, 3])
    add = node("Add", ["x", "w"], ["y"])
    if is_node:
        model = made(node("Constant", [], ["w"], sparse_value=values), add)
    else:
        model = made(add)
        model.graph.sparse_initializer.append(values)
    np.testing.assert_array_equal(answer(model), X + np.float32([[0, 7, 0], [0, 5, 0]]))


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([1, 6], [2, 3], "sparse tensor 'w' of shape [2, 3] has indices outside of it; store it dense"),
        (
            [0, 1], [1 << 20, 1 << 20],
            "sparse tensor 'w' of shape [1048576, 1048576] has 2 values: as a dense tensor it would take more than "
            "1024 times what the model holds of it; store it dense",
        ),
        (
            [0], [2, 3],
            "sparse tensor 'w' of shape [2, 3] has values of shape [2] and indices of shape [1]; store it dense",
        ),
    ],
)  # fmt: skip
def test_a_sparse_tensor_that_contradicts_itself_is_refused(indices: list[int], dims: list[int], message: str) -> None:
    model = made(node("Add", ["x", "w"], ["y"]))
    sparse = onnx.SparseTensorProto(values=tensor("w", [5, 7]), indices=tensor("i", indices, np.int64), dims=dims)
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelError) as caught:
        load(model)
    assert str(caught.value) == message


def image_model(operator: str, version: int, *constants: TensorProto, **settings: object) -> onnx.ModelProto:
    names = [one.name for one in constants]
    return made(
        node(operator, ["x", *names], ["y"], **settings), inputs=[info("x", IMAGE.shape)], outputs=[info("y", None)],
        constants=constants, opsets=[("", version)],
    )  # fmt: skip


def ratio(*scales: float) -> TensorProto:
    return tensor("s", scales)


STATISTICS = [tensor(name, [1.5, 0.5]) for name in "sbmv"]
OLD: dict[str, tuple[onnx.ModelProto, np.ndarray]] = {
    "Affine": (image_model("Affine", 7, alpha=2.0, beta=1.0), 2 * IMAGE + 1),
    "Scale": (image_model("Scale", 7, scale=2.0), 2 * IMAGE),
    "ScaledTanh": (image_model("ScaledTanh", 7, alpha=2.0, beta=3.0), 2 * np.tanh(3 * IMAGE)),
    "ParametricSoftplus": (
        image_model("ParametricSoftplus", 7, alpha=2.0, beta=3.0), 2 * np.log1p(np.exp(3 * IMAGE))
    ),
    "ThresholdedRelu": (image_model("ThresholdedRelu", 7, alpha=0.5), np.where(IMAGE > 0.5, IMAGE, 0)),
    "ImageScaler": (
        image_model("ImageScaler", 7, scale=2.0, bias=[1.0, 3.0]), 2 * IMAGE + np.reshape([1, 3], (1, 2, 1, 1))
    ),
    "Crop": (image_model("Crop", 7, border=[1, 0, 1, 2]), IMAGE[:, :, 0:2, 1:3]),
    "Crop to a size": (image_model("Crop", 7, border=[1, 0, 0, 0], scale=[2, 3]), IMAGE[:, :, 0:2, 1:4]),
    "DynamicSlice": (
        image_model("DynamicSlice", 9, tensor("b", [0, 0], np.int64), tensor("e", [1, 1], np.int64)), IMAGE[:, :1]
    ),
    "MeanVarianceNormalization": (
        image_model("MeanVarianceNormalization", 7, normalize_variance=0), IMAGE - IMAGE.mean((0, 2, 3), keepdims=True)
    ),
    "Upsample": (
        image_model("Upsample", 9, ratio(1, 1, 1, 2), mode="linear"),
        np.stack([IMAGE, (IMAGE + np.concatenate([IMAGE, IMAGE[..., -1:]], -1)[..., 1:]) / 2], -1).reshape(1, 2, 4, 8),
    ),
    "Resize": (image_model("Resize", 10, ratio(1, 1, 0.6, 1)), IMAGE[:, :, [0, 2]]),
    "BatchNormalization of elements": (
        made(
            node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=0, epsilon=0.0), opsets=[("", 7)],
            constants=[tensor("s", W), tensor("b", W), tensor("m", W), tensor("v", W * W)],
        ),
        X,
    ),
    "GroupNormalization": (
        image_model("GroupNormalization", 18, *STATISTICS[:2], num_groups=2, epsilon=0.0),
        (IMAGE - IMAGE.mean((2, 3), keepdims=True)) / IMAGE.std((2, 3), keepdims=True)
        * np.reshape([1.5, 0.5], (1, 2, 1, 1)) + np.reshape([1.5, 0.5], (1, 2, 1, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", OLD)
def test_an_operator_of_an_old_opset_means_what_it_meant(operator: str) -> None:
    model, expected = OLD[operator]
    x = X if len(model.graph.input[0].type.tensor_type.shape.dim) == 2 else IMAGE
    np.testing.assert_allclose(answer(model, x), expected, rtol=1e-5, atol=1e-6)


def test_a_reduction_beside_an_enlargement_by_nearest_pixels_of_opset_10_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        load(image_model("Resize", 10, ratio(1, 1, 0.6, 2)))
    assert str(caught.value) == (
        "Resize (node 'y'): it enlarges along one axis and reduces along another, by the rules for the nearest pixel "
        "of opset 10; export the model again with opset 11 or later"
    )


def stored(folder: Path, location: str = "w.bin", data: bytes = W.tobytes(), **entries: object) -> Path:
    """Write a model whose ``w`` is stored beside it, and return its path."""
    weights = TensorProto(name="w", data_type=F, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weights.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(made(node("Add", ["x", "w"], ["y"]), constants=[weights]).SerializeToString())
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    (folder / location).write_bytes(data)
    return path


def test_external_data_may_say_no_length_and_lie_anywhere_below(tmp_path: Path) -> None:
    for entries in (
        {"offset": 8, "data": b"01234567" + W.tobytes() + b"tail"}, {"length": 0}, {"location": "a/b/../w 1:x.bin"},
    ):  # fmt: skip
        np.testing.assert_array_equal(answer(stored(tmp_path, **entries)), X + W)  # type: ignore[arg-type]


def test_external_data_that_nothing_reads_may_be_missing(tmp_path: Path) -> None:
    path = stored(tmp_path)
    (tmp_path / "w.bin").unlink()
    model = onnx.load(path, load_external_data=False)
    model.graph.node[0].CopyFrom(RELU)
    path.write_bytes(model.SerializeToString())
    np.testing.assert_array_equal(answer(path), np.maximum(X, 0))


def test_the_links_of_a_model_hub_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    stored(blobs)
    for link, blob in (("model.onnx", "m.onnx"), ("w.bin", "w.bin")):
        os.rename(blobs / blob, blobs / f"{blob}0")
        (snapshot / link).symlink_to(f"../../blobs/{blob}0")
    np.testing.assert_array_equal(answer(snapshot / "model.onnx"), X + W)


def test_weights_of_more_than_2_gigabytes_are_read_where_they_are(tmp_path: Path) -> None:
    path, offset = stored(tmp_path, offset=3 << 30), 3 << 30
    with (tmp_path / "w.bin").open("wb") as file:  # with a hole: it takes no room
        file.seek(offset)
        file.write(W.tobytes())
    np.testing.assert_array_equal(answer(path), X + W)
