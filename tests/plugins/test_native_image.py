import struct
from collections.abc import Sequence

import llvmlite.binding as llvm
import pytest

from graft.core.machine.target import Target, host_target, target_named
from graft.errors import CompileError
from graft.plugins.llvm.emit import target_machine
from graft.plugins.native_image import LIBRARY_ROW, imported, link


def compiled(text: str, target: Target | None = None) -> bytes:
    """The ELF object of a module in LLVM's text."""
    machine = target_machine(target or host_target())
    return machine.emit_object(llvm.parse_assembly(text, context=llvm.create_context()))


CALLER = """
declare i32 @callee(i32)
define i32 @caller(i32 %x) nounwind {
  %y = call i32 @callee(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}
"""
CALLEE = """
@table = private constant [4 x i32] [i32 10, i32 20, i32 30, i32 40]
define i32 @callee(i32 %x) nounwind {
  %i = zext i32 %x to i64
  %p = getelementptr [4 x i32], ptr @table, i64 0, i64 %i
  %y = load i32, ptr %p
  ret i32 %y
}
"""


def header(image: bytes) -> tuple[int, ...]:
    return struct.unpack_from("<8sIIQQQQ", image)


def refused(objects: Sequence[bytes], exported: Sequence[str] = ()) -> str:
    with pytest.raises(CompileError) as error:
        link(objects, exported)
    return str(error.value)


def test_objects_that_call_each_other_become_one_image(load_image) -> None:
    image = load_image(link([compiled(CALLER), compiled(CALLEE)], ["caller", "callee"]))
    assert [image.integer_call("caller", number) for number in range(4)] == [11, 21, 31, 41]
    assert image.integer_call("callee", 2) == 30


def test_only_the_exported_symbols_are_named() -> None:
    image = link([compiled(CALLER), compiled(CALLEE)], ["caller"])
    magic, version, _, offset, size, text, count = header(image)
    assert (magic, version, count) == (b"GRAFTIMG", 1, 1)
    assert (size % 4096, text % 4096, size - text, len(image)) == (0, 0, 4096, offset + size)
    _, name, length = struct.unpack_from("<QQQ", image, 48)
    assert image[name : name + length] == b"caller"


def test_the_image_of_one_input_is_always_the_same() -> None:
    objects = [compiled(CALLER), compiled(CALLEE)]
    assert link(objects, ["caller"]) == link(objects, ["caller"])


def test_code_for_aarch64_is_linked() -> None:
    target = target_named("armv8-a")
    image = link([compiled(CALLER, target), compiled(CALLEE, target)], ["caller", "callee"])
    assert header(image)[2] == 183
    base = header(image)[3]
    caller, callee = (struct.unpack_from("<Q", image, 48 + 24 * number)[0] for number in range(2))
    words = struct.unpack_from("<16I", image, base + caller)
    (call,) = (number for number, word in enumerate(words) if word >> 26 == 0b100101)
    assert caller + 4 * (call + (words[call] & 0x3FFFFFF)) == callee


def test_an_undefined_symbol_is_refused() -> None:
    assert refused([compiled(CALLER)], ["caller"]) == (
        "native code needs the external symbol 'callee'; native code of the built-in compiler has no external symbols"
    )


def test_writable_data_is_refused() -> None:
    text = "@counter = global i32 5\ndefine i32 @get() {\n  %x = load i32, ptr @counter\n  ret i32 %x\n}\n"
    assert refused([compiled(text)], ["get"]) == "section '.data' is writable data; native code must have none"


def test_zeroed_data_is_refused() -> None:
    text = "@counter = global i32 0\ndefine i32 @get() {\n  %x = load i32, ptr @counter\n  ret i32 %x\n}\n"
    assert refused([compiled(text)], ["get"]) == "section '.bss' is writable data; native code must have none"


def test_an_absolute_address_is_refused() -> None:
    caller = compiled(CALLER, target_named("x86-64"))
    (call,) = (info for symbol in range(9) if (info := struct.pack("<II", 4, symbol)) in caller)
    absolute = caller.replace(call, struct.pack("<I", 1) + call[4:])
    assert refused([absolute, compiled(CALLEE)], ["caller"]) == "x86-64 relocation 1 against 'callee' is not supported"


def test_a_missing_export_is_named() -> None:
    assert refused([compiled(CALLEE)], ["callee", "other"]) == "no object defines 'other'"


def test_what_is_no_object_is_refused() -> None:
    assert refused([b"\x7fELF nonsense"]) == "not a little-endian ELF64 relocatable object"


def test_objects_of_two_machines_are_refused() -> None:
    objects = [compiled(CALLEE, target_named("x86-64")), compiled(CALLEE, target_named("armv8-a"))]
    assert refused(objects) == (
        "objects must be of one machine, x86-64 (62), aarch64 (183) or riscv64 (243); got [62, 183]"
    )


# ---- Functions of libraries ----

OUTSIDE = """
declare double @cos(double) nonlazybind
define double @twice(double %x) nounwind {
  %y = call double @cos(double %x)
  %z = fadd double %y, %y
  ret double %z
}
"""


def rows(image: bytes) -> list[tuple[str, int]]:
    found = [struct.unpack_from("<QQQ", image, 48 + 24 * number) for number in range(header(image)[6])]
    return [(image[name : name + length].decode(), offset) for offset, name, length in found]


@pytest.mark.parametrize("machine", ["x86-64", "armv8-a"])
def test_a_function_of_a_library_gets_a_place_behind_the_code(machine: str) -> None:
    code = compiled(OUTSIDE, target_named(machine))
    assert imported([code]) == ("cos",)
    image = link([code], ["twice"], libraries=["libm.so.6"])
    _, version, _, offset, size, text, _ = header(image)
    (own, library, place) = rows(image)
    assert (version, own[0], library, place[0]) == (2, "twice", ("libm.so.6", LIBRARY_ROW), "cos")
    assert text <= place[1] <= size - 8 and not any(image[offset + place[1] : offset + place[1] + 8])


def test_a_call_that_goes_not_through_a_place_is_refused() -> None:
    code = compiled(OUTSIDE.replace("nonlazybind", ""), target_named("x86-64"))
    with pytest.raises(CompileError) as error:
        link([code], ["twice"], libraries=["libm.so.6"])
    assert error.value.message == (
        "native code needs the external symbol 'cos'; native code of the built-in compiler has no external symbols"
    )
