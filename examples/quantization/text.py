"""Two small language models of characters, trained by Graft itself on Python's documentation, minutes on two cores.

`gpt` predicts the next character and has caches; `bert` reads both ways and fills in characters that are hidden.

python -m examples.quantization.text
"""

from __future__ import annotations

import sys
from pathlib import Path
from pydoc_data import topics

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from examples.decoders.models import Config, gpt2
from graft.training import AdamW, Trainer, cosine

MODELS = {name: Path(__file__).parent / f"{name}.onnx" for name in ("gpt", "bert")}
CONFIG = Config(layers=3, width=64, heads=4, inner=256, vocabulary=97, positions=128)
LENGTH, BATCH, STEPS, RATE = 64, 32, 3000, 4e-3
HIDDEN, NOT_ASKED, SHARE = 96, -1, 0.15
"""The code of a hidden character, the target of one that is not asked for, and how many are hidden."""
FUTURE = "f_-1000000000.0"
"""The weight of what is added to the scores of later characters."""


def windows(held_out: bool) -> np.ndarray:
    """Return texts of ``LENGTH + 1`` codes: printable ASCII, 95 for a new line, ``?`` for all else.

    Every tenth page is held out.
    """
    pages = [topics.topics[name] for place, name in enumerate(sorted(topics.topics)) if (place % 10 == 0) == held_out]
    text = np.array([ord(letter) for letter in "\n".join(pages)])
    codes = np.where(text == ord("\n"), 95, np.where((text >= 32) & (text < 127), text - 32, ord("?") - 32))
    return codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)


def asked(name: str, texts: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return what a model reads of texts, and the codes that it is to name there."""
    if name == "gpt":
        return texts[:, :-1], texts[:, 1:]
    texts = texts[:, :-1]
    hidden = np.random.default_rng(seed).random(texts.shape) < SHARE
    return np.where(hidden, HIDDEN, texts), np.where(hidden, texts, NOT_ASKED)


def initial(name: str) -> onnx.ModelProto:
    """Return a model with weights of small size, as GPT-2's are drawn; that which reads both ways hides no future."""
    model = gpt2(CONFIG)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.name.endswith("_scale"):
            array = np.ones_like(array)
        elif tensor.name.endswith(("_shift", "_bias")) or (tensor.name == FUTURE and name == "bert"):
            array = np.zeros_like(array)
        elif tensor.name in ("embedding", "positions"):
            array = array * np.float32(0.02 * CONFIG.vocabulary**0.5)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def with_loss(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of batches without caches, with its loss behind it."""
    whole, graph = onnx.ModelProto(), model.graph
    whole.CopyFrom(model)
    empty = np.zeros((BATCH, CONFIG.heads, 0, CONFIG.head), np.float32)
    caches = [value.name for value in graph.input[1:]]
    ids, target = (
        helper.make_tensor_value_info(name, TensorProto.INT64, [BATCH, LENGTH]) for name in ("ids", "target")
    )
    del whole.graph.input[:], whole.graph.output[:]
    whole.graph.input.extend([ids, target])
    whole.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    whole.graph.initializer.extend(numpy_helper.from_array(empty, cache) for cache in caches)
    whole.graph.node.extend([
        helper.make_node("Transpose", ["logits"], ["by_class"], "by_class", perm=[0, 2, 1]),
        helper.make_node("SoftmaxCrossEntropyLoss", ["by_class", "target"], ["loss"], "loss", ignore_index=NOT_ASKED),
    ])  # fmt: skip
    return whole


def train(name: str) -> onnx.ModelProto:
    """Return a model trained, and print how it gets on."""
    model, texts, random = initial(name), windows(held_out=False), np.random.default_rng(0)
    kept = ("norm", "bias", "positions")
    weights = [one.name for one in model.graph.initializer if one.data_type == TensorProto.FLOAT and one.dims]
    plain = {one: AdamW(RATE, weight_decay=0.0) for one in weights if any(part in one for part in kept)}
    trainer = Trainer(
        with_loss(model), "loss", AdamW(RATE, weight_decay=0.05), wrt=weights, groups=plain, clip_norm=1.0
    )
    rate, lost = cosine(RATE, STEPS, warmup=100), 0.0
    for step in range(STEPS):
        read, target = asked(name, texts[random.integers(0, len(texts), BATCH)], step)
        lost += trainer.step({"ids": read, "target": target}, rate(step))
        if step % 500 == 499:
            print(f"{name}: step {step + 1}, loss {lost / 500:.4f}", flush=True)
            lost = 0.0
    for tensor in model.graph.initializer:
        if tensor.name in trainer.arrays:
            tensor.CopyFrom(numpy_helper.from_array(trainer.arrays[tensor.name], tensor.name))
    return model


def main() -> None:
    for name in sys.argv[1:] or MODELS:
        MODELS[name].write_bytes(train(name).SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
