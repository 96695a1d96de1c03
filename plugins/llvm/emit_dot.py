"""Dot products of small numbers in LLVM IR: one instruction where the machine has it, else exact arithmetic.

The operands are words of 32 bits, such as four uint8 with four int8, or two bfloat16. Bytes without an instruction of
their own are multiplied as 16-bit numbers, the even and the odd ones apart, where the machine adds neighbouring
products; instructions on bytes that saturate are never used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graft.core.machine.instructions import DOTS
from graft.core.types import Type, element_bits
from graft.plugins.llvm.emit_builder import Builder, Value, literal, register_type

Fused = Callable[[Value, Value, Value], Value]


def dot(builder: Builder, name: str, operands: Sequence[Value], fma: Fused) -> Value:
    """Add to each lane of the first operand the products of neighbouring lanes of the others, as `DOTS` says."""
    total, left, right = operands
    kinds, lanes = DOTS[name], total.type.lanes
    text = builder.module.instruction(name, lanes)
    if text is not None:
        return _call(builder, text, total, left, right)
    pairs = builder.module.instruction("pairs_s16", lanes)
    if pairs is not None and (kinds.left, kinds.right) == ("uint8", "int8"):
        return _byte_pairs(builder, pairs, total, left, right)
    a, b = _words(builder, left), _words(builder, right)
    for number in range(kinds.width):
        factors = _element(builder, a, kinds.left, number), _element(builder, b, kinds.right, number)
        total = fma(*factors, total) if total.type.is_float else _multiply_add(builder, *factors, total)
    return total


def round_bf16(builder: Builder, value: Value) -> Value:
    """Return float32 as bfloat16 bits; the instruction takes subnormal numbers for zero."""
    to = Type("bfloat16", value.type.lanes)
    rounding = builder.module.instruction("round_bf16")
    kind, native = register_type(value.type), register_type(to).replace("i16", "bfloat")
    rounded = builder.let(f"{rounding} {kind} {value.text} to {native}")
    return Value(builder.let(f"bitcast {native} {rounded} to {register_type(to)}"), to)


def _call(builder: Builder, text: str, total: Value, *operands: Value) -> Value:
    kind = register_type(total.type)
    given = [(kind, total.text)]
    for side in operands:
        own = register_type(side.type)
        native = own.replace("i16", "bfloat") if side.type.dtype == "bfloat16" else own
        given.append((own, side.text) if native == own else _cast(builder, side, native))
    name = text.format(bits=total.type.lanes * element_bits(total.type.dtype))
    return Value(builder.intrinsic(name, kind, given, []), total.type)


def _byte_pairs(builder: Builder, name: str, total: Value, left: Value, right: Value) -> Value:
    lanes = total.type.lanes
    halves = Type("int16", 2 * lanes)
    kind, wide = register_type(halves), register_type(total.type)
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


def _element(builder: Builder, words: Value, dtype: str, number: int) -> Value:
    """Return one element of each word, as wide as the word; the high half of a float32 is a bfloat16."""
    kind, bits = register_type(words.type), element_bits(dtype)
    if dtype == "bfloat16":
        place = (
            f"and {kind} {words.text}, {_int(-65536, words)}"
            if number
            else f"shl {kind} {words.text}, {_int(16, words)}"
        )
        to = Type("float32", words.type.lanes)
        return Value(builder.let(f"bitcast {kind} {builder.let(place)} to {register_type(to)}"), to)
    if dtype.startswith("u"):
        low = builder.let(f"lshr {kind} {words.text}, {_int(bits * number, words)}")
        return Value(builder.let(f"and {kind} {low}, {_int((1 << bits) - 1, words)}"), words.type)
    high = builder.let(f"shl {kind} {words.text}, {_int(32 - bits * (number + 1), words)}")
    return Value(builder.let(f"ashr {kind} {high}, {_int(32 - bits, words)}"), words.type)


def _multiply_add(builder: Builder, left: Value, right: Value, total: Value) -> Value:
    kind = register_type(total.type)
    product = builder.let(f"mul {kind} {left.text}, {right.text}")
    return Value(builder.let(f"add {kind} {total.text}, {product}"), total.type)


def _words(builder: Builder, value: Value) -> Value:
    """Return a group of neighbouring lanes as one int32 each."""
    to = Type("int32", value.type.lanes * element_bits(value.type.dtype) // 32)
    return Value(_cast(builder, value, register_type(to))[1], to)


def _cast(builder: Builder, value: Value, kind: str) -> tuple[str, str]:
    return kind, builder.let(f"bitcast {register_type(value.type)} {value.text} to {kind}")


def _int(number: int, like: Value) -> str:
    return literal(number, like.type)
