"""The instructions that kernels ask for, each once: its meaning in the tensor IR, and its text by language beside it.

A machine has those rows of its architecture whose features it has (`instructions_of`). A processor's own way to compute
a product that is known is one row here; a product of new operands is one more in `DOTS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from graft.core.machine.machine import Instruction


class Dot(NamedTuple):
    """The types of ``(sum, a, b)`` of a dot product, and how many neighbouring lanes of a and b go into one of sum."""

    total: str
    left: str
    right: str
    width: int

    def term(self, place: int | str) -> str:
        """What one pair of neighbouring lanes adds, as an expression of the tensor IR."""
        return f"cast<{self.total}>(a[{place}]) * cast<{self.total}>(b[{place}])"

    @property
    def meaning(self) -> str:
        """One lane of the result as an expression of the tensor IR."""
        return " + ".join(("c[0]", *map(self.term, range(self.width))))


DOTS = {
    "dot4_u8s8": Dot("int32", "uint8", "int8", 4),
    "dot2_s16": Dot("int32", "int16", "int16", 2),
    "dot2_bf16": Dot("float32", "bfloat16", "bfloat16", 2),
}
"""The dot products: ``name(c, a, b)`` adds to each lane of ``c`` the products of neighbouring lanes of ``a`` and ``b``.

Those of integers are exact but for wrapping; in which order floats are added is not said.
"""
ROUNDINGS = {
    "floor": {"llvm": "floor", "c": "floor"},
    "ceil": {"llvm": "ceil", "c": "ceil"},
    "trunc": {"llvm": "trunc", "c": "trunc"},
    "round_even": {"llvm": "roundeven", "c": "nearbyint"},
}
"""The text of roundings to whole numbers."""


def _row(
    name: str,
    meaning: str,
    text: str | Mapping[str, str],
    needs: str,
    arch: str,
    lanes: tuple[int, ...] = (),
    unless: str = "",
) -> Instruction:
    texts = {"llvm": text} if isinstance(text, str) else text
    return Instruction(name, meaning, texts, frozenset(needs.split()), lanes, arch, frozenset(unless.split()))


def _dot(name: str, llvm: str, needs: str, arch: str, lanes: tuple[int, ...], unless: str = "") -> Instruction:
    return _row(name, DOTS[name].meaning, llvm, needs, arch, lanes, unless)


def _fused(needs: str, arch: str) -> Instruction:
    return _row("fma", "fma(a[0], b[0], c[0])", {"llvm": "fma", "c": "fma"}, needs, arch)


def _roundings(needs: str, arch: str) -> tuple[Instruction, ...]:
    return tuple(_row(name, f"{name}(a[0])", text, needs, arch) for name, text in ROUNDINGS.items())


_PAIRS = "cast<int32>(a[0]) * cast<int32>(b[0]) + cast<int32>(a[1]) * cast<int32>(b[1])"
_TO_BF16, _TO_F16 = 'intrinsic<bfloat16>("round_bf16", a[0])', "cast<float16>(a[0])"

INSTRUCTIONS: tuple[Instruction, ...] = (
    _dot("dot4_u8s8", "x86.avx512.vpdpbusd.{bits}", "avx512vnni avx512vl", "x86_64", (4, 8, 16)),
    _dot("dot4_u8s8", "x86.avx512.vpdpbusd.{bits}", "avxvnni", "x86_64", (4, 8)),
    _dot("dot4_u8s8", "aarch64.neon.usdot.v4i32.v16i8", "neon i8mm", "aarch64", (4,)),
    # Processors with tiles (Sapphire Rapids on) start one in two cycles: 73 Gflop/s where multiply-adds reach 136.
    _dot("dot2_bf16", "x86.avx512bf16.dpbf16ps.{bits}", "avx512bf16 avx512vl", "x86_64", (4, 8, 16), "amx-bf16"),
    # Products of neighbouring int16, which are added to nothing: `dot2_s16` is that and an addition.
    _row("pairs_s16", _PAIRS, "x86.sse2.pmadd.wd", "sse2", "x86_64", (4,)),
    _row("pairs_s16", _PAIRS, "x86.avx2.pmadd.wd", "avx2", "x86_64", (8,)),
    _row("pairs_s16", _PAIRS, "x86.avx512.pmaddw.d.512", "avx512bw", "x86_64", (16,)),
    _row("round_bf16", _TO_BF16, "fptrunc", "avx512bf16 avx512vl", "x86_64"),
    _row("round_f16", _TO_F16, "fptrunc", "f16c", "x86_64"),
    _row("round_f16", _TO_F16, "fptrunc", "", "aarch64"),
    _fused("fma", "x86_64"),
    _fused("avx512f", "x86_64"),
    _fused("", "aarch64"),
    _fused("d", "riscv64"),
    *_roundings("sse4.1", "x86_64"),
    *_roundings("", "aarch64"),
    *_roundings("", "wasm32"),
)


def instructions_of(arch: str, features: Collection[str]) -> tuple[Instruction, ...]:
    """Return the instructions of an architecture with some features; of two for the same the one that stands first."""
    found: list[Instruction] = []
    for one in INSTRUCTIONS:
        if one.arch != arch or not one.needs.issubset(features) or one.unless.intersection(features):
            continue
        known = [other for other in found if other.name == one.name]
        if not any(set(one.lanes) <= set(other.lanes) or not other.lanes for other in known):
            found.append(one)
    return tuple(found)
