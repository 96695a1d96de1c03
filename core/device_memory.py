"""The memory of a device, as a limit of what a region may need."""

from __future__ import annotations

from dataclasses import dataclass

from graft.runtime.arguments import at_least, optional, require


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a device has room for at a time, in bytes; None: whatever it gets.

    ``weights`` are the constants of a region. ``activations`` are the values that a region needs at one time, its
    inputs and outputs among them; what a composite computes inside of it does not count.
    """

    weights: int | None = None
    activations: int | None = None

    def __post_init__(self) -> None:
        require("DeviceMemory", "weights", self.weights, optional(at_least(0)))
        require("DeviceMemory", "activations", self.activations, optional(at_least(0)))

    def lacking(self, weights: int, activations: int) -> str:
        """Return what there is no room for, "" where there is."""
        for what, needed, room in (
            ("weights", weights, self.weights), ("activations", activations, self.activations)
        ):  # fmt: skip
            if room is not None and needed > room:
                return f"{what} of {needed:,} B, and the device has room for {room:,} B"
        return ""
