"""Trials: a candidate runs in a process of its own first, and what it gives is held against the untuned kernel.

Machine code that nobody has run yet may crash, hang or be wrong: only what passes here enters a race, in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from graft.errors import TuningError
from graft.runtime.dtypes import dtype_name
from graft.runtime.foreign import kind_of, one_line
from graft.runtime.isolation.connection import Supervision
from graft.runtime.isolation.options import Isolation
from graft.runtime.isolation.program import IsolatedProgram
from graft.runtime.procedure import ProgramDescription

PLUGIN = "candidate"
ALONE = Isolation(compile=False, seconds=10.0, retries=0, fallback=False)
"""What runs longer than this hangs."""
SHARES: Mapping[str, float] = {"float64": 1e-9, "float32": 2e-3, "float16": 2e-2, "bfloat16": 6e-2}
"""How far elements may be apart, in shares of the largest, by sums in another order or Winograd's algorithm."""


def results(
    description: ProgramDescription, arrays: Sequence[np.ndarray], threads: int, processes: Supervision
) -> tuple[np.ndarray, ...]:
    """Return the outputs of a program whose modules run in another process; raise TuningError if that is lost."""
    modules = tuple(replace(module, plugin=PLUGIN) for module in description.modules)
    apart = replace(description, modules=modules)
    try:
        program = IsolatedProgram(apart, threads, (), {PLUGIN: ALONE}, processes=processes)
        found = program(*arrays)
    except Exception as error:  # whatever becomes of it is why it is no candidate
        raise TuningError(one_line(f"{kind_of(error)}: {error}")) from error
    return found if isinstance(found, tuple) else (found,)


def check_alike(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], precision: str) -> None:
    """Raise TuningError if results differ by more than a schedule may change; factors are of ``precision`` at best."""
    for number, (own, wanted) in enumerate(zip(found, expected, strict=True)):
        if not np.issubdtype(wanted.dtype, np.number) or np.issubdtype(wanted.dtype, np.integer):
            if not np.array_equal(own, wanted):
                raise TuningError(f"output {number} differs from that of the untuned kernel")
            continue
        kinds = (dtype_name(wanted.dtype), {"bf16": "bfloat16"}.get(precision, precision))
        share = max(SHARES.get(kind, 0.0) for kind in kinds)
        left, right = own.astype(np.float64), wanted.astype(np.float64)
        scale = np.max(np.abs(right), initial=0.0, where=np.isfinite(right))
        apart = ~np.isclose(left, right, rtol=0.0, atol=share * scale, equal_nan=True)
        if apart.any():
            worst = np.max(np.abs(left[apart] - right[apart]))
            raise TuningError(
                f"output {number} differs from that of the untuned kernel by {worst:.3g} in {np.count_nonzero(apart)} "
                f"of {apart.size} elements, where {share * scale:.3g} is allowed"
            )
