"""The native runtime's Python module, built from runtime/native."""

import os
from collections.abc import Callable, Mapping, Sequence
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
        shared: bool = False,
        devices: tuple[tuple[str, Any, int], ...] = (),
    ) -> None: ...
    def __call__(self, *arrays: Any) -> Any: ...
    def run_on(self, arrays: tuple[Any, ...], device: int, end: int = 0, cancel: CancelToken | None = None) -> Any: ...
    def run_into(
        self,
        arrays: tuple[Any, ...],
        buffers: tuple[Any, ...],
        end: int = 0,
        cancel: CancelToken | None = None,
    ) -> Any: ...
    def run_exchanged(self, table: object, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None: ...
    def profile(self, *arrays: Any) -> list[int]: ...
    inputs: Sequence[tuple[str, str, tuple[int | str, ...] | None]]
    outputs: Sequence[tuple[str, str, tuple[int | str, ...] | None]]
    arena_bytes: int
    arena_bound: int
    threads: int

class CancelToken:
    """What other threads end runs of programs with, before they are done."""

    def cancel(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

class DeviceTensor:
    """An output that stays on a device, until `numpy` or whoever takes its DLPack capsule asks for it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: str
    def numpy(self) -> np.ndarray: ...
    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def open_artifact(
    path: str | os.PathLike[str], accept: Callable[[bytes, bytes | None], None] | None = None
) -> tuple[Mapping[str, np.ndarray], dict[str, np.ndarray], Artifact]: ...
def check_artifact(artifact: Artifact) -> None: ...
def enter_sandbox(filter: bytes, names: dict[int, str]) -> None: ...
def last_refusal() -> str: ...
def read_texts(data: bytes, place: int, count: int) -> tuple[list[str], int]: ...
def write_texts(texts: list[str | bytes]) -> bytes: ...
def content_hash(data: bytes | memoryview) -> str: ...

class FencedFunction:
    """A function of a module that a worker process runs; ``connection`` has ``connect`` and ``failed``."""

    def __init__(self, connection: Any, number: int, seconds: float, is_distrusted: bool = False) -> None: ...

def serve(program: Program, functions: tuple[str, ...], socket: int) -> None: ...
