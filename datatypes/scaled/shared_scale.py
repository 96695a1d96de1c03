"""The scale that a block's numbers share, as a rule of the largest magnitude among them.

Four rules give a power of two. With ``emax`` the exponent of the element format's largest numbers, the exponent is

- ``floor``: that of the largest magnitude, less emax: OCP's MX specification 1.0, section 6.3. What lies above the
  largest number of the element format is clipped;
- ``even``: the same of the magnitude rounded to the significant bits of the element format first;
- ``ceil``: the one of the least power of two that is not below the largest magnitude, less emax;
- ``rceil``: the least for which nothing is clipped.

``nearest`` divides the largest magnitude by the largest number of the element format, and rounds to the nearest scale.
A posit has no largest number that one would scale by: its emax is that of the shortest regime, where its fraction is
longest, and "largest" is the last number there.

The specification leaves open what follows here. A block of zeros has the least scale. An exponent beyond those of the
scale's format is the nearest that it has, so elements saturate or underflow. A block that holds NaN or an infinity has
the scale NaN, which makes all of it NaN.
"""

from __future__ import annotations

import math

import numpy as np

from graft.datatypes.formats import Format
from graft.datatypes.rounding import to_bits
from graft.datatypes.scaled.scaled_type import ScaledType


def scale_codes(type: ScaledType, largest: np.ndarray, tensor_scale: float) -> np.ndarray:
    """Return the scales (storage bits of the scale's format) of blocks with these largest magnitudes (float64)."""
    element, scale = type.element_format, type.scale_format
    finite = np.where(np.isfinite(largest), largest, 0.0)
    if type.rule == "nearest":
        numbers = finite / (full_largest(element) * tensor_scale)
    else:
        numbers = np.ldexp(1.0, _exponents(type, finite / tensor_scale))
    numbers = np.where(finite == 0.0, 0.0 if scale.lowest <= 0 else scale.smallest, numbers)
    codes = to_bits(scale, numbers, "nearest", saturate=True)
    return np.where(np.isfinite(largest), codes, to_bits(scale, np.array(math.nan), "nearest"))


def _exponents(type: ScaledType, largest: np.ndarray) -> np.ndarray:
    """Return the exponents of powers of two, limited to those of the scale's format."""
    element, scale = type.element_format, type.scale_format
    part, exponent = np.frexp(largest)  # a part of 1/2 to 1
    match type.rule:
        case "even":
            half_place = 0.0 if element.significant is None else math.ldexp(0.5, -element.significant)
            shift = (part >= 1.0 - half_place) - 1
        case "ceil":
            shift = (part > 0.5) - 1
        case "rceil":
            limit, limit_exponent = math.frexp(full_largest(element))
            shift = (part > limit) - limit_exponent + element.top_exponent
        case _:
            shift = np.int64(-1)
    least, most = (math.frexp(one)[1] - 1 for one in (scale.smallest, scale.largest))
    return np.asarray(np.clip(exponent + shift - element.top_exponent, least, most))


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
