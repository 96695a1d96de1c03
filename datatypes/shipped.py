"""The datatypes that come with Graft."""

from __future__ import annotations

from typing import Literal

from graft.datatypes.fixed_point import FixedPoint
from graft.datatypes.formats import Format
from graft.datatypes.logarithmic import Logarithmic
from graft.datatypes.native_float import NativeFloat
from graft.datatypes.posit import Posit
from graft.datatypes.power_of_two import PowerOfTwo
from graft.datatypes.registry import DATATYPES as DATATYPES
from graft.datatypes.registry import Datatype, DatatypeRegistry
from graft.datatypes.small_float import SmallFloat
from graft.errors import DatatypeError
from graft.runtime.arguments import FLAG, TEXT, WHOLE, either, optional, takes

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


def _integer(bits: int) -> FixedPoint | None:
    """Return whole numbers of as many negative as positive ones, to be scaled."""
    return FixedPoint(bits, 0, symmetric=True) if 2 <= bits <= 32 else None


def _int(bits: int) -> FixedPoint | None:
    """Return two's complement, which saturates."""
    return FixedPoint(bits, 0) if 2 <= bits <= 32 else None


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
        "float6e2m3": SmallFloat(6, 3, infinities=False, nan="none"),
        "float6e3m2": SmallFloat(6, 2, infinities=False, nan="none"),
        "float4e2m1": SmallFloat(4, 1, infinities=False, nan="none"),
        "float8e8m0": PowerOfTwo(8),
    }.items():
        registry.register(name, format=_only(row).get, widths=(row.bits,), owner=OWNER)
    fixed: dict[int, Format] = {8: FixedPoint(8, 4), 16: FixedPoint(16, 8), 32: FixedPoint(32, 16)}
    registry.register("fixed", format=fixed.get, widths=tuple(fixed), owner=OWNER)
    registry.register("mxint", format=_only(FixedPoint(8, 6, symmetric=True)).get, widths=(8,), owner=OWNER)
    registry.register("integer", format=_integer, widths=(4, 8, 16), owner=OWNER)
    registry.register("int", format=_int, widths=(8, 16, 24, 32), owner=OWNER)
    logarithmic: dict[int, Format] = {8: Logarithmic(8, 3), 16: Logarithmic(16, 10)}
    registry.register("lns", format=logarithmic.get, widths=tuple(logarithmic), owner=OWNER)


@takes(
    name=TEXT,
    exponent=WHOLE,
    mantissa=WHOLE,
    infinities=optional(FLAG),
    subnormals=FLAG,
    saturate=FLAG,
    bias=optional(WHOLE),
    nan=either("ieee", "top", "zero", "none"),
)
def register_float(
    name: str,
    exponent: int,
    mantissa: int,
    *,
    infinities: bool | None = None,
    subnormals: bool = True,
    saturate: bool = False,
    bias: int | None = None,
    nan: Literal["ieee", "top", "zero", "none"] = "ieee",
) -> Datatype:
    """Register a float of any widths, ``custom[name]bits`` with ``bits = 1 + exponent + mantissa``.

    ``nan`` is where NaN is: at the ``"ieee"`` place, the ``"top"`` code (E4M3), that of negative ``"zero"`` (FNUZ,
    P3109), or ``"none"``: all codes are finite numbers (FP6, FP4). ``infinities`` are IEEE's, which alone has them
    unless told otherwise, or with ``"zero"`` the last code. ``bias`` is ``2**(exponent - 1) - 1`` unless given.

    Raises DatatypeError for an exponent of other than 2 to 8 bits, a mantissa of other than 1 to 10 bits, a bias that
    makes numbers no normal float32s, and infinities without a code.
    """
    if not (2 <= exponent <= 8 and 1 <= mantissa <= 10):
        raise DatatypeError(
            f"a float has 2 to 8 exponent bits and 1 to 10 mantissa bits; '{name}' has {exponent} and {mantissa}",
            datatype=name,
        )
    if infinities and nan in ("top", "none"):
        raise DatatypeError(
            f"with nan='{nan}' there is no code for infinity; '{name}' has infinities with nan='ieee' or 'zero'",
            datatype=name,
        )
    usual = (1 << (exponent - 1)) - 1
    least, most = (1 << exponent) - 127, 126 - mantissa
    if bias is not None and bias != usual and not least <= bias <= most:
        others = f", or from {least} to {most}" if least <= most else ""
        raise DatatypeError(f"the bias of '{name}' may be {usual}{others}, not {bias}", datatype=name, bias=bias)
    row = SmallFloat(
        1 + exponent + mantissa,
        mantissa,
        nan == "ieee" if infinities is None else infinities,
        subnormals,
        nan,
        saturate,
        0 if bias is None else bias - usual,
    )
    return DATATYPES.register(name, format=_only(row).get, widths=(row.bits,))


@takes(name=TEXT, bits=WHOLE, fraction=WHOLE, symmetric=FLAG)
def register_fixed(name: str, bits: int, fraction: int, *, symmetric: bool = False) -> Datatype:
    """Register fixed point, ``custom[name]bits``: signed integers of ``bits`` bits times ``2**-fraction``, saturating.

    A ``symmetric`` one is never rounded to the least integer. Raises DatatypeError for other than 2 to 32 bits, and for
    a fraction of other than -64 to 64 bits.
    """
    if not (2 <= bits <= 32 and -64 <= fraction <= 64):
        raise DatatypeError(
            f"fixed point has 2 to 32 bits, -64 to 64 of them behind the point; '{name}' has {bits} and {fraction}",
            datatype=name,
        )
    row = FixedPoint(bits, fraction, symmetric)
    return DATATYPES.register(name, format=_only(row).get, widths=(bits,))


ship(DATATYPES)
register = DATATYPES.register
register_op = DATATYPES.register_op
