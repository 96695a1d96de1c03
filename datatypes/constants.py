"""The code of a number in a custom datatype, which every constant of such a type is: zero, identities, limits."""

from __future__ import annotations

import ctypes

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import storage_dtype
from graft.datatypes.arrays import C_TYPES, can_cast, decode, encode
from graft.datatypes.formats import evaluate
from graft.datatypes.lowering import Extern, Lookup, Lowering, Via, address_of, formula_result
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.shipped import DATATYPES
from graft.errors import DatatypeError


def code_of(value: float, dtype: str, registry: DatatypeRegistry = DATATYPES, backend: str | None = None) -> int | None:
    """Return the storage bits of a number of ``custom[name]bits``; None if no cast from float32 is registered.

    An infinity is the registered ``Lowest`` or ``Highest``, or else the least or largest number that a float32 is
    cast to.
    """
    known = registry.of(dtype).codes
    key = (dtype, backend or "", str(value))  # which tells -0.0 from 0.0
    if key not in known:
        known[key] = _code_of(value, dtype, registry, backend)
    return known[key]


def _code_of(value: float, dtype: str, registry: DatatypeRegistry, backend: str | None) -> int | None:
    format = registry.format(dtype)
    if format is not None:
        return int(format.to_bits(np.array([format.nearest(value)]))[0])
    if np.isinf(value):
        limit = "Highest" if value > 0 else "Lowest"
        lowering = registry.lowering(limit, backend, dtype)
        if lowering is not None and not (isinstance(lowering, Extern) and lowering.symbol(dtype) is None):
            return _evaluated(lowering, limit, dtype)
    if not can_cast("float32", dtype, registry, backend):
        return None
    if np.isinf(value) and can_cast(dtype, "float32", registry, backend):
        value = _extreme(value, dtype, registry, backend)
    return int(encode(np.array([value]), dtype, registry=registry, backend=backend)[0])


def _evaluated(lowering: Lowering, operation: str, dtype: str) -> int:
    """Return the bits that a lowering without operands gives."""
    match lowering:
        case Extern():
            symbol = lowering.symbol(dtype)
            assert symbol is not None, dtype
            function = ctypes.CFUNCTYPE(C_TYPES[storage_dtype(dtype)])(address_of(symbol, lowering.library))
            return int(function())
        case Via() | Lookup():
            raise DatatypeError(
                f"{operation} of {dtype} has no operands to cast or to look up; register a C function or a function of "
                "expressions",
                operation=operation,
                datatype=dtype,
            )
    expression = formula_result(lowering, (), f"the lowering of {operation} of {dtype}")
    return int(evaluate(lambda _: Value(b.cast(expression, storage_dtype(dtype))), np.zeros(1))[0])


def _extreme(infinity: float, dtype: str, registry: DatatypeRegistry, backend: str | None) -> float:
    """Return the infinity, or the finite float32, that is cast to the least or the largest number of a type."""
    sign = float(np.sign(infinity))

    def number(bits: int) -> float:
        """The magnitude that the float32 of some bits has in the type; NaN where what is too large is no number."""
        value = np.array([bits], np.uint32).view(np.float32) * np.float32(sign)
        code = encode(value, dtype, registry=registry, backend=backend)
        return sign * float(decode(code, dtype, registry=registry, backend=backend)[0])

    low, high = 0, 0x7F800000  # zero and infinity
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if np.isnan(number(middle)) else (middle, high)
    finite = sign * float(np.uint32(low).view(np.float32))
    return infinity if number(0x7F800000) >= number(low) else finite
