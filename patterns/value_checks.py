"""Demands on a matched value: whether they hold and, if not, what was found instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import assert_never

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.errors import GraftError, PatternError
from graft.patterns import value_constraints as constraints
from graft.patterns.attributes import attribute_of, from_front
from graft.patterns.language import ConstantPattern

RELATIVE_TOLERANCE = 1e-6


def violation(
    constraint: constraints.Attributes | constraints.DtypeIs | constraints.RankIs | constraints.Where, value: ir.Value
) -> str | None:
    """Return None if the value meets the demand, else what was wanted and what is there."""
    view = ValueView(value)
    match constraint:
        case constraints.Attributes(wanted=wanted):
            return _attribute_violation(wanted, value)
        case constraints.DtypeIs(dtypes=dtypes):
            return None if view.dtype in dtypes else f"dtype {view.dtype or 'unknown'}, wanted {' or '.join(dtypes)}"
        case constraints.RankIs(ranks=ranks):
            if view.rank in ranks:
                return None
            rank = "unknown" if view.rank is None else view.rank
            return f"rank {rank}, wanted {' or '.join(map(str, ranks))}"
        case constraints.Where(predicate=predicate, text=text):
            if answer_of(predicate, view, f"'{view.name}'"):
                return None
            return f"'{view.name}' does not satisfy {text or getattr(predicate, '__name__', 'the predicate')}"
        case _:
            assert_never(constraint)


def constant_violation(pattern: ConstantPattern, value: ir.Value) -> str | None:
    """Return None if the value is a constant as the pattern wants it, else what is wrong."""
    view = ValueView(value)
    if not view.is_constant:
        return f"'{view.name}' is not known at compile time, wanted a constant"
    if pattern.value is None and pattern.predicate is None:
        return None
    contents = view.constant
    assert contents is not None
    if pattern.value is not None and not _equals(contents, pattern.value):
        return f"constant '{view.name}' is {_brief(contents)}, wanted {pattern.value}"
    if pattern.predicate is not None and not answer_of(pattern.predicate, contents, f"constant '{view.name}'"):
        return f"constant '{view.name}' ({_brief(contents)}) does not satisfy the predicate"
    return None


def shape_text(shape: Sequence[object] | None) -> str:
    """Return a shape as messages print it: ``[1,n,?,...]``."""
    if shape is None:
        return "of unknown rank"
    return "[" + ",".join("..." if d is ... else "?" if d is None else str(d) for d in shape) + "]"


def answer_of(predicate: Callable[..., object], subject: object, where: str) -> bool:
    """Return what a predicate of a pattern says; raise PatternError, chained, if it fails or gives no yes or no."""
    try:
        return bool(predicate(subject))
    except GraftError:
        raise
    except Exception as error:
        name = getattr(predicate, "__name__", "predicate")
        raise PatternError(
            f"the predicate '{name}' of a pattern raised {type(error).__name__} for {where}: {error}"
        ) from error


def _attribute_violation(wanted: Sequence[tuple[str, constraints.AttributeValue]], value: ir.Value) -> str | None:
    node = value.producer()
    if node is None:
        return f"'{value.name}' is not computed by a node, so it has no attribute {wanted[0][0] if wanted else ''}"
    for name, want in wanted:
        found = attribute_of(node, name)
        if callable(want):
            if not answer_of(want, found, f"attribute {name} of {NodeView(node).where}"):
                return f"attribute {name} of {NodeView(node).where} is {found!r}, which the predicate refuses"
        elif not _equals(from_front(node, name, found), from_front(node, name, want)):
            return f"attribute {name} of {NodeView(node).where} is {found!r}, wanted {want!r}"
    return None


def _equals(found: object, wanted: object) -> bool:
    if isinstance(found, str | None) or isinstance(wanted, str | None):
        return found == wanted
    if isinstance(found, float | int) and isinstance(wanted, float | int):
        return math.isclose(found, wanted, rel_tol=RELATIVE_TOLERANCE)
    left, right = np.asarray(found), np.asarray(wanted)
    if left.dtype.kind not in "fiub" or right.dtype.kind not in "fiub":
        return bool(np.array_equal(left, right))
    if right.ndim and left.shape != right.shape:
        return False
    return bool(left.size and np.allclose(left.astype(np.float64), right, rtol=RELATIVE_TOLERANCE, atol=0))


def _brief(contents: np.ndarray) -> str:
    return str(contents.item()) if contents.size == 1 else f"{contents.dtype}{list(contents.shape)}"
