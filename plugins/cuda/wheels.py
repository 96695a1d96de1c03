"""Where NVIDIA's tools and libraries are: in wheels beside this Python, or on the system."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def installed(pattern: str) -> list[Path]:
    """Return the files of NVIDIA's wheels by a pattern below their common package, the newest first."""
    spec = find_spec("nvidia")
    roots = () if spec is None else spec.submodule_search_locations or ()
    return sorted((path for root in roots for path in Path(root).glob(pattern)), reverse=True)


@cache
def opened(stem: str, versions: tuple[str, ...]) -> ctypes.CDLL | None:
    """Return the library ``lib<stem>.so.<version>``, None where there is none that can be opened."""
    names = [f"lib{stem}.so.{version}" for version in versions]
    paths = [str(path) for name in names for path in installed(f"*/lib/{name}")]
    for path in (*paths, *names):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None
