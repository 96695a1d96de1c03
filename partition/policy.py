"""Options of placement, beside the order of backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from graft.runtime.arguments import DURATION, FLAG, NUMBER, TEXT_BY_TEXT, TEXTS, at_least, either, optional, require

MatchOrder = Literal["table", "longest"]
PlacementMode = Literal["auto", "greedy", "model", "measured"]
ORDERS: tuple[MatchOrder, ...] = get_args(MatchOrder)
PLACEMENTS: tuple[PlacementMode, ...] = get_args(PlacementMode)
FIELDS = {
    "min_region_ops": at_least(0), "min_region_flops": NUMBER, "max_regions": optional(at_least(0)),
    "max_region_layers": optional(at_least(1)),
    "exclude_op": TEXTS, "exclude_node": TEXTS, "pin": TEXT_BY_TEXT, "match_order": either(*ORDERS),
    "duplicate_dominated": FLAG, "placement": optional(either(*PLACEMENTS)), "search_budget": at_least(0),
    "measure_seconds": DURATION,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Policy:
    """Options of placement; the defaults leave everything to the order of backends.

    A region below ``min_region_ops`` or ``min_region_flops`` is taken from its backend (reason
    ``region-too-small``), as are the smallest regions of a backend beyond ``max_regions``; the nodes go to the next
    backend. Bounds hold for every backend but those that are a ``fallback``, which must be there to take what is left.
    """

    min_region_ops: int = 0
    min_region_flops: int = 0
    max_regions: int | None = None
    """The most regions that one backend may have in the model."""
    max_region_layers: int | None = None
    """The most composites and single operators that a region may have; a larger one is parted."""
    exclude_op: tuple[str, ...] = ()
    """Operators that no backend but the fallbacks may have: ``Softmax``, or ``onednn:Softmax`` for one backend."""
    exclude_node: tuple[str, ...] = ()
    """Nodes likewise, by name: ``conv1`` or ``onednn:conv1``."""
    allow_inaccurate: tuple[str, ...] = ()
    """Operators that a backend may have although it refuses them for ``accuracy``: ``Log``, or ``onednn:Log``."""
    pin: Mapping[str, str] = field(default_factory=dict)
    """Node name to the backend that must have it."""
    match_order: MatchOrder = "table"
    """Whether a backend's composites choose by the rows of its table or the larger match first."""

    duplicate_dominated: bool = False
    """Whether a composite may compute a value again that is needed outside too, but only on the way to its root."""
    placement: PlacementMode | None = None
    """``greedy``: the first backend that takes a node. ``auto``, ``model``, ``measured``: the cheapest plan that is
    found, by recorded times or else the model, by the model alone, by times measured now. None: ``auto`` where the user
    names no backends, else ``greedy``, and the plan says what another placement would gain.
    """
    search_budget: int = 64
    """The most plans that are looked at where placement goes by cost."""
    measure_seconds: float = 10.0
    """The time that ``measured`` may take beyond compiling what the built-in compiler alone makes of the model."""

    def __post_init__(self) -> None:
        for name, kind in FIELDS.items():
            require("Policy", name, getattr(self, name), kind)

    @property
    def bounds_regions(self) -> bool:
        """Whether regions must be looked at after merging."""
        return self.min_region_ops > 1 or self.min_region_flops > 0 or self.max_regions is not None
