"""Kernels as native code that runs in the emulator (`emulator/`), which stands for a device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from graft.core.machine.host import host_machine
from graft.core.machine.machine import Machine
from graft.core.tensor_ir.ir import Barrier, Binary, Buffer, Constant, Expression, Function, Variable
from graft.core.tensor_ir.visit import walk_statements
from graft.core.types import element_bits
from graft.plugins.cuda.launches import Launch

_LOAD = re.compile(r"^  %\S+ = load (?P<type><[^>]+>|[^,]+), ptr (?P<at>\S+), align \d+$")
_STORE = re.compile(r"^  store (?P<type><[^>]+>|\S+) .*, ptr (?P<at>\S+), align \d+$")


@cache
def host_like(machine: Machine) -> Machine:
    """Return this machine with the vectors of none: what the emulator's native code is made for."""
    return replace(host_machine(), name="emulator", vectors=(), masks=False)


def entry(launch: Launch, function: Function, parameters: Sequence[str], shared: int) -> list[str]:
    """Return what a kernel's launch calls: it tells the emulator of the buffers and lets it run the threads."""
    has_barriers = any(isinstance(one, Barrier) for one in walk_statements(launch.body)) or shared
    name, run = launch.name, launch.name
    types = ["ptr" if one.startswith("ptr") else "i32" for one in parameters]
    lines = [f"define void @{run}.run(ptr %args) {{"]
    for number, kind in enumerate(types):
        lines.append(f"  %s{number} = getelementptr ptr, ptr %args, i64 {number}")
        lines.append(f"  %a{number} = load ptr, ptr %s{number}, align 8, !private !{{}}")
        lines.append(f"  %v{number} = load {kind}, ptr %a{number}, align 4, !private !{{}}")
    given = ", ".join(f"{kind} %v{number}" for number, kind in enumerate(types))
    lines += [f"  call void @{name}.thread({given})", "  ret void", "}"]
    lines.append(f'@{name}.name = private constant [{len(name) + 1} x i8] c"{name}\\00"')
    lines.append(f"define void @{name}(ptr %grid, ptr %block, ptr %args) {{")
    lines.append(f"  call void @graft_emulator_begin(ptr @{name}.name)")
    sizes = _Sizes()
    for number, kind in enumerate(types):
        lines.append(f"  %s{number} = getelementptr ptr, ptr %args, i64 {number}")
        lines.append(f"  %a{number} = load ptr, ptr %s{number}, align 8")
        lines.append(f"  %v{number} = load {kind}, ptr %a{number}, align 4")
    known = {extent: f"%w{number}" for number, extent in enumerate(launch.extents)}
    for number in range(len(launch.extents)):
        lines.append(f"  %w{number} = sext i32 %v{len(launch.buffers) + number} to i64")
    for number, buffer in enumerate(launch.buffers):
        size = sizes.of(buffer, known)
        lines += sizes.taken()
        lines.append(f"  call void @graft_emulator_buffer(ptr %v{number}, i64 {size})")
    bytes_ = shared if has_barriers else -1
    lines.append(f"  call void @graft_emulator_run(ptr @{run}.run, ptr %grid, ptr %block, ptr %args, i64 {bytes_})")
    lines += ["  call void @graft_emulator_end()", "  ret void", "}"]
    lines += [
        "declare void @graft_emulator_begin(ptr)", "declare void @graft_emulator_end()",
        "declare void @graft_emulator_buffer(ptr, i64)", "declare void @graft_emulator_run(ptr, ptr, ptr, ptr, i64)",
        "declare void @graft_emulator_access(ptr, i64, i32)",
    ]  # fmt: skip
    return lines


class _Sizes:
    """Computes the bytes of buffers in LLVM IR."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def taken(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def of(self, buffer: Buffer, known: dict[Variable, str]) -> str:
        """Return the bytes of a buffer."""
        total = str(element_bits(buffer.dtype) // 8)
        for extent in buffer.shape:
            total = self._let("mul", total, self._value(extent, known))
        return total

    def _value(self, extent: Expression, known: dict[Variable, str]) -> str:
        if isinstance(extent, Constant):
            return str(int(extent.value))
        if isinstance(extent, Variable):
            return known[extent]
        assert isinstance(extent, Binary), f"an extent is {extent}"
        left, right = self._value(extent.left, known), self._value(extent.right, known)
        names = {"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "mod": "srem"}
        if extent.operator in names:
            return self._let(names[extent.operator], left, right)
        comparison = self._let(f"icmp s{'lt' if extent.operator == 'min' else 'gt'}", left, right)
        self._count += 1
        self._lines.append(f"  %z{self._count} = select i1 {comparison}, i64 {left}, i64 {right}")
        return f"%z{self._count}"

    def _let(self, operation: str, left: str, right: str) -> str:
        self._count += 1
        self._lines.append(f"  %z{self._count} = {operation} i64 {left}, {right}")
        return f"%z{self._count}"


def watched(lines: Sequence[str]) -> list[str]:
    """Return the lines of a thread with what it reads and writes announced to the emulator."""
    result = []
    for line in lines:
        for pattern, writes in ((_LOAD, 0), (_STORE, 1)):
            found = pattern.match(line)
            if found:
                size = _size(found["type"])
                result.append(f"  call void @graft_emulator_access(ptr {found['at']}, i64 {size}, i32 {writes})")
        result.append(line)
    return result


def _size(kind: str) -> int:
    """Return the bytes of an LLVM type."""
    if kind.startswith("<"):
        count, _, element = kind[1:-1].split(" ")
        return int(count) * _size(element)
    bits = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}.get(kind)
    return (int(kind[1:]) if bits is None else bits) // 8
