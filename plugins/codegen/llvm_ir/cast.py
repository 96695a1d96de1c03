"""Changes of element type in LLVM IR, without any library call.

16-bit floats live in registers as their bits; here they change only where the machine has an instruction for it
(`graft.core.tensor_ir.arithmetic.small_floats` has the rest).
"""

from __future__ import annotations

from graft.core.types import SIGNED, Type, element_bits
from graft.errors import CompileError
from graft.plugins.codegen.llvm_ir.builder import Builder, Value, literal, register_type


def cast(builder: Builder, value: Value, dtype: str) -> Value:
    """Return ``value`` as ``dtype``: float to integer saturates (NaN gives 0), to bool compares with zero.

    Raise CompileError for a custom datatype, whose casts lowering writes.
    """
    source = value.type.dtype
    if source == dtype:
        return value
    for name in (source, dtype):
        if not (Type(name).is_float or Type(name).is_integer or name == "bool"):
            raise CompileError(f"a cast from {source} to {dtype} must be lowered before emission", dtype=dtype)
    to = Type(dtype, value.type.lanes)
    return _half(builder, value, to) if "float16" in (source, dtype) else _convert(builder, value, to)


def _convert(builder: Builder, value: Value, to: Type) -> Value:
    source = value.type
    if to.dtype == "bool":
        return builder.compare("fcmp une" if source.is_float else "icmp ne", value, 0)
    if source.is_float and to.is_float:
        operation = "fpext" if to.dtype == "float64" else "fptrunc"
    elif source.is_float and element_bits(to.dtype) < 32:
        return _narrowed(builder, value, to)
    elif source.is_float and to.lanes > 1 and builder.module.target.arch == "x86_64":
        return _saturated(builder, value, to)
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


def _saturated(builder: Builder, value: Value, to: Type) -> Value:
    """Return a vector of floats as integers of 32 or 64 bits: what fits is converted, NaN as 0, the rest chosen.

    LLVM's own saturating conversion takes vectors apart on x86, whose instruction does not saturate.
    """
    bits, is_signed = element_bits(to.dtype), to.dtype in SIGNED
    low, beyond = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if is_signed else (0, 2**bits)
    raised = builder.select(builder.compare("fcmp ogt", value, low), value, low)
    safe = builder.select(builder.compare("fcmp olt", value, beyond), raised, 0.0)
    converted = builder.convert("fptosi" if is_signed else "fptoui", safe, to)
    largest = Value(literal(beyond - 1, to), to)
    return builder.select(builder.compare("fcmp oge", value, beyond), largest, converted)


def _narrowed(builder: Builder, value: Value, to: Type) -> Value:
    """Return a float as an integer of 8 or 16 bits: put in range while it is a float, then by way of 32 bits.

    LLVM's own saturating conversion to such an integer takes vectors apart.
    """
    bits = element_bits(to.dtype)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to.dtype in SIGNED else (0, (1 << bits) - 1)
    if low:  # otherwise NaN becomes the lower bound, which is 0
        value = builder.select(builder.compare("fcmp ord", value, value), value, 0.0)
    if builder.module.is_plain:  # where those two are calls of a library
        least = Value(literal(low, value.type), value.type)
        raised = builder.select(builder.compare("fcmp ogt", value, low), value, least)
        bounded = builder.select(builder.compare("fcmp olt", raised, high), raised, high)
    else:
        bounded = builder.call("minnum", builder.call("maxnum", value, low), high)
    return builder.convert("trunc", builder.convert("fptosi", bounded, Type("int32", to.lanes)), to)


def _half(builder: Builder, value: Value, to: Type) -> Value:
    """Convert between float32 and float16, whose bits are in the register, by the machine's own instruction."""
    kind, result = register_type(value.type), register_type(to)
    if to.dtype == "float32":
        half = kind.replace("i16", "half")
        return Value(
            builder.let(f"fpext {half} {builder.let(f'bitcast {kind} {value.text} to {half}')} to {result}"), to
        )
    half = result.replace("i16", "half")
    # LLVM makes one rounding of those from float64 to float32 to float16, by a call where the machine has no such one
    single = builder.intrinsic("arithmetic.fence", kind, [(kind, value.text)], [kind])
    return Value(builder.let(f"bitcast {half} {builder.let(f'fptrunc {kind} {single} to {half}')} to {result}"), to)
