"""The datatypes that come with Graft."""

from __future__ import annotations

from graft.datatypes.fixed_point import FixedPoint
from graft.datatypes.formats import Format
from graft.datatypes.logarithmic import Logarithmic
from graft.datatypes.native_float import NativeFloat
from graft.datatypes.posit import Posit
from graft.datatypes.registry import DATATYPES as DATATYPES
from graft.datatypes.registry import Datatype, DatatypeRegistry
from graft.datatypes.small_float import SmallFloat
from graft.errors import DatatypeError
from graft.runtime.arguments import FLAG, TEXT, WHOLE, takes

OWNER = "Graft"


def _posit(es: int, bits: int) -> Posit | None:
    return Posit(bits, es) if 3 + es <= bits <= 32 else None


def _ieee(bits: int) -> Format | None:
    if bits in (32, 64):
        return NativeFloat(bits)
    mantissa = {8: 3, 16: 10}.get(bits)
    return None if mantissa is None else SmallFloat(bits, mantissa)


def _fused(bits: int) -> Format | None:
    return NativeFloat(bits, is_fused=True) if bits in (32, 64) else None


def _only(format: Format) -> dict[int, Format]:
    return {format.bits: format}


def ship(registry: DatatypeRegistry) -> None:
    """Register every bundled datatype."""
    registry.register("posit", format=lambda bits: _posit(2, bits), widths=(8, 16, 32), owner=OWNER)
    registry.register("posit_es0", format=lambda bits: _posit(0, bits), widths=(8,), owner=OWNER)
    registry.register("posit_es1", format=lambda bits: _posit(1, bits), widths=(16,), owner=OWNER)
    registry.register("float", format=_ieee, widths=(8, 16), owner=OWNER)
    registry.register("fused_float", format=_fused, widths=(), owner=OWNER)
    for name, row in {
        "bfloat": SmallFloat(16, 7),
        "float8e4m3fn": SmallFloat(8, 3, infinities=False, nan="top", saturate=True),
        "float8e5m2": SmallFloat(8, 2, saturate=True),
        "float8e4m3fnuz": SmallFloat(8, 3, infinities=False, nan="zero", saturate=True, extra_bias=1),
        "float8e5m2fnuz": SmallFloat(8, 2, infinities=False, nan="zero", saturate=True, extra_bias=1),
    }.items():
        registry.register(name, format=_only(row).get, widths=(row.bits,), owner=OWNER)
    fixed: dict[int, Format] = {8: FixedPoint(8, 4), 16: FixedPoint(16, 8), 32: FixedPoint(32, 16)}
    registry.register("fixed", format=fixed.get, widths=tuple(fixed), owner=OWNER)
    logarithmic: dict[int, Format] = {8: Logarithmic(8, 3), 16: Logarithmic(16, 10)}
    registry.register("lns", format=logarithmic.get, widths=tuple(logarithmic), owner=OWNER)


@takes(name=TEXT, exponent=WHOLE, mantissa=WHOLE, infinities=FLAG, subnormals=FLAG, saturate=FLAG)
def register_float(
    name: str, exponent: int, mantissa: int, *, infinities: bool = True, subnormals: bool = True, saturate: bool = False
) -> Datatype:
    """Register a float of any widths, ``custom[name]bits`` with ``bits = 1 + exponent + mantissa``.

    Raises DatatypeError for an exponent of other than 2 to 8 bits or a mantissa of other than 1 to 10 bits.
    """
    if not (2 <= exponent <= 8 and 1 <= mantissa <= 10):
        raise DatatypeError(
            f"a float has 2 to 8 exponent bits and 1 to 10 mantissa bits; '{name}' has {exponent} and {mantissa}",
            datatype=name,
        )
    row = SmallFloat(1 + exponent + mantissa, mantissa, infinities, subnormals, saturate=saturate)
    return DATATYPES.register(name, format=_only(row).get, widths=(row.bits,))


ship(DATATYPES)
register = DATATYPES.register
register_op = DATATYPES.register_op
