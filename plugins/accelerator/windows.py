"""Copies between DRAM and the accelerator as windows of transfers: rows of columns with padding around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from graft.plugins.accelerator.isa import Load, Memory, Store
from graft.plugins.accelerator.tiling import MOST_ROW


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of a copy: its extent, which of it lies in the tensor, and entries of DRAM from one to the next."""

    extent: int
    start: int
    stop: int
    stride: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is padding."""
        return self.start == 0 and self.stop == self.extent


@dataclass(frozen=True, slots=True)
class Window:
    """A transfer: entries on the accelerator from ``sram`` on, rows and columns in DRAM from ``dram`` on."""

    sram: int
    dram: int
    rows: Axis
    columns: Axis

    def load(self, memory: Memory, base: int, pad_value: int) -> Load:
        """Return the instruction that fills entries from a base on."""
        rows, columns = self.rows, self.columns
        return Load(
            memory=memory, sram=base + self.sram, dram=self.dram, rows=rows.stop - rows.start,
            columns=columns.stop - columns.start, stride=rows.stride, pad_top=rows.start,
            pad_bottom=rows.extent - rows.stop, pad_left=columns.start, pad_right=columns.extent - columns.stop,
            pad_value=0 if rows.is_whole and columns.is_whole else pad_value,
        )  # fmt: skip

    def store(self, base: int) -> Store:
        """Return the instruction that writes entries from a base on."""
        rows, columns = self.rows, self.columns
        return Store(
            sram=base + self.sram, dram=self.dram, rows=rows.extent, columns=columns.extent, stride=rows.stride
        )


def windows_of(first: int, axes: Sequence[Axis]) -> Iterator[Window]:
    """Yield the transfers of a copy from or to an address; entries on the accelerator lie one after another, from 0."""
    first += sum(one.start * one.stride for one in axes)
    merged: list[Axis] = []
    for one in axes:
        if one.extent == 1 and one.is_whole:
            continue
        both = _joined(merged[-1], one) if merged else None
        if both is not None:
            merged[-1] = both
        else:
            merged.append(one)
    columns = merged.pop() if merged and merged[-1].stride == 1 else Axis(1, 0, 1, 1)
    fits = merged and max(merged[-1].stride, merged[-1].extent) < MOST_ROW
    rows = merged.pop() if fits else Axis(1, 0, 1, 0)
    for number, values in enumerate(product(*(range(one.extent) for one in merged))):
        dram = first + sum(value * one.stride for value, one in zip(values, merged, strict=True))
        # what is padding alone may begin before the tensor: nothing is read of it
        yield Window(number * rows.extent * columns.extent, max(dram, 0), rows, columns)


def _joined(outer: Axis, inner: Axis) -> Axis | None:
    """Return two axes as one, None where that is no axis."""
    extent = outer.extent * inner.extent
    follows = outer.is_whole and inner.is_whole and outer.stride == inner.stride * inner.extent
    return Axis(extent, 0, extent, inner.stride) if follows and extent < MOST_ROW else None
