"""Arithmetic of the tensor IR in LLVM IR: what each operator means is said in `graft.core.tensor_ir.ir`.

No operation here may become a library call: where a target lacks an instruction, it is spelled out.
"""

from __future__ import annotations

from graft.core.tensor_ir.ir import COMPARISONS, BinaryOperator, UnaryOperator
from graft.core.types import SIGNED, Type, element_bits
from graft.plugins.llvm.emit_builder import Builder, Value, literal, register_type
from graft.plugins.llvm.emit_cast import cast

_FLOAT_INSTRUCTION = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_COMPARISON = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def unary(builder: Builder, operator: UnaryOperator, value: Value) -> Value:
    """Apply a unary operator to a scalar or vector."""
    type = value.type
    kind = register_type(type)
    match operator:
        case "neg":
            return Value(
                builder.let(
                    f"fneg {kind} {value.text}" if type.is_float else f"sub {kind} {literal(0, type)}, {value.text}"
                ),
                type,
            )
        case "abs":
            if type.is_float:
                return Value(builder.intrinsic("fabs", kind, [(kind, value.text)], [kind]), type)
            if type.dtype not in SIGNED:
                return value
            return Value(builder.intrinsic("abs", kind, [(kind, value.text), ("i1", "false")], [kind]), type)
        case "not":
            return Value(builder.let(f"xor {kind} {value.text}, {literal(True, type)}"), type)
        case "bitnot":
            return Value(builder.let(f"xor {kind} {value.text}, {literal(-1, type)}"), type)
        case "sqrt":
            return Value(builder.intrinsic("sqrt", kind, [(kind, value.text)], [kind]), type)
        case "floor" | "ceil" | "trunc" | "round_even":
            return _round(builder, operator, value)
        case "clz":
            return Value(builder.intrinsic("ctlz", kind, [(kind, value.text), ("i1", "false")], [kind]), type)
        case "popcount":
            return Value(builder.intrinsic("ctpop", kind, [(kind, value.text)], [kind]), type)


def _round(builder: Builder, operator: str, value: Value) -> Value:
    type, kind = value.type, register_type(value.type)
    if (name := builder.module.instruction(operator)) is not None:
        return Value(builder.intrinsic(name, kind, [(kind, value.text)], [kind]), type)
    condition = register_type(Type("bool", type.lanes))
    limit = literal(2.0**23 if type.dtype == "float32" else 2.0**52, type)
    magnitude = builder.intrinsic("fabs", kind, [(kind, value.text)], [kind])
    nearest = builder.let(f"fsub {kind} {builder.let(f'fadd {kind} {magnitude}, {limit}')}, {limit}")
    if operator == "trunc":
        nearest = _step(builder, nearest, "ogt", magnitude, -1.0, type)
    rounded = builder.intrinsic("copysign", kind, [(kind, nearest), (kind, value.text)], [kind])
    if operator == "floor":
        rounded = _step(builder, rounded, "ogt", value.text, -1.0, type)
    elif operator == "ceil":
        rounded = _step(builder, rounded, "olt", value.text, 1.0, type)
    signed = builder.intrinsic("copysign", kind, [(kind, rounded), (kind, value.text)], [kind])
    small = builder.let(f"fcmp olt {kind} {magnitude}, {limit}")
    return Value(builder.let(f"select {condition} {small}, {kind} {signed}, {kind} {value.text}"), type)


def _step(builder: Builder, number: str, comparison: str, other: str, step: float, type: Type) -> str:
    """Return ``number + step`` where ``number`` compares to ``other`` so, else ``number``."""
    kind, condition = register_type(type), register_type(Type("bool", type.lanes))
    wrong = builder.let(f"fcmp {comparison} {kind} {number}, {other}")
    moved = builder.let(f"fadd {kind} {number}, {literal(step, type)}")
    return builder.let(f"select {condition} {wrong}, {kind} {moved}, {kind} {number}")


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
    kind = register_type(left.type)
    if left.type.is_float:
        instruction = f"fcmp {_FLOAT_COMPARISON[operator]}"
    else:
        sign = "" if operator in ("eq", "ne") else "s" if left.type.dtype in SIGNED else "u"
        instruction = f"icmp {sign}{operator}"
    return Value(builder.let(f"{instruction} {kind} {left.text}, {right.text}"), Type("bool", left.type.lanes))


def _float_binary(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    kind = register_type(left.type)
    if operator in _FLOAT_INSTRUCTION:
        instruction = _FLOAT_INSTRUCTION[operator]
        if operator != "div" and not builder.module.is_exact:
            instruction += " contract"
        return Value(builder.let(f"{instruction} {kind} {left.text}, {right.text}"), left.type)
    if operator in ("min", "max"):
        return _float_extremum(builder, operator, left, right)
    assert operator == "fmod", operator
    return _fmod(builder, left, right)


def _float_extremum(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    """One ``maxps`` returns its second operand if either is NaN: that is all a constant first operand needs."""
    kind, condition = register_type(left.type), register_type(Type("bool", left.type.lanes))
    if _is_number(right):
        left, right = right, left
    if not _is_number(left):
        lanes = f"v{left.type.lanes}" if left.type.lanes > 1 else ""
        full = f"llvm.{operator}imum.{lanes}f{element_bits(left.type.dtype)}"
        builder.module.declarations.setdefault(full, f"declare {kind} @{full}({kind}, {kind})")
        return Value(builder.let(f"call nsz {kind} @{full}({kind} {left.text}, {kind} {right.text})"), left.type)
    comparison = "ogt" if operator == "max" else "olt"
    chosen = builder.let(f"fcmp {comparison} {kind} {left.text}, {right.text}")
    return Value(builder.let(f"select {condition} {chosen}, {kind} {left.text}, {kind} {right.text}"), left.type)


def _is_number(value: Value) -> bool:
    return not value.text.startswith(("%", "<", "poison")) and value.text != literal(float("nan"), value.type)


def _fmod(builder: Builder, left: Value, right: Value) -> Value:
    """Long division of one lane at a time, exact for every quotient."""
    dtype, lanes = left.type.dtype, left.type.lanes
    builder.module.declarations.setdefault("graft.fmod", _FMOD)
    dividend, divisor = cast(builder, left, "float64"), cast(builder, right, "float64")
    vector = register_type(dividend.type)
    if lanes == 1:
        text = builder.let(f"call double @graft.fmod(double {dividend.text}, double {divisor.text})")
        return cast(builder, Value(text, dividend.type), dtype)
    result = "poison"
    for lane in range(lanes):
        one = builder.let(f"extractelement {vector} {dividend.text}, i64 {lane}")
        other = builder.let(f"extractelement {vector} {divisor.text}, i64 {lane}")
        element = builder.let(f"call double @graft.fmod(double {one}, double {other})")
        result = builder.let(f"insertelement {vector} {result}, double {element}, i64 {lane}")
    return cast(builder, Value(result, dividend.type), dtype)


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
  %xs = select i1 %xe.denormal, i64 %xf, i64 %xi
  %ys = select i1 %ye.denormal, i64 %yf, i64 %yi
  %x1 = select i1 %xe.denormal, i64 1, i64 %xe
  %y1 = select i1 %ye.denormal, i64 1, i64 %ye
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
  %short = icmp ugt i64 %want, %room
  %shift = select i1 %short, i64 %room, i64 %want
  %mantissa = shl i64 %reduced, %shift
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
        match operator:
            case "add":
                return Value(literal(a + b, left.type), left.type)
            case "sub":
                return Value(literal(a - b, left.type), left.type)
            case "mul":
                return Value(literal(a * b, left.type), left.type)
            case "min" | "max":
                return Value(str(min(a, b) if operator == "min" else max(a, b)), left.type)
            case "div" | "mod" if b != 0:
                quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
                return Value(literal(quotient if operator == "div" else a - quotient * b, left.type), left.type)
        return None
    if (operator in ("add", "sub") and b == 0) or (operator in ("mul", "div") and b == 1):
        return left
    if (operator == "add" and a == 0) or (operator == "mul" and a == 1):
        return right
    if operator == "mul" and 0 in (a, b):
        return Value("0", left.type)
    return None


def _integer_binary(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    type = left.type
    kind = register_type(type)
    signed = type.dtype in SIGNED
    match operator:
        case "add" | "sub" | "mul" | "and" | "or" | "xor":
            return Value(builder.let(f"{operator} {kind} {left.text}, {right.text}"), type)
        case "div" | "mod":
            return _divide(builder, operator, left, right)
        case "min" | "max":
            name = f"{'s' if signed else 'u'}{operator}"
            return Value(builder.intrinsic(name, kind, [(kind, left.text), (kind, right.text)], [kind]), type)
        case "shl" | "shr":
            return _shift(builder, operator, left, right)
    raise AssertionError(f"{operator} is not for {type}")


def _divide(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    """Divisor 0, and -1 (which overflows on the smallest integer), must not trap: 0 divides as 1, -1 negates."""
    type, kind = left.type, register_type(left.type)
    condition = register_type(Type("bool", type.lanes))
    signed = type.dtype in SIGNED
    instruction = {("div", True): "sdiv", ("div", False): "udiv", ("mod", True): "srem", ("mod", False): "urem"}
    name = instruction[operator, signed]
    if not right.text.startswith("%") and right.text not in (literal(0, type), literal(-1, type)):
        return Value(builder.let(f"{name} {kind} {left.text}, {right.text}"), type)
    zero = builder.let(f"icmp eq {kind} {right.text}, {literal(0, type)}")
    safe = builder.let(f"select {condition} {zero}, {kind} {literal(1, type)}, {kind} {right.text}")
    if not signed:
        return Value(builder.let(f"{name} {kind} {left.text}, {safe}"), type)
    negates = builder.let(f"icmp eq {kind} {right.text}, {literal(-1, type)}")
    divisor = builder.let(f"select {condition} {negates}, {kind} {literal(1, type)}, {kind} {safe}")
    result = builder.let(f"{name} {kind} {left.text}, {divisor}")
    if operator == "mod":
        return Value(result, type)
    negative = builder.let(f"sub {kind} {literal(0, type)}, {left.text}")
    return Value(builder.let(f"select {condition} {negates}, {kind} {negative}, {kind} {result}"), type)


def _shift(builder: Builder, operator: str, left: Value, right: Value) -> Value:
    """A shift by the width or more gives 0 (or the sign), where LLVM's is undefined."""
    type, kind = left.type, register_type(left.type)
    bits = element_bits(type.dtype)
    arithmetic = operator == "shr" and type.dtype in SIGNED
    name = "shl" if operator == "shl" else "ashr" if arithmetic else "lshr"
    if any(right.text == literal(amount, type) for amount in range(bits)):
        return Value(builder.let(f"{name} {kind} {left.text}, {right.text}"), type)
    top = literal(bits - 1, type)
    amount = builder.intrinsic("umin", kind, [(kind, right.text), (kind, top)], [kind])
    shifted = builder.let(f"{name} {kind} {left.text}, {amount}")
    if arithmetic:
        return Value(shifted, type)
    condition = register_type(Type("bool", type.lanes))
    large = builder.let(f"icmp ugt {kind} {right.text}, {top}")
    return Value(builder.let(f"select {condition} {large}, {kind} {literal(0, type)}, {kind} {shifted}"), type)
