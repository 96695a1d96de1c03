"""Derivatives of sums of products: each operand has a sum of products of the gradient and the others."""

from __future__ import annotations

from collections.abc import Iterable

from graft.core.operators.definition.adjoint import Adjoint, each


def matrices(f: Adjoint) -> list[str]:
    """``g b^T`` and ``a^T g``; a vector is a row on the left, a column on the right."""
    a, b, gradient = f.input(0), f.input(1), f.gradient
    is_row, is_column = f.rank(a) == 1, f.rank(b) == 1
    rows = f.unsqueezed(a, 0) if is_row else a
    columns = f.unsqueezed(b, 1) if is_column else b
    if is_column:
        gradient = f.unsqueezed(gradient, -1)
    if is_row:
        gradient = f.unsqueezed(gradient, -2)
    found = ["", ""]
    if f.wanted(0):
        one = f.summed(f("MatMul", gradient, f.swapped(columns)), rows)
        found[0] = f("Squeeze", one, f.ints(0)) if is_row else one
    if f.wanted(1):
        one = f.summed(f("MatMul", f.swapped(rows), gradient), columns)
        found[1] = f("Squeeze", one, f.ints(1)) if is_column else one
    return found


def _gemm_left(f: Adjoint) -> str:
    b, is_transposed, other = f.input(1), f.attribute("transA", 0), f.attribute("transB", 0)
    alpha = f.attribute("alpha", 1.0)
    if is_transposed:
        return f("Gemm", b, f.gradient, alpha=alpha, transA=other, transB=1)
    return f("Gemm", f.gradient, b, alpha=alpha, transB=1 - other)


def _gemm_right(f: Adjoint) -> str:
    a, is_transposed, other = f.input(0), f.attribute("transB", 0), f.attribute("transA", 0)
    alpha = f.attribute("alpha", 1.0)
    if is_transposed:
        return f("Gemm", f.gradient, a, alpha=alpha, transA=1, transB=other)
    return f("Gemm", a, f.gradient, alpha=alpha, transA=1 - other)


gemm = each(_gemm_left, _gemm_right, lambda f: f.scaled(f.summed(f.gradient, f.input(2)), f.attribute("beta", 1.0)))


def einsum(f: Adjoint) -> list[str]:
    """The gradient takes the operand's place, and the operand's letters those of the result.

    Letters that only the operand has are those of a tensor of ones; a letter that it has twice is the diagonal of a
    matrix that is all zero beside it.
    """
    left, result = _terms(f)
    found = []
    for number, term in enumerate(left):
        if not f.wanted(number):
            found.append("")
            continue
        x = f.input(number)
        others = [(one, f.input(place)) for place, one in enumerate(left) if place != number]
        own, diagonals = _distinct(f, term, x, "".join((*left, result)))
        operands = [(result, f.gradient), *others, *diagonals]
        missing = set(own) - set("".join(one for one, _ in operands))
        if missing:
            shape = [index for index, letter in enumerate(own) if letter in missing]
            ones = f("Expand", f.like(1.0, x), f("Gather", f("Shape", x), f.ints(*shape)))
            operands.append(("".join(own[index] for index in shape), ones))
        equation = f"{','.join(one for one, _ in operands)}->{own}"
        found.append(f.summed(f("Einsum", *(value for _, value in operands), equation=equation), x))
    return found


def _distinct(f: Adjoint, term: str, x: str, taken: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a term with another letter for each that is there already, and identities between the two."""
    letters, diagonals = "", []
    free = iter(sorted(set("ABCDEFGHIJKLMNOPQRSTUVWXYZ") - set(taken)))
    for axis, letter in enumerate(term):
        if letter in letters:
            extent = f.extent(x, axis)
            square = f("Expand", f.like(1.0, x), f.concatenated(extent, extent, axis=0))
            diagonals.append((letter + (own := next(free)), f("EyeLike", square)))
            letter = own
        letters += letter
    return letters, diagonals


def _terms(f: Adjoint) -> tuple[list[str], str]:
    """Return the letters of operands and result, axes of an ellipsis among them."""
    equation = f.attribute("equation").replace(" ", "")
    given, arrow, result = equation.partition("->")
    terms = given.split(",")
    if not arrow:
        once = sorted(letter for letter in set(given) - set(",.") if given.count(letter) == 1)
        result = ("..." if "..." in given else "") + "".join(once)
    free = sorted(set("abcdefghijklmnopqrstuvwxyz") - set(equation))
    most = max((f.rank(x) - len(term) + 3 for term, x in _elliptic(terms, f.inputs)), default=0)
    names = "".join(free[:most])
    left = [
        term.replace("...", names[most - (f.rank(x) - len(term) + 3) :]) if "..." in term else term
        for term, x in zip(terms, f.inputs, strict=True)
    ]
    return left, result.replace("...", names)


def _elliptic(terms: Iterable[str], inputs: Iterable[str]) -> list[tuple[str, str]]:
    return [(term, x) for term, x in zip(terms, inputs, strict=True) if "..." in term]


def rotated(f: Adjoint) -> list[str]:
    """Turned back: by the angles with the other sign."""
    f.require(not f.wanted(1) and not f.wanted(2), "of its tables of angles no derivative is known")
    back = f("Neg", f.input(2))
    given = f.attributes("interleaved", "num_heads", "rotary_embedding_dim")
    return [f("RotaryEmbedding", f.gradient, f.input(1), back, *f.inputs[3:], **given)]
