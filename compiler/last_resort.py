"""What a program computes by the backend of last resort, which takes what all others leave, slowly: it is said."""

from __future__ import annotations

import logging
from collections import Counter

from graft.compiler.compiled_model import CompiledModel
from graft.partition.placement.estimators import Estimator

log = logging.getLogger("graft")

MANY = 20
"""Operators that are said whatever their share of the time is ..."""
SHARE = 0.25
"""... and the share of the modelled time that is said whatever their number is."""


def warn_of(resort: str, compiled: CompiledModel, estimator: Estimator) -> None:
    """Log a warning if the backend ``resort``, which nobody named, has many operators or much of the time."""
    left = Counter(row.op_type for row in compiled.plan.placements if row.backend == resort)
    if not left:
        return
    seconds: Counter[str] = Counter()
    for region in compiled.regions.values():
        seconds[region.backend] += estimator.region_seconds(region)  # type: ignore[assignment]
    share = seconds[resort] / max(seconds.total(), 1e-12)
    if left.total() < MANY and share < SHARE:
        return
    kinds = ", ".join(f"{kind} {count}" for kind, count in left.most_common(3)) + (" and more" if len(left) > 3 else "")
    log.warning(
        "%d of %d operators run in '%s', in Python: %.0f %% of the modelled time (%s); `graft plan --why` says why no "
        "other backend takes them, and who names '%s' among the backends is not told",
        left.total(), len(compiled.plan.placements), resort, 100 * share, kinds, resort,
    )  # fmt: skip
