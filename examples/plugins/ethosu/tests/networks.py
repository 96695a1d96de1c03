"""Networks of MLPerf Tiny and others, with random weights, quantised: what of them the NPU gets.

python tests/networks.py [NAME ...]      # prints the table of the README
"""

import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

import graft
from graft_ethosu.blob import opened

NPUS = ("u55-128", "u85-256")
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class Network:
    """A model that is written layer by layer; each method returns the name of its result."""

    def __init__(self, *shape):
        self.shape, self.nodes, self.constants, self.random = shape, [], [], np.random.default_rng(0)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape, terms):
        return self.constant((self.random.standard_normal(shape) * np.sqrt(2 / terms)).astype(np.float32))

    def op(self, kind, *inputs, **attributes):
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x, inner, outer, kernel=(3, 3), stride=1, group=1, act="Relu", pads=None):
        pads = pads or [kernel[0] // 2, kernel[1] // 2] * 2
        w = self.weights(outer, inner // group, *kernel, terms=inner // group * kernel[0] * kernel[1])
        bias = self.weights(outer, terms=200)
        y = self.op("Conv", x, w, bias, kernel_shape=kernel, strides=[stride] * 2, pads=pads, group=group)
        if act == "Relu6":
            return self.op("Clip", y, self.constant(np.float32(0)), self.constant(np.float32(6)))
        return self.op(act, y) if act else y

    def dense(self, x, inner, outer, act=None):
        w = self.weights(outer, inner, terms=inner)
        y = self.op("Gemm", x, w, self.weights(outer, terms=200), transB=1)
        return self.op(act, y) if act else y

    def product(self, x, inner, outer):
        return self.op("MatMul", x, self.weights(inner, outer, terms=inner))

    def head(self, x, inner, classes, kernel):
        x = self.op("AveragePool", x, kernel_shape=kernel)
        return self.op("Softmax", self.dense(self.op("Flatten", x), inner, classes))

    def model(self, result):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        graph = helper.make_graph(self.nodes, "network", [x], [onnx.ValueInfoProto(name=result)], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model)
        made = next(one for one in (*inferred.graph.value_info, *inferred.graph.output) if one.name == result)
        inferred.graph.output[0].CopyFrom(made)
        return inferred


def resnet8():
    """Image classification: three residual blocks on images of 32 x 32."""
    net, channels = Network(1, 3, 32, 32), 16
    y = net.conv("x", 3, 16)
    for outer, stride in ((16, 1), (32, 2), (64, 2)):
        z = net.conv(net.conv(y, channels, outer, stride=stride), outer, outer, act=None)
        if stride > 1:
            y = net.conv(y, channels, outer, (1, 1), stride, act=None)
        y, channels = net.op("Relu", net.op("Add", y, z)), outer
    return net.model(net.head(y, 64, 10, [8, 8]))


def ds_cnn():
    """Keyword spotting: depthwise separable convolutions."""
    net = Network(1, 1, 49, 10)
    y = net.conv("x", 1, 64, (10, 4), 2, pads=[4, 1, 5, 1])
    for _ in range(4):
        y = net.conv(net.conv(y, 64, 64, group=64), 64, 64, (1, 1))
    return net.model(net.head(y, 64, 12, [25, 5]))


def autoencoder():
    """Anomaly detection: ten dense layers."""
    net, y, inner = Network(1, 640), "x", 640
    for outer in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        y, inner = net.dense(y, inner, outer, "Relu"), outer
    return net.model(net.dense(y, inner, 640))


def person_detection():
    """Visual wake words: MobileNet v1, a quarter as wide."""
    net, inner = Network(1, 3, 96, 96), 8
    y = net.conv("x", 3, 8, stride=2)
    later = ((64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
    for outer, stride in ((16, 1), (32, 2), (32, 1), *later):
        y = net.conv(net.conv(y, inner, inner, stride=stride, group=inner), inner, outer, (1, 1))
        inner = outer
    return net.model(net.head(y, 256, 2, [3, 3]))


def mobilenet_v2():
    """MobileNet v2 on images of 224 x 224."""
    net, inner = Network(1, 3, 224, 224), 32
    y = net.conv("x", 3, 32, stride=2, act="Relu6")
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, outer, count, first in rows:
        for number in range(count):
            stride, wide = first if number == 0 else 1, inner * factor
            z = net.conv(y, inner, wide, (1, 1), act="Relu6") if factor > 1 else y
            z = net.conv(z, wide, wide, stride=stride, group=wide, act="Relu6")
            z = net.conv(z, wide, outer, (1, 1), act=None)
            y, inner = net.op("Add", y, z) if stride == 1 and inner == outer else z, outer
    y = net.conv(y, inner, 1280, (1, 1), act="Relu6")
    return net.model(net.dense(net.op("Flatten", net.op("GlobalAveragePool", y)), 1280, 1000))


def u_net():
    """A small U-Net: down twice, up by a transposed convolution and by linear enlargement."""
    net = Network(1, 3, 64, 64)
    first = net.conv(net.conv("x", 3, 16), 16, 16)
    second = net.conv(net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 16, 32)
    y = net.conv(net.op("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]), 32, 64)
    y = net.op("ConvTranspose", y, net.weights(64, 32, 2, 2, terms=64), strides=[2, 2])
    y = net.conv(net.op("Concat", y, second, axis=1), 64, 32)
    y = net.op("Resize", y, "", net.constant(np.float32([1, 1, 2, 2])), mode="linear")
    y = net.conv(net.op("Concat", y, first, axis=1), 48, 16)
    return net.model(net.op("Sigmoid", net.conv(y, 16, 1, (1, 1), act=None)))


def keyword_transformer():
    """A keyword transformer (KWT-1): twelve blocks of 64 channels; two here, with a normalisation by layers."""
    net, channels = Network(1, 98, 40), 64
    y = net.op("Add", net.product("x", 40, channels), net.weights(98, channels, terms=50))
    for _ in range(2):
        q, k, v = (net.product(y, channels, channels) for _ in range(3))
        scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
        scores = net.op("Softmax", net.op("Mul", scores, net.constant(np.float32(0.125))), axis=-1)
        y = net.op("Add", y, net.product(net.op("MatMul", scores, v), channels, channels))
        y = net.op("LayerNormalization", y, net.constant(np.ones(channels, np.float32)),
                   net.constant(np.zeros(channels, np.float32)))  # fmt: skip
        z = net.op("Gelu", net.product(y, channels, 256))
        y = net.op("Add", y, net.product(z, 256, channels))
    y = net.op("ReduceMean", y, net.constant(np.array([1])), keepdims=0)
    return net.model(net.dense(y, channels, 12))


NETWORKS = {
    one.__name__: one
    for one in (resnet8, ds_cnn, autoencoder, person_detection, mobilenet_v2, u_net, keyword_transformer)
}


def quantised(model):
    """Return a model in QDQ form by the plugin's recipe, with Sigmoid, which one of these ends in."""
    recipe = graft.quantization.recipe_for("ethosu")
    data = {"x": np.concatenate([inputs_of(model, seed) for seed in range(4)])}
    return ir.to_proto(graft.quantize(model, replace(recipe, operators=(*recipe.operators, "Sigmoid")), data))


def by_onnx_runtime(model):
    """Return a model in QDQ form by ONNX Runtime's quantiser: int8, weights by channel."""
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": inputs_of(model, seed)} for seed in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory() as folder:
        float_path, path = Path(folder) / "float.onnx", Path(folder) / "quantised.onnx"
        onnx.save(model, float_path)
        kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
        quantize_static(str(float_path), str(path), Reader(), per_channel=True, **kinds)
        return onnx.load(path)


def inputs_of(model, seed):
    """Return numbers for the input of a model."""
    shape = [one.dim_value for one in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def steps_apart(model, npu):
    """Return how many elements of the result differ from `llvm`'s by how many steps of its scale."""
    inputs = inputs_of(model, 9)
    ours, theirs = (next(iter(graft.compile(model, backends).run({"x": inputs}).values()))
                    for backends in ([f"ethosu:accelerator={npu}", "llvm"], ["llvm"]))  # fmt: skip
    last = next(node for node in model.graph.node if node.output[0] == model.graph.output[0].name)
    scale = next(numpy_helper.to_array(one) for one in model.graph.initializer if one.name == last.input[1])
    return Counter(np.rint((ours - theirs) / scale).astype(int).ravel().tolist())


def layers_apart(model):
    """Return how many elements of all layers, each fed with ONNX's integers, are how many steps from these."""
    report, apart = graft.verify(model, ["ethosu", "llvm"], against="vendor-simulator"), Counter()
    for row in report.layers:
        apart.update(row.simulated.steps)
    return apart


def share(model, npu):
    """Return the shares of operators (Q and DQ aside) and of multiplications on the NPU, and what is elsewhere."""
    rows = [row for row in graft.plan(model, [f"ethosu:accelerator={npu}", "llvm"]).placements
            if row.op_type not in ("QuantizeLinear", "DequantizeLinear")]  # fmt: skip
    work = [row for row in rows if row.op_type in PRODUCTS]
    taken = [row for row in rows if row.backend == "ethosu"]
    flops = sum(row.flops for row in taken if row.op_type in PRODUCTS) / max(sum(row.flops for row in work), 1)
    return len(taken) / len(rows), flops, {row.node: row.reasons["ethosu"] for row in rows if row not in taken}


def main(names):
    """Print the table."""
    for name in names:
        model = quantised(NETWORKS[name]())
        for npu in NPUS:
            operators, work, left = share(model, npu)
            program = graft.compile(model, [f"ethosu:accelerator={npu}", "llvm"])
            made = [opened(one.data)[0] for one in program.description.modules if one.kind == "ethosu"]
            cycles, clock = sum(one["cycles"] for one in made), made[0]["clock"]
            steps = steps_apart(model, npu)
            apart = sum(steps.values()) - steps[0]
            print(
                f"| {name} | {npu} | {100 * operators:.0f} % | {100 * work:.1f} % | {len(made)} | {cycles:,} | "
                f"{cycles / clock * 1e3:.2f} | {sum(one['sections']['weights'] for one in made) / 1024:.0f} | "
                f"{max(one['scratch'] for one in made) / 1024:.0f} | {apart} of {sum(steps.values())}, "
                f"{max(map(abs, steps))} |",
                flush=True,
            )
        layers = layers_apart(model)
        print(f"| {name} | layer by layer: {dict(sorted(layers.items()))}", flush=True)
        for node, why in left.items():
            print(f"  {node}: {why}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:] or NETWORKS)
