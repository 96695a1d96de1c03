"""The native runtime's Python module, built from runtime/native."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

class Artifact:
    """An open artifact (a capsule): what keeps its file mapped."""

class Program:
    """A loaded program; calling it with one array per input runs it."""

    def __init__(
        self,
        manifest: bytes,
        modules: Sequence[tuple[str, str, bytes, dict[str, np.ndarray]]],
        constants: dict[str, np.ndarray],
        loaders: Sequence[tuple[str, Any]],
        threads: int,
        artifact: Artifact | None = None,
    ) -> None: ...
    def __call__(self, *arrays: Any) -> Any: ...
    def profile(self, *arrays: Any) -> list[int]: ...
    inputs: Sequence[tuple[str, str, tuple[int | str, ...] | None]]
    outputs: Sequence[tuple[str, str, tuple[int | str, ...] | None]]
    arena_bytes: int
    arena_bound: int
    threads: int

def open_artifact(
    path: str | os.PathLike[str],
) -> tuple[Mapping[str, np.ndarray], dict[str, np.ndarray], Artifact]: ...
def check_artifact(artifact: Artifact) -> None: ...
def content_hash(data: bytes | memoryview) -> str: ...
