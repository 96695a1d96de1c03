"""Derivatives of sums of products: each operand has a sum of products of the gradient and the others."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graft.core.operators.definition.adjoint import Adjoint, each
from graft.core.operators.definition.function_body import Body


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
        if f.rank(columns) == 2:
            rows, gradient = _in_one(f, rows, gradient)
        one = f.summed(f("MatMul", f.swapped(rows), gradient), columns)
        found[1] = f("Squeeze", one, f.ints(1)) if is_column else one
    return found


def _in_one(f: Adjoint, *values: str) -> list[str]:
    """Return stacks of matrices as one each, of the rows of all; themselves where an extent of a row is not known."""
    extents = [one for value in values if isinstance(one := f.shape(value)[-1], int) and one > 0]
    if len(extents) < len(values) or f.rank(values[0]) == 2:
        return [*values]
    return [f.reshaped(value, -1, one) for value, one in zip(values, extents, strict=True)]


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


def determinant(f: Adjoint) -> list[str]:
    """The cofactors, which singular matrices have as well: determinants of what is left without a row and a column."""
    x, gradient = f.input(0), f.unsqueezed(f.unsqueezed(f.gradient, -1), -1)
    rank, size = f.rank(x), f.extents(x)[-1]
    if size == 1:
        return [gradient]
    others = f.constant([[one for one in range(size) if one != left] for left in range(size)], np.int64)
    minors = f("Gather", f("Gather", x, others, axis=rank - 2), others, axis=rank)
    minors = f.transposed(minors, *range(rank - 2), rank - 2, rank, rank - 1, rank + 1)
    signs = f.cast(f.constant((-1.0) ** np.add.outer(np.arange(size), np.arange(size))), f.dtype(x))
    return [f("Mul", gradient, f("Mul", f("Det", minors), signs))]


# ---- Fourier transforms -------------------------------------------------------------------------------------------


def fourier(f: Adjoint) -> list[str]:
    """The transform in the other direction, times the points, or divided by them where the node has divided already."""
    x, gradient, rank, inverse = f.input(0), f.gradient, f.rank(f.input(0)), f.attribute("inverse", 0)
    f.require(not (inverse and f.attribute("onesided", 0)), "of the inverse of half a spectrum no derivative is known")
    axes, lengths = (f.numbers(one) if one else [] for one in (f.input(2), f.input(1)))
    f.require(axes is not None and lengths is not None, "its derivative needs a constant axis and length")
    axis = (axes or [-2])[0] % rank
    points = (lengths or [f.extents(x)[axis]])[0]
    gradient = _ending_at(f, gradient, axis, points)
    found = f("DFT", gradient, "", f.constant(np.int64(axis)), inverse=1 - inverse)
    found = _ending_at(f, f.scaled(found, 1 / points if inverse else float(points)), axis, f.extents(x)[axis])
    return [f.sliced(found, rank - 1, 0, f.extents(x)[-1])]


def _ending_at(f: Adjoint, value: str, axis: int, extent: int) -> str:
    """Return a value with an axis of so many elements: cut, or with zeros behind."""
    more = extent - f.extents(value)[axis]
    ends = [more if place == axis else 0 for place in range(f.rank(value))]
    return f("Pad", value, f.ints(*[0] * len(ends), *ends)) if more else value


def frames(f: Body) -> None:
    """STFT as a DFT of each frame, as far behind the one before as the step says, times the window."""
    signal, window = f.input(0), f.input(2)
    step, length = (f.contents(one) if one else None for one in (f.input(1), f.input(3)))
    (extent, *parts), (points,) = f.shape(signal)[1:], (f.shape(window) if window else (length,))
    points = points if length is None else int(length.reshape(-1)[0])
    known = step is not None and isinstance(extent, int) and isinstance(points, int)
    f.require(known, "its derivative needs the length of the signal, the step and the length of frames in numbers")
    assert step is not None and isinstance(extent, int) and isinstance(points, int)
    starts = np.arange(0, extent - points + 1, int(step.reshape(-1)[0]))
    taken = f("Gather", signal, f.constant(np.add.outer(starts, np.arange(points)), np.int64), axis=1)
    taken = taken if parts else f.unsqueezed(taken, -1)
    if window:
        taken = f("Mul", taken, f.unsqueezed(window, 1))
    f.give(0, f("DFT", taken, "", f.constant(np.int64(2)), onesided=f.attribute("onesided", 1)))
