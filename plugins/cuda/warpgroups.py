"""Products by warpgroups (`wgmma`) as text: matrix descriptors, and one block of PTX for all terms of a stage.

Between the first instruction and the wait for the last one nothing may touch the sums. So all of them are one piece of
PTX: what LLVM puts around it, copies of registers too, is around the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.plugins.codegen.llvm_ir.builder import Builder

LINE_BYTES = 128
"""Of a swizzled line."""
STEP_BYTES = 32
"""Of a line that one instruction takes: its terms, of any type."""
TRANSPOSED_TERMS = 16
"""Terms that it takes of a factor whose own rows or columns lie inside."""
_SWIZZLE_128 = 1 << 62


def descriptor(leading: int, stride: int) -> int:
    """Return a matrix descriptor without its address, of 128-byte swizzle (PTX ISA, "Matrix Descriptor Format").

    Offsets are bytes. ``stride`` is from eight lines to the next eight. ``leading`` is from the first 64 rows to the
    next of a factor whose own rows lie inside; otherwise nobody reads it.
    """
    return (leading >> 4) << 16 | (stride >> 4) << 32 | _SWIZZLE_128


@dataclass(frozen=True, slots=True)
class GroupProduct:
    """A warpgroup's product of 64 x ``columns``: how many ``steps`` of terms, and which factors are transposed."""

    instruction: str
    ptx: str
    columns: int
    steps: int
    transposed: tuple[bool, ...]

    @property
    def total(self) -> str:
        """The type of a sum in LLVM IR."""
        return "i32" if "int8" in self.instruction else "float"

    def ahead(self, factor: int) -> int:
        """Return the bytes from the terms of a step to those of the next one."""
        return TRANSPOSED_TERMS * LINE_BYTES if self.transposed[factor] else STEP_BYTES


def multiplied(builder: Builder, product: GroupProduct, factors: Sequence[str], sums: Sequence[str]) -> list[str]:
    """Return the sums after all steps, as values of LLVM IR; ``factors`` are descriptors."""
    count, total = len(sums), product.total
    held = ", ".join(f"${number}" for number in range(count))
    scales = ", 1" if total == "i32" else ", 1, 1, 1"
    if product.ptx.endswith(("f16", "bf16")):
        scales += "".join(f", {int(transposed)}" for transposed in product.transposed)
    lines = ["{", ".reg .b64 %left, %right;", f"mov.b64 %left, ${count};", f"mov.b64 %right, ${count + 1};"]
    lines.append("wgmma.fence.sync.aligned;")
    for step in range(product.steps):
        if step:
            lines.append(f"add.s64 %left, %left, {product.ahead(0) >> 4};")
            lines.append(f"add.s64 %right, %right, {product.ahead(1) >> 4};")
        lines.append(f"{product.ptx} {{{held}}}, %left, %right{scales};")
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;", "}"]
    letter = "r" if total == "i32" else "f"
    ties = [str(number) for number in range(count)]
    constraints = ",".join([*[f"={letter}"] * count, "l", "l", *ties, "~{memory}"])
    kinds = "{ " + ", ".join([total] * count) + " }"
    given = ", ".join([*(f"i64 {one}" for one in factors), *(f"{total} {one}" for one in sums)])
    text = "\\0A".join(lines)
    result = builder.let_anew(f'call {kinds} asm sideeffect "{text}", "{constraints}"({given})')
    return [builder.let(f"extractvalue {kinds} {result}, {number}") for number in range(count)]
