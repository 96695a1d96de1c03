"""Arithmetic of the tensor IR in LLVM IR: what each operator means is said in `graft.core.tensor_ir.ir`.

No operation here may become a library call: where a target lacks an instruction, it is spelled out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from graft.core.tensor_ir.ir import COMPARISONS, BinaryOperator, UnaryOperator
from graft.core.types import SIGNED, element_bits
from graft.plugins.codegen.llvm_ir.builder import Builder, Value, literal, mangled, register_type
from graft.plugins.codegen.llvm_ir.cast import cast

_FLOAT_INSTRUCTION = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "min": min,
    "max": max,
}
_FLOAT_COMPARISON = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def unary(builder: Builder, operator: UnaryOperator, value: Value) -> Value:
    """Apply a unary operator to a scalar or vector."""
    type = value.type
    match operator:
        case "neg" if type.is_float:
            return Value(builder.let(f"fneg {register_type(type)} {value.text}"), type)
        case "neg":
            return builder.operate("sub", Value(literal(0, type), type), value)
        case "abs" if type.is_float:
            return builder.call("fabs", value)
        case "abs":
            return _with_flag(builder, "abs", value) if type.dtype in SIGNED else value
        case "not" | "bitnot":
            return builder.operate("xor", value, True if operator == "not" else -1)
        case "sqrt":
            return builder.call("sqrt", value)
        case "floor" | "ceil" | "trunc" | "round_even":
            return _round(builder, operator, value)
        case "clz":
            return _with_flag(builder, "ctlz", value)
        case "popcount":
            return builder.call("ctpop", value)


def _with_flag(builder: Builder, name: str, value: Value) -> Value:
    """Call an intrinsic whose second operand says that no operand gives an undefined result."""
    kind = register_type(value.type)
    return Value(builder.intrinsic(name, kind, [(kind, value.text), ("i1", "false")], [kind]), value.type)


def _round(builder: Builder, operator: str, value: Value) -> Value:
    if (name := builder.module.instruction(operator)) is not None:
        return builder.call(name, value)
    limit = 2.0**23 if value.type.dtype == "float32" else 2.0**52
    magnitude = builder.call("fabs", value)
    nearest = builder.operate("fsub", builder.operate("fadd", magnitude, limit), limit)
    if operator == "trunc":
        nearest = _step(builder, nearest, "ogt", magnitude, -1.0)
    rounded = builder.call("copysign", nearest, value)
    if operator == "floor":
        rounded = _step(builder, rounded, "ogt", value, -1.0)
    elif operator == "ceil":
        rounded = _step(builder, rounded, "olt", value, 1.0)
    signed = builder.call("copysign", rounded, value)
    return builder.select(builder.compare("fcmp olt", magnitude, limit), signed, value)


def _step(builder: Builder, number: Value, comparison: str, other: Value, step: float) -> Value:
    """Return ``number + step`` where ``number`` compares to ``other`` so, else ``number``."""
    wrong = builder.compare(f"fcmp {comparison}", number, other)
    return builder.select(wrong, builder.operate("fadd", number, step), number)


def binary(builder: Builder, operator: BinaryOperator, left: Value, right: Value) -> Value:
    """Apply a binary operator to two values of one type."""
    assert left.type == right.type, (operator, left.type, right.type)
    type = left.type
    if operator in COMPARISONS:
        return _compare(builder, operator, left, right)
    if type.is_float:
        return _float_binary(builder, operator, left, right)
    folded = _fold(operator, left, right)
    return folded if folded is not None else _integer_binary(builder, operator, left, right)


def _compare(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    if left.type.is_float:
        return builder.compare(f"fcmp {_FLOAT_COMPARISON[operator]}", left, right)
    sign = "" if operator in ("eq", "ne") else "s" if left.type.dtype in SIGNED else "u"
    return builder.compare(f"icmp {sign}{operator}", left, right)


def _float_binary(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    if operator in _FLOAT_INSTRUCTION:
        flags = "" if operator == "div" or builder.module.is_exact else " contract"
        return builder.operate(f"{_FLOAT_INSTRUCTION[operator]}{flags}", left, right)
    if operator in ("min", "max"):
        return _float_extremum(builder, operator, left, right)
    assert operator == "fmod", operator
    return _fmod(builder, left, right)


def _float_extremum(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    """One ``maxps`` returns its second operand if either is NaN: that is all a constant first operand needs."""
    if _is_number(right):
        left, right = right, left
    if not _is_number(left):
        kind = register_type(left.type)
        full = f"llvm.{operator}imum.{mangled(kind)}"
        builder.module.declarations.setdefault(full, f"declare {kind} @{full}({kind}, {kind})")
        return Value(builder.let(f"call nsz {kind} @{full}({kind} {left.text}, {kind} {right.text})"), left.type)
    return builder.select(builder.compare("fcmp ogt" if operator == "max" else "fcmp olt", left, right), left, right)


def _is_number(value: Value) -> bool:
    return not value.text.startswith(("%", "<", "poison")) and value.text != literal(float("nan"), value.type)


def _fmod(builder: Builder, left: Value, right: Value) -> Value:
    """Exact for every quotient: short ones at once where a division tells, else long division of one lane at a time."""
    dtype, lanes = left.type.dtype, left.type.lanes
    builder.module.declarations.setdefault("graft.fmod", _FMOD)
    x, y = cast(builder, left, "float64"), cast(builder, right, "float64")
    if dtype == "float64":

        def divided(lane: int) -> Value:
            one, other = (builder.element(operand, lane) for operand in (x, y))
            return Value(builder.let(f"call double @graft.fmod(double {one.text}, double {other.text})"), one.type)

        return builder.in_lanes(lanes, divided)
    kind, name = register_type(x.type), f"graft.fmod.{lanes}"
    for intrinsic, arguments in (("trunc", kind), ("fabs", kind), ("copysign", f"{kind}, {kind}")):
        full = f"llvm.{intrinsic}.{mangled(kind)}"
        builder.module.declarations.setdefault(full, f"declare {kind} @{full}({arguments})")
    most, infinity = (literal(one, x.type) for one in (2.0**29, math.inf))
    builder.module.declarations.setdefault(name, _short_fmod(name, kind, lanes, most, infinity))
    rest = builder.let(f"call {kind} @{name}({kind} {x.text}, {kind} {y.text})")
    return cast(builder, Value(rest, x.type), dtype)


def _short_fmod(name: str, kind: str, lanes: int, most: str, infinity: str) -> str:
    """The remainder of numbers of at most 24 bits in ``lanes`` lanes of float64.

    A quotient below 2**29 that is no whole number is at least 2**-24 away from one, more than its division is rounded
    by; its whole part times the divisor has at most 53 bits. What is larger, or not finite, goes the long way.
    """
    bits = "i1" if lanes == 1 else f"<{lanes} x i1>"
    tested = (
        "  %all = and i1 %short, true"
        if lanes == 1
        else (f"  %bits = bitcast {bits} %short to i{lanes}\n  %all = icmp eq i{lanes} %bits, -1")
    )
    mangle, long = mangled(kind), [f"{kind} %x", f"{kind} %y"]
    if lanes == 1:
        slow = ["  %found = call double @graft.fmod(double %x, double %y)"]
    else:
        slow, last = [], "poison"
        for lane in range(lanes):
            slow += [
                f"  %x{lane} = extractelement {kind} %x, i32 {lane}",
                f"  %y{lane} = extractelement {kind} %y, i32 {lane}",
                f"  %r{lane} = call double @graft.fmod(double %x{lane}, double %y{lane})",
                f"  %v{lane} = insertelement {kind} {last}, double %r{lane}, i32 {lane}",
            ]
            last = f"%v{lane}"
        slow.append(f"  %found = bitcast {kind} {last} to {kind}")
    lines = [
        f"define internal {kind} @{name}({', '.join(long)}) alwaysinline {{",
        "entry:",
        f"  %quotient = fdiv {kind} %x, %y",
        f"  %size = call {kind} @llvm.fabs.{mangle}({kind} %quotient)",
        f"  %few = fcmp olt {kind} %size, {most}",
        f"  %divisor = call {kind} @llvm.fabs.{mangle}({kind} %y)",
        f"  %finite = fcmp olt {kind} %divisor, {infinity}",
        f"  %short = and {bits} %few, %finite",
        tested,
        "  br i1 %all, label %fast, label %slow",
        "fast:",
        f"  %whole = call {kind} @llvm.trunc.{mangle}({kind} %quotient)",
        f"  %product = fmul {kind} %whole, %y",
        f"  %rest = fsub {kind} %x, %product",
        f"  %signed = call {kind} @llvm.copysign.{mangle}({kind} %rest, {kind} %x)",
        f"  ret {kind} %signed",
        "slow:",
        *slow,
        f"  ret {kind} %found",
        "}",
    ]
    return "\n".join(lines) + "\n"


_FMOD = """\
define internal double @graft.fmod(double %x, double %y) noinline {
entry:
  %xb = bitcast double %x to i64
  %yb = bitcast double %y to i64
  %sign = and i64 %xb, -9223372036854775808
  %xm = and i64 %xb, 9223372036854775807
  %ym = and i64 %yb, 9223372036854775807
  %y.zero = icmp eq i64 %ym, 0
  %y.nan = icmp ugt i64 %ym, 9218868437227405312
  %x.special = icmp uge i64 %xm, 9218868437227405312
  %bad1 = or i1 %y.zero, %y.nan
  %bad = or i1 %bad1, %x.special
  br i1 %bad, label %invalid, label %valid
invalid:
  %product = fmul double %x, %y
  %nan = fdiv double %product, %product
  ret double %nan
valid:
  %less = icmp ult i64 %xm, %ym
  br i1 %less, label %same, label %divide
same:
  ret double %x
divide:
  %xe = lshr i64 %xm, 52
  %ye = lshr i64 %ym, 52
  %xe.denormal = icmp eq i64 %xe, 0
  %ye.denormal = icmp eq i64 %ye, 0
  %xf = and i64 %xm, 4503599627370495
  %yf = and i64 %ym, 4503599627370495
  %xi = or i64 %xf, 4503599627370496
  %yi = or i64 %yf, 4503599627370496
  %xd = select i1 %xe.denormal, i64 %xf, i64 %xi
  %yd = select i1 %ye.denormal, i64 %yf, i64 %yi
  %x0 = select i1 %xe.denormal, i64 1, i64 %xe
  %y0 = select i1 %ye.denormal, i64 1, i64 %ye
  %x.leading = call i64 @llvm.ctlz.i64(i64 %xd, i1 true)
  %y.leading = call i64 @llvm.ctlz.i64(i64 %yd, i1 true)
  %x.shift = sub i64 %x.leading, 11
  %y.shift = sub i64 %y.leading, 11
  %xs = shl i64 %xd, %x.shift
  %ys = shl i64 %yd, %y.shift
  %x1 = sub i64 %x0, %x.shift
  %y1 = sub i64 %y0, %y.shift
  %steps = sub i64 %x1, %y1
  br label %loop
loop:
  %left = phi i64 [ %steps, %divide ], [ %left.next, %next ]
  %rest = phi i64 [ %xs, %divide ], [ %doubled, %next ]
  %fits = icmp uge i64 %rest, %ys
  %lower = sub i64 %rest, %ys
  %reduced = select i1 %fits, i64 %lower, i64 %rest
  %last = icmp eq i64 %left, 0
  br i1 %last, label %done, label %next
next:
  %doubled = shl i64 %reduced, 1
  %left.next = sub i64 %left, 1
  br label %loop
done:
  %zero = icmp eq i64 %reduced, 0
  br i1 %zero, label %exact, label %normalise
exact:
  %signed.zero = bitcast i64 %sign to double
  ret double %signed.zero
normalise:
  %leading = call i64 @llvm.ctlz.i64(i64 %reduced, i1 true)
  %want = sub i64 %leading, 11
  %room = sub i64 %y1, 1
  %short = icmp sgt i64 %want, %room
  %shift = select i1 %short, i64 %room, i64 %want
  %is.up = icmp sge i64 %shift, 0
  %up = select i1 %is.up, i64 %shift, i64 0
  %negated = sub i64 0, %shift
  %down = select i1 %is.up, i64 0, i64 %negated
  %raised = shl i64 %reduced, %up
  %mantissa = lshr i64 %raised, %down
  %exponent = sub i64 %y1, %shift
  %implicit = lshr i64 %mantissa, 52
  %normal = icmp ne i64 %implicit, 0
  %e = select i1 %normal, i64 %exponent, i64 0
  %fraction = and i64 %mantissa, 4503599627370495
  %es = shl i64 %e, 52
  %magnitude = or i64 %es, %fraction
  %result = or i64 %magnitude, %sign
  %r = bitcast i64 %result to double
  ret double %r
}
declare i64 @llvm.ctlz.i64(i64, i1)"""


def _fold(operator: str, left: Value, right: Value) -> Value | None:
    """Return the result where it needs no instruction: literal operands, or a neutral or absorbing one."""
    a, b = left.integer, right.integer
    if left.type.dtype not in SIGNED:
        return None
    if a is not None and b is not None:
        if operator in ("div", "mod"):
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None
            number = quotient if operator == "div" or quotient is None else a - quotient * b
        else:
            number = _FOLDED[operator](a, b) if operator in _FOLDED else None
        return None if number is None else Value(literal(number, left.type), left.type)
    if (operator in ("add", "sub") and b == 0) or (operator in ("mul", "div") and b == 1):
        return left
    if (operator == "add" and a == 0) or (operator == "mul" and a == 1):
        return right
    if operator == "mul" and 0 in (a, b):
        return Value("0", left.type)
    return None


def _integer_binary(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    match operator:
        case "add" | "sub" | "mul" | "and" | "or" | "xor":
            return builder.operate(operator, left, right)
        case "div" | "mod":
            return _divide(builder, operator, left, right)
        case "min" | "max":
            return builder.call(f"{'s' if left.type.dtype in SIGNED else 'u'}{operator}", left, right)
        case "shl" | "shr":
            return _shift(builder, operator, left, right)
    raise AssertionError(f"{operator} is not for {left.type}")


def _divide(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    """Divisor 0, and -1 (which overflows on the smallest integer), must not trap: 0 divides as 1, -1 negates."""
    type = left.type
    signed = type.dtype in SIGNED
    name = f"{'s' if signed else 'u'}{'div' if operator == 'div' else 'rem'}"
    if not right.text.startswith("%") and right.text not in (literal(0, type), literal(-1, type)):
        return builder.operate(name, left, right)
    one = Value(literal(1, type), type)
    safe = builder.select(builder.compare("icmp eq", right, 0), one, right)
    if not signed:
        return builder.operate(name, left, safe)
    negates = builder.compare("icmp eq", right, -1)
    result = builder.operate(name, left, builder.select(negates, one, safe))
    if operator == "mod":
        return result
    negative = builder.operate("sub", Value(literal(0, type), type), left)
    return builder.select(negates, negative, result)


def _shift(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    """A shift by the width or more gives 0 (or the sign), where LLVM's is undefined."""
    type = left.type
    bits = element_bits(type.dtype)
    arithmetic = operator == "shr" and type.dtype in SIGNED
    name = "shl" if operator == "shl" else "ashr" if arithmetic else "lshr"
    if any(right.text == literal(amount, type) for amount in range(bits)):
        return builder.operate(name, left, right)
    shifted = builder.operate(name, left, builder.call("umin", right, bits - 1))
    if arithmetic:
        return shifted
    return builder.select(builder.compare("icmp ugt", right, bits - 1), Value(literal(0, type), type), shifted)
