"""The convolutions and products of the MLPerf Tiny models as calls of CMSIS-NN, in instructions of a Cortex-M4.

    GRAFT_CMSIS_NN=path/to/CMSIS-NN python -m benchmarks.cortex_m.cmsis_nn [model ...]

CMSIS-NN is in no package: the variable names a checkout. Its calls (`arm_convolve_wrapper_s8`,
`arm_depthwise_conv_wrapper_s8`, `arm_fully_connected_s8`) run on the emulated board, with the extents of the models and
bytes that are not zero; beside them stand all calls of Graft's program, with those operators that CMSIS-NN is not
asked for here: pooling, softmax, and the first and last conversions.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cortex_m.tiny import INSTRUCTIONS_A_TICK, LIMIT, measured, missing
from benchmarks.zoo import TINY, model
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait

VARIABLE = "GRAFT_CMSIS_NN"
BOARD = Path(__file__).parents[2] / "measure" / "device" / "mps2_an386"
PROCESSOR = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O3")
FOLDERS = ("ConvolutionFunctions", "FullyConnectedFunctions", "NNSupportFunctions")
HEAD = """#include <stdint.h>
#include <stdlib.h>

#include "arm_nnfunctions.h"
#include "board.h"

static int8_t x[{x}], w[{w}], y[{y}];
static int32_t bias[{n}], multiplier[{n}], shift[{n}], sums[{n}];
static _Alignas(64) uint8_t scratch[{scratch}];
static const cmsis_nn_per_channel_quant_params quantized = {{multiplier, shift}};

static void fail(void) {{
  board_text("failed\\n");
  board_exit(1);
}}

int main(void) {{
  for (uint32_t i = 0; i < sizeof x; i++) x[i] = (int8_t)(i * 37);
  for (uint32_t i = 0; i < sizeof w; i++) w[i] = (int8_t)(i * 11);
  for (uint32_t i = 0; i < {n}; i++) multiplier[i] = 1 << 30, shift[i] = -7, bias[i] = (int32_t)i;
"""
CALL = """  {{
    const cmsis_nn_{kind}_params parameters = {{{parameters}}};
    const cmsis_nn_dims in = {{{inputs}}}, filter = {{{filters}}}, added = {{{n}, 1, 1, 1}}, out = {{{outputs}}};
    cmsis_nn_context context = {{scratch, {size}}};
    if (context.size > (int32_t)sizeof scratch) fail();
    {before}
    board_clock_start();
    if ({function}(&context, &parameters, {scale}, &in, x, &filter, w, &added, bias, &out, y)) fail();
    board_number("ticks", board_clock_ticks());
  }}
"""


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution or product: extents in the order n, h, w, c."""

    image: tuple[int, int, int, int]
    window: tuple[int, int]
    result: tuple[int, int, int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]
    groups: int = 1
    is_product: bool = False

    @property
    def weights(self) -> int:
        """The number of weights."""
        return prod(self.window) * self.image[3] // self.groups * self.result[3]

    @property
    def text(self) -> str:
        """The call in C, and the ticks that it takes."""
        dims = {"inputs": _dims(self.image), "outputs": _dims(self.result), "n": self.result[3]}
        if self.is_product:
            return CALL.format(
                kind="fc", parameters="128, 0, -128, {-128, 127}", filters=f"{self.image[3]}, 1, 1, {self.result[3]}",
                size="sizeof sums", function="arm_fully_connected_s8",
                scale="&(const cmsis_nn_per_tensor_quant_params){1 << 30, -7}",
                before="context.buf = sums; "
                f"if (arm_vector_sum_s8(sums, {self.image[3]}, {self.result[3]}, w, 128, 0, bias)) fail();", **dims,
            )  # fmt: skip
        depthwise, tail = self.groups > 1, "{1, 1}, {-128, 127}"
        kind = "dw_conv" if depthwise else "conv"
        places = f"{{{self.strides[1]}, {self.strides[0]}}}, {{{self.pads[1]}, {self.pads[0]}}}, {tail}"
        name = "depthwise_conv" if depthwise else "convolve"
        (height, width), channels = self.window, self.image[3]
        filters = (
            f"1, {height}, {width}, {channels}" if depthwise else f"{self.result[3]}, {height}, {width}, {channels}"
        )
        return CALL.format(
            kind=kind, parameters=f"128, -128, {'1, ' if depthwise else ''}{places}", filters=filters,
            size=f"arm_{name}_wrapper_s8_get_buffer_size(&parameters, &in, &filter, &out)",
            function=f"arm_{name}_wrapper_s8", scale="&quantized", before="", **dims,
        )  # fmt: skip


def _dims(extents: Sequence[int]) -> str:
    return ", ".join(map(str, extents))


def layers(name: str) -> Iterator[Layer]:
    """Yield the convolutions and products of a model."""
    for node in model(name).graph:
        is_convolution = OPERATORS.has(NodeView(node), Trait.CONVOLUTION)
        if not is_convolution and not OPERATORS.has(NodeView(node), Trait.CONTRACTION):
            continue
        source, weights, target = (
            [int(extent) for extent in value.shape] for value in (*node.inputs[:2], node.outputs[0])
        )
        if not is_convolution:
            yield Layer((1, 1, 1, source[-1]), (1, 1), (1, 1, 1, target[-1]), (1, 1), (0, 0), is_product=True)
            continue
        given = {key: value.value for key, value in node.attributes.items()}
        strides = tuple(given.get("strides", (1, 1)))
        pads = [
            max((target[2 + axis] - 1) * strides[axis] + weights[2 + axis] - source[2 + axis], 0) // 2
            for axis in range(2)
        ]
        yield Layer(
            (1, source[2], source[3], source[1]), (weights[2], weights[3]), (1, target[2], target[3], target[1]),
            (strides[0], strides[1]), (pads[0], pads[1]), given.get("group", 1),
        )  # fmt: skip


def instructions(name: str, library: Path, folder: Path) -> list[int]:
    """Return what each convolution and product of a model takes in CMSIS-NN; raise RuntimeError if it does not run."""
    found = list(layers(name))
    sizes = {
        "x": max(prod(one.image) for one in found), "w": max(one.weights for one in found),
        "y": max(prod(one.result) for one in found), "n": max(one.result[3] for one in found), "scratch": 1 << 16,
    }  # fmt: skip
    text = HEAD.format(**sizes) + "".join(one.text for one in found) + "  return 0;\n}\n"
    (folder / "main.c").write_text(text)
    sources = [path for part in FOLDERS for path in sorted((library / "Source" / part).glob("*.c"))]
    names = [str(path) for path in sources if not re.search(r"_f(16|32)\b", path.stem)]
    image = folder / "cmsis.elf"
    command = [
        "arm-none-eabi-gcc", *PROCESSOR, "-std=gnu11", f"-I{library / 'Include'}", f"-I{BOARD}", "-ffunction-sections",
        "-nostartfiles", "--specs=nano.specs", "-T", str(BOARD / "mps2_an386.ld"), "-Wl,--gc-sections", *names,
        *map(str, (BOARD / "board.c", BOARD / "startup.c", folder / "main.c")), "-o", str(image), "-lm",
    ]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(built.stderr[-3000:])
    run = [
        "qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "none", "-icount",
        "shift=0", "-chardev", "stdio,id=text", "-semihosting-config", "enable=on,target=native,chardev=text",
        "-kernel", str(image),
    ]  # fmt: skip
    outcome = subprocess.run(run, capture_output=True, text=True, timeout=LIMIT)
    ticks = [int(line.split()[1]) for line in outcome.stdout.splitlines() if line.startswith("ticks ")]
    if outcome.returncode or len(ticks) != len(found):
        raise RuntimeError(f"{name} did not run: {outcome.stdout}{outcome.stderr}")
    return [INSTRUCTIONS_A_TICK * one for one in ticks]


def main(names: Sequence[str]) -> None:
    """Print a table of the models."""
    library = os.environ.get(VARIABLE)
    if library is None or (reason := missing()):
        sys.exit(reason if library is not None else f"set {VARIABLE} to a checkout of CMSIS-NN")
    print("| Model | Graft, all | CMSIS-NN, convolutions and products | Graft / CMSIS-NN |\n|---|---:|---:|---:|")
    for name in names or TINY:
        with TemporaryDirectory() as folder:
            theirs = sum(instructions(name, Path(library), Path(folder)))
        with TemporaryDirectory() as folder:
            ours = measured(name, Path(folder)).instructions
        print(f"| {name} | {ours:,} | {theirs:,} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
