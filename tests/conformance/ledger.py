"""The cases of ONNX's suite that Graft does not pass, by backends and reason (``failures.txt``)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("failures.txt")


@cache
def failures(backends: str) -> dict[str, str]:
    """Return the cases that must fail with some backends, each with its reason."""
    found: dict[str, str] = {}
    own, reason = "", ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            own, _, reason = line.removeprefix("[").partition("] ")
        elif line and not line.startswith("#") and own == backends:
            assert line not in found, f"{line} stands twice"
            found[line] = reason
    return found
