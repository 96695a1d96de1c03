"""What comes before quantisation: a float model as it is quantised, and what is written into the file about it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from graft.core.graph.notes import noted
from graft.core.importer.function_bodies import expand_functions
from graft.core.importer.load import load
from graft.core.importer.source import Source
from graft.core.passes.normalize import normalize

NOTES = "graft.quantize"
"""The key of a quantised model's metadata for what was done."""
MOVED = "graft.quantize.moved"
"""That for the layers whose results differ from the float model's by factors that were moved."""
PREPARED = "graft.quantize.prepared"
"""That for the arguments of `in_floats`, so that the float model beside it is prepared alike."""


def in_floats(
    model: Source, shapes: Mapping[str, Sequence[int]] | None = None, decompose: Collection[str] = (),
    without: Collection[str] = (),
) -> ir.Model:  # fmt: skip
    """Return a model of its own as it is before it is quantised: simplified, BatchNormalization folded.

    ``decompose`` are operators that are written as what they are made of, ``without`` passes that do not run. Both
    stand in the model's metadata, and in those of what is quantised of it: `preparation_of` reads them.
    """
    loaded = load(model, shapes=shapes).clone()
    if not {node.op_type for node in loaded.graph}.isdisjoint(decompose):
        expanded, _ = expand_functions(ir.to_proto(loaded), lambda node: node.op_type in decompose)
        loaded = load(expanded)
    normalize(loaded, disable=without)
    loaded.metadata_props[PREPARED] = json.dumps({"decompose": sorted(decompose), "without": sorted(without)})
    return loaded


def preparation_of(quantized: ir.Model) -> dict[str, list[str]]:
    """Return the arguments of `in_floats` by which the float model of a quantised one was prepared."""
    return noted(quantized.metadata_props, PREPARED, _are_lists) or {}


def _are_lists(found: object) -> bool:
    """Whether data are lists of texts by name."""
    return isinstance(found, dict) and all(
        isinstance(one, list) and all(isinstance(text, str) for text in one) for one in found.values()
    )
