"""The ways to lower an operation of a custom datatype: C symbols, expressions, a wider float, tables.

A lowering gets the operands as storage bits (ordinary numbers where a Cast starts from them) and gives the result's
bits. It is one of

- ``create_lower_func({16: "Posit16Add"})``: C functions by width, one call per element;
- a Python function from expressions to an expression of the storage type: inlined, vectorised;
- ``via("float32")``: cast, compute, cast back; for those who know that this is exact;
- ``lookup(table, 8)``: an array with one entry per operand, or pair of operands, of at most 8 bits, given or made from
  any of the first two or a NumPy function.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, TypeAlias, cast, get_args

import numpy as np

from graft.core.tensor_ir.ir import Expression, Intrinsic
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import Type, is_custom, parse_custom, storage_dtype
from graft.errors import DatatypeError, GraftError
from graft.runtime.arguments import FLAG, PATH, TEXT, at_least, instance, optional, takes
from graft.runtime.foreign import shown


@dataclass(frozen=True)
class Extern:
    """C functions by width (of a Cast: by (source bits, bits)), in a library or already in this process."""

    symbols: Mapping[int | tuple[int, int], str]
    library: str | None = None

    def __hash__(self) -> int:
        return hash((tuple(sorted(map(str, self.symbols.items()))), self.library))

    def has(self, dtype: str, source: str | None) -> bool:
        """Whether there is a symbol for a width."""
        return self.symbol(dtype, source) is not None

    def call(self, arguments: Sequence[Expression], dtype: str, source: str | None) -> Intrinsic:
        """Return the call for the result type ``dtype``; raise DatatypeError if there is none."""
        symbol = self.symbol(dtype, source)
        assert symbol is not None, (dtype, source)
        lanes = arguments[0].type.lanes if arguments else 1
        name = f"extern:{symbol}@{library_of(symbol, self.library)}"
        return Intrinsic(name, tuple(arguments), Type(storage_dtype(dtype), lanes))

    def symbol(self, dtype: str, source: str | None = None) -> str | None:
        """Return the C function for a width, None if there is none."""
        widths = [bits_of(kind) for kind in (source, dtype) if kind is not None]
        if len(widths) == 2 and (widths[0], widths[1]) in self.symbols:
            return self.symbols[(widths[0], widths[1])]
        custom = next((bits_of(kind) for kind in (dtype, source) if kind is not None and is_custom(kind)), None)
        return None if custom is None else self.symbols.get(custom)


@dataclass(frozen=True)
class Via:
    """Cast to a float, compute there, cast back."""

    carrier: str


@dataclass(frozen=True, eq=False)
class Lookup:
    """A table of results: ``table[x]``, or ``table[x * 2**bits + y]``."""

    table: np.ndarray
    bits: int
    operands: int


Formula: TypeAlias = Callable[..., Expression]
Lowering: TypeAlias = "Extern | Via | Lookup | Formula"


@takes(library=optional(PATH))
def create_lower_func(symbols: Mapping[int | tuple[int, int], str], library: str | None = None) -> Extern:
    """Return the lowering that calls C functions by width: ``create_lower_func({16: "PositAdd"}, "libposit.so")``.

    Of a Cast the key is ``(source bits, bits)``. Without ``library`` the symbols must be in the process already. A
    path is kept as an absolute one, for programs are loaded from other directories; a name alone is a soname.
    Raises DatatypeError if a symbol is not found.
    """
    library = None if library is None else os.fspath(library)
    if not isinstance(symbols, Mapping) or not symbols:
        raise DatatypeError(f"symbols go by width, as in {{16: 'PositAdd'}}; this is {shown(symbols)}", symbols=symbols)
    for width, symbol in symbols.items():
        pair = isinstance(width, tuple) and len(width) == 2 and all(isinstance(bits, int) for bits in width)
        if not isinstance(symbol, str) or not (isinstance(width, int) or pair):
            raise DatatypeError(
                "a symbol is a name by its width, or in a Cast by (source bits, bits); "
                f"{shown(width)}: {shown(symbol)} is neither",
                width=width,
            )
        address_of(symbol, library)
    return Extern(dict(symbols), os.path.abspath(library) if library is not None and os.sep in library else library)


@takes(carrier=TEXT)
def via(carrier: str) -> Via:
    """Return the lowering that computes in ``float32`` or ``float64`` and rounds once more.

    Raise DatatypeError for another carrier.
    """
    if carrier not in ("float32", "float64"):
        raise DatatypeError(f"an operation can go through float32 or float64, not through '{carrier}'", carrier=carrier)
    return Via(carrier)


@takes(
    table=instance(np.ndarray, Extern, Callable, wanted="an array, what create_lower_func returns, or a function"),  # type: ignore[arg-type]
    bits=at_least(1), operands=at_least(1), expressions=FLAG,
)  # fmt: skip
def lookup(
    table: np.ndarray | Extern | Callable[..., object], bits: int, operands: int = 2, *, expressions: bool = False
) -> Lookup:
    """Return the lowering by a table of ``2**(bits * operands)`` results, of at most 8 bits per operand.

    ``table`` is an array, flat or with an axis of all codes for each operand; or what computes one now: C functions
    (`create_lower_func`), a NumPy function of ``operands`` arrays of storage bits, or, with ``expressions``, a function
    of tensor-IR expressions. Raises DatatypeError for a table of another size and for a function that fails.
    """
    if bits > 8:
        raise DatatypeError(f"a table of operands of {bits} bits is too large; tables are for up to 8 bits", bits=bits)
    size = 1 << (bits * operands)
    if isinstance(table, Extern) or callable(table):
        codes = np.arange(size, dtype=np.uint32)
        parts = [(codes >> (bits * (operands - 1 - place))) & ((1 << bits) - 1) for place in range(operands)]
        table = _tabulated(table, [part.astype(np.uint8) for part in parts], bits, expressions)
    table = np.asarray(table)
    if operands > 1 and table.shape == (1 << bits,) * operands:
        table = table.reshape(size)
    if table.shape != (size,):
        raise DatatypeError(
            f"a table for {operands} operands of {bits} bits has {size} entries, this one has shape {table.shape}",
            size=size,
        )
    return Lookup(np.ascontiguousarray(table), bits, operands)


def _tabulated(
    function: Extern | Callable[..., object], codes: list[np.ndarray], bits: int, expressions: bool
) -> np.ndarray:
    if isinstance(function, Extern):
        symbol = function.symbols.get(bits)
        if symbol is None:
            raise DatatypeError(f"a table of {bits} bits needs the C function of that width", bits=bits)
        call = ctypes.CFUNCTYPE(ctypes.c_uint8, *[ctypes.c_uint8] * len(codes))(address_of(symbol, function.library))
        return np.array([call(*row) for row in zip(*(part.tolist() for part in codes), strict=True)], np.uint8)
    if expressions:
        from graft.datatypes.formats import evaluate

        formula = function
        return evaluate(
            lambda *x: Value(formula_result(formula, tuple(v.expression for v in x), "the function of a table")), *codes
        )
    return np.asarray(_result(function, tuple(codes), "the function of a table"))


def formula_result(formula: Callable[..., object], operands: tuple[Expression, ...], what: str) -> Expression:
    """Return the expression (a `Value`'s too) that a Python lowering gives.

    ``what`` names the lowering in messages. Raises DatatypeError if the function raises or gives something else.
    """
    result = _result(formula, operands, what)
    result = result.expression if isinstance(result, Value) else result
    if not isinstance(result, get_args(Expression)):
        raise DatatypeError(
            f"{what} gives {type(result).__name__}; return an expression of the tensor IR",
            operation=what,
        )
    return cast(Expression, result)


def _result(function: Callable[..., object], operands: tuple[object, ...], what: str) -> object:
    try:
        return function(*operands)
    except GraftError:
        raise
    except Exception as error:
        raise DatatypeError(
            f"{what} fails for {len(operands)} operands: {type(error).__name__}: {error}",
            operation=what,
        ) from error


def lowering_of(given: object, op: str, datatype: str) -> Lowering:
    """Return ``given`` if it is a lowering; raise DatatypeError otherwise."""
    if isinstance(given, Extern | Via | Lookup) or callable(given):
        return given
    raise DatatypeError(
        f"the lowering of {op} of '{datatype}' is a {type(given).__name__}; give create_lower_func(...), a function of "
        "expressions, via(...) or lookup(...)",
        operation=op,
    )


def bits_of(dtype: str) -> int:
    """Return the width of a type's numbers: 16 for ``custom[posit]16`` and ``int16``."""
    from graft.core.types import element_bits

    return parse_custom(dtype)[1] if is_custom(dtype) else element_bits(dtype)


@cache
def library_of(symbol: str, library: str | None) -> str:
    """Return the library that programs name to call a C function: the given one, or the one that has it here."""
    if library is not None:
        return library
    found = _Place()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(address_of(symbol, None)), ctypes.byref(found))
    path = (found.library or b"").decode()
    name = path.rpartition("/")[2]
    try:
        ctypes.CDLL(name)
    except OSError:
        return path
    return name


class _Place(ctypes.Structure):
    """What ``dladdr`` tells (POSIX.1-2024)."""

    _fields_: ClassVar = [
        ("library", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("at", ctypes.c_void_p),
    ]  # fmt: skip


@cache
def address_of(symbol: str, library: str | None) -> int:
    """Return the address of a C function in this process; raise DatatypeError if library or symbol is not found."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise DatatypeError(f"library '{library}' cannot be loaded: {error}", library=library) from error
    where = f"library '{library}'" if library is not None else "this process; name the library that has it"
    try:
        function = getattr(loaded, symbol)
    except AttributeError:
        raise DatatypeError(f"symbol '{symbol}' is not found in {where}", symbol=symbol) from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, symbol
    return address
