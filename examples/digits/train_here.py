"""Training of digits by Graft alone: random weights, a step that is one program, 98 % of the images held out.

pip install 'graft-compiler[examples]'
python examples/digits/train_here.py
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

import graft
from graft.training import AdamW, Trainer

try:
    from examples.digits.data import SEED, load_split
except ImportError:  # run as a file
    from data import SEED, load_split  # type: ignore[import-not-found, no-redef]

EPOCHS, BATCH = 30, 32
SHAPES = {
    "conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "dense": (512, 64), "last": (64, 10),
    "bias1": (16,), "bias2": (32,), "bias3": (64,), "bias4": (10,),
    "scale": (32,), "shift": (32,), "mean": (32,), "variance": (32,),
}  # fmt: skip
TEXT = """<ir_version: 10, opset_import: ["" : 21]>
digits (float[batch,1,8,8] image) => (float[batch,10] logits) {
    a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (image, conv1, bias1)
    b = Relu (a)
    c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b, conv2, bias2)
    d = BatchNormalization (c, scale, shift, mean, variance)
    e = Relu (d)
    f = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (e)
    g = Flatten (f)
    h = Gemm (g, dense, bias3)
    i = Relu (h)
    logits = Gemm (i, last, bias4)
}"""


def network(seed: int = SEED) -> onnx.ModelProto:
    """Return the network with drawn weights (He's), float32[batch, 1, 8, 8] to float32[batch, 10]."""
    rng = np.random.default_rng(seed)
    model = onnx.parser.parse_model(TEXT)
    for name, shape in SHAPES.items():
        fan = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        drawn = rng.normal(0, np.sqrt(2 / fan), shape) if len(shape) > 1 else np.zeros(shape)
        array = np.ones(shape) if name in ("scale", "variance") else drawn
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def train(epochs: int = EPOCHS, threads: int | None = None) -> tuple[Trainer, float]:
    """Return what was trained, and the share of the held-out images that it gets right."""
    images, held_out, labels, held_out_labels = load_split()
    trainer = Trainer(network(), "cross-entropy", AdamW(2e-3), threads=threads)
    data = {"image": images, "target": labels}
    trainer.fit(data, epochs=epochs, batch=BATCH, seed=SEED, each=lambda epoch, loss: print(f"{epoch}: {loss:.4f}"))
    logits = np.asarray(graft.compile(trainer.model, threads=threads)(held_out))
    return trainer, float((logits.argmax(1) == held_out_labels).mean())


if __name__ == "__main__":
    print(f"accuracy on held-out images: {train()[1]:.4f}")
