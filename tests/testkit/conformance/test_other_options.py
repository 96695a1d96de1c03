"""Other values of a backend's options, as the kit gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.testkit.conformance.kit import Kit
from graft.testkit.conformance.other_options import with_other_options
from tests.testkit.backends import plugin

OPTIONS = """
from dataclasses import dataclass
from typing import Literal
@dataclass(frozen=True)
class Options:
    bits: int = 8
    mode: Literal["fast", "exact"] = "fast"
    folder: str = "here"
    both: bool = True
    def __post_init__(self):
        if {refused}:
            raise ValueError("no")
Npu.options = Options
"""


@pytest.mark.parametrize(
    ("refused", "text", "found"),
    [
        ("False", "npu", ["npu:bits=9,mode=exact,both=false"]),
        ("False", "npu:mode=exact", ["npu:mode=fast,bits=9,both=false"]),
        ("self.bits == 9", "npu", ["npu:mode=exact", "npu:both=false"]),
    ],
)
def test_options_have_other_values_at_once_or_each_alone(
    refused: str, text: str, found: list[str], tmp_path: Path
) -> None:
    file = plugin(tmp_path, OPTIONS.format(refused=refused))
    assert [kit.text for kit in with_other_options(Kit(text, (str(file),)))] == found


def test_a_backend_without_options_has_no_others(tmp_path: Path) -> None:
    assert list(with_other_options(Kit("npu", (str(plugin(tmp_path)),)))) == []
