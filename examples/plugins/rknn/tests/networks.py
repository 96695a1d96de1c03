"""Small networks of float16, the NPU's own type."""

import numpy as np
import onnx

TEXTS = {
    "convolutions": """g (float16[1,4,8,8] x) => (float16[1,3] y) {
        a = Conv<pads=[1,1,1,1]>(x, conv) b = Relu(a) c = Conv<pads=[1,1,1,1], group=6>(b, depthwise)
        d = Clip(c, low, high) e = GlobalAveragePool(d) f = Flatten(e) g = Gemm<transB=1>(f, dense) y = Softmax(g) }""",
    "residual": """g (float16[1,6,8,8] x) => (float16[1,6,4,4] y) {
        a = Conv<pads=[1,1,1,1], group=6>(x, depthwise) b = Sigmoid(a) c = Add(x, b)
        y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c) }""",
    "rows": """g (float16[2,5,6] x) => (float16[2,5,3] y) {
        a = Transpose<perm=[1,0]>(dense) b = MatMul(x, a) y = Tanh(b) }""",
}
SHAPES = {"conv": (6, 4, 3, 3), "depthwise": (6, 1, 3, 3), "dense": (3, 6), "low": (), "high": ()}


def network(text):
    """Return a network with seeded weights."""
    model, rng = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text), np.random.default_rng(1)
    used = {name for node in model.graph.node for name in node.input}
    for name, shape in SHAPES.items():
        array = np.array({"low": -1, "high": 2}.get(name, rng.normal(0, 0.4, shape)), np.float16)
        if name in used:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


MODELS = [network(text) for text in TEXTS.values()]
