"""The scale that a block's numbers share, as a rule of the largest magnitude among them.

Four rules give a power of two. With ``emax`` the exponent of the element format's largest numbers, the exponent is

- ``floor``: that of the largest magnitude, less emax: OCP's MX specification 1.0, section 6.3. What lies above the
  largest number of the element format is clipped;
- ``even``: the same of the magnitude rounded to the significant bits of the element format first;
- ``ceil``: the one of the least power of two that is not below the largest magnitude, less emax;
- ``rceil``: the least for which nothing is clipped.

Each is an integer that is added to the magnitude's bits before all but the exponent is cut off. ``nearest`` divides the
largest magnitude by the largest number of the element format, and rounds to the nearest scale. A posit has no largest
number that one would scale by: its emax is that of the shortest regime, where its fraction is longest, and "largest" is
the last number there.

The specification leaves open what follows here. A block of zeros has the least scale. An exponent beyond those of the
scale's format is the nearest that it has, so elements saturate or underflow. A block that holds NaN or an infinity has
the scale NaN, which makes all of it NaN.
"""

from __future__ import annotations

import math

import numpy as np

from graft.core.tensor_ir.arithmetic.exact_rounding import divide_to_odd
from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format
from graft.datatypes.rounding import Rounding, rounded
from graft.datatypes.scaled.scaled_type import ScaledType

_PLACES = 52
_BIAS = 1023


def shared_scale(type: ScaledType, largest: Value, tensor_scale: Value) -> Value:
    """Return the storage bits of the scale of a block with this largest magnitude (float64).

    ``tensor_scale`` is a positive float64, 1 for types without one.
    """
    element, scale = type.element_format, type.scale_format
    if type.rule == "nearest":
        number = largest / (tensor_scale * full_largest(element))
    else:
        if type.tensor_scale:
            largest = largest / tensor_scale
        exponent = ((largest.bits("int64") + _added(type)) >> _PLACES) - (_BIAS + element.top_exponent)
        least, most = (math.frexp(one)[1] - 1 for one in (scale.smallest, scale.largest))
        number = ((exponent.clamp(max(least, 1 - _BIAS), most) + _BIAS) << _PLACES).bits("float64")
    number = select(largest < math.inf, number, number.constant(math.nan))
    if type.rule == "nearest" and scale.lowest > 0:
        number = select(largest.equals(0.0), scale.smallest, number)
    return scale.encode(rounded(scale, number, "nearest", saturate=True))


def scaled_element(
    type: ScaledType, number: Value, scale: Value, tensor_scale: Value, rounding: Rounding, random: Value | None = None
) -> Value:
    """Return the storage bits of the element that a number (float64) is under a scale, given by its bits."""
    format = type.element_format
    factor = type.scale_format.number(scale)
    known = (factor > 0.0) & (factor < math.inf)
    if type.tensor_scale:
        factor = factor * tensor_scale
    exact = type.scale_format.significant == 1 and not type.tensor_scale
    held, divisor = select(known, number, number.constant(0.0)), select(known, factor, factor.constant(1.0))
    quotient = held / divisor if exact else divide_to_odd(held, divisor)
    return format.encode(rounded(format, quotient, rounding, saturate=True, random=random))


def _added(type: ScaledType) -> int:
    """Return what a rule adds to the bits of a float64, so that what is then cut off rounds as it says."""
    element, all_places = type.element_format, (1 << _PLACES) - 1
    match type.rule:
        case "even":
            return 0 if element.significant is None else 1 << (_PLACES - element.significant)
        case "ceil":
            return all_places
        case "rceil":
            fraction = int(np.float64(full_largest(element)).view(np.int64)) & all_places
            return all_places - fraction
        case _:
            return 0


def full_largest(element: Format) -> float:
    """Return the largest number of a format that has all significant bits."""
    if element.significant is None:
        return element.largest
    return min(element.largest, math.ldexp(2.0 - math.ldexp(2.0, -element.significant), element.top_exponent))


def tensor_scale_of(type: ScaledType, numbers: np.ndarray) -> float:
    """Return the float32 that makes the largest finite magnitude the largest element times the largest scale; 1 for 0.

    It is never 0: for magnitudes below 2**-149 times that product it is 2**-149.
    """
    if not type.tensor_scale:
        return 1.0
    largest = float(np.max(np.abs(numbers), where=np.isfinite(numbers), initial=0.0))
    if largest == 0.0:
        return 1.0
    scale = largest / (full_largest(type.element_format) * type.scale_format.largest)
    return float(np.float32(min(max(scale, 2.0**-149), float(np.finfo(np.float32).max))))
