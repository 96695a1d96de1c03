"""A function of PTX on its way to LLVM IR: lines, operands, registers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graft.errors import CompileError
from graft.plugins.cuda.emulator.arithmetic import FLOATS, bits_of
from graft.plugins.cuda.emulator.ptx_text import Instruction, PtxFunction

_ADDRESS = re.compile(r"^\[\s*(?P<base>[%\w$.]+)\s*(?:\+\s*(?P<offset>-?\d+))?\s*\]$")
_NUMBER = re.compile(r"^-?(0[xX][0-9a-fA-F]+|\d+)U?$")
_UNITS = {f"%{name}.{axis}": 3 * part + place for part, name in enumerate(("tid", "ctaid", "ntid", "nctaid"))
          for place, axis in enumerate("xyz")}  # fmt: skip


class Emission:
    """LLVM IR of a function, whose registers are variables; LLVM makes values of them."""

    def __init__(self, function: PtxFunction, known: Mapping[str, PtxFunction]) -> None:
        self.function, self.known = function, known
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.globals: dict[str, str] = {}
        self._count = 0
        self.is_ended = False

    # ---- Lines ----

    def emit(self, line: str) -> None:
        """Add an instruction of LLVM."""
        if self.is_ended:
            self.label(f"after{self.fresh()}")
        self.lines.append(f"  {line}")

    def let(self, text: str) -> str:
        """Add an instruction of LLVM, and return its result."""
        name = f"%v{self.fresh()}"
        self.emit(f"{name} = {text}")
        return name

    def finish(self, line: str) -> None:
        """End the block."""
        self.emit(line)
        self.is_ended = True

    def loaded(self, kind: str, name: str) -> str:
        """Return what is in a variable of the function."""
        return self.let(f'load {kind}, ptr %"{name}"')

    def call(self, name: str, *operands: str, result: str = "void") -> str:
        """Call a function of the emulator."""
        kinds = ", ".join(one.split(" ")[0] for one in operands)
        self.globals.setdefault(name, f"declare {result} @graft_emulator_{name}({kinds})")
        text = f"call {result} @graft_emulator_{name}({', '.join(operands)})"
        if result != "void":
            return self.let(text)
        self.emit(text)
        return ""

    def numbers(self, *values: int) -> str:
        """Return a pointer to constants (i32)."""
        name = "@" + "_".join(["numbers", *map(str, values)])
        inside = ", ".join(f"i32 {one}" for one in values)
        self.globals.setdefault(name, f"{name} = linkonce_odr hidden constant [{len(values)} x i32] [{inside}]")
        return name

    def place(self, name: str, count: int) -> str:
        """Return a thread's own words by name, made once."""
        if not any(one.startswith(f"  %{name} ") for one in self.entry):
            self.entry.append(f"  %{name} = alloca [{count} x i32], align 16")
        return f"%{name}"

    def fresh(self) -> int:
        """Return a number for a name."""
        self._count += 1
        return self._count

    def label(self, name: str) -> None:
        """Begin a block."""
        if not self.is_ended:
            self.lines.append(f"  br label %{name}")
        self.lines.append(f"{name}:")
        self.is_ended = False

    # ---- Operands ----

    def refused(self, instruction: Instruction, why: str) -> CompileError:
        """Return the error for what the emulator cannot run."""
        text = self.function.text.splitlines()[instruction.line - 1].strip()
        return CompileError(f"kernel '{self.function.name}', line {instruction.line} ({text}): {why}")

    def read(self, operand: str, kind: str) -> str:
        """Return the value of an operand of a type."""
        bits, found = bits_of(kind), self.bits(operand, kind)
        return found if kind not in FLOATS else self.as_type(f"i{bits}", found, FLOATS[kind])

    def as_type(self, source: str, value: str, target: str) -> str:
        """Return the bits of a value as another type."""
        return value if source == target else self.let(f"bitcast {source} {value} to {target}")

    def bits(self, operand: str, kind: str) -> str:
        """Return the value of an operand of a type, as an integer.

        Raise CompileError where it is narrower than the type.
        """
        bits, registers = bits_of(kind), self.function.registers
        if operand.startswith("!"):
            return self.let(f"xor i1 {self.bits(operand[1:], kind)}, true")
        if operand in registers:
            width = bits_of(registers[operand])
            value = self.loaded(f"i{width}", operand)
            if width < bits:
                raise CompileError(f"'{operand}' has {width} bits, and '{kind}' takes {bits}")
            return value if width == bits else self.let(f"trunc i{width} {value} to i{bits}")
        if operand.startswith("{"):
            return self._joined(operand, bits)
        if operand in _UNITS:
            value = self.call("unit", f"i32 {_UNITS[operand]}", result="i32")
            return value if bits == 32 else self.let(f"{'zext' if bits > 32 else 'trunc'} i32 {value} to i{bits}")
        return self._constant(operand, bits)

    def _constant(self, operand: str, bits: int) -> str:
        if operand in self.function.memory:
            return self.let(f'ptrtoint ptr %"{operand}" to i{bits}')
        if operand[:2] in {"0f", "0d"}:
            return str(int(operand[2:], 16))
        if _NUMBER.match(operand):
            return str(int(operand.rstrip("U"), 0) & ((1 << bits) - 1))
        if operand.startswith(("shared", "graft_shared")):  # what is given at launch begins at 0
            return "0"
        raise CompileError(f"kernel '{self.function.name}': the emulator does not know '{operand}'")

    def _joined(self, operand: str, bits: int) -> str:
        parts = [one.strip() for one in operand.strip("{} ").split(",")]
        each, total = bits // len(parts), "0"
        for number, part in enumerate(parts):
            wide = self.let(f"zext i{each} {self.bits(part, f'b{each}')} to i{bits}")
            total = self.let(f"or i{bits} {total}, {self.let(f'shl i{bits} {wide}, {number * each}')}")
        return total

    def write(self, operand: str, value: str, kind: str) -> None:
        """Set a register, or those that it is split among; raise CompileError where there is none."""
        bits = bits_of(kind)
        value = self.as_type(FLOATS[kind], value, f"i{bits}") if kind in FLOATS else value
        if operand.startswith("{"):
            parts = [one.strip() for one in operand.strip("{} ").split(",")]
            each = bits // len(parts)
            for number, part in enumerate(parts):
                moved = self.let(f"lshr i{bits} {value}, {number * each}")
                if part != "_":
                    self.write(part, self.let(f"trunc i{bits} {moved} to i{each}"), f"b{each}")
            return
        if operand not in self.function.registers:
            raise CompileError(f"kernel '{self.function.name}': '{operand}' is no register")
        width = bits_of(self.function.registers[operand])
        if width > bits:
            value = self.let(f"{'sext' if kind[0] == 's' else 'zext'} i{bits} {value} to i{width}")
        elif width < bits:
            value = self.let(f"trunc i{bits} {value} to i{width}")
        self.emit(f'store i{width} {value}, ptr %"{operand}"')

    def address(self, operand: str) -> str:
        """Return an address (i64); raise CompileError where it is none."""
        found = _ADDRESS.match(operand)
        if found is None:
            raise CompileError(f"kernel '{self.function.name}': '{operand}' is no address")
        base, registers = found["base"], self.function.registers
        if base in registers and bits_of(registers[base]) == 32:
            value = self.let(f"zext i32 {self.bits(base, 'b32')} to i64")
        elif base in {name for _, name in (*self.function.parameters, *self.function.results)}:
            value = self.let(f'ptrtoint ptr %"{base}" to i64')
        else:
            value = self.bits(base, "b64")
        return self.let(f"add i64 {value}, {found['offset']}") if found["offset"] else value

    def rows(self, text: str, **names: str) -> str:
        """Emit a row of `arithmetic`, and return its result."""
        results: list[str] = []
        for part in text.split(";"):
            filled = part.format(*results, **names)
            results.append(self.let(filled) if " " in filled else filled)
        return results[-1]
