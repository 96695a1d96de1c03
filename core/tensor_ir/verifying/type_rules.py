"""The types that each expression allows: `type_fault` says what is wrong with one node."""

from __future__ import annotations

from typing import assert_never

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.numerics import FLOAT_INTRINSICS, INTRINSIC_ARGUMENTS
from graft.core.types import INT64, Type, element_bits

_FLOAT_ONLY = frozenset({"sqrt", "floor", "ceil", "trunc", "round_even", "fmod"})
_INTEGER_ONLY = frozenset({"bitnot", "clz", "popcount", "mod", "shl", "shr"})
_LOGIC = frozenset({"and", "or", "xor"})
_HORIZONTAL = frozenset({"add", "mul", "min", "max", "and", "or"})


def type_fault(node: ir.Expression) -> str | None:
    """Return what is wrong with the types of an expression's own operands, None if nothing is."""
    match node:
        case ir.Constant(value, kind):
            return _constant_fault(value, kind)
        case ir.Variable():
            return None
        case ir.Load(_, indices, mask):
            return access_fault(indices, mask)
        case ir.Ramp(base, _, lanes):
            return None if base.type == INT64 and lanes > 1 else f"a ramp of {lanes} lanes from {base.type}"
        case ir.Broadcast(value, lanes):
            return None if value.type.lanes == 1 and lanes > 1 else f"a broadcast of {value.type} to {lanes} lanes"
        case ir.Unary(operator, value):
            if operator == "not":
                return None if value.type.dtype == "bool" else f"'not' of {value.type}; integers have 'bitnot'"
            return _operator_fault(operator, value.type)
        case ir.Binary(operator, left, right):
            if left.type != right.type:
                return f"the operands of '{operator}' are {left.type} and {right.type}"
            return _operator_fault(operator, left.type)
        case ir.Select(condition, on_true, on_false):
            if on_true.type != on_false.type:
                return f"the arms of a select are {on_true.type} and {on_false.type}"
            expected = Type("bool", on_true.type.lanes)
            return (
                None if condition.type == expected else f"the condition of a select is {condition.type}, not {expected}"
            )
        case ir.Cast():
            return None
        case ir.Bitcast(value, dtype):
            source, width = value.type, element_bits(dtype)
            if source.lanes * element_bits(source.dtype) % width == 0 and node.type.lanes:
                return None
            return f"a bitcast from {source} to {dtype}, of which no whole number has as many bits"
        case ir.Intrinsic():
            return _intrinsic_fault(node)
        case ir.Shuffle(vectors, lanes):
            if len({vector.type.dtype for vector in vectors}) != 1:
                return "a shuffle of vectors of different element types"
            total = sum(vector.type.lanes for vector in vectors)
            wrong = [lane for lane in lanes if not 0 <= lane < total]
            return f"a shuffle of {total} lanes has no lane {wrong[0]}" if wrong else None
        case ir.Horizontal(operator, value):
            if operator not in _HORIZONTAL or value.type.lanes == 1:
                return f"'{operator}' across the lanes of {value.type}"
            return _operator_fault(operator, value.type)
        case _:
            assert_never(node)


def _constant_fault(value: object, kind: Type) -> str | None:
    fits = isinstance(value, bool) if kind.dtype == "bool" else isinstance(value, int | float)
    if kind.is_integer:
        fits = isinstance(value, int) and not isinstance(value, bool)
    return None if fits else f"the constant {value!r} of type {kind}"


def access_fault(indices: tuple[ir.Expression, ...], mask: ir.Expression | None) -> str | None:
    """Return what is wrong with the types of indices and mask, None if nothing is."""
    for index in indices:
        if index.type.dtype != "int64":
            return f"an index is {index.type}, not int64"
    if len({index.type.lanes for index in indices if index.type.lanes > 1}) > 1:
        return "vector indices of different lanes"
    lanes = ir.access_lanes(indices, mask)
    if mask is not None and mask.type != Type("bool", lanes):
        return f"the mask is {mask.type}, not {Type('bool', lanes)}"
    return None


def _operator_fault(operator: str, kind: Type) -> str | None:
    if kind.is_custom or kind.dtype.startswith("float8"):
        return f"'{operator}' of {kind}, which has no arithmetic of its own"
    if operator in _FLOAT_ONLY and not kind.is_float:
        return f"'{operator}' of {kind}; it is for floats" + ("; integers have 'mod'" if operator == "fmod" else "")
    if operator in _INTEGER_ONLY and not kind.is_integer:
        return f"'{operator}' of {kind}; it is for integers" + ("; floats have 'fmod'" if operator == "mod" else "")
    if operator in _LOGIC and not (kind.is_integer or kind.dtype == "bool"):
        return f"'{operator}' of {kind}; it is for bool and integers"
    arithmetic = operator not in _LOGIC and operator not in ir.COMPARISONS and operator not in ("min", "max")
    if arithmetic and kind.dtype == "bool":
        return f"'{operator}' of bool"
    return None


def is_foreign(name: str) -> bool:
    """Whether an intrinsic is neither defined by the IR nor a C symbol: an instruction of some machine, or unknown."""
    return name not in INTRINSIC_ARGUMENTS and name not in DOTS and name != "round_bf16" and name[:7] != "extern:"


def _intrinsic_fault(node: ir.Intrinsic) -> str | None:
    name, types = node.name, [argument.type for argument in node.arguments]
    if name.startswith("extern:"):
        return None
    if name in FLOAT_INTRINSICS:
        if len(types) != INTRINSIC_ARGUMENTS[name]:
            return f"'{name}' takes {INTRINSIC_ARGUMENTS[name]} arguments, not {len(types)}"
        if any(kind != node.type for kind in types) or not node.type.is_float:
            return f"'{name}' of {', '.join(map(str, types))} giving {node.type}; all must be one float type"
        return None
    if name == "round_bf16":
        source = Type("float32", node.type.lanes)
        fits = types == [source] and node.type.dtype == "bfloat16"
        return None if fits else f"'{name}' of {', '.join(map(str, types))} giving {node.type}; it rounds {source}"
    if name not in DOTS:
        return f"the intrinsic '{name}' is unknown; a C symbol is written 'extern:{name}'"
    total, left, right, width = DOTS[name]
    lanes = node.type.lanes
    expected = [Type(total, lanes), Type(left, width * lanes), Type(right, width * lanes)]
    if types != expected or node.type.dtype != total:
        return f"'{name}' of {', '.join(map(str, types))}; it takes {', '.join(map(str, expected))}"
    return None


def layout_fault(buffer: ir.Buffer) -> str | None:
    """Return what is wrong with the extents and strides of a parameter, None if nothing."""
    strides = buffer.strides or ()
    if buffer.strides is not None and len(strides) != len(buffer.shape):
        return f"'{buffer.name}' has {len(buffer.shape)} axes and {len(strides)} strides"
    for what, numbers in (("an extent", buffer.shape), ("a stride", strides)):
        for number in numbers:
            if number.type != INT64:
                return f"{what} of '{buffer.name}' is {number.type}, not int64"
    return None
