"""The emulator's modules as `tests.plugins.llvm.execute` calls images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graft.plugins.cuda import emulator_module


class EmulatedImage:
    """The functions of a module of the emulator."""

    def __init__(self, data: bytes) -> None:
        self._functions = emulator_module.load("", data, {})

    def status(self, function: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> int:
        """Run a function and fill its outputs; what the emulator finds is raised."""
        for output, result in zip(outputs, self._functions[function](list(inputs)), strict=True):
            np.copyto(output, result.reshape(output.shape))
        return 0
