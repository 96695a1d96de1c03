"""The backends in the tree and what of the kit each is held to: whole by `make test-kit`, a sample of it in CI."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from graft.compiler.request import plugins
from graft.errors import GraftError
from graft.testkit.conformance.suite import Suite, suite_of

LEDGERS = Path(__file__).parent / "ledgers"
SEEDS = 40
"""The random models of level 3."""
WHOLE = (0, 1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class Held:
    """The levels that a backend is held to, and which of them in CI, too: of level n one group of ``sample[n]``."""

    levels: tuple[int, ...] = WHOLE
    sample: Mapping[int, int] = field(default_factory=dict)

    def is_sampled(self, name: str, level: int, subject: str) -> bool:
        """Whether a group runs in CI, too; the same ones do always."""
        every = self.sample.get(level)
        return every is not None and zlib.crc32(f"{name}/{level}/{subject}".encode()) % every == 0


BACKENDS: Mapping[str, Held] = {
    "accelerator": Held((0, 1, 2, 3), {0: 1, 2: 1, 3: 2}),
    "c_source": Held((0, 1, 2, 3, 4, 5), {0: 1, 3: 4}),
    "cblas": Held(WHOLE, {0: 1, 2: 1, 3: 2, 4: 2}),
    "cublas": Held((0,), {0: 1}),
    "cuda": Held((0,), {0: 1}),
    "cuda_emulator": Held((0, 1, 2, 3), {}),
    "cuda_source": Held((0,), {0: 1}),
    "irregular": Held((0, 1, 3, 4, 5), {0: 1, 3: 1}),
    "llvm": Held(WHOLE, {0: 1, 3: 1, 4: 2}),
    "onednn": Held(WHOLE, {0: 1, 1: 4, 2: 4, 3: 2, 4: 2, 5: 3}),
    "onednn_c": Held(WHOLE, {}),
    "reference": Held((0, 1, 3, 4, 5), {0: 1, 3: 2}),
    "xnnpack": Held(WHOLE, {0: 1, 2: 4}),
}
"""The accelerator's simulator and the emulator of CUDA are too slow for real networks, as is NumPy; CUDA's own kernels
need a device, and `irregular` has no composites."""


def suite(name: str) -> Suite:
    """Return the suite of a backend with its ledger."""
    ledger = LEDGERS / f"{name}.txt"
    highest = max(BACKENDS[name].levels)
    return suite_of(name, level=highest, xfail=ledger if ledger.exists() else None, seeds=SEEDS)


def groups(name: str) -> list[tuple[int, str]]:
    """Return the groups of the levels that a backend is held to."""
    return [(level, subject) for level, subject in suite(name).groups() if level in BACKENDS[name].levels]


def missing(name: str) -> str | None:
    """Return why a backend cannot run here, None if it can."""
    try:
        return plugins().backends([name])[0].available()
    except GraftError as error:
        return error.message
