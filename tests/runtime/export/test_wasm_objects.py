"""Objects of WebAssembly are read, and what is none is refused."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from graft.core.machine.target import target_named
from graft.errors import CompileError
from graft.plugins.llvm.emit import target_machine
from graft.runtime.export.wasm_link import Linker, Step

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


def compiled(text: str) -> bytes:
    machine = target_machine(target_named("wasm32+simd128"))
    layout = f'target datalayout = "{machine.target_data}"\ntarget triple = "wasm32-unknown-unknown"\n'
    return bytes(machine.emit_object(llvm.parse_assembly(layout + text, context=llvm.create_context())))


def refused(*functions: tuple[str, str, bytes]) -> str:
    with pytest.raises(CompileError) as error:
        Linker(functions).module([Step(key, ()) for key, _, _ in functions])
    return str(error.value)


def test_what_is_no_object_is_refused() -> None:
    assert refused(("f", "f", b"\x7fELF")) == "not a WebAssembly object"


@pytest.mark.parametrize("length", range(9, 160, 13))
def test_a_cut_off_object_is_refused(length: int) -> None:
    assert refused(("f", "add", compiled(ADD)[:length])).startswith(
        ("the WebAssembly object ends", "no object defines")
    )
