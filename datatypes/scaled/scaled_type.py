"""What a scaled type is: elements of a format, blocks of them that share a scale, the scale's format and rule.

The microscaling (MX) types are those of "OCP Microscaling Formats (MX) Specification v1.0" (2023), section 5; NVFP4
is as NVIDIA's Blackwell has it, E2M1 in blocks of 16 under E4M3 and a float32 for the tensor; MSFP is the block
floating point of Darvish Rouhani et al., "Pushing the Limits of Narrow Precision Inferencing" (2020).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from graft.datatypes.formats import Format
from graft.datatypes.shipped import DATATYPES
from graft.errors import DatatypeError
from graft.runtime.arguments import TEXT, takes

ScaleRule = Literal["floor", "even", "ceil", "rceil", "nearest"]
RULES: tuple[ScaleRule, ...] = get_args(ScaleRule)


@dataclass(frozen=True)
class ScaledType:
    """Numbers ``element * scale``: ``block`` of them along an axis share a scale, or all (None).

    ``element`` and ``scale`` are types, ``custom[name]bits``; ``rule`` is how a scale follows from a block
    (`graft.datatypes.scaled.shared_scale`). With ``tensor_scale`` a float32 scales the whole tensor besides. Raises
    DatatypeError for types that are no formats, for a block of no number, and for an unknown rule.
    """

    element: str
    scale: str = "custom[float8e8m0]8"
    block: int | None = 32
    rule: ScaleRule = "floor"
    tensor_scale: bool = False

    def __post_init__(self) -> None:
        _format(self.element)
        _format(self.scale)
        if self.block is not None and self.block < 1:
            raise DatatypeError(f"a block has at least one number, not {self.block}")
        if self.rule not in RULES:
            raise DatatypeError(f"a scale's rule is one of {', '.join(RULES)}, not '{self.rule}'")

    @property
    def element_format(self) -> Format:
        """The format of the elements."""
        return _format(self.element)

    @property
    def scale_format(self) -> Format:
        """The format of the scales."""
        return _format(self.scale)

    @property
    def bits(self) -> float:
        """The bits that a number takes, its share of the scale counted; a scale of a whole axis or tensor is not."""
        return self.element_format.bits + (self.scale_format.bits / self.block if self.block else 0)


def _format(dtype: str) -> Format:
    found = DATATYPES.format(dtype)
    if found is None:
        raise DatatypeError(f"{dtype} has only lowerings; a scaled type is made of formats", datatype=dtype)
    return found


SCALED_TYPES = {
    "mxfp8e4m3": ScaledType("custom[float8e4m3fn]8", rule="rceil"),
    "mxfp8e5m2": ScaledType("custom[float8e5m2]8", rule="rceil"),
    "mxfp6e2m3": ScaledType("custom[float6e2m3]6"),
    "mxfp6e3m2": ScaledType("custom[float6e3m2]6"),
    "mxfp4": ScaledType("custom[float4e2m1]4"),
    "mxint8": ScaledType("custom[mxint]8"),
    "nvfp4": ScaledType("custom[float4e2m1]4", "custom[float8e4m3fn]8", 16, "nearest", tensor_scale=True),
    "msfp12": ScaledType("custom[integer]4", block=16),
    "msfp16": ScaledType("custom[integer]8", block=16),
}
"""The scaled types by name; scales of MXFP8 clip nothing, as the converter of NVIDIA's Blackwell has it, the others of
MX are the specification's."""


def scaled_name(type: ScaledType) -> str:
    """Return the name of a scaled type, with its rule where that is not its own; that of its parts for all others."""
    for name, one in SCALED_TYPES.items():
        if replace(one, rule=type.rule) == type:
            return name if one == type else f"{name}-{type.rule}"
    whole = ", a float32 for the tensor" if type.tensor_scale else ""
    return f"{type.block} {type.element} under {type.scale} ({type.rule}){whole}"


def is_scaled_type(name: str) -> bool:
    """Whether a name, with a rule behind it or not, is that of a scaled type."""
    return name.partition("-")[0] in SCALED_TYPES


@takes(name=TEXT)
def scaled_type(name: str) -> ScaledType:
    """Return a scaled type by its name, which may end with a rule for scales of its own, as in ``mxfp8e4m3-floor``.

    Raises DatatypeError for unknown types and rules.
    """
    kind, dash, rule = name.partition("-")
    if kind not in SCALED_TYPES:
        near = difflib.get_close_matches(kind, SCALED_TYPES, 1)
        hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(SCALED_TYPES)}"
        raise DatatypeError(f"no scaled type is called '{kind}'; {hint}", datatype=kind)
    found = SCALED_TYPES[kind]
    return replace(found, rule=cast(ScaleRule, rule)) if dash else found  # which refuses another rule
