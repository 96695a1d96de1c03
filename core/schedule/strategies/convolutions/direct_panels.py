"""The weights of a convolution with channels last as its register tiles read them: in panels of output channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.products.image_elements import ImageElements
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import Window


@dataclass(frozen=True, slots=True)
class Panels:
    """The weights as ``[group, panel, window, input channel, channels of the panel]``, zeros behind the last channel.

    To a depthwise convolution all channels are one group of one input channel; packed weights count as one, too.
    Behind them, from element ``tail`` on, are the sums of the weights of each output channel, where they are wanted.
    """

    buffer: ir.Buffer
    groups: int
    outputs: int
    inputs: int
    window: int
    width: int

    @classmethod
    def of(cls, elements: ImageElements, window: Window, tile: RegisterTile) -> Panels:
        """Return the panels for a window's weights in a tile."""
        groups, outputs = (1, window.groups) if window.is_depthwise else (window.groups, window.outputs)
        size, count, inputs = prod(window.windows.kernel), -(-outputs // tile.columns), elements.contents.shape[1]
        terms = size * inputs + (elements.sums is not None)
        extent = b.index(groups * count * terms * tile.columns)
        dtype = str(elements.contents.dtype)
        buffer = ir.Buffer(f"{elements.weights.name}_panels", dtype, (extent,), None, "host", 64)
        return cls(buffer, groups, outputs, inputs, size, tile.columns)

    @property
    def size(self) -> int:
        """The elements of a panel."""
        return self.window * self.inputs * self.width

    @property
    def count(self) -> int:
        """The panels of a group."""
        return -(-self.outputs // self.width)

    @property
    def tail(self) -> int:
        """The elements of all panels."""
        return self.groups * self.count * self.size

    def packed(self, elements: ImageElements) -> np.ndarray:
        """Return the contents."""
        flat = self._in_panels(elements.contents, self.inputs, self.window)
        return flat if elements.sums is None else np.concatenate([flat, self._in_panels(elements.sums, 1, 1)])

    def _in_panels(self, contents: np.ndarray, inputs: int, window: int) -> np.ndarray:
        """Return what is ``[output channel, input channel, window ...]`` in the order of panels."""
        flat = contents.reshape(self.groups, self.outputs, inputs, window)
        padded = np.pad(flat, ((0, 0), (0, self.count * self.width - self.outputs), (0, 0), (0, 0)))
        blocks = padded.reshape(self.groups, self.count, self.width, inputs, window)
        return np.ascontiguousarray(blocks.transpose(0, 1, 4, 3, 2)).reshape(-1)
