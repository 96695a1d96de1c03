"""What a reviewer marks in a C text: wide lines, needless or missing parentheses, literals out of range, names of libm.

The text is read as tokens, by C's own precedence; nothing of the emitter is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

WIDTH = 120
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|0[xX][\da-fA-F.]+(?:[pP][-+]?\d+)?\w*|\d[\w.]*(?:(?<=[eE])[-+]\d+\w*)?'
    r"|\w+|->|\+\+|--|<<=|>>=|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||\S"
)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_LEVELS = {"*": 9, "/": 9, "%": 9, "+": 8, "-": 8, "<": 6, ">": 6, "<=": 6, ">=": 6, "==": 5, "!=": 5}
"""Operators whose precedence everybody knows, the tightest first; parentheses around and beside others stay."""
_LOOSE = frozenset(["=", "+=", "-=", "*=", "(", ")", "[", "]", "{", "}", ",", ";", "return", "?", ":"])
"""What binds looser than all of them."""
_TYPES = re.compile(
    r"^(u?int\d+_t|float|double|bool|char|long|short|unsigned|signed|int|size_t|void|const|struct|Graft\w+|\w+_t|u?\w+x\d+(_at)?)$"
)
LIBM = frozenset(
    f"{name}{suffix}" for suffix in ("", "f", "l") for name in (  # noqa: SIM905 - words read better
        "sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p pow "
        "sqrt cbrt hypot erf erfc tgamma lgamma ceil floor trunc round rint nearbyint fmod remainder fma fmax fmin "
        "fabs fdim copysign nextafter ldexp frexp modf scalbn ilogb logb isnan isinf isfinite signbit"
    ).split()
)  # fmt: skip


def faults(text: str) -> list[str]:
    """Return what a reviewer marks, with the line."""
    found = [f"wide: {line}" for line in text.split("\n") if len(line) > WIDTH and not line.startswith("#error")]
    found += ["empty lines" for _ in re.findall(r"\n{3,}", text)]
    code = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    found += [f"of libm: {one}" for one in re.findall(r"^#define (\w+)", code, re.MULTILINE) if one in LIBM]
    found += [f"without parentheses: {one}" for one in re.findall(r"^#define (\w+ -.*)", code, re.MULTILINE)]
    found += [f"tensor without a name: {one}" for one in re.findall(r"\*(?:const |restrict )*(t\d+)\b(?! =)", code)]
    statements = "\n".join(line for line in code.replace("\\\n", " ").split("\n") if not line.startswith("#"))
    tokens = _TOKEN.findall(statements)
    return [*found, *_literals(tokens), *_parentheses(tokens)]


def _literals(tokens: Sequence[str]) -> Iterator[str]:
    """Yield integers that have no suffix and are no int, but for those that a macro of stdint.h gives a type."""
    for place, token in enumerate(tokens):
        is_plain = re.fullmatch(r"\d+|0[xX][\da-fA-F]+", token)
        if is_plain and int(token, 0) > 2**31 - 1 and not tokens[place - 2].endswith("_C"):
            yield f"out of range: {token}"


def _parentheses(tokens: Sequence[str]) -> Iterator[str]:
    """Yield groups that mean the same without their parentheses."""
    opened: list[int] = []
    for place, token in enumerate(tokens):
        if token == "(":
            opened.append(place)
        elif token == ")" and opened:
            begin = opened.pop()
            inner, before, after = (
                tokens[begin + 1 : place],
                tokens[begin - 1],
                (*tokens[place + 1 : place + 2], ";")[0],
            )
            if _is_needless(inner, before, after):
                yield f"needless: {' '.join(tokens[max(0, begin - 3) : place + 3])}"


def _is_needless(inner: Sequence[str], before: str, after: str) -> bool:
    if not inner or (re.match(r"\w|\)|\]", before) and before != "return"):
        return False  # a call, a condition, or behind a cast
    if "{" in inner or any(_TYPES.match(one) for one in inner[:1]) or after == "(" or re.match(r"\w", after):
        return False  # a literal that a macro may take, a cast, or what is called
    if (before == "(" and after == ")") and len(inner) > 1:
        return False  # judged as the outer one
    level = _level(inner)
    if level is None:
        return False
    left = 0 if before in _LOOSE else _LEVELS.get(before, 99)
    right = 0 if after in _LOOSE else _LEVELS.get(after, 99)
    is_mixed = level == right == 9  # a % b * c is read twice
    return level > left and level >= right and not is_mixed  # a + (b - c) rounds otherwise, too


def _level(inner: Sequence[str]) -> int | None:
    """Return the loosest operator of an expression, 10 for a name or a number; None where one is not of `_LEVELS`."""
    depth, level = 0, 10
    for place, token in enumerate(inner):
        depth += (token in "([{") - (token in ")]}")
        if depth or token in "([{)]}":
            continue
        if re.match(r"[\w.\"']|->", token):
            continue
        is_binary = place > 0 and re.match(r"\w|\)|\]", inner[place - 1])
        if token not in _LEVELS or not is_binary:
            return None
        level = min(level, _LEVELS[token])
    return level
