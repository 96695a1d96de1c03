"""NumPy arrays to and from custom datatypes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from graft.core.tensor_ir.arithmetic.exact_rounding import integer_to_odd, narrow_to_odd
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import storage_dtype
from graft.datatypes.formats import evaluate
from graft.datatypes.lowering import Extern, Lookup, Via, address_of, formula_result
from graft.datatypes.operations import require_stored
from graft.datatypes.registry import REGISTRY, DatatypeRegistry
from graft.datatypes.rounding import ROUNDINGS, Rounding, to_bits
from graft.datatypes.shipped import DATATYPES
from graft.errors import DatatypeError
from graft.runtime.arguments import ARRAY, COUNTER, FLAG, TEXT, either, optional, takes

C_TYPES: dict[str, Any] = {
    "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip


@takes(
    numbers=ARRAY,
    dtype=TEXT,
    backend=optional(TEXT),
    registry=REGISTRY,
    rounding=either(*ROUNDINGS),
    saturate=optional(FLAG),
    seed=COUNTER,
    first=COUNTER,
)
def encode(
    numbers: np.ndarray,
    dtype: str,
    *,
    registry: DatatypeRegistry = DATATYPES,
    backend: str | None = None,
    rounding: Rounding = "nearest",
    saturate: bool | None = None,
    seed: int = 0,
    first: int = 0,
) -> np.ndarray:
    """Return floats of any shape rounded to ``custom[name]bits``, as storage bits (uint8, uint16, uint32).

    ``rounding`` is to the ``"nearest"`` number, the even one of two, toward ``"zero"``, or ``"stochastic"``: then the
    bits follow from ``seed`` and from each element's place, that of the ``first`` one plus its number in the array.
    ``saturate`` makes what is too large, infinity too, the extreme number (True), or infinity or NaN (False); None is
    as the type has it. Raises DatatypeError for an unknown type, and for an overflow that it does not have.
    """
    format = registry.format(dtype)
    numbers = np.asarray(numbers)
    if format is None:
        if rounding != "nearest" or saturate is not None:
            raise DatatypeError(
                f"{dtype} has registered casts alone, which round and overflow in their own way; leave rounding and "
                "saturate out",
                datatype=dtype,
            )
        return _cast(_as_float32(numbers), "float32", dtype, registry, backend)
    if saturate is False:
        format = format.overflowing
        if format is None:
            raise DatatypeError(f"{dtype} has neither infinity nor NaN for what is too large", datatype=dtype)
    return to_bits(format, numbers, rounding, saturate=bool(saturate), seed=seed, first=first)


def _as_float32(numbers: np.ndarray) -> np.ndarray:
    """Return numbers as float32, those that are none rounded to odd, which makes the next rounding exact."""
    if numbers.dtype in (np.int64, np.uint64):
        return evaluate(lambda x: narrow_to_odd(integer_to_odd(x)), numbers)
    if numbers.dtype.kind in "iu" or numbers.dtype == np.float64:
        return evaluate(narrow_to_odd, numbers.astype(np.float64, copy=False))
    return numbers.astype(np.float32, copy=False)


@takes(bits=ARRAY, dtype=TEXT, backend=optional(TEXT), registry=REGISTRY)
def decode(
    bits: np.ndarray, dtype: str, *, registry: DatatypeRegistry = DATATYPES, backend: str | None = None
) -> np.ndarray:
    """Return the numbers (float64) that storage bits of ``custom[name]bits`` stand for.

    Raise DatatypeError where ``bits`` are no unsigned integers of the type's storage.
    """
    format = registry.format(dtype)
    bits = np.asarray(bits)
    if bits.dtype.kind not in "ui":
        raise DatatypeError(
            f"{dtype} is decoded from storage bits, {storage_dtype(dtype)}; these are {bits.dtype}", datatype=dtype
        )
    bits = bits.astype(storage_dtype(dtype), copy=False)
    if format is not None:
        return format.to_numbers(bits)
    return _cast(bits, dtype, "float32", registry, backend).astype(np.float64)


def can_cast(source: str, target: str, registry: DatatypeRegistry = DATATYPES, backend: str | None = None) -> bool:
    """Whether a cast was registered for these types."""
    lowering = registry.lowering("Cast", backend, target, source)
    return lowering.has(target, source) if isinstance(lowering, Extern) else lowering is not None


def _cast(array: np.ndarray, source: str, target: str, registry: DatatypeRegistry, backend: str | None) -> np.ndarray:
    lowering = registry.lowering("Cast", backend, target, source)
    match lowering:
        case Extern() if lowering.has(target, source):
            return _each(lowering, array, source, target)
        case Lookup(table):
            return np.asarray(table[array])
        case Via() | None | Extern():
            raise DatatypeError(
                f"there is no cast from {source} to {target}; register it with graft.datatypes.register_op(lowering, "
                f"'Cast', {backend!r}, ...)",
                source=source,
                target=target,
            )

    def formula(value: Value) -> Value:
        expression = formula_result(lowering, (value.expression,), f"the lowering of Cast from {source} to {target}")
        return Value(require_stored(expression, "Cast", target))

    return evaluate(formula, array)


def _each(lowering: Extern, array: np.ndarray, source: str, target: str) -> np.ndarray:
    """Call a C function for every different element."""
    symbol = lowering.symbol(target, source)
    assert symbol is not None, (source, target)
    result, argument = C_TYPES[storage_dtype(target)], C_TYPES[storage_dtype(source)]
    function = ctypes.CFUNCTYPE(result, argument)(address_of(symbol, lowering.library))
    values, places = np.unique(array, return_inverse=True)
    results = np.array([function(value) for value in values.tolist()], storage_dtype(target))
    return results[places].reshape(array.shape)
