"""The arenas of models beside their lower bounds, and what another order of the calls would make of the bound.

    python -m benchmarks.memory [model ...]

The other order is greedy: of the calls whose operands are there, the one after which the fewest bytes are live.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from benchmarks.zoo import LIGHT, TINY, model
from graft.compiler.api import compile_model
from graft.compiler.memory.lifetimes import Lifetime, lower_bound
from graft.compiler.request import Request
from graft.runtime.dtypes import element_type
from graft.runtime.procedure import Call, Procedure, contiguous_bytes
from graft.runtime.spans import owner_of, spans_of, touched

NAMES = (*TINY, *(f"int8_{name}" for name in TINY), *(f"light_{name}" for name in LIGHT))


def reordered(procedure: Procedure) -> list[Call]:
    """Return the calls in the greedy order."""
    tensors, calls = procedure.tensors, procedure.calls
    sizes = _sizes(procedure)
    touches = [{owner_of(tensors, index) for index in touched(call)} for call in calls]
    writes = [{owner_of(tensors, index) for index in call.outputs if index >= 0} for call in calls]
    before = [
        {one for one in range(step) if writes[one] & touches[step] or touches[one] & writes[step]}
        for step in range(len(calls))
    ]
    left = {index: sum(index in one for one in touches) for index in sizes}
    live: set[int] = set()
    done: list[int] = []
    waiting = list(range(len(calls)))

    def after(step: int) -> int:
        here = live | (touches[step] & sizes.keys())
        return sum(sizes[one] for one in here if left[one] > (one in touches[step]))

    while waiting:
        ready = [step for step in waiting if before[step] <= set(done)]
        chosen = min(ready, key=lambda step: (after(step), step))
        live |= touches[chosen] & sizes.keys()
        for one in touches[chosen] & sizes.keys():
            left[one] -= 1
        live = {one for one in live if left[one]}
        done.append(chosen)
        waiting.remove(chosen)
    return [calls[step] for step in done]


def _sizes(procedure: Procedure) -> dict[int, int]:
    return {
        index: contiguous_bytes(element_type(tensor.dtype).bytes, tensor.static_shape or ())
        for index, tensor in enumerate(procedure.tensors)
        if tensor.storage == "arena"
    }


def bound_of(procedure: Procedure, calls: Sequence[Call]) -> int:
    """Return the lower bound of the arena for an order of calls, where nothing takes another's place."""
    spans = spans_of(procedure.tensors, calls)
    return lower_bound([Lifetime(size, *spans[one]) for one, size in _sizes(procedure).items() if one in spans])


def main(names: Collection[str]) -> None:
    """Print a table of the models."""
    print("| Model | Calls | Arena | Lower bound | Ratio | Bound in place of none | In another order |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in names or NAMES:
        procedure = compile_model(model(name), Request(["llvm"])).description.procedures[0]
        model.cache_clear()
        here = bound_of(procedure, procedure.calls)
        other = bound_of(procedure, reordered(procedure))
        ratio = procedure.arena_bytes / max(1, procedure.arena_bound)
        numbers = f"{procedure.arena_bytes:,} | {procedure.arena_bound:,} | {ratio:.3f} | {here:,} | {other:,}"
        print(f"| {name} | {len(procedure.calls)} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
