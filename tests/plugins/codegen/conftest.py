"""A sample of what compiles hundreds of kernels; the rest is slow."""

from __future__ import annotations

import zlib

import pytest

SHARE = 6
"""One of so many operators of any extents is compiled every time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name == "test_varying_extents.py" and zlib.crc32(item.name.encode()) % SHARE:
            item.add_marker(pytest.mark.slow)
