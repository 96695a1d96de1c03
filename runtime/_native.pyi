from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ABI_VERSION: int

class Program:
    def __init__(
        self,
        manifest: bytes,
        modules: Sequence[tuple[str, str, bytes, dict[str, np.ndarray]]],
        constants: Mapping[str, np.ndarray],
        loaders: Sequence[tuple[str, Any]],
        threads: int,
    ) -> None: ...
    def __call__(self, *arrays: Any) -> Any: ...
    def profile(self, *arrays: Any) -> list[int]: ...
    @property
    def inputs(self) -> tuple[tuple[str, str, tuple[int, ...] | None], ...]: ...
    @property
    def outputs(self) -> tuple[tuple[str, str, tuple[int, ...] | None], ...]: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def arena_bound(self) -> int: ...
    @property
    def threads(self) -> int: ...
