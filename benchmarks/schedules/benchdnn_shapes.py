"""Shapes of oneDNN's own benchmark, one operator a model: ``python -m benchmarks.schedules.benchdnn_shapes FOLDER``.

``FOLDER`` is ``tests/benchdnn/inputs`` of a checkout of oneDNN, whose files of shapes (convolutions, products, pools,
softmax, layer normalisation) are read. The built-in compiler, oneDNN through its backend and ONNX Runtime run in turns;
weights are constants, batches of images are of ``--batch`` at the most, and of each file ``--sample`` shapes are taken.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import graft
from benchmarks.peers import best_turns
from benchmarks.schedules.cases import model
from graft.errors import GraftError
from graft.measure.peers.runtimes import onnxruntime_call

MOST = 4e9
"""Floating-point operations of a case at the most, and its elements times 100: others take too long to be timed."""
FAR = 1.2
"""Ratios above it are counted at the end."""


def _fields(line: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"([a-z]+)(\d+)", line)}


def _window(fields: dict[str, int]) -> tuple[str, list[int], int]:
    """Return the attributes of a window as ONNX writes them, the extents of its image, and the places of its result.

    Raises KeyError where what is computed does not follow from the description, ValueError where a window sees nothing.
    """
    axes = "dhw" if "id" in fields or "kd" in fields else "w" if "ih" not in fields else "hw"

    def along(name: str, default: int) -> list[int]:
        shared = fields.get(f"{name}h", fields.get(f"{name}w", fields.get(f"{name}d", default)))
        return [fields.get(name + axis, shared) for axis in axes]

    image, kernel, result = along("i", 0), along("k", 1), along("o", 0)
    strides, before = along("s", 1), along("p", 0)
    dilations = [step + 1 for step in along("d", 0)]
    if not all(image) or not all(result):
        raise KeyError("extents")
    behind = [
        (count - 1) * stride + (size - 1) * step + 1 - extent - pad
        for count, stride, size, step, extent, pad in zip(
            result, strides, kernel, dilations, image, before, strict=True
        )
    ]
    cut = [max(0, -pad) for pad in behind]  # what no window reads
    pads = [*before, *(max(0, pad) for pad in behind)]
    image = [extent - less for extent, less in zip(image, cut, strict=True)]
    if any(pad >= size for pad, size in zip(pads, [*kernel, *kernel], strict=True)):
        raise ValueError("windows that see no pixel")
    text = f"kernel_shape={kernel},strides={strides},pads={pads},dilations={dilations}".replace(" ", "")
    return text, image, math.prod(result)


def convolution(line: str, batch: int) -> tuple[str, float]:
    """Return a convolution as a line of `cases.model`, and its floating-point operations."""
    fields = _fields(line)
    attributes, image, places = _window(fields)
    groups, images = fields.get("g", 1), min(batch, fields.get("mb", 2))
    channels, outputs = fields["ic"], fields["oc"]
    kernel = [int(size) for size in re.findall(r"kernel_shape=\[([\d,]+)\]", attributes)[0].split(",")]
    each = channels // groups
    shape = ",".join(map(str, (images, channels, *image)))
    weights = ",".join(map(str, (outputs, each, *kernel)))
    text = f"x {shape}; w {weights} : y = Conv<group={groups},{attributes}>(x, w)"
    return text, 2.0 * images * outputs * places * each * math.prod(kernel)


def pool(line: str, batch: int) -> tuple[str, float]:
    """Return a maximum pool as a line of `cases.model`, and its floating-point operations."""
    fields = _fields(line)
    attributes, image, places = _window(fields)
    images, channels = min(batch, fields.get("mb", 2)), fields.get("ic", fields.get("c", 0))
    shape = ",".join(map(str, (images, channels, *image)))
    return f"x {shape} : y = MaxPool<{attributes}>(x)", 100.0 * images * channels * max(places, math.prod(image))


def product(line: str, batch: int) -> tuple[str, float]:
    """Return a product by constants as a line of `cases.model`, and its floating-point operations."""
    left, right = ([int(part) for part in shape.split("x")] for shape in line.split(":")[:2])
    text = f"x {','.join(map(str, left))}; w {','.join(map(str, right))} : y = MatMul(x, w)"
    return text, 2.0 * max(math.prod(left) * right[-1], math.prod(right) * left[-2])


def softmax(line: str, batch: int) -> tuple[str, float]:
    """Return a softmax of the last axis as a line of `cases.model`, and a hundred operations an element."""
    shape = [int(part) for part in line.split("x")]
    return f"x {','.join(map(str, shape))} : y = Softmax(x)", 100.0 * math.prod(shape)


def normalisation(line: str, batch: int) -> tuple[str, float]:
    """Return a layer normalisation as a line of `cases.model`, and a hundred operations an element."""
    shape = [int(part) for part in line.split("x")]
    text = f"x {','.join(map(str, shape))}; a {shape[-1]}; c {shape[-1]} : y = LayerNormalization(x, a, c)"
    return text, 100.0 * math.prod(shape)


KINDS: dict[str, Callable[[str, int], tuple[str, float]]] = {
    "conv": convolution, "matmul": product, "pool": pool, "softmax": softmax, "lnorm": normalisation,
}  # fmt: skip


def lines(file: Path) -> Iterator[str]:
    """Yield the shapes of a file without names and comments."""
    for line in file.read_text(encoding="utf-8").splitlines():
        bare = re.split(r'[#"]', line)[0].strip().removesuffix("n").rstrip("_")
        if bare and not bare.startswith("-"):
            yield bare


def cases(folder: Path, only: str, sample: int, seed: int, batch: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the line of `cases.model` of what is taken of each file."""
    chosen = random.Random(seed)
    for kind, make in KINDS.items():
        for file in sorted((folder / kind).glob("shapes_*")):
            if only not in f"{kind}/{file.name}":
                continue
            able = dict[str, str]()
            for line in lines(file):
                try:
                    text, work = make(line, batch)
                except (KeyError, ValueError, IndexError):  # extents at run time, strides in memory, formats
                    continue
                if 0 < work <= MOST:
                    able[f"{kind} {line}"] = text
            yield from chosen.sample(sorted(able.items()), min(sample, len(able)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="tests/benchdnn/inputs of oneDNN")
    options.add_argument("--only", default="", help="a part of the names of the files, such as conv/shapes_resnet")
    options.add_argument("--sample", type=int, default=2, help="shapes of each file")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args(arguments)
    print("| shape | strategies | us | of oneDNN | of ONNX Runtime |\n|---|---|---:|---:|---:|")
    ratios: dict[str, list[float]] = {"oneDNN": [], "ONNX Runtime": []}
    for name, text in cases(chosen.folder, chosen.only, chosen.sample, chosen.seed, chosen.batch):
        source, given = model(text)
        try:
            program = graft.compile(source, ["llvm"], threads=chosen.threads, cache=False, tuned=False)
        except GraftError as fault:
            print(f"{name}: {fault}", file=sys.stderr)
            continue
        peers = {"ONNX Runtime": partial(onnxruntime_call(source, chosen.threads), {source.graph.input[0].name: given})}
        with suppress(GraftError):  # what oneDNN's backend does not take has no figure
            onednn = graft.compile(source, ["onednn"], threads=chosen.threads, cache=False)
            peers["oneDNN"] = partial(onednn, given)
        own, *others = best_turns([partial(program, given), *peers.values()], seconds=0.3, turns=9)
        found = {peer: own / other for peer, other in zip(peers, others, strict=True)}
        for peer, ratio in found.items():
            ratios[peer].append(ratio)
        calls = (call.schedule for procedure in program.description.procedures for call in procedure.calls)
        used = ", ".join(str(one["strategy"]) for one in calls if one)
        cells = (f"{found[peer]:.2f}" if peer in found else "-" for peer in ratios)
        print(f"| {name} | {used} | {1e6 * own:.1f} | {' | '.join(cells)} |", flush=True)
    print()
    for peer, every in ratios.items():
        mean = math.prod(every) ** (1 / max(1, len(every)))
        above = sum(ratio > FAR for ratio in every)
        print(f"{peer}: {len(every)} shapes, geometric mean {mean:.3f}, {above} above {FAR}")


if __name__ == "__main__":
    main()
