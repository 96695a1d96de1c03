"""Expressions of any number of lanes as CUDA C: values of several lanes are ``Lanes<float, 4>`` of the prelude."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from graft.core.affine.linear import Linear
from graft.core.tensor_ir import ir
from graft.core.types import Type, element_bits
from graft.plugins.codegen.c_expressions import COMMON, LOGIC, SIGNS, Row, literal, product_text, sum_text
from graft.plugins.codegen.c_statements import StatementWriter
from graft.plugins.codegen.index_forms import Form, index_form
from graft.plugins.cuda.alignment import Multiples
from graft.runtime.c_operators import cast, choice, infix, postfix, prefix
from graft.runtime.export.c_names import TYPES

PRELUDE = Path(__file__).with_name("graft_cuda.cuh")
"""The header that every text needs."""
OF_CUDA = frozenset({"warpSize", "gridDim", "blockDim", "blockIdx", "threadIdx"})
_UNARY = {
    "neg": "negated", "abs": "magnitude", "bitnot": "bit_not", "sqrt": "root", "floor": "round_down",
    "ceil": "round_up", "trunc": "round_to_zero", "round_even": "round_even", "clz": "clz", "popcount": "popcount",
}  # fmt: skip
_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "mod": "mod", "fmod": "modulus", "min": "least",
    "max": "greatest", "and": "bit_and", "or": "bit_or", "xor": "bit_xor", "shl": "shl", "shr": "shr",
}  # fmt: skip
_ACROSS_BOOL = {"and": "all", "min": "all", "or": "any", "max": "any"}
_ACROSS_FLOAT = {"add": "sum", "mul": "product", "min": "least", "max": "greatest"}
_INDEX = ("add", "sub", "mul")


@cache
def _words_of_the_prelude() -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", PRELUDE.read_text(encoding="utf-8")))


def _of_text(text: str) -> Form:
    return Linear(int(text)) if text.lstrip("-").isdigit() else Linear(terms={text: 1})


def form_text(form: Form) -> str:
    """Return lane 0 of a form as C."""
    total = "0"
    for atom, weight in form.terms.items():
        sign = "-" if weight < 0 and total != "0" else "+"
        total = sum_text(total, product_text(atom, str(abs(weight) if sign == "-" else weight)), sign)
    sign = "-" if form.constant < 0 else "+"
    return sum_text(total, str(abs(form.constant)), sign) if form.constant else total


class CudaExpressions(StatementWriter[Form]):
    """Writes the expressions of a kernel."""

    backend: ClassVar[str] = "cuda_source"
    is_exact: bool = False
    may_align: bool = False
    """Whether the text is a template, by whether all pointers are aligned (`ALIGNED`)."""

    def __init__(self, function: str) -> None:
        super().__init__(function)
        self._taken |= OF_CUDA | _words_of_the_prelude()
        self.multiples = Multiples()

    # ---- Values ----

    def c_type(self, type: Type) -> str:
        """Return the C type of a value."""
        return TYPES[type.dtype] if type.lanes == 1 else f"Lanes<{TYPES[type.dtype]}, {type.lanes}>"

    def operands(self, node: ir.Expression) -> Sequence[ir.Expression]:
        """Return what is written before a node; indices are written otherwise."""
        if isinstance(node, ir.Intrinsic) and node.name == "word_at":
            raise self.refused("the intrinsic 'word_at'")
        return super().operands(node)

    def rows(self, node: ir.Expression) -> Mapping[type, Row]:
        """Return the table of texts."""
        return _ROWS

    def splat(self, lanes: int, dtype: str, text: str) -> str:
        """Return a scalar in so many lanes."""
        return f"splat<{lanes}, {TYPES[dtype]}>({text})"

    def bitcast(self, node: ir.Bitcast, texts: Sequence[str]) -> str:
        """Return the same bits as other elements."""
        kind, source = node.type, node.value.type
        if "bool" in (kind.dtype, source.dtype):
            return f"cast<{TYPES[kind.dtype]}>({texts[0]})"
        return f"bits_as<{self.c_type(kind)}, {self.c_type(source)}>({texts[0]})"

    def intrinsic(self, node: ir.Intrinsic, texts: Sequence[str]) -> str:
        """Return a call of a function of the prelude."""
        if node.name in ("fma", "muladd"):
            return self._call("fused", node.type, texts)
        if node.name == "round_bf16":
            return f"float_as_bfloat({texts[0]})"
        raise self.refused(f"the intrinsic '{node.name}' of type {node.type}")

    def _call(self, name: str, type: Type, texts: Sequence[str]) -> str:
        own = f"<{TYPES[type.dtype]}>" if type.lanes == 1 else ""
        return f"{name}{own}({', '.join(texts)})"

    def _binary(self, operator: str, type: Type, texts: Sequence[str]) -> str:
        left, right = texts
        if type.dtype == "bool" and operator in LOGIC:
            return infix(left, LOGIC[operator], right)
        if operator in ir.COMPARISONS:
            return infix(left, SIGNS[operator], right)
        if type.is_float and operator in ("add", "sub", "mul", "div"):
            if self.is_exact and operator != "div":
                return f"exact_{operator}({left}, {right})"
            return infix(left, SIGNS[operator], right)
        return self._call(_BINARY[operator], type, texts)

    def _cast(self, text: str, source: Type, dtype: str) -> str:
        pair = (source.dtype, dtype)
        if source.dtype == dtype:
            return text
        if pair == ("float16", "float32"):
            return f"half_as_float({text})"
        if pair == ("float32", "float16"):
            return f"float_as_half({text})"
        if dtype == "bool":
            zero = literal(0, source.with_lanes(1))
            other = zero if source.lanes == 1 else f"splat<{source.lanes}, {TYPES[source.dtype]}>({zero})"
            return infix(text, "!=", other)
        saturates = source.is_float and Type(dtype).is_integer
        given = f", {TYPES[source.dtype]}" if source.lanes == 1 else ""
        return f"{'saturated' if saturates else 'cast'}<{TYPES[dtype]}{given}>({text})"

    def _shuffle(self, vectors: Sequence[ir.Expression], lanes: Sequence[int], texts: Sequence[str]) -> str:
        parts = [text if one.type.lanes > 1 else f"alone<{TYPES[one.type.dtype]}>({text})"
                 for one, text in zip(vectors, texts, strict=True)]  # fmt: skip
        whole = parts[0]
        for part in parts[1:]:
            whole = f"joined({whole}, {part})"
        if len(lanes) == 1:
            return postfix(whole, f".lane[{lanes[0]}]")
        return f"chosen<{', '.join(map(str, lanes))}>({whole})"

    def _across(self, operator: str, type: Type, text: str) -> str:
        if type.lanes == 1:
            return text
        if type.dtype == "bool" and operator in _ACROSS_BOOL:
            return f"across_{_ACROSS_BOOL[operator]}({text})"
        name = _ACROSS_FLOAT[operator] if type.is_float else _BINARY[operator]
        return f"across_{name}({text})"

    # ---- Memory ----

    def form(self, index: ir.Expression) -> Form | None:
        """Return the form of an index, None for a vector that has no constant step."""
        return index_form(index, self.forms.get, lambda atom: _of_text(self.index(atom)))

    def offset(self, buffer: ir.Buffer, indices: Sequence[ir.Expression]) -> Form | None:
        """Return where in a buffer an element lies, None for lanes without a constant step."""
        total: Form = Linear()
        for axis, index in enumerate(indices):
            own = self.form(index)
            if own is None:
                return None
            stride = self._stride(buffer, axis)
            if stride.isdigit():
                total = total.plus(own, int(stride))
            elif own.lane == 0:
                total = total.plus(_of_text(product_text(form_text(own), stride)))
            else:
                return None
        return total

    def _stride(self, buffer: ir.Buffer, axis: int) -> str:
        if buffer.strides is not None:
            return self.index(buffer.strides[axis])
        stride = "1"
        for extent in buffer.shape[axis + 1 :]:
            stride = product_text(stride, self.index(extent))
        return stride

    def place(self, buffer: ir.Buffer, indices: Sequence[ir.Expression]) -> str:
        """Return an element of a buffer."""
        offset = self.offset(buffer, indices)
        assert offset is not None, "the place of one element"
        return f"{self.pointers[buffer]}[{form_text(offset)}]"

    def align(self, buffer: ir.Buffer, offset: Form) -> str:
        """Return what is known of an element's address, in bytes, as the prelude is told it."""
        size = element_bits(buffer.dtype) // 8
        known = self.multiples.alignment(size, offset.terms, offset.constant)
        if buffer.memory != "host" or known == size:
            return str(known)
        return f"(ALIGNED ? {known} : {size})" if self.may_align else str(size)

    def places(self, buffer: ir.Buffer, indices: Sequence[ir.Expression], lanes: int) -> str:
        """Return the lanes' places where they have no constant step."""
        total = ""
        for axis, index in enumerate(indices):
            own = self.value(index) if index.type.lanes > 1 else f"splat<{lanes}, int64_t>({self.index(index)})"
            stride = self._stride(buffer, axis)
            term = own if stride == "1" else infix(own, "*", f"splat<{lanes}, int64_t>({stride})")
            total = infix(total, "+", term) if total else term
        return total

    def on(self, mask: ir.Expression | None, lanes: int) -> str:
        """Return which lanes are switched on."""
        if mask is None:
            return f"splat<{lanes}, bool>(true)"
        text = self.value(mask)
        return text if mask.type.lanes > 1 else f"splat<{lanes}, bool>({text})"

    def load(self, load: ir.Load, texts: Sequence[str]) -> str:
        """Return a load of any number of lanes."""
        buffer, indices, mask, kind = load.buffer, load.indices, load.mask, load.type
        if kind.lanes == 1:
            place = self.place(buffer, indices)
            return place if mask is None else choice(texts[0], place, cast(TYPES[buffer.dtype], "0"))
        offset, element, lanes = self.offset(buffer, indices), TYPES[buffer.dtype], kind.lanes
        pointer = self.pointers[buffer]
        if offset is None:
            return f"gather<{element}>({pointer}, {self.places(buffer, indices, lanes)}, {self.on(mask, lanes)})"
        at = f"&{pointer}[{form_text(offset)}]"
        if mask is None and offset.lane == 0:
            return f"splat<{lanes}, {element}>({at[1:]})"
        if mask is None and offset.lane == 1:
            return f"load<{lanes}, {self.align(buffer, offset)}>({at})"
        return f"load_where<{element}>({at}, {offset.lane}, {self.on(mask, lanes)})"


def _constant(writer: CudaExpressions, node: ir.Constant, _: Sequence[str]) -> str:
    own = literal(node.value, node.type.with_lanes(1))
    return own if node.type.lanes == 1 else writer.splat(node.type.lanes, node.type.dtype, own)


def _select(writer: CudaExpressions, node: ir.Select, texts: Sequence[str]) -> str:
    is_scalar = node.condition.type.lanes == node.type.lanes == 1
    return choice(*texts) if is_scalar else f"choice({', '.join(texts)})"


_ROWS: Mapping[type, Row] = {
    **COMMON,
    ir.Constant: _constant,
    ir.Ramp: lambda writer, node, _: f"ramp<{node.lanes}>({writer.index(node.base)}, {node.stride})",
    ir.Broadcast: lambda writer, node, texts: writer.splat(node.lanes, node.type.dtype, texts[0]),
    ir.Unary: lambda writer, node, texts: (
        prefix("!", texts[0]) if node.operator == "not" else writer._call(_UNARY[node.operator], node.type, texts)
    ),
    ir.Binary: lambda writer, node, texts: writer._binary(node.operator, node.left.type, texts),
    ir.Select: _select,
    ir.Cast: lambda writer, node, texts: writer._cast(texts[0], node.value.type, node.dtype),
    ir.Shuffle: lambda writer, node, texts: writer._shuffle(node.vectors, node.lanes, texts),
    ir.Horizontal: lambda writer, node, texts: writer._across(node.operator, node.value.type, texts[0]),
}
