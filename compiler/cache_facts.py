"""The growing caches of a compiled model, as its artifact tells of them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from graft.partition.growing_caches import caches_of_model
from graft.partition.region import Region
from graft.plugins.backend import CompiledRegion
from graft.runtime.caches import Cache
from graft.runtime.procedure import Module, ProgramDescription


def cache_facts(
    partitioned: ir.Model,
    normalized: ir.Model,
    compiled: Mapping[str, Module | CompiledRegion],
    regions: Mapping[str, Region],
    description: ProgramDescription,
) -> list[Cache]:
    """Return the caches with why each is copied that no call appends to."""
    entry = description.procedures[0]
    appended = {entry.tensors[call.outputs[0]].name for call in entry.calls if call.kind == "append"}
    makers = {value.name: regions.get(node.op_type) for node in partitioned.graph for value in node.outputs}
    found = []
    for cache in caches_of_model(normalized):
        past, present = cache.past.name or "", cache.present.name or ""
        region = makers.get(present)
        own = None if region is None else compiled[region.name]
        copied = "" if present in appended else _reason(present, region, own)
        found.append(Cache(past, present, cache.axis, copied))
    return found


def _reason(present: str, region: Region | None, compiled: Module | CompiledRegion | None) -> str:
    if region is None:
        return "it is not computed in one region"
    if present not in region.caches:
        return "something else reads it, or what it is appended to"
    own = compiled.copied.get(present) if isinstance(compiled, CompiledRegion) else None
    return own or f"backend '{region.backend}' makes it anew"
