"""PTX's arithmetic as LLVM IR: a row for each operation, by the type that it is of.

In a row ``{t}`` is the LLVM type, ``{w}`` that of twice as many bits, ``{m}`` that of an intrinsic's name, ``{n}`` the
bits; ``{a}``, ``{b}``, ``{c}`` are operands. A row is one instruction, or several by ``;``: the last gives the result,
and those before are ``{0}``, ``{1}`` ... for those behind.
"""

from __future__ import annotations

from collections.abc import Mapping

FLOATS = {
    "f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "f16x2": "<2 x half>", "bf16x2": "<2 x bfloat>",
}  # fmt: skip
_MANGLED = {
    "half": "f16",
    "bfloat": "bf16",
    "float": "f32",
    "double": "f64",
    "<2 x half>": "v2f16",
    "<2 x bfloat>": "v2bf16",
}
EXACT = {"half": "double", "bfloat": "double", "<2 x half>": "<2 x double>", "<2 x bfloat>": "<2 x double>"}
"""In what a fused operation of few bits is computed before it is rounded."""


def type_of(kind: str) -> str:
    """Return the LLVM type of a PTX type."""
    return FLOATS.get(kind) or f"i{bits_of(kind)}"


def bits_of(kind: str) -> int:
    """Return the bits of a PTX type."""
    return 1 if kind == "pred" else 32 if kind.endswith("x2") else int(kind.lstrip("usbf"))


def mangled(kind: str) -> str:
    """Return how an intrinsic's name has an LLVM type."""
    return _MANGLED.get(kind, kind)


def _call(name: str, *operands: str) -> str:
    given = ", ".join(f"{{t}} {{{one}}}" for one in operands)
    return f"call {{t}} @llvm.{name}.{{m}}({given})"


def _wide(operation: str, extend: str, ending: str = "") -> str:
    """Multiply in twice as many bits; the ending goes on from ``{2}``."""
    return f"{extend} {{t}} {{a}} to {{w}};{extend} {{t}} {{b}} to {{w}};mul {{w}} {{0}}, {{1}}{ending}"


_HIGH = ";lshr {w} {2}, {n};trunc {w} {3} to {t}"
_DIVISOR = "icmp eq {t} {b}, 0;select i1 {0}, {t} 1, {t} {b}"
_SHIFT = "icmp ult i32 {b}, {n};select i1 {0}, i32 {b}, i32 0;RESIZE;SHIFT {t} {a}, {2};select i1 {0}, {t} {3}, {t} 0"

OF_INTEGERS: Mapping[str, str] = {
    "add": "add {t} {a}, {b}",
    "sub": "sub {t} {a}, {b}",
    "mul.lo": "mul {t} {a}, {b}",
    "mad.lo": "mul {t} {a}, {b};add {t} {0}, {c}",
    "and": "and {t} {a}, {b}",
    "or": "or {t} {a}, {b}",
    "xor": "xor {t} {a}, {b}",
    "not": "xor {t} {a}, -1",
    "cnot": "icmp eq {t} {a}, 0;zext i1 {0} to {t}",
    "neg": "sub {t} 0, {a}",
    "abs": "call {t} @llvm.abs.{m}({t} {a}, i1 false)",
    "popc": _call("ctpop", "a"),
    "clz": "call {t} @llvm.ctlz.{m}({t} {a}, i1 false)",
    "brev": _call("bitreverse", "a"),
}  # fmt: skip

OF_SIGNED: Mapping[str, str] = {
    "min": _call("smin", "a", "b"),
    "max": _call("smax", "a", "b"),
    "mul.hi": _wide("mul", "sext", _HIGH),
    "div": _DIVISOR + ";icmp eq {t} {1}, -1;select i1 {2}, {t} 1, {t} {1};sdiv {t} {a}, {3};sub {t} 0, {a};"
    "select i1 {2}, {t} {5}, {t} {4};select i1 {0}, {t} -1, {t} {6}",
    "rem": _DIVISOR
    + ";icmp eq {t} {1}, -1;select i1 {2}, {t} 1, {t} {1};srem {t} {a}, {3};select i1 {0}, {t} {a}, {t} {4}",
}

OF_UNSIGNED: Mapping[str, str] = {
    "min": _call("umin", "a", "b"),
    "max": _call("umax", "a", "b"),
    "mul.hi": _wide("mul", "zext", _HIGH),
    "div": _DIVISOR + ";udiv {t} {a}, {1};select i1 {0}, {t} -1, {t} {2}",
    "rem": _DIVISOR + ";urem {t} {a}, {1};select i1 {0}, {t} {a}, {t} {2}",
}

OF_FLOATS: Mapping[str, str] = {
    "add": "fadd {t} {a}, {b}",
    "sub": "fsub {t} {a}, {b}",
    "mul": "fmul {t} {a}, {b}",
    "div": "fdiv {t} {a}, {b}",
    "fma": _call("fma", "a", "b", "c"),
    "mad": _call("fma", "a", "b", "c"),
    "rcp": "fdiv {t} {one}, {a}",
    "sqrt": _call("sqrt", "a"),
    "rsqrt": _call("sqrt", "a") + ";fdiv {t} {one}, {0}",
    "neg": "fneg {t} {a}",
    "abs": _call("fabs", "a"),
    "copysign": _call("copysign", "b", "a"),
    "min": _call("minnum", "a", "b"),
    "max": _call("maxnum", "a", "b"),
    "min.NaN": _call("minimum", "a", "b"),
    "max.NaN": _call("maximum", "a", "b"),
    "ex2": _call("exp2", "a"),
    "lg2": _call("log2", "a"),
    "sin": _call("sin", "a"),
    "cos": _call("cos", "a"),
    "tanh": _call("tanh", "a"),
}

COMPARED: Mapping[str, str] = {
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge",
}  # fmt: skip
"""Comparisons of integers."""
ORDERED: Mapping[str, str] = {
    **{name: f"o{name}" for name in ("eq", "lt", "le", "gt", "ge", "ne")},
    **{f"{name}u": f"u{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "equ": "ueq", "neu": "une", "num": "ord", "nan": "uno",
}  # fmt: skip
"""Comparisons of floats, false of NaN unless ``u`` is behind them."""


def row(root: str, modifiers: tuple[str, ...], kind: str) -> str | None:
    """Return the row of an operation of a type, None if there is none."""
    names = [f"{root}.{one}" for one in modifiers] + [root]
    tables = [OF_FLOATS] if kind in FLOATS else [OF_SIGNED if kind[0] == "s" else OF_UNSIGNED, OF_INTEGERS]
    return next((table[name] for name in names for table in tables if name in table), None)


def shift_row(root: str, kind: str) -> str:
    """Return the row of a shift, of which more bits than there are leave nothing, or the sign."""
    bits = bits_of(kind)
    resize = "add i32 {1}, 0" if bits == 32 else f"{'trunc' if bits < 32 else 'zext'} i32 {{1}} to {{t}}"
    if root == "shr" and kind[0] == "s":
        return f"icmp ult i32 {{b}}, {bits};select i1 {{0}}, i32 {{b}}, i32 {bits - 1};{resize};ashr {{t}} {{a}}, {{2}}"
    return _SHIFT.replace("RESIZE", resize).replace("SHIFT", "shl" if root == "shl" else "lshr")


_ROUNDED = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def conversion(modifiers: tuple[str, ...], to: str, of: str) -> str:
    """Return the row of a conversion; ``{a}`` is of type ``of``."""
    source, target = type_of(of), type_of(to)
    rounding = next((_ROUNDED[one] for one in modifiers if one in _ROUNDED), "")
    if of in FLOATS and to in FLOATS:
        if to == of:
            return f"call {source} @llvm.{rounding}.{mangled(source)}({source} {{a}})" if rounding else "{a}"
        return f"{'fptrunc' if bits_of(to) < bits_of(of) else 'fpext'} {source} {{a}} to {target}"
    if of in FLOATS:
        name = f"llvm.fpto{'s' if to[0] == 's' else 'u'}i.sat.{target}.{mangled(source)}"
        whole = f"call {source} @llvm.{rounding or 'trunc'}.{mangled(source)}({source} {{a}})"
        return f"{whole};call {target} @{name}({source} {{0}})"
    if to in FLOATS:
        return f"{'s' if of[0] == 's' else 'u'}itofp {source} {{a}} to {target}"
    more = bits_of(to) - bits_of(of)
    if more == 0:
        return "{a}"
    return f"{'trunc' if more < 0 else 'sext' if of[0] == 's' else 'zext'} {source} {{a}} to {target}"
