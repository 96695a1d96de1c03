"""Quantised networks, beside those of ONNX Runtime's quantiser on the same data: `python -m benchmarks.quantization`.

Every model is run by ONNX Runtime, so that nothing but the quantisation differs. ``--time`` instead measures how long
ResNet-50 takes with 100 images of 224 x 224; ``--scaled`` converts to scaled types, or weights alone to their elements,
which Graft runs; ``--mixed`` searches for recipes of layers, at as many bits as uniform int4 takes and at 4.5, and
prints the time of the processor; ``--draws`` sets int8 beside that of ONNX Runtime's quantiser on so many other draws
of held-out images, in pairs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnx_ir as ir

import graft
from benchmarks import zoo
from benchmarks.quantization.tools import session
from examples.digits.data import load_split
from examples.quantization import shapes
from graft.core.shapes.sample_inputs import sample_inputs
from graft.datatypes import convert_scaled
from graft.quantization import NAMED, assign
from graft.quantization.preparation import in_floats
from graft.quantization.quantizer import Quantizer
from graft.quantization.statistics.observation import Running

CALIBRATION, HELD_OUT = 200, 10000
RECIPES = ("int8", "int8-channel", "int8-weights", "int4-weights", "float8")
PEERS = {
    "ort int8": {}, "ort int8, channels": {"per_channel": True},
    "ort int8, channels, percentile": {"per_channel": True, "method": "Percentile"},
    "ort int8, channels, entropy": {"per_channel": True, "method": "Entropy"},
}  # fmt: skip
"""ONNX Runtime's quantiser by its options."""
WEIGHTS_IN_BLOCKS = ("mxfp4-weights", "mxfp6-weights")
SCALED = (
    "mxfp8e4m3", "mxfp8e4m3-even", "mxfp8e4m3-floor", "mxfp6e2m3", "mxfp6e2m3-rceil", "mxfp4", "mxfp4-even",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A model with images to calibrate it, their labels, and images with labels that it has not seen."""

    name: str
    model: ir.Model
    images: np.ndarray
    own_labels: np.ndarray
    held_out: np.ndarray
    labels: np.ndarray


def tasks() -> Iterator[Task]:
    """Yield the three networks with their data."""
    train, held_out, own, labels = load_split()
    yield Task("digits", in_floats(zoo.path_of("digits")), train[:CALIBRATION], own[:CALIBRATION], held_out, labels)
    held_out, labels = shapes.images(HELD_OUT, 0)
    for name, path in shapes.MODELS.items():
        yield Task(name, in_floats(path), *shapes.images(CALIBRATION, 1), held_out, labels)


def main() -> None:
    """Print accuracy and signal-to-noise ratio of every model by every recipe and peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--time",
        metavar="RECIPE",
        nargs="?",
        const="int8-channel",
        help="Measure how long ResNet-50 takes by a recipe.",
    )
    parser.add_argument("--mixed", metavar="MODEL,...", help="Search for recipes of layers of these models.")
    parser.add_argument("--scaled", action="store_true", help="Convert to scaled types in the place of recipes.")
    parser.add_argument(
        "--draws", type=int, metavar="N", help="Set int8 beside ONNX Runtime's on N draws of 10,000 held-out images."
    )
    parser.add_argument("models", nargs="*", type=Path, help="With --draws: models of shapes beside those of examples.")
    given = parser.parse_args()
    if given.draws:
        return paired([*shapes.MODELS.values(), *given.models], given.draws)
    if given.mixed:
        return mixed(given.mixed.split(","))
    if given.time:
        seconds, own = seconds_of_resnet50(given.time)
        return print(f"ResNet-50, 100 images: {seconds:.1f} s, of the processors {own:.1f} s")
    print(f"{'model':10} {'recipe':32} {'accuracy':>8} {'lost':>7} {'same':>7} {'SNR dB':>7}")
    for task in tasks():
        exact = outputs(ir.to_proto(task.model), task.held_out)
        base = accuracy(exact, task.labels)
        print(f"{task.name:10} {'float32':32} {base:8.4f}")
        for name, model in scaled(task) if given.scaled else quantized(task):
            found = outputs_of(model, task) if isinstance(model, ir.Model) else outputs(model, task.held_out)
            snr = 10 * np.log10(np.sum(exact**2) / np.sum((found - exact) ** 2))
            right, same = accuracy(found, task.labels), accuracy(found, exact.argmax(axis=1))
            print(
                f"{task.name:10} {name:32} {right:8.4f} {100 * (base - right):7.2f} {same:7.4f} {snr:7.1f}", flush=True
            )
    return None


def mixed(names: Sequence[str]) -> None:
    """Print what layers with recipes of their own are worth beside int4 for all, on held-out images."""
    print(f"{'model':10} {'form':16} {'bits':>5} {'accuracy':>8} {'SNR dB':>7} {'CPU s':>7}")
    for task in tasks():
        if task.name not in names:
            continue
        exact = outputs_of(task.model, task)
        data = {task.model.graph.inputs[0].name or "": task.images, "labels": task.own_labels}
        uniform = Quantizer.measured(task.model, [NAMED["int4-weights"]], data, None, Running())
        model = uniform.written(NAMED["int4-weights"])
        bits = uniform.size_of(NAMED["int4-weights"]).weight_bits
        models = {"float32": (32.0, task.model, 0.0), "int4-weights": (bits, model, 0.0)}
        for most in (bits, 4.5):
            began = time.process_time()
            found = assign(task.model, data=data, bits=most)
            models[f"mixed, {most:.2f}"] = (found.bits, found.model, time.process_time() - began)
        for form, (own, model, seconds) in models.items():
            outputs = outputs_of(model, task)
            snr = 10 * np.log10(np.sum(exact**2) / max(np.sum((outputs - exact) ** 2), 1e-30))
            right = accuracy(outputs, task.labels)
            print(f"{task.name:10} {form:16} {own:5.2f} {right:8.4f} {snr:7.1f} {seconds:7.0f}", flush=True)


def paired(paths: Sequence[Path], draws: int) -> None:
    """Print on how many images of all draws one int8 alone is right, and how often chance alone would part them so."""
    print(f"{'model':14} {'recipe':14} {'float32':>8} {'Graft':>8} {'ORT':>8} {'alone':>6} {'ORT alone':>9} {'p':>7}")
    images, labels = map(
        np.concatenate, zip(*(shapes.images(HELD_OUT, 11 + seed) for seed in range(draws)), strict=True)
    )
    calibration = shapes.images(CALIBRATION, 1)[0]
    for path in paths:
        model = in_floats(path)
        name, proto = model.graph.inputs[0].name or "", ir.to_proto(model)
        exact = accuracy(outputs(proto, images), labels)
        for recipe, options in (("int8", "ort int8"), ("int8-channel", "ort int8, channels")):
            ours = ir.to_proto(graft.quantize(model, recipe, {name: calibration}))
            theirs = by_onnxruntime(proto, name, calibration, **PEERS[options])
            right, other = (outputs(one, images).argmax(axis=1) == labels for one in (ours, theirs))
            alone, other_alone = int(np.sum(right & ~other)), int(np.sum(other & ~right))
            print(
                f"{path.stem:14} {recipe:14} {exact:8.4f} {right.mean():8.4f} {other.mean():8.4f} {alone:6} "
                f"{other_alone:9} {_sign_test(alone, other_alone):7.3f}",
                flush=True,
            )


def _sign_test(more: int, less: int) -> float:
    """Return how probable it is that a fair coin parts them at least so far."""
    count = more + less
    tail = sum(math.comb(count, place) for place in range(max(more, less), count + 1))
    return min(1.0, 2 * tail / 2**count)


def outputs_of(model: ir.Model, task: Task) -> np.ndarray:
    """Return the outputs of Graft: ONNX Runtime has no float4e2m1."""
    name = model.graph.inputs[0].name or ""
    program = graft.compile(model)
    return np.concatenate([np.asarray(program(**{name: image[np.newaxis]})) for image in task.held_out])


def quantized(task: Task) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield the model quantised by every recipe, and by ONNX Runtime."""
    name = task.model.graph.inputs[0].name
    for recipe in RECIPES:
        yield recipe, ir.to_proto(graft.quantize(task.model, recipe, {name: task.images}))
    for peer, options in PEERS.items():
        yield peer, by_onnxruntime(ir.to_proto(task.model), name or "", task.images, **options)


def scaled(task: Task) -> Iterator[tuple[str, ir.Model]]:
    """Yield the model with products in each scaled type, and with weights in blocks of some."""
    for name in SCALED:
        yield name, convert_scaled(task.model, name)
    for name in WEIGHTS_IN_BLOCKS:
        yield name, graft.quantize(task.model, name, {task.model.graph.inputs[0].name or "": task.images})


def outputs(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    """Return the outputs of ONNX Runtime, image by image, node by node as ONNX defines them.

    Its own products of bytes saturate on processors without VNNI.
    """
    run = session(model.SerializeToString(), by_node=True).run  # type: ignore[attr-defined]
    name = model.graph.input[0].name
    return np.concatenate([run(None, {name: images[row : row + 1]})[0] for row in range(len(images))])


def accuracy(found: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of labels that the largest output names."""
    return float(np.mean(found.argmax(axis=1) == labels))


def by_onnxruntime(
    model: onnx.ModelProto, name: str, images: np.ndarray, *, per_channel: bool = False, method: str = "MinMax"
) -> onnx.ModelProto:
    """Return a model in QDQ form by ONNX Runtime's quantiser, activations and weights of int8."""
    from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_static

    class Reader:
        """What ONNX Runtime calls a calibration data reader."""

        def __init__(self) -> None:
            self._rows = iter(range(len(images)))

        def get_next(self) -> Mapping[str, np.ndarray] | None:
            row = next(self._rows, None)
            return None if row is None else {name: images[row : row + 1]}

    with TemporaryDirectory() as folder:
        before, after = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, before)
        with redirect_stdout(StringIO()):  # it prints what it does
            quantize_static(
                before, after, Reader(), per_channel=per_channel, activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8, calibrate_method=getattr(CalibrationMethod, method),
            )  # fmt: skip
        return onnx.load(after)


def seconds_of_resnet50(recipe: str, images: int = 100) -> tuple[float, float]:
    """Return the time to quantise ResNet-50 with so many images, compilation included, and that of all processors."""
    model = zoo.model("light_resnet50")
    data = [sample_inputs(model, seed) for seed in range(images)]
    began, own = time.perf_counter(), time.process_time()
    graft.quantize(model, recipe, data)
    return time.perf_counter() - began, time.process_time() - own


if __name__ == "__main__":
    main()
