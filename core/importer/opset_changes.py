"""Which operators mean the same in two opsets, so that a model moves from one to the other by its header alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import onnx
from onnx.defs import OpSchema

OLDEST_WIDENED = 13
"""From this opset on, a schema that keeps all that the one before it had means the same, but for `REDEFINED`."""
REDEFINED = frozenset({("Attention", 24), ("GroupNormalization", 21), ("RoiAlign", 16), ("Split", 18)})
"""Schemas that keep all and mean something else: another order of steps, scales for channels where they were for
groups, half pixels by default, and parts that have to be counted."""


@cache
def same_meaning(operator: str, old: int, new: int) -> bool:
    """Whether any node of an ai.onnx operator that is valid in opset ``old`` computes the same in opset ``new``.

    It does where no opset between them states the operator anew, and, from `OLDEST_WIDENED` on, where each that does
    only admits more types, optional inputs, or attributes that may be absent.
    """
    before, after = _schema(operator, old), _schema(operator, new)
    if before is None or after is None:
        return before is after
    if before.since_version == after.since_version:
        return True
    if old < OLDEST_WIDENED or new < old:
        return False
    steps = [schema for opset in range(old, new + 1) if (schema := _schema(operator, opset)) is not None]
    return all(_widened(earlier, later) for earlier, later in pairwise(steps))


def _schema(operator: str, opset: int) -> OpSchema | None:
    return onnx.defs.get_schema(operator, opset) if onnx.defs.has(operator, opset) else None


def _widened(earlier: OpSchema, later: OpSchema) -> bool:
    """Whether a schema keeps the attributes, inputs and outputs of the one before it, and requires no others."""
    if earlier.since_version == later.since_version:
        return True
    known = set(earlier.attributes)
    return (
        (later.name, later.since_version) not in REDEFINED
        and all(
            _same_attribute(attribute, later.attributes.get(name)) for name, attribute in earlier.attributes.items()
        )
        and not any(attribute.required for name, attribute in later.attributes.items() if name not in known)
        and _same_places(earlier.inputs, later.inputs)
        and _same_places(earlier.outputs, later.outputs)
    )


def _same_attribute(earlier: OpSchema.Attribute, later: OpSchema.Attribute | None) -> bool:
    return (
        later is not None
        and earlier.type == later.type
        and earlier.required == later.required
        and earlier.default_value.SerializeToString() == later.default_value.SerializeToString()
    )


def _same_places(earlier: Sequence[OpSchema.FormalParameter], later: Sequence[OpSchema.FormalParameter]) -> bool:
    """Whether the operands of a schema are the first of another's, and all that follow may be absent."""
    kept, added = later[: len(earlier)], later[len(earlier) :]
    return (
        len(kept) == len(earlier)
        and all(one.option == other.option for one, other in zip(earlier, kept, strict=True))
        and all(one.option == OpSchema.FormalParameterOption.Optional for one in added)
    )
