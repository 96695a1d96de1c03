"""The parameters of schedules as data: what tuning varies, what a database keeps, what a cache key holds.

A parameter that is None is left to the schedule's own, analytical choice; one that does not fit a kernel (a tile larger
than the result) is brought to the nearest value that does. So any parameters give a correct kernel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, Literal, Protocol, TypeVar

from graft.errors import TuningError
from graft.runtime.system.json_text import parse_json

Packing = Literal["packed by product", "packed by panel", "packed at once"]
PACKINGS: tuple[Packing, ...] = ("packed by product", "packed by panel", "packed at once")
Columns = Literal["pixels", "channels"]
COLUMNS: tuple[Columns, ...] = ("pixels", "channels")
Unit = Literal["thread", "warp", "warpgroup"]
UNITS: tuple[Unit, ...] = ("thread", "warp", "warpgroup")


@dataclass(frozen=True, slots=True)
class ContractionParameters:
    """A sum of products; for a convolution: that it is computed directly, as such a sum."""

    family: ClassVar[str] = "contraction"
    rows: int | None = None
    """The rows of a register tile ..."""
    vectors: int | None = None
    """... and its vectors."""
    unroll: int | None = None
    """Terms that one pass of the innermost loop adds."""
    block_bytes: int | None = None
    """Rows of the left factor are taken in blocks of this size."""
    span_bytes: int | None = None
    """Terms of a row that are summed at one time."""
    packing: Packing | None = None
    """How much of a right factor that is copied at run time is copied at one time."""
    columns: Columns | None = None
    """What becomes vectors, in a convolution."""


@dataclass(frozen=True, slots=True)
class WinogradParameters:
    """A 3x3 convolution by Winograd's algorithm on pieces of ``pieces x pieces`` pixels, in blocks of some."""

    family: ClassVar[str] = "winograd_blocks"
    pieces: int
    block: int | None = None
    rows: int | None = None
    vectors: int | None = None
    columns: Columns | None = None


@dataclass(frozen=True, slots=True)
class AttentionParameters:
    """Attention: the register tile of both products, and the keys of a block."""

    family: ClassVar[str] = "attention"
    rows: int | None = None
    vectors: int | None = None
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class BlockTileParameters:
    """A product by blocks of threads: sums of a block, and of a thread, warp or warpgroup of it; stages; splits."""

    family: ClassVar[str] = "block_tile"
    rows: int
    columns: int
    own_rows: int
    own_columns: int
    unit: Unit
    """What has its own part of the sums."""
    stages: int | None = None
    """Stages of both factors that a block has in its memory."""
    splits: int | None = None
    """Parts of the terms that blocks have each."""
    bulk: bool | None = None
    """Whether a constant factor comes by bulk copies."""


@dataclass(frozen=True, slots=True)
class AttentionTileParameters:
    """Attention by blocks of threads: rows of queries of a block, and keys whose scores it has at one time."""

    family: ClassVar[str] = "attention_tile"
    queries: int
    keys: int
    stages: int | None = None
    """Tiles of keys and values in memory at one time."""


@dataclass(frozen=True, slots=True)
class BlockParameters:
    """Rows and elements by blocks of threads: threads of a block, and neighbouring elements of a thread."""

    family: ClassVar[str] = "block"
    threads: int | None = None
    lanes: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleParameters:
    """Any kernel by a schedule that is given as text, for the loops of `graft.core.schedule.products.plain_kernel`."""

    family: ClassVar[str] = "schedule"
    steps: str
    """A step per line (`graft.core.schedule.primitives.schedule_text`)."""


Parameters = (
    ContractionParameters
    | WinogradParameters
    | AttentionParameters
    | BlockTileParameters
    | AttentionTileParameters
    | BlockParameters
    | ScheduleParameters
)
_FAMILIES: tuple[type[Parameters], ...] = (
    ContractionParameters, WinogradParameters, AttentionParameters, BlockTileParameters,
    AttentionTileParameters, BlockParameters, ScheduleParameters,
)  # fmt: skip
FAMILIES: dict[str, type[Parameters]] = {one.family: one for one in _FAMILIES}
RETIRED = ("depthwise", "winograd")
"""Families of earlier versions: what is kept of them is void."""
_TEXTS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("contraction", "packing"): PACKINGS,
    ("contraction", "columns"): COLUMNS,
    ("winograd_blocks", "columns"): COLUMNS,
    ("block_tile", "unit"): UNITS,
}


class _Family(Protocol):
    family: ClassVar[str]


Chosen = TypeVar("Chosen", bound=_Family)


def of_family(parameters: Parameters | None, family: type[Chosen]) -> Chosen | None:
    """Return the parameters if they are of a family; None leaves everything to the schedule."""
    return parameters if isinstance(parameters, family) else None


def to_json(parameters: Parameters | None) -> str:
    """Return one line of JSON, the same for equal parameters; ``null`` for the analytical choice."""
    if parameters is None:
        return "null"
    given = {name: value for name, value in asdict(parameters).items() if value is not None}
    return json.dumps({"family": parameters.family, **given})


def is_void(text: str) -> bool:
    """Whether a text is of parameters that there were once."""
    return text.startswith(tuple(f'{{"family": "{family}"' for family in RETIRED))


def from_json(text: str) -> Parameters | None:
    """Return what `to_json` wrote; raise TuningError for anything else, saying what is wrong."""
    try:
        data = parse_json(text)
    except ValueError as error:
        raise TuningError(f"parameters {text!r} are no JSON: {error}", text=text) from error
    if data is None:
        return None
    family = FAMILIES.get(data.pop("family", "")) if isinstance(data, dict) else None
    if family is None:
        raise TuningError(f"parameters {text!r} are of no known family; there are {', '.join(FAMILIES)}", text=text)
    known = {field.name for field in fields(family)}
    for name, value in data.items():
        if name not in known or not _is_valid(family.family, name, value):
            raise TuningError(f"parameters {text!r} of a {family.family} have no {name} {value!r}", text=text)
    try:
        return family(**data)
    except TypeError as error:
        raise TuningError(f"parameters {text!r} are not complete: {error}", text=text) from error


def _is_valid(family: str, name: str, value: object) -> bool:
    if (family, name) in _TEXTS:
        return value in _TEXTS[family, name]
    if (family, name) == ("schedule", "steps"):
        return isinstance(value, str) and bool(value.strip())
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
