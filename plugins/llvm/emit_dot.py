"""Dot products of small numbers in LLVM IR: one instruction where the target has a fast one, else exact arithmetic.

The operands are words of 32 bits: four uint8 with four int8, or two bfloat16. Where an x86 processor has no VNNI, the
even and the odd bytes are multiplied as 16-bit numbers; the instruction on bytes saturates, so it is never used.
"""

from __future__ import annotations

from collections.abc import Callable

from graft.core.machine.target import has_dot
from graft.core.types import Type, element_bits
from graft.plugins.llvm.emit_builder import Builder, Value, literal, register_type
from graft.plugins.llvm.emit_cast import cast

_PAIRS = {
    4: ("sse2", "x86.sse2.pmadd.wd"),
    8: ("avx2", "x86.avx2.pmadd.wd"),
    16: ("avx512bw", "x86.avx512.pmaddw.d.512"),
}


def dot4_u8s8(builder: Builder, total: Value, left: Value, right: Value) -> Value:
    """Add to each int32 the products of four neighbouring bytes, exactly but for wrapping in int32."""
    lanes = total.type.lanes
    width = lanes * 32
    if width in (128, 256, 512) and has_dot("dot4_u8s8", builder.module.target):
        return _instruction(builder, f"x86.avx512.vpdpbusd.{width}", total, left, right)
    if lanes in _PAIRS and builder.module.has(_PAIRS[lanes][0]):
        return _byte_pairs(builder, total, left, right)
    a, b = _words(builder, left), _words(builder, right)
    kind = register_type(a.type)
    text = total.text
    for byte in range(4):
        unsigned = builder.let(f"lshr {kind} {a.text}, {_int(8 * byte, a)}")
        unsigned = builder.let(f"and {kind} {unsigned}, {_int(255, a)}")
        signed = builder.let(f"shl {kind} {b.text}, {_int(24 - 8 * byte, b)}")
        signed = builder.let(f"ashr {kind} {signed}, {_int(24, b)}")
        text = builder.let(f"add {kind} {text}, {builder.let(f'mul {kind} {unsigned}, {signed}')}")
    return Value(text, total.type)


def dot2_bf16(builder: Builder, total: Value, left: Value, right: Value, *, fma: Callable[..., Value]) -> Value:
    """Add to each float32 the products of two neighbouring bfloat16; in which order is not said."""
    width = total.type.lanes * 32
    if width in (128, 256, 512) and has_dot("dot2_bf16", builder.module.target):
        operands = [_cast(builder, side, f"<{side.type.lanes} x bfloat>") for side in (left, right)]
        return _call(builder, f"x86.avx512bf16.dpbf16ps.{width}", total, *operands)
    a, b = _words(builder, left), _words(builder, right)
    for part in (_low_float, _high_float):
        total = fma(part(builder, a), part(builder, b), total)
    return total


def round_bf16(builder: Builder, value: Value) -> Value:
    """Return float32 as bfloat16 bits; the instruction takes subnormal numbers for zero."""
    to = Type("bfloat16", value.type.lanes)
    if not builder.module.has("avx512bf16", "avx512vl"):
        return cast(builder, value, "bfloat16")
    kind, native = register_type(value.type), register_type(to).replace("i16", "bfloat")
    rounded = builder.let(f"fptrunc {kind} {value.text} to {native}")
    return Value(builder.let(f"bitcast {native} {rounded} to {register_type(to)}"), to)


def _instruction(builder: Builder, name: str, total: Value, left: Value, right: Value) -> Value:
    operands = [(register_type(side.type), side.text) for side in (left, right)]
    return _call(builder, name, total, *operands)


def _call(builder: Builder, name: str, total: Value, *operands: tuple[str, str]) -> Value:
    kind = register_type(total.type)
    return Value(builder.intrinsic(name, kind, [(kind, total.text), *operands], []), total.type)


def _byte_pairs(builder: Builder, total: Value, left: Value, right: Value) -> Value:
    lanes = total.type.lanes
    halves = Type("int16", 2 * lanes)
    kind, wide = register_type(halves), register_type(total.type)
    name = _PAIRS[lanes][1]
    a = _cast(builder, left, kind)[1]
    b = _cast(builder, right, kind)[1]
    eight = literal(8, halves)
    even = builder.let(f"and {kind} {a}, {literal(255, halves)}")
    odd = builder.let(f"lshr {kind} {a}, {eight}")
    even_signed = builder.let(f"ashr {kind} {builder.let(f'shl {kind} {b}, {eight}')}, {eight}")
    odd_signed = builder.let(f"ashr {kind} {b}, {eight}")
    text = total.text
    for unsigned, signed in ((even, even_signed), (odd, odd_signed)):
        products = builder.intrinsic(name, wide, [(kind, unsigned), (kind, signed)], [])
        text = builder.let(f"add {wide} {text}, {products}")
    return Value(text, total.type)


def _low_float(builder: Builder, words: Value) -> Value:
    kind = register_type(words.type)
    return _as_float(builder, builder.let(f"shl {kind} {words.text}, {_int(16, words)}"), words)


def _high_float(builder: Builder, words: Value) -> Value:
    kind = register_type(words.type)
    return _as_float(builder, builder.let(f"and {kind} {words.text}, {_int(-65536, words)}"), words)


def _as_float(builder: Builder, bits: str, words: Value) -> Value:
    to = Type("float32", words.type.lanes)
    return Value(builder.let(f"bitcast {register_type(words.type)} {bits} to {register_type(to)}"), to)


def _words(builder: Builder, value: Value) -> Value:
    """Return a group of neighbouring lanes as one int32 each."""
    to = Type("int32", value.type.lanes * element_bits(value.type.dtype) // 32)
    return Value(_cast(builder, value, register_type(to))[1], to)


def _cast(builder: Builder, value: Value, kind: str) -> tuple[str, str]:
    return kind, builder.let(f"bitcast {register_type(value.type)} {value.text} to {kind}")


def _int(number: int, like: Value) -> str:
    return literal(number, like.type)
