"""The models of MLPerf Tiny as other tools write or run them, beside Graft's, on an emulated Cortex-M4.

    python -m benchmarks.cortex_m.peers [model ...]

Of ``emx-onnx-cgen`` and ``onnx2c`` those that are on the path write C of the same ONNX files, with 32-bit floats and in
8-bit integers (QDQ); weights and temporaries are theirs to place, but without a heap. TensorFlow Lite for
Microcontrollers, with CMSIS-NN, runs the networks' reference files: GRAFT_TFLM has what a C++ compiler needs for its
headers and library, GRAFT_TFLM_MODELS the folder of the files that `TFLITE` names.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cortex_m.cmsis_nn import BOARD, PROCESSOR
from benchmarks.cortex_m.tiny import INSTRUCTIONS_A_TICK, LIMIT, code_sizes, measured, missing
from benchmarks.zoo import TINY, model
from graft.core.graph.save import save_model

TFLITE = {
    "tiny_resnet8": "pretrainedResnet_quant", "tiny_ds_cnn": "kws_ref_model", "tiny_mobilenet_v1": "vww_96_int8",
    "tiny_autoencoder": "ad01_int8",
}  # fmt: skip
WRITERS = {
    "emx-onnx-cgen": "emx-onnx-cgen compile {model} {text} --large-weight-threshold 0 --large-temp-threshold 0",
    "onnx2c": "sh -c 'onnx2c {model} > {text}'",
}
"""The commands that write C, by what they are called."""
STACKS = {"emx-onnx-cgen": "3M"}
"""The room for the stack, 1 MiB for others: all temporaries are on it."""
OWN = ("peer_main.o", "board.o", "startup.o")
_STATIC = re.compile(r"^ \.(?:bss|data)\S*\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s+(\S+)$", re.MULTILINE)
_NUMBERS = re.compile(r"^[\s{}(),;]*(?:[-+]?(?:0x)?[0-9a-f.][0-9a-f.xp+-]*[ful]*[\s{}(),;]*)*$", re.IGNORECASE)
MAIN = """#include "board.h"
void {entry}(const float *, float *);
static float x[{inputs}], y[{outputs}];
int main(void) {{
  for (int i = 0; i < {inputs}; i++) x[i] = (float)(i % 17 - 8) / 8;
  board_clock_start();
  {entry}(x, y);
  board_number("ticks", board_clock_ticks());
  board_number("stack", board_stack_bytes());
  return 0;
}}
"""
TFLM_MAIN = """#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/schema/schema_generated.h"
extern "C" {{
#include "board.h"
extern const unsigned char network[];
void DebugLog(const char *, va_list) {{}}
int DebugVsnprintf(char *, size_t, const char *, va_list) {{ return 0; }}
}}
asm(".section .rodata\\n.balign 16\\n.globl network\\nnetwork: .incbin \\"{network}\\"\\n.text");
alignas(16) static uint8_t arena[256 * 1024];
int main() {{
  tflite::MicroMutableOpResolver<8> operators;
  operators.AddConv2D(), operators.AddDepthwiseConv2D(), operators.AddFullyConnected(), operators.AddAdd();
  operators.AddAveragePool2D(), operators.AddSoftmax(), operators.AddReshape();
  tflite::MicroInterpreter interpreter(tflite::GetModel(network), operators, arena, sizeof arena);
  if (interpreter.AllocateTensors() != kTfLiteOk) board_exit(1);
  for (size_t i = 0; i < interpreter.input(0)->bytes; i++) interpreter.input(0)->data.int8[i] = i * 37;
  board_clock_start();
  if (interpreter.Invoke() != kTfLiteOk) board_exit(1);
  board_number("ticks", board_clock_ticks());
  board_number("stack", board_stack_bytes());
  board_number("arena", interpreter.arena_used_bytes());
  return 0;
}}
"""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a network takes: bytes of RAM (static, arena, stack) and of flash, instructions, lines without weights."""

    ram: int
    flash: int
    instructions: int
    lines: int | None


def lines(text: str) -> int:
    """Return how many lines have more than numbers and braces."""
    return sum(not _NUMBERS.match(line) for line in text.splitlines())


def own(name: str, precision: str, folder: Path) -> Columns:
    """Graft's columns."""
    found, short = measured(name, folder, precision=precision), name.removeprefix("tiny_")
    texts = [short + end for end in (".c", ".h", "_kernels.c", "_kernels.h")] + ["graft/kernel.h"]
    count = sum(lines((folder / short / one).read_text()) for one in texts)
    flash = found.weights + found.kernels + found.rest
    return Columns(found.arena + found.stack, flash, found.instructions, count)


def writer(tool: str, name: str, precision: str, folder: Path) -> Columns:
    """Return the columns of C that a tool writes; raise CalledProcessError where it or a compiler fails."""
    source, text = model(precision + name), folder / "network.c"
    save_model(source, folder / "model.onnx")
    command = WRITERS[tool].format(model=folder / "model.onnx", text=text)
    subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=LIMIT)
    entry = re.findall(r"^void (\w+)\(const float", text.read_text(), re.MULTILINE)[-1]
    sizes = [prod(map(int, value.shape or ())) for value in (source.graph.inputs[0], source.graph.outputs[0])]
    (folder / "peer_main.c").write_text(MAIN.format(entry=entry, inputs=sizes[0], outputs=sizes[1]))
    ram, flash, instructions = _run(
        ["arm-none-eabi-gcc", *PROCESSOR], [text, folder / "peer_main.c"], [], folder, STACKS.get(tool, "1M")
    )
    return Columns(ram, flash, instructions, lines(text.read_text()))


def interpreted(name: str, folder: Path) -> Columns:
    """The columns of TensorFlow Lite for Microcontrollers."""
    network = Path(os.environ["GRAFT_TFLM_MODELS"]) / f"{TFLITE[name]}.tflite"
    (folder / "peer_main.cc").write_text(TFLM_MAIN.format(network=network))
    command = ["arm-none-eabi-g++", *PROCESSOR, "-std=c++17", "-fno-rtti", "-fno-exceptions", "-w"]
    given = [*shlex.split(os.environ["GRAFT_TFLM"]), "-specs=nosys.specs"]
    return Columns(*_run(command, [folder / "peer_main.cc"], given, folder), None)


def _run(
    command: list[str], sources: list[Path], given: list[str], folder: Path, stack: str = "1M"
) -> tuple[int, int, int]:
    """Build an image and run it; return bytes of RAM and flash, and instructions."""
    script = (BOARD / "mps2_an386.ld").read_text().replace("_stack_bytes = 16K", f"_stack_bytes = {stack}")
    (folder / "board.ld").write_text(script)
    flags = [*command, "-ffunction-sections", "-fdata-sections", f"-I{BOARD}"]
    objects = []
    for source in sources:
        objects.append(str(folder / f"{source.stem}.o"))
        includes = [one for one in given if one.startswith(("-I", "-D"))]
        subprocess.run([*flags, *includes, "-c", str(source), "-o", objects[-1]], check=True, timeout=LIMIT)
    for source in (BOARD / "board.c", BOARD / "startup.c"):
        objects.append(str(folder / f"{source.stem}.o"))
        compiler = ["arm-none-eabi-gcc", *PROCESSOR, "-ffunction-sections", "-c", str(source), "-o", objects[-1]]
        subprocess.run(compiler, check=True, timeout=LIMIT)
    image, listing = folder / "peer.elf", folder / "peer.map"
    link = ["-nostartfiles", "--specs=nano.specs", "-T", str(folder / "board.ld"), "-Wl,--gc-sections", "-w"]
    linked = [*flags, *link, *objects, *given, "-lm", f"-Wl,-Map={listing}", "-o", str(image)]
    subprocess.run(linked, check=True, timeout=LIMIT, capture_output=True)
    emulator = ["qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "none"]
    emulator += ["-icount", "shift=0", "-chardev", "stdio,id=text", "-kernel", str(image)]
    emulator += ["-semihosting-config", "enable=on,target=native,chardev=text"]
    said = subprocess.run(emulator, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    found = {key: int(value) for key, value in re.findall(r"^(\w+) (\d+)$", said, re.MULTILINE)}
    text = listing.read_text().partition("Linker script and memory map")[2]
    static = sum(int(size, 16) for size, path in _STATIC.findall(text) if Path(path).name not in OWN)
    sizes = code_sizes(listing.read_text())
    flash = sum(size for file, size in sizes.items() if file not in OWN)
    if "arena" in found:
        flash += Path(_network(folder)).stat().st_size
    return static + found["stack"] + found.get("arena", 0), flash, found["ticks"] * INSTRUCTIONS_A_TICK


def _network(folder: Path) -> str:
    """The file that the interpreter's program has inside."""
    return re.findall(r'incbin \\"([^"\\]*)', (folder / "peer_main.cc").read_text())[0]


def rows(name: str) -> Iterator[tuple[str, str, Columns | str]]:
    """Yield the number format, the tool and its columns for a network; a text where a tool fails."""
    for precision in ("", "int8_"):
        with TemporaryDirectory() as folder:
            yield precision, "Graft", own(name, precision, Path(folder))
        for tool in WRITERS:
            if shutil.which(tool):
                with TemporaryDirectory() as folder:
                    try:
                        yield precision, tool, writer(tool, name, precision, Path(folder))
                    except (subprocess.SubprocessError, RuntimeError) as error:
                        yield precision, tool, f"fails: {str(error)[-60:]}"
    if "GRAFT_TFLM" in os.environ:
        with TemporaryDirectory() as folder:
            yield "int8_", "TFLM", interpreted(name, Path(folder))


def main(names: Collection[str]) -> None:
    """Print a table of the models."""
    if reason := missing():
        sys.exit(reason)
    print("| Model | Numbers | Tool | RAM | Flash | Instructions | Lines |\n|---|---|---|---:|---:|---:|---:|")
    for name in names or TINY:
        for precision, tool, found in rows(name):
            cells = (
                found
                if isinstance(found, str)
                else f"{found.ram:,} | {found.flash:,} | {found.instructions:,} | {found.lines}"
            )
            print(f"| {name} | {'int8' if precision else 'float32'} | {tool} | {cells} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
