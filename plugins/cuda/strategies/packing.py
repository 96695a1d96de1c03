"""Constant factors of tensor instructions as shared memory wants them: rounded, with the terms of a line in one piece.

What is done to a constant when a model is compiled is not done by every block: a factor that is rounded to 16 bits is
half as long in memory, and what lies as it is used is copied 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.tensor_ir.ir import Buffer, Load, Variable
from graft.core.tensor_ir.ordered_stages import uses_of
from graft.core.types import element_bits
from graft.plugins.cuda.strategies.product_parts import Axes, Factor, Product
from graft.runtime.dtypes import numpy_dtype


@dataclass(frozen=True)
class Packed:
    """A product, the buffers that stand for some of its kernel's constants, and what they contain."""

    product: Product
    replaced: Mapping[Buffer, Buffer] = field(default_factory=dict)
    contents: Mapping[Buffer, np.ndarray] = field(default_factory=dict)


def packed(product: Product, kernel: Kernel, dtypes: tuple[str, str]) -> Packed:
    """Return a product by tensor instructions with constant factors packed where that saves work."""
    if not isinstance(product.terms.count, int):
        return Packed(product)
    factors, replaced, contents = [], dict[Buffer, Buffer](), dict[Buffer, np.ndarray]()
    for factor, dtype in zip((product.rows, product.columns), dtypes, strict=True):
        found = _packed_factor(factor, product, kernel, dtype)
        factors.append(factor if found is None else found[0])
        if found is not None:
            _, source, buffer, array = found
            replaced[source], contents[source] = buffer, array
    return Packed(replace(product, rows=factors[0], columns=factors[1]), replaced, contents)


def _packed_factor(
    factor: Factor, product: Product, kernel: Kernel, dtype: str
) -> tuple[Factor, Buffer, Buffer, np.ndarray] | None:
    """Return a factor that reads packed memory, what that stands for, and its contents; None where nothing is saved."""
    load = factor.plain
    if load is None or load.buffer not in kernel.constants or not _saves(factor, load, dtype):
        return None
    outer = [axis for axis in product.batch.variables if axis in load.indices]
    order = [*outer, *factor.own.variables, *factor.terms.variables]
    if len(load.indices) != len(order) or any(axis not in load.indices for axis in order):
        return None  # a place that is computed, or an axis that it is the same along
    source = load.buffer
    extents = [b.counted(source.shape[load.indices.index(axis)]) for axis in order]
    terms = len(factor.terms.variables)
    if tuple(extents[-terms:]) != factor.terms.extents or read_places(kernel, source) != 1:
        return None
    numbers = [int(extent) for extent in extents if isinstance(extent, int)]
    shape = (*numbers[:-terms], prod(numbers[-terms:]))
    array = kernel.constants[source].reshape([int(one) for one in b.dims(source)])
    with np.errstate(over="ignore"):  # as the tensor instruction's own rounding would: to infinity
        array = array.transpose([load.indices.index(axis) for axis in order]).reshape(shape).astype(numpy_dtype(dtype))
    buffer = Buffer(f"{source.name}_packed", dtype, tuple(map(b.index, shape)))
    term = Variable("term")
    value = b.cast(Load(buffer, (*order[:-terms], term)), factor.value.type.dtype)
    return Factor(value, factor.own, Axes((term,), (shape[-1],))), source, buffer, np.ascontiguousarray(array)


def _saves(factor: Factor, load: Load, dtype: str) -> bool:
    """Whether a factor is rounded, has its terms apart from each other, or in several axes."""
    is_apart = not factor.goes_by_terms and element_bits(dtype) != 16
    return load.type.dtype != dtype or is_apart or len(factor.terms.variables) > 1


def read_places(kernel: Kernel, source: Buffer) -> int:
    """Return at how many places the stages of a kernel read a buffer."""
    return len(uses_of(source, kernel.stages))
