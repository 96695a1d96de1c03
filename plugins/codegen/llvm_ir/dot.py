"""Dot products of small numbers in LLVM IR: one instruction where the machine has it, else exact arithmetic.

The operands are packed in 32 bits, such as four uint8 with four int8, or two bfloat16. Bytes without an instruction of
their own are multiplied as 16-bit numbers, the even and the odd ones apart, where the machine adds neighbouring
products; instructions on bytes that saturate are never used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graft.core.machine.instructions import DOTS
from graft.core.types import Type, element_bits
from graft.plugins.codegen.llvm_ir.builder import Builder, Value, register_type

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
    if pairs is not None and (kinds.left, kinds.right) == ("int16", "int16"):
        return _added_pairs(builder, pairs, total, left, right)
    a, b = _words(builder, left), _words(builder, right)
    for number in range(kinds.width):
        factors = _element(builder, a, kinds.left, number), _element(builder, b, kinds.right, number)
        if total.type.is_float:
            total = fma(*factors, total)
        else:
            total = builder.operate("add", total, builder.operate("mul", *factors))
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
        own, number = register_type(side.type), side.text
        if side.type.dtype == "bfloat16":
            native = own.replace("i16", "bfloat")
            own, number = native, builder.let(f"bitcast {own} {number} to {native}")
        given.append((own, number))
    name = text.format(bits=total.type.lanes * element_bits(total.type.dtype))
    return Value(builder.intrinsic(name, kind, given, []), total.type)


def _byte_pairs(builder: Builder, name: str, total: Value, left: Value, right: Value) -> Value:
    halves = Type("int16", 2 * total.type.lanes)
    a, b = builder.convert("bitcast", left, halves), builder.convert("bitcast", right, halves)
    even, odd = builder.operate("and", a, 255), builder.operate("lshr", a, 8)
    even_signed = builder.operate("ashr", builder.operate("shl", b, 8), 8)
    odd_signed = builder.operate("ashr", b, 8)
    return _added_pairs(builder, name, _added_pairs(builder, name, total, even, even_signed), odd, odd_signed)


def _added_pairs(builder: Builder, name: str, total: Value, left: Value, right: Value) -> Value:
    kind = register_type(left.type)
    products = builder.intrinsic(name, register_type(total.type), [(kind, left.text), (kind, right.text)], [])
    return builder.operate("add", total, Value(products, total.type))


def _element(builder: Builder, words: Value, dtype: str, number: int) -> Value:
    """Return one element of each word, as wide as the word; the high half of a float32 is a bfloat16."""
    bits = element_bits(dtype)
    if dtype == "bfloat16":
        place = builder.operate("and", words, -65536) if number else builder.operate("shl", words, 16)
        return builder.convert("bitcast", place, Type("float32", words.type.lanes))
    if dtype.startswith("u"):
        return builder.operate("and", builder.operate("lshr", words, bits * number), (1 << bits) - 1)
    return builder.operate("ashr", builder.operate("shl", words, 32 - bits * (number + 1)), 32 - bits)


def _words(builder: Builder, value: Value) -> Value:
    """Return a group of neighbouring lanes as one int32 each."""
    return builder.convert("bitcast", value, Type("int32", value.type.lanes * element_bits(value.type.dtype) // 32))
