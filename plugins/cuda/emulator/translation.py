"""PTX as LLVM IR of this processor: accesses, and what only a device has, are calls of the emulator."""

from __future__ import annotations

from collections.abc import Sequence

from graft.plugins.cuda.emulator import arithmetic
from graft.plugins.cuda.emulator.arithmetic import bits_of, type_of
from graft.plugins.cuda.emulator.device_instructions import RULES
from graft.plugins.cuda.emulator.emission import Emission
from graft.plugins.cuda.emulator.ptx_text import Instruction, Label, PtxFunction
from graft.plugins.cuda.emulator.warpgroup_order import check_warpgroups

_UNSET = 0xAAAAAAAAAAAAAAAA
"""What is in registers that nothing has set."""
_NOTHING = {"membar", "fence", "prefetch", "prefetchu", "pragma", "nanosleep"}
"""What changes nothing for threads that run one after the other; races are found by barriers alone."""


class Translator(Emission):
    """Translates one function."""

    def text(self) -> str:
        """Return the function ``NAME.thread``, and what it needs beside it."""
        function = self.function
        check_warpgroups(function)
        for name, kind in function.registers.items():
            width = bits_of(kind)
            value = _UNSET & ((1 << width) - 1)
            self.entry += [f'  %"{name}" = alloca i{width}', f'  store i{width} {value}, ptr %"{name}"']
        for name, (size, align) in function.memory.items():
            self.entry.append(f'  %"{name}" = alloca [{size} x i8], align {align}')
        for number, (kind, name) in enumerate(function.parameters):
            self.entry += [f'  %"{name}" = alloca i64', f'  store i{bits_of(kind)} %a{number}, ptr %"{name}"']
        for kind, name in function.results:
            self.entry.append(f'  %"{name}" = alloca i{bits_of(kind)}')
        for one in function.body:
            self.label(f'"{one.name}"') if isinstance(one, Label) else self._instruction(one)
        if not self.is_ended:
            self.finish("ret void" if not function.results else "unreachable")
        given = ", ".join(f"i{bits_of(kind)} %a{number}" for number, (kind, _) in enumerate(function.parameters))
        result = f"i{bits_of(function.results[0][0])}" if function.results else "void"
        head = f'define internal {result} @"{function.name}.thread"({given}) nounwind {{\nentry:'
        body = ["  br label %start", "start:", *self.lines, "}"]
        return "\n".join([*self.globals.values(), head, *self.entry, *body])

    # ---- Instructions ----

    def _instruction(self, instruction: Instruction) -> None:
        if not instruction.guard:
            self._unguarded(instruction)
            return
        condition = self.bits(instruction.guard, "pred")
        after = f"after{self.fresh()}"
        if instruction.root == "bra":
            self.finish(f'br i1 {condition}, label %"{instruction.operands[0]}", label %{after}')
        else:
            inside = f"if{self.fresh()}"
            self.finish(f"br i1 {condition}, label %{inside}, label %{after}")
            self.label(inside)
            self._unguarded(instruction)
        self.label(after)

    def _unguarded(self, instruction: Instruction) -> None:
        rule = next(
            (
                RULES[name]
                for length in range(len(instruction.parts), 0, -1)
                if (name := ".".join(instruction.parts[:length])) in RULES
            ),
            None,
        )
        if rule is not None:
            rule(self, instruction)
        elif instruction.root not in _NOTHING:
            self._arithmetic(instruction)

    def _arithmetic(self, instruction: Instruction) -> None:
        kind, root = instruction.kind, instruction.root
        row = arithmetic.row(root, instruction.parts[1:-1], kind) if kind[0] in "usbfp" and kind != "pragma" else None
        if row is None or "sat" in instruction.parts:
            raise self.refused(instruction, f"the emulator knows no '{instruction.name}'")
        target, *given = instruction.operands
        own = type_of(kind)
        wide = arithmetic.EXACT.get(own, own) if root in {"fma", "mad"} else own
        values = [self.read(one, kind) for one in given]
        if wide != own:
            values = [self.let(f"fpext {own} {one} to {wide}") for one in values]
        one = "splat (half 1.0)" if own.startswith("<") else "1.0"
        shown = {"t": wide, "m": arithmetic.mangled(wide), "n": str(bits_of(kind)), "w": f"i{2 * bits_of(kind)}"}
        result = self.rows(row, one=one, **shown, **dict(zip("abc", values, strict=False)))
        if wide != own:
            result = self.let(f"fptrunc {wide} {result} to {own}")
        if root in {"popc", "clz"} and bits_of(kind) == 64:
            result, kind = self.let(f"trunc i64 {result} to i32"), "u32"
        self.write(target, result, kind)


def translated(functions: Sequence[PtxFunction]) -> str:
    """Return functions as LLVM IR; raise CompileError for what the emulator cannot run."""
    known = {one.name: one for one in functions}
    declared: dict[str, None] = {}
    texts = []
    for one in functions:
        head, begins, body = Translator(one, known).text().partition("define ")
        declared.update(dict.fromkeys(head.splitlines()))
        texts.append(begins + body)
    return "\n".join([*declared, *texts])
