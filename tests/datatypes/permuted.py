"""Formats of 8 bits that own lowerings alone define, their codes in another order than the format's."""

from __future__ import annotations

from graft.core.tensor_ir.ir import Expression
from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.formats import Format
from graft.datatypes.lowering import lookup
from graft.datatypes.operations import COMPARISONS, operate
from graft.datatypes.registry import ARITHMETIC, FUNCTIONS, DatatypeRegistry

UNARY = frozenset({"Neg", "Abs", *FUNCTIONS}) - {"Pow"}
OPERATIONS = tuple(one for one in (*ARITHMETIC, *sorted(COMPARISONS), *FUNCTIONS) if one != "Fma")


def register_permuted(registry: DatatypeRegistry, name: str, format: Format, factor: int, offset: int) -> None:
    """Register a format's numbers, that of its code ``c`` at code ``factor * c + offset`` modulo 256 (factor odd)."""
    inverse = pow(factor, -1, 256)

    def moved(number: Value) -> Value:
        return ((format.encode(number).cast("uint32") * factor + offset) & 255).cast("uint8")

    def number(code: Expression) -> Value:
        return format.decode((((Value(code).cast("uint32") + (256 - offset)) * inverse) & 255).cast("uint8"))

    registry.register(name, widths=(8,))
    registry.register_op(lambda x: moved(format.convert(Value(x))), "Cast", None, name, "float32")
    registry.register_op(lambda x: number(x).cast("float32"), "Cast", None, "float32", name)
    for operation in OPERATIONS:

        def result(*codes: Expression, operation: str = operation) -> Value:
            found = operate(format, operation, tuple(map(number, codes)))
            return found.cast("uint8") if operation in COMPARISONS else moved(found)

        table = lookup(result, 8, 1 if operation in UNARY else 2, expressions=True)
        registry.register_op(table, operation, None, name)
