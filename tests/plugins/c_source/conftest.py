"""A sample of what runs the system's compiler hundreds of times; the rest is slow."""

from __future__ import annotations

import zlib

import pytest

SHARES = {"test_arithmetic": 10, "test_operators": 4, "test_models": 6}
"""By file: one of so many tests runs every time."""
ALWAYS_SLOW = ("[Attention]", "[gpt2]")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        share = SHARES.get(item.path.stem) if item.path.parent.name == "c_source" else None
        if share is None:
            continue
        if zlib.crc32(item.name.encode()) % share or item.name.endswith(ALWAYS_SLOW):
            item.add_marker(pytest.mark.slow)
