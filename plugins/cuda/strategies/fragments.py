"""What tensor instructions mean: which thread of a warp holds which elements of matrices, and what is added to them."""

from __future__ import annotations

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.parser import parse_function
from graft.core.types import Type, element_bits
from graft.plugins.cuda.machines import WARP, WARPGROUP
from graft.plugins.cuda.strategies.fills import Tile

_HELD = "[32, 2, 2, 2]", "[lane / 4 * 4 + k % 8 / 2, k / 8, half, k % 2]"
"""A factor that holds sums of an earlier product: its shape, and what each thread reads for its four sums."""


def depth_of(dtype: str) -> int:
    """Return how many terms an instruction of a warp takes: 32 bytes of each row."""
    return 32 * 8 // element_bits(dtype)


def meaning(left: Tile | ir.Buffer, right: Tile, total: str, columns: int = 0) -> ir.Function:
    """Return what a warp does that adds products of 16 rows and 8 columns (PTX ISA, "Matrix Fragments for mma").

    With ``columns`` it is what a warpgroup does with so many, 64 rows and all terms of a tile.
    """
    group, terms = (WARPGROUP, right.terms) if columns else (WARP, depth_of(right.dtype))
    row, column = "(half * 8 + lane % 32 / 4)", "(lane % 4 * 2 + pair)"
    if columns:
        row, column = f"(lane / 32 * 16 + {row})", f"(j * 8 + {column})"
    rows, a = _read(left, row, "m") if isinstance(left, Tile) else _HELD
    others, b = _read(right, column, "n")
    shape, c, loops = f"[{group}, 2, 2]", "c[lane, half, pair]", f"parallel lane < {group} {{"
    if columns:
        shape, c, loops = (
            f"[{group}, {columns // 8}, 2, 2]",
            "c[lane, j, half, pair]",
            f"{loops} serial j < {columns // 8} {{",
        )
    factors = [f"cast<{total}>({one})" if right.dtype != total else one for one in (f"a{a}", f"b{b}")]
    added = ("fma({}, {}, {})" if Type(total).is_float else "{} * {} + {}").format(*factors, c)
    inner = f"serial half < 2 {{ serial pair < 2 {{ serial k < {terms} {{ {c} = {added} }} }} }}"
    return parse_function(
        f"function multiply(a: {left.dtype}{rows}, b: {right.dtype}{others}) -> (c: {total}{shape}) "
        f"{{ {loops} {inner} {'}' * loops.count('{')} }}"
    )


def _read(tile: Tile, line: str, name: str) -> tuple[str, str]:
    """Return the shape of a factor in shared memory, and the place of term ``k`` of a line.

    Of swizzled lines, the 16-byte parts lie in the order of their number xor that of the line of eight (PTX ISA,
    "Asynchronous warpgroup level matrix shared memory layout").
    """
    part, across = tile.part, tile.across
    if not tile.is_swizzled:
        return f"[{name}, {name}_pitch]", f"[k, {line}]" if tile.is_transposed else f"[{line}, k]"
    if not tile.is_transposed:
        return f"[{name}, {across}]", f"[{line}, (k / {part} ^ {line} % 8) * {part} + k % {part}]"
    place = f"({line} % {across} / {part} ^ k % 8) * {part} + {line} % {part}"
    return f"[{name}, {tile.terms}, {across}]", f"[{line} / {across}, k, {place}]"
