"""ONNX Runtime in a process of its own, started again when a model ends it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

WORKER = Path(__file__).with_name("worker.py")


@dataclass
class Peer:
    """Answers of ONNX Runtime; a model that ends its process is refused, and not asked again."""

    crashed: set[bytes] = field(default_factory=set)
    """The models that ended the process."""
    _process: subprocess.Popen[bytes] | None = None

    def answer(
        self, model: bytes, outputs: Sequence[str], feeds: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray] | None:
        """Return the outputs by name; None where ONNX Runtime refuses, or crashes."""
        if model in self.crashed:
            return None
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump((model, list(outputs), dict(feeds)), process.stdin)
            process.stdin.flush()
            found: dict[str, np.ndarray] | None = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):  # it died: on reading, on writing, within a reply
            self.crashed.add(model)
            self.close()
            return None
        return found

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._process
