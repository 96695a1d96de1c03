"""Hostile input that atheris chooses: its bytes are the choices of whoever damages models and artifacts."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import FunctionType

from graft.runtime.system.files import make_folder, write
from graft.testkit.hostile.run import TARGETS, outcome
from graft.testkit.models.source import Source

WATCHED = ("graft", "onnx_ir")
"""The packages whose branches guide atheris: with NumPy's and SymPy's a start takes minutes."""


class Guided(Source):
    """Choices that are the bytes of an input that atheris makes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data, self.place = data, 0

    def below(self, count: int) -> int:
        """Return a whole number of ``[0, count)``: of the next bytes, of SplitMix64 where they end."""
        size = max(1, (count - 1).bit_length() + 7 >> 3)
        taken = self.data[self.place : self.place + size]
        self.place += size
        return int.from_bytes(taken, "little") % count if len(taken) == size else super().below(count)


def kind_of(text: str) -> str:
    """Return the text of a fault without its numbers and names, which is equal for faults of one cause."""
    return re.sub(r"'[^']*'|\d+", "_", text)[:200]


def guided(target: str, engine: Sequence[str], out: Path | None = None) -> None:
    """Let atheris look for faults, and do not come back; ``engine`` are libFuzzer's arguments and folders of a corpus.

    With ``out`` the first input of each kind of fault is written there, and the search goes on; without it, the first
    fault ends the search and libFuzzer writes its input.
    """
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    seen: set[str] = set()

    def one(choices: bytes) -> None:
        data = TARGETS[target][0](Guided(choices))
        answer, text = outcome(target, data)
        if not text or kind_of(text) in seen:
            return
        if out is None:
            raise AssertionError(f"{answer}: {text}")
        seen.add(kind_of(text))
        name = f"{target}_{sha256(data).hexdigest()[:12]}"
        write(make_folder(out, "what was found") / name, data, "damaged input")
        print(f"{name}: {answer}: {text[:600]}", flush=True)

    one(b"")  # imports what is imported late
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and (function.__module__ or "").partition(".")[0] in WATCHED:
            atheris.instrument_func(function)
    atheris.Setup([sys.argv[0], *engine], one)
    atheris.Fuzz()
