"""Einsums of several operands, as products of two after another."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_letters
from typing import ClassVar, TypeAlias

import onnx_ir as ir

from graft.core.operators.products.contraction import parse_einsum
from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import attribute_of, is_operator
from graft.core.rewriting.writer import Writer

USUAL = 64
"""What is taken for an extent that varies."""
NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
Labels: TypeAlias = Sequence[str]
Extents: TypeAlias = "Mapping[str, int | ir.SymbolicDim]"


@dataclass(frozen=True)
class SplitEinsums(NodePass):
    """Write an Einsum of three and more operands as one of two of them and one of the rest, where that is less work.

    Each is a product of matrices in a kernel of its own, which what stands around it can be fused with. 16-bit floats
    are float32 in between.
    """

    name: ClassVar[str] = "split-einsums"
    infers: ClassVar[bool] = True

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        shapes = _shapes(node) if is_operator(node, "Einsum") else []
        if len(shapes) < 3:
            return False
        operands, result = parse_einsum(attribute_of(node, "equation", ""), [len(shape) for shape in shapes])
        extents = _extents(operands, shapes)
        pair = _pair(operands, result, extents)
        if pair is None:
            return False
        wanted = {*result, *(label for number, one in enumerate(operands) if number not in pair for label in one)}
        made = [label for label in extents if label in wanted and any(label in operands[number] for number in pair)]
        letters = dict(zip(extents, ascii_letters, strict=False))
        write, dtype, shape = Writer(node, rewriter.names), node.outputs[0].dtype, node.outputs[0].shape
        values, wide = list(node.inputs), ir.DataType.FLOAT if dtype in NARROW else dtype
        if wide is not dtype:
            values = [write.emit("Cast", [one], wide, one.shape, to=wide) for one in values if one is not None]
        first, second = pair
        equation = _equation([operands[first], operands[second]], made, letters)
        between = [extents[label] for label in made]
        values[first] = write.again([values[first], values[second]], wide, between, equation=equation)
        operands[first] = made
        del values[second], operands[second]
        summed = write.again(values, wide, shape, equation=_equation(operands, result, letters))
        write.replace(summed if wide is dtype else write.emit("Cast", [summed], dtype, shape, to=dtype))
        return True


def _shapes(node: ir.Node) -> list[Sequence[int | ir.SymbolicDim]]:
    """Return the shapes of all operands; none where one is not known."""
    shapes = [None if value is None else value.shape for value in node.inputs]
    return [] if None in shapes else [list(shape or ()) for shape in shapes]


def _extents(operands: Sequence[Labels], shapes: Sequence[Sequence[int | ir.SymbolicDim]]) -> Extents:
    """Return the extent of each label: that of an axis which is not 1."""
    found: dict[str, int | ir.SymbolicDim] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            known = found.get(label, 1)
            found[label] = extent if known == 1 or (isinstance(extent, int) and extent != 1) else known
    return found


def _pair(operands: Sequence[Labels], result: Labels, extents: Extents) -> tuple[int, int] | None:
    """Return the two operands that leave the fewest products, None where one sum of all has no more, or none is summed.

    Each term of a sum has a product for every factor but the first.
    """

    def terms(labels: Collection[str]) -> int:
        sizes = (extents[label] for label in labels)
        return math.prod(size if isinstance(size, int) else USUAL for size in sizes)

    def products(pair: tuple[int, int]) -> int:
        others = [labels for number, labels in enumerate(operands) if number not in pair]
        left = {*result, *(label for labels in others for label in labels)}
        return terms({*operands[pair[0]], *operands[pair[1]]}) + len(others) * terms(left)

    pair = min(combinations(range(len(operands)), 2), key=products)
    is_less = products(pair) < (len(operands) - 1) * terms(extents)
    return pair if is_less and len(result) < len(extents) <= len(ascii_letters) else None


def _equation(operands: Sequence[Labels], result: Labels, letters: Mapping[str, str]) -> str:
    *terms, sums = ("".join(letters[label] for label in labels) for labels in (*operands, result))
    return f"{','.join(terms)}->{sums}"
