"""Random networks of images, of open and of known extents, against ONNX Runtime: layouts change wherever they may."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graft

onnxruntime = pytest.importorskip("onnxruntime")
IN_CI = 4
"""Networks of each precision that every run of the tests has."""
SIZES = [(3, 16, 12), (1, 6, 34), (1, 4, 4)]
KINDS = ["conv"] * 5 + ["depthwise", "pointwise", "activation", "sum", "join", "pad", "move", "size"]
Image = tuple[str, int, bool]
"""A name, channels, and whether height and width are halved."""


@dataclass
class Network:
    """A network that is drawn node by node."""

    rng: np.random.Generator
    images: list[Image] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def weight(self, *shape: int) -> str:
        values = self.rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op_type: str, inputs: list[str], channels: int, halved: bool, **attributes: object) -> Image:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        self.images.append((name, channels, halved))
        return self.images[-1]

    def conv(self, image: Image, channels: int, window: int, stride: int = 1) -> Image:
        name, before, halved = image
        weights = [self.weight(channels, before, window, window), self.weight(channels)]
        pads, halved = [window // 2] * 4, halved or stride == 2
        return self.add("Conv", [name, *weights], channels, halved, pads=pads, strides=[stride] * 2)

    def grow(self) -> None:
        """Add an operator to one of the last images."""
        image = self.images[self.rng.integers(max(0, len(self.images) - 3), len(self.images))]
        name, channels, halved = image
        alike = [one for one in self.images if one[2] == halved and one[1] == channels]
        other = alike[self.rng.integers(len(alike))][0]
        match self.rng.choice(
            ["conv"] * 5 + ["depthwise", "pointwise", "activation", "sum", "join", "pad", "move", "size"]
        ):
            case "conv":
                strides = [1] if halved else [1, 1, 2]
                self.conv(image, int(self.rng.choice([1, 3, 8, 16, 32, 48])), 3, int(self.rng.choice(strides)))
            case "pointwise":
                self.conv(image, int(self.rng.choice([3, 16, 24])), 1)
            case "depthwise":
                self.add("Conv", [name, self.weight(channels, 1, 3, 3)], channels, halved, pads=[1] * 4, group=channels)
            case "activation":
                self.add(str(self.rng.choice(["Relu", "Sigmoid"])), [name], channels, halved)
            case "sum":
                self.add("Add", [name, other], channels, halved)
            case "join" if channels <= 48:
                self.add("Concat", [name, other], 2 * channels, halved, axis=1)
            case "pad":
                padded = self.add(
                    "Pad", [name, "pads"], channels, halved, mode=str(self.rng.choice(["reflect", "edge"]))
                )
                self.images.pop()
                self.add("MaxPool", [padded[0]], channels, halved, kernel_shape=[3, 3])
            case "move":
                last = self.add("Transpose", [name], channels, halved, perm=[0, 2, 3, 1])[0]
                self.images.pop()
                self.add("Transpose", [last], channels, halved, perm=[0, 3, 1, 2])
            case "size" if halved and channels % 4 == 0:
                self.add("DepthToSpace", [name], channels // 4, False, blocksize=2)
            case "size" if halved:
                self.add("Resize", [name, "", "scales"], channels, False, mode="linear")


def network(seed: int) -> tuple[onnx.ModelProto, list[tuple[int, ...]]]:
    """Return a network that was drawn, and the shapes of its image."""
    drawn = Network(np.random.default_rng(seed))
    channels = int(drawn.rng.choice([3, 16]))
    drawn.images.append(("x", channels, False))
    drawn.conv(drawn.images[0], 16, 3)
    for _ in range(drawn.rng.integers(2, 9)):
        drawn.grow()
    results = sorted({drawn.images[-1][0], drawn.images[drawn.rng.integers(1, len(drawn.images))][0]})
    known = bool(drawn.rng.integers(3) == 0)
    extents = [2, channels, 12, 20] if known else ["n", channels, "h", "w"]
    drawn.weights += [
        numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
    ]
    graph = helper.make_graph(
        drawn.nodes, "drawn", [helper.make_tensor_value_info("x", 1, extents)],
        [helper.make_tensor_value_info(name, 1, None) for name in results], drawn.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, [(2, channels, 12, 20)] if known else [(n, channels, h, w) for n, h, w in SIZES]


def check(seed: int, precision: str, tolerance: float) -> None:
    model, shapes = network(seed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    program = graft.compile(model, ["llvm"], threads=1, precision=precision)
    for shape in shapes:
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        expected = peer.run(None, {"x": x})
        for (name, found), wanted in zip(program.run({"x": x}).items(), expected, strict=True):
            most = tolerance * max(1.0, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=most, err_msg=f"{seed} {shape} {name}")


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-4), ("bf16", 0.08)])
@pytest.mark.parametrize("seed", range(IN_CI))
def test_some_networks_give_what_onnxruntime_gives(seed: int, precision: str, tolerance: float) -> None:
    check(seed, precision, tolerance)


@pytest.mark.conformance
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-4), ("bf16", 0.08)])
@pytest.mark.parametrize("seed", range(IN_CI, 60))
def test_many_networks_give_what_onnxruntime_gives(seed: int, precision: str, tolerance: float) -> None:
    check(seed, precision, tolerance)
