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
    kind, condition = register_type(value.type), register_type(Type("bool", value.type.lanes))
    low = builder.let(f"and {kind} {value.text}, {literal(0x7FF, value.type)}")
    carried = builder.let(f"add {kind} {low}, {literal(0x7FF, value.type)}")
    high = builder.let(f"and {kind} {builder.let(f'or {kind} {value.text}, {carried}')}, {literal(~0x7FF, value.type)}")
    shift = "ashr" if value.type.dtype in SIGNED else "lshr"
    top = builder.let(f"{shift} {kind} {value.text}, {literal(53, value.type)}")
    small = builder.let(f"icmp eq {kind} {top}, {literal(0, value.type)}")
    if value.type.dtype in SIGNED:
        negative = builder.let(f"icmp eq {kind} {top}, {literal(-1, value.type)}")
        small = builder.let(f"or {condition} {small}, {negative}")
    return Value(builder.let(f"select {condition} {small}, {kind} {value.text}, {kind} {high}"), value.type)


def _convert(builder: Builder, value: Value, to: Type) -> Value:
    source = value.type
    kind, result = register_type(source), register_type(to)
    if to.dtype == "bool":
        compare = f"fcmp une {kind}" if source.is_float else f"icmp ne {kind}"
        return Value(builder.let(f"{compare} {value.text}, {literal(0, source)}"), to)
    if source.is_float and to.is_float:
        operation = "fpext" if to.dtype == "float64" else "fptrunc"
    elif source.is_float and element_bits(to.dtype) < 32:
        return _narrowed(builder, value, to)
    elif source.is_float:
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
    return Value(builder.let(f"{operation} {kind} {value.text} to {result}"), to)


def _narrowed(builder: Builder, value: Value, to: Type) -> Value:
    """Return a float as an integer of 8 or 16 bits: put in range while it is a float, then by way of 32 bits.

    LLVM's own saturating conversion to such an integer takes vectors apart.
    """
    source, wide = value.type, Type("int32", to.lanes)
    kind, bits = register_type(source), element_bits(to.dtype)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to.dtype in SIGNED else (0, (1 << bits) - 1)
    number = value.text
    if low:  # otherwise NaN becomes the lower bound, which is 0
        ordered = builder.let(f"fcmp ord {kind} {number}, {number}")
        condition = register_type(Type("bool", to.lanes))
        number = builder.let(f"select {condition} {ordered}, {kind} {number}, {kind} {literal(0.0, source)}")
    for name, bound in (("maxnum", low), ("minnum", high)):
        number = builder.intrinsic(name, kind, [(kind, number), (kind, literal(float(bound), source))], [kind])
    whole = builder.let(f"fptosi {kind} {number} to {register_type(wide)}")
    return Value(builder.let(f"trunc {register_type(wide)} {whole} to {register_type(to)}"), to)


def widen(builder: Builder, value: Value) -> Value:
    """Return a 16-bit float as float32, exactly."""
    to = Type("float32", value.type.lanes)
    bits, wide, result = (
        register_type(value.type),
        register_type(Type("uint32", to.lanes)),
        register_type(to),
    )
    if value.type.dtype == "bfloat16":
        extended = builder.let(f"zext {bits} {value.text} to {wide}")
        shifted = builder.let(f"shl {wide} {extended}, {literal(16, Type('uint32', to.lanes))}")
        return Value(builder.let(f"bitcast {wide} {shifted} to {result}"), to)
    if builder.module.instruction("round_f16"):
        half = bits.replace("i16", "half")
        native = builder.let(f"bitcast {bits} {value.text} to {half}")
        return Value(builder.let(f"fpext {half} {native} to {result}"), to)
    return _widen_half(builder, value, to)


def narrow(builder: Builder, value: Value, dtype: str) -> Value:
    """Return a float32 or float64 as a 16-bit float, rounded once to nearest even."""
    if value.type.dtype == "float64":
        value = _round_to_odd(builder, value)
    to = Type(dtype, value.type.lanes)
    kind, bits = register_type(value.type), register_type(to)
    if dtype == "bfloat16":
        return _narrow_bfloat16(builder, value, to)
    if (rounding := builder.module.instruction("round_f16")) is not None:
        half = bits.replace("i16", "half")
        native = builder.let(f"{rounding} {kind} {value.text} to {half}")
        return Value(builder.let(f"bitcast {half} {native} to {bits}"), to)
    return _narrow_half(builder, value, to)


def _integers(builder: Builder, value: Value) -> tuple[str, str, Type]:
    """Return the bits of a float32 value, their LLVM type and their type."""
    type = Type("uint32", value.type.lanes)
    kind = register_type(type)
    return builder.let(f"bitcast {register_type(value.type)} {value.text} to {kind}"), kind, type


def _narrow_bfloat16(builder: Builder, value: Value, to: Type) -> Value:
    bits, kind, type = _integers(builder, value)
    half = builder.let(f"lshr {kind} {bits}, {literal(16, type)}")
    odd = builder.let(f"and {kind} {half}, {literal(1, type)}")
    bias = builder.let(f"add {kind} {odd}, {literal(0x7FFF, type)}")
    rounded = builder.let(f"lshr {kind} {builder.let(f'add {kind} {bits}, {bias}')}, {literal(16, type)}")
    quiet = builder.let(f"or {kind} {half}, {literal(0x40, type)}")
    condition = register_type(Type("bool", to.lanes))
    nan = builder.let(f"fcmp uno {register_type(value.type)} {value.text}, {value.text}")
    chosen = builder.let(f"select {condition} {nan}, {kind} {quiet}, {kind} {rounded}")
    return Value(builder.let(f"trunc {kind} {chosen} to {register_type(to)}"), to)


def _widen_half(builder: Builder, value: Value, to: Type) -> Value:
    """Exponent and mantissa move up; the scale 2**112 corrects the bias and normalises denormals."""
    type = Type("uint32", to.lanes)
    kind, result, condition = register_type(type), register_type(to), register_type(Type("bool", to.lanes))
    bits = builder.let(f"zext {register_type(value.type)} {value.text} to {kind}")
    magnitude = builder.let(f"and {kind} {bits}, {literal(0x7FFF, type)}")
    moved = builder.let(f"shl {kind} {magnitude}, {literal(13, type)}")
    number = builder.let(f"bitcast {kind} {moved} to {result}")
    scaled = builder.let(f"fmul {result} {number}, {literal(2.0**112, to)}")
    finite = builder.let(f"bitcast {result} {scaled} to {kind}")
    special = builder.let(f"or {kind} {moved}, {literal(0x7F800000, type)}")
    infinite = builder.let(f"icmp uge {kind} {magnitude}, {literal(0x7C00, type)}")
    chosen = builder.let(f"select {condition} {infinite}, {kind} {special}, {kind} {finite}")
    sign = builder.let(f"shl {kind} {builder.let(f'and {kind} {bits}, {literal(0x8000, type)}')}, {literal(16, type)}")
    return Value(builder.let(f"bitcast {kind} {builder.let(f'or {kind} {chosen}, {sign}')} to {result}"), to)


def _narrow_half(builder: Builder, value: Value, to: Type) -> Value:
    """Normal results round by an integer carry; denormal ones by adding 0.5, whose last place is theirs."""
    bits, kind, type = _integers(builder, value)
    result, condition = register_type(value.type), register_type(Type("bool", to.lanes))
    sign = builder.let(f"and {kind} {bits}, {literal(0x80000000, type)}")
    magnitude = builder.let(f"xor {kind} {bits}, {sign}")
    odd = builder.let(f"and {kind} {builder.let(f'lshr {kind} {magnitude}, {literal(13, type)}')}, {literal(1, type)}")
    rebased = builder.let(f"add {kind} {magnitude}, {literal(0x0FFF - (112 << 23), type)}")
    normal = builder.let(f"lshr {kind} {builder.let(f'add {kind} {rebased}, {odd}')}, {literal(13, type)}")
    number = builder.let(f"bitcast {kind} {magnitude} to {result}")
    shifted = builder.let(f"fadd {result} {number}, {literal(0.5, value.type)}")
    raw = builder.let(f"bitcast {result} {shifted} to {kind}")
    denormal = builder.let(f"sub {kind} {raw}, {literal(0x3F000000, type)}")
    small = builder.let(f"icmp ult {kind} {magnitude}, {literal(113 << 23, type)}")
    finite = builder.let(f"select {condition} {small}, {kind} {denormal}, {kind} {normal}")
    nan = builder.let(f"icmp ugt {kind} {magnitude}, {literal(0x7F800000, type)}")
    special = builder.let(f"select {condition} {nan}, {kind} {literal(0x7E00, type)}, {kind} {literal(0x7C00, type)}")
    large = builder.let(f"icmp uge {kind} {magnitude}, {literal(143 << 23, type)}")
    chosen = builder.let(f"select {condition} {large}, {kind} {special}, {kind} {finite}")
    high = builder.let(f"lshr {kind} {sign}, {literal(16, type)}")
    return Value(builder.let(f"trunc {kind} {builder.let(f'or {kind} {chosen}, {high}')} to {register_type(to)}"), to)


def _round_to_odd(builder: Builder, value: Value) -> Value:
    """Return a float64 as float32, inexact results with their last bit set."""
    lanes = value.type.lanes
    single, wide = Type("float32", lanes), register_type(value.type)
    rounded = cast(builder, value, "float32")
    bits, kind, type = _integers(builder, rounded)
    back = cast(builder, rounded, "float64").text
    condition = register_type(Type("bool", lanes))
    inexact = builder.let(f"fcmp one {wide} {back}, {value.text}")
    larger = builder.let(
        f"fcmp ogt {wide} {builder.intrinsic('fabs', wide, [(wide, back)], [wide])}, "
        f"{builder.intrinsic('fabs', wide, [(wide, value.text)], [wide])}"
    )
    down = builder.let(f"zext {condition} {larger} to {kind}")
    odd = builder.let(f"or {kind} {builder.let(f'sub {kind} {bits}, {down}')}, {literal(1, type)}")
    chosen = builder.let(f"select {condition} {inexact}, {kind} {odd}, {kind} {bits}")
    return Value(builder.let(f"bitcast {kind} {chosen} to {register_type(single)}"), single)
