"""A sample of what runs whole kernels in the interpreter for many machines and shapes; the rest is slow."""

from __future__ import annotations

import zlib

import pytest

SHARES = {"test_varying.py": 4, "test_machines.py": 4}
"""By file: one of so many tests runs every time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if zlib.crc32(item.name.encode()) % SHARES.get(item.path.name, 1):
            item.add_marker(pytest.mark.slow)
