from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from graft.core.machine.target import target_named
from graft.errors import CompileError
from graft.plugins.llvm.emit import target_machine
from graft.runtime.export import wasm_binary as wasm
from graft.runtime.export.wasm_link import RECORD, Linker, Step

ADD = """
@table = private constant [2 x i32] [i32 100, i32 200]
@pointer = private constant ptr getelementptr (i8, ptr @table, i32 4)
define internal i32 @twice(i32 %x) noinline nounwind { %y = mul i32 %x, 2 ret i32 %y }
define i32 @add(ptr %context, ptr %x, ptr %y) nounwind {
  %a = load i32, ptr %x
  %b = call i32 @twice(i32 %a)
  %p = load volatile ptr, ptr @pointer
  %c = load i32, ptr %p
  %d = add i32 %b, %c
  store i32 %d, ptr %y
  ret i32 0
}
"""
SCRATCH = """
declare ptr @graft_scratch(ptr, i64)
declare i32 @graft_fail_index(ptr, i64, i64, i64, i64, i64)
define i32 @takes(ptr %context, ptr %y) nounwind {
  %p = call ptr @graft_scratch(ptr %context, i64 100)
  %q = call ptr @graft_scratch(ptr %context, i64 1000000)
  store i32 7, ptr %q
  %a = ptrtoint ptr %p to i32
  %b = ptrtoint ptr %q to i32
  %d = sub i32 %b, %a
  store i32 %d, ptr %y
  ret i32 0
}
define i32 @fails(ptr %context) nounwind {
  %s = call i32 @graft_fail_index(ptr %context, i64 -7, i64 1, i64 5, i64 -5, i64 4)
  ret i32 %s
}
"""
RUN = """
import { readFileSync } from "node:fs";
const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), {});
const { memory, run } = instance.exports;
const status = run();
const view = new DataView(memory.buffer);
const numbers = process.argv.slice(3).map((place) => view.getInt32(Number(place), true));
console.log([status, memory.buffer.byteLength, ...numbers].join(" "));
"""


def compiled(text: str) -> bytes:
    machine = target_machine(target_named("wasm32+simd128"))
    layout = f'target datalayout = "{machine.target_data}"\ntarget triple = "wasm32-unknown-unknown"\n'
    return bytes(machine.emit_object(llvm.parse_assembly(layout + text, context=llvm.create_context())))


def run(module: bytes, folder: Path, *places: int) -> list[int]:
    """Return the status of ``run``, the bytes of memory after it, and i32 numbers at some places."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (folder / "m.wasm").write_bytes(module)
    (folder / "run.mjs").write_text(RUN)
    command = ["node", folder / "run.mjs", folder / "m.wasm", *map(str, places)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [int(word) for word in done.stdout.split()]


def refused(*functions: tuple[str, str, bytes]) -> str:
    with pytest.raises(CompileError) as error:
        Linker(functions).module([Step(key, ()) for key, _, _ in functions])
    return str(error.value)


def test_steps_call_functions_and_copy_in_order(tmp_path: Path) -> None:
    linker = Linker([("f", "add", compiled(ADD))])
    x, y, z = linker.add(struct.pack("<i", 3)), linker.place(4), linker.place(4)
    module = linker.module([Step("f", (x, y)), Step("", (y, z), 4)])
    status, size, first, second = run(module, tmp_path, y, z)
    assert (status, first, second, size % wasm.PAGE) == (0, 206, 206, 0)


def test_equal_objects_are_in_the_module_once() -> None:
    code = compiled(ADD)
    one = Linker([("f", "add", code)]).module([])
    assert Linker([("f", "add", code), ("g", "add", code)]).module([]) == one


def test_scratch_memory_is_apart_and_makes_the_memory_grow(tmp_path: Path) -> None:
    linker = Linker([("f", "takes", compiled(SCRATCH))])
    y = linker.place(4)
    status, size, distance = run(linker.module([Step("f", (y,)), Step("f", (y,))]), tmp_path, y)
    assert (status, distance) == (0, 128)
    assert RECORD + 1_000_000 < size < RECORD + 1_300_000, "the second step takes what the first gave back"


def test_a_failing_step_ends_the_run_and_is_noted(tmp_path: Path) -> None:
    linker = Linker([("f", "fails", compiled(SCRATCH)), ("g", "takes", compiled(SCRATCH))])
    y = linker.place(4)
    module = linker.module([Step("", (y, y), 4), Step("f", ()), Step("g", (y,))])
    status, _, *noted = run(module, tmp_path, RECORD, RECORD + 8, RECORD + 24, y)
    assert (status, noted) == (5, [0, -7, 5, 0])


def test_a_function_that_a_module_does_not_have_is_named() -> None:
    text = "declare float @expf(float)\ndefine float @f(float %x) { %y = call float @expf(float %x) ret float %y }"
    assert refused(("f", "f", compiled(text))) == (
        "a kernel needs the function 'expf', which a WebAssembly module of Graft does not have"
    )


def test_a_symbol_that_is_not_there_is_named() -> None:
    assert refused(("f", "other", compiled(ADD))) == "no object defines 'other'"


def test_more_memory_than_webassembly_has_is_refused_with_how_much() -> None:
    linker = Linker([])
    linker.place(2**32)
    with pytest.raises(CompileError) as error:
        linker.module([])
    needed = 2**32 + RECORD + 64
    assert str(error.value) == (
        f"the program needs {needed} bytes of memory, and WebAssembly has 4 GiB (4294967296): {needed - 2**32} too many"
    )


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 128, 300, 2**31 - 1, 2**31, 2**32 - 1])
def test_numbers_are_read_as_they_were_written(value: int) -> None:
    assert wasm.Reader(wasm.unsigned(value)).number() == value
    assert wasm.Reader(wasm.padded(value)).number() == value
    assert wasm.Reader(wasm.signed(-value)).signed() == -value
    assert wasm.Reader(wasm.padded_signed(value)).signed() & 0xFFFFFFFF == value
