"""Changes of element type in LLVM IR, without any library call.

16-bit floats live in registers as their bits. They widen to float32 exactly; narrowing rounds to nearest even. A
wider source is first rounded *to odd*, which makes the second rounding exact (Boldo and Melquiond, "When double
rounding is odd", 2005).
"""

from __future__ import annotations

from graft.core.types import SIGNED, Type, element_bits
from graft.errors import CompileError
from graft.plugins.llvm.emit_builder import SMALL_FLOATS, Builder, Value, literal, register_type


def cast(builder: Builder, value: Value, dtype: str) -> Value:
    """Return ``value`` as ``dtype``: float to integer saturates (NaN gives 0), to bool compares with zero."""
    source = value.type.dtype
    if source == dtype:
        return value
    for name in (source, dtype):
        if not (Type(name).is_float or Type(name).is_integer or name == "bool"):
            raise CompileError(f"a cast from {source} to {dtype} must be lowered before emission", dtype=dtype)
    if source in SMALL_FLOATS:
        return cast(builder, widen(builder, value), dtype)
    if dtype in SMALL_FLOATS:
        return narrow(builder, _as_float(builder, value), dtype)
    return _convert(builder, value, Type(dtype, value.type.lanes))


def _as_float(builder: Builder, value: Value) -> Value:
    """Return a float32 or float64 that holds ``value`` exactly; of a 64-bit integer rounded to odd."""
    if value.type.is_float:
        return value
    bits = 1 if value.type.dtype == "bool" else element_bits(value.type.dtype)
    if bits == 64:
        value = _with_sticky_bit(builder, value)
    return cast(builder, value, "float32" if bits <= 16 else "float64")


def _with_sticky_bit(builder: Builder, value: Value) -> Value:
    """Return a 64-bit integer of at most 53 significant bits: the others of a longer one are or-ed into their last."""
    low = builder.operate("and", value, 0x7FF)
    carried = builder.operate("add", low, 0x7FF)
    high = builder.operate("and", builder.operate("or", value, carried), ~0x7FF)
    is_signed = value.type.dtype in SIGNED
    top = builder.operate("ashr" if is_signed else "lshr", value, 53)
    small = builder.compare("icmp eq", top, 0)
    if is_signed:
        small = builder.operate("or", small, builder.compare("icmp eq", top, -1))
    return builder.select(small, value, high)


def _convert(builder: Builder, value: Value, to: Type) -> Value:
    source = value.type
    if to.dtype == "bool":
        return builder.compare("fcmp une" if source.is_float else "icmp ne", value, 0)
    if source.is_float and to.is_float:
        operation = "fpext" if to.dtype == "float64" else "fptrunc"
    elif source.is_float and element_bits(to.dtype) < 32:
        return _narrowed(builder, value, to)
    elif source.is_float:
        kind, result = register_type(source), register_type(to)
        name = "fptosi.sat" if to.dtype in SIGNED else "fptoui.sat"
        return Value(builder.intrinsic(name, result, [(kind, value.text)], [result, kind]), to)
    elif to.is_float:
        operation = "sitofp" if source.dtype in SIGNED else "uitofp"
    else:
        from_bits = 1 if source.dtype == "bool" else element_bits(source.dtype)
        to_bits = element_bits(to.dtype)
        if from_bits == to_bits:
            return Value(value.text, to)
        if value.integer is not None and to_bits >= from_bits:
            return Value(literal(value.integer, to), to)
        operation = "trunc" if to_bits < from_bits else "sext" if source.dtype in SIGNED else "zext"
    return builder.convert(operation, value, to)


def _narrowed(builder: Builder, value: Value, to: Type) -> Value:
    """Return a float as an integer of 8 or 16 bits: put in range while it is a float, then by way of 32 bits.

    LLVM's own saturating conversion to such an integer takes vectors apart.
    """
    bits = element_bits(to.dtype)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to.dtype in SIGNED else (0, (1 << bits) - 1)
    if low:  # otherwise NaN becomes the lower bound, which is 0
        value = builder.select(builder.compare("fcmp ord", value, value), value, 0.0)
    bounded = builder.call("minnum", builder.call("maxnum", value, low), high)
    return builder.convert("trunc", builder.convert("fptosi", bounded, Type("int32", to.lanes)), to)


def widen(builder: Builder, value: Value) -> Value:
    """Return a 16-bit float as float32, exactly."""
    lanes = value.type.lanes
    to, words = Type("float32", lanes), Type("uint32", lanes)
    if value.type.dtype == "bfloat16":
        return builder.convert("bitcast", builder.operate("shl", builder.convert("zext", value, words), 16), to)
    if builder.module.instruction("round_f16"):
        bits, result = register_type(value.type), register_type(to)
        half = bits.replace("i16", "half")
        native = builder.let(f"bitcast {bits} {value.text} to {half}")
        return Value(builder.let(f"fpext {half} {native} to {result}"), to)
    return _widen_half(builder, value, to)


def narrow(builder: Builder, value: Value, dtype: str) -> Value:
    """Return a float32 or float64 as a 16-bit float, rounded once to nearest even."""
    if value.type.dtype == "float64":
        value = _round_to_odd(builder, value)
    to = Type(dtype, value.type.lanes)
    if dtype == "bfloat16":
        return _narrow_bfloat16(builder, value, to)
    if (rounding := builder.module.instruction("round_f16")) is not None:
        kind, bits = register_type(value.type), register_type(to)
        half = bits.replace("i16", "half")
        native = builder.let(f"{rounding} {kind} {value.text} to {half}")
        return Value(builder.let(f"bitcast {half} {native} to {bits}"), to)
    return _narrow_half(builder, value, to)


def _bits(builder: Builder, value: Value) -> Value:
    """Return the bits of a float32."""
    return builder.convert("bitcast", value, Type("uint32", value.type.lanes))


def _narrow_bfloat16(builder: Builder, value: Value, to: Type) -> Value:
    bits = _bits(builder, value)
    half = builder.operate("lshr", bits, 16)
    bias = builder.operate("add", builder.operate("and", half, 1), 0x7FFF)
    rounded = builder.operate("lshr", builder.operate("add", bits, bias), 16)
    quiet = builder.operate("or", half, 0x40)
    chosen = builder.select(builder.compare("fcmp uno", value, value), quiet, rounded)
    return builder.convert("trunc", chosen, to)


def _widen_half(builder: Builder, value: Value, to: Type) -> Value:
    """Exponent and mantissa move up; the scale 2**112 corrects the bias and normalises denormals."""
    bits = builder.convert("zext", value, Type("uint32", to.lanes))
    magnitude = builder.operate("and", bits, 0x7FFF)
    moved = builder.operate("shl", magnitude, 13)
    scaled = builder.operate("fmul", builder.convert("bitcast", moved, to), 2.0**112)
    finite = _bits(builder, scaled)
    special = builder.operate("or", moved, 0x7F800000)
    chosen = builder.select(builder.compare("icmp uge", magnitude, 0x7C00), special, finite)
    sign = builder.operate("shl", builder.operate("and", bits, 0x8000), 16)
    return builder.convert("bitcast", builder.operate("or", chosen, sign), to)


def _narrow_half(builder: Builder, value: Value, to: Type) -> Value:
    """Normal results round by an integer carry; denormal ones by adding 0.5, whose last place is theirs."""
    bits = _bits(builder, value)
    sign = builder.operate("and", bits, 0x80000000)
    magnitude = builder.operate("xor", bits, sign)
    odd = builder.operate("and", builder.operate("lshr", magnitude, 13), 1)
    rebased = builder.operate("add", magnitude, 0x0FFF - (112 << 23))
    normal = builder.operate("lshr", builder.operate("add", rebased, odd), 13)
    shifted = builder.operate("fadd", builder.convert("bitcast", magnitude, value.type), 0.5)
    denormal = builder.operate("sub", _bits(builder, shifted), 0x3F000000)
    small = builder.compare("icmp ult", magnitude, 113 << 23)
    finite = builder.select(small, denormal, normal)
    nan = builder.compare("icmp ugt", magnitude, 0x7F800000)
    special = builder.select(nan, Value(literal(0x7E00, bits.type), bits.type), 0x7C00)
    large = builder.compare("icmp uge", magnitude, 143 << 23)
    chosen = builder.select(large, special, finite)
    high = builder.operate("lshr", sign, 16)
    return builder.convert("trunc", builder.operate("or", chosen, high), to)


def _round_to_odd(builder: Builder, value: Value) -> Value:
    """Return a float64 as float32, inexact results with their last bit set."""
    rounded = cast(builder, value, "float32")
    bits = _bits(builder, rounded)
    back = cast(builder, rounded, "float64")
    inexact = builder.compare("fcmp one", back, value)
    larger = builder.compare("fcmp ogt", builder.call("fabs", back), builder.call("fabs", value))
    down = builder.convert("zext", larger, bits.type)
    odd = builder.operate("or", builder.operate("sub", bits, down), 1)
    return builder.convert("bitcast", builder.select(inexact, odd, bits), rounded.type)
