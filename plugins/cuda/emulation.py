"""What launches a kernel in the emulator (`emulator/`), which stands for a device."""

from __future__ import annotations

from graft.core.tensor_ir.ir import Binary, Buffer, Constant, Expression, Variable
from graft.core.types import element_bits
from graft.plugins.cuda.launches import Launch

DECLARED = (
    "declare void @graft_emulator_begin(ptr, ptr)",
    "declare void @graft_emulator_end()",
    "declare void @graft_emulator_buffer(ptr, i64, i64)",
    "declare void @graft_emulator_run(ptr, ptr, ptr, ptr, i64)",
)


def entry(launch: Launch, shared: int, ptx: str) -> str:
    """Return what a kernel's launch calls: it tells the emulator of the buffers and lets it run the threads.

    ``shared`` is the bytes of shared memory, -1 for threads that wait for nothing; ``ptx`` stands in messages.
    """
    name, count = launch.name, len(launch.buffers)
    kinds = ["i64"] * count + ["i32"] * len(launch.extents)
    loads = []
    for number, kind in enumerate(kinds):
        loads.append(f"  %s{number} = getelementptr ptr, ptr %args, i64 {number}")
        loads.append(f"  %a{number} = load ptr, ptr %s{number}, align 8")
        loads.append(f"  %v{number} = load {kind}, ptr %a{number}, align 4")
    given = ", ".join(f"{kind} %v{number}" for number, kind in enumerate(kinds))
    lines = [f"define internal void @{name}.run(ptr %args) {{", *loads]
    lines += [f'  call void @"{name}.thread"({given})', "  ret void", "}", _text(f"{name}.name", name)]
    lines += [_text(f"{name}.ptx", ptx), f"define void @{name}(ptr %grid, ptr %block, ptr %args) {{", *loads]
    lines.append(f"  call void @graft_emulator_begin(ptr @{name}.name, ptr @{name}.ptx)")
    known = {extent: f"%w{number}" for number, extent in enumerate(launch.extents)}
    lines += [f"  %w{number} = sext i32 %v{count + number} to i64" for number in range(len(launch.extents))]
    sizes = _Sizes()
    for number, buffer in enumerate(launch.buffers):
        size = sizes.of(buffer, known)
        named = f"ptr @{name}.buffer{number}, i64 %v{number}"
        lines += [*sizes.taken(), f"  call void @graft_emulator_buffer({named}, i64 {size})"]
    lines.append(f"  call void @graft_emulator_run(ptr @{name}.run, ptr %grid, ptr %block, ptr %args, i64 {shared})")
    lines += ["  call void @graft_emulator_end()", "  ret void", "}"]
    names = [_text(f"{name}.buffer{number}", f"'{buffer.name}'") for number, buffer in enumerate(launch.buffers)]
    return "\n".join([*lines, *names])


def _text(name: str, text: str) -> str:
    data = text.encode() + b"\0"
    inside = "".join(chr(one) if 32 <= one < 127 and one not in b'"\\' else f"\\{one:02x}" for one in data)
    return f'@{name} = private constant [{len(data)} x i8] c"{inside}"'


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
