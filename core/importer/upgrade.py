"""Models of other operator sets, brought to the one that everything behind the importer knows."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.version_converter

from graft.core.graph.exception_translation import REFUSALS, tidy
from graft.core.graph.protos import canonical, every_node
from graft.core.importer.batched_scans import unbatch_scans
from graft.core.importer.old_operators import keep_masks, keep_resizes, masks_of, place_slopes, resizes_of
from graft.core.importer.opset_changes import same_meaning
from graft.errors import ModelError

OPSET = 25
"""The opset of an imported model. ONNX Runtime 1.31 runs up to 26, which differs from it by two new operators only."""
IR_VERSION = 13
"""The IR version of an imported model: the newest that ONNX Runtime 1.31 reads."""


def upgraded(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Return the model in `OPSET` and `IR_VERSION`, by its header where no operator changed, and a note of that.

    Otherwise by onnx's converter. A model of a newer opset whose operators changed since `OPSET` keeps its own. Raises
    ModelError where the converter cannot.
    """
    proto.ir_version = IR_VERSION
    imports = [entry for entry in proto.opset_import if canonical(entry.domain) == ""]
    if not imports:
        proto.opset_import.add(domain="", version=OPSET)
        return proto, ""
    opset = imports[0].version
    if opset == OPSET or (opset > OPSET and not _unchanged(proto.graph, opset, OPSET)):
        return proto, ""
    note = f"opset {opset} to {OPSET}"
    if opset == 8 and any(node.op_type == "Scan" for node in every_node(proto.graph.node)):
        if not unbatch_scans(proto) or not _unchanged(proto.graph, opset, 9, besides=("Scan",)):
            raise ModelError(
                f"the model cannot be brought from {note}: its Scan has a batch axis, and lengths or operators "
                f"beside it that opset 9 has otherwise; export it again with opset {OPSET}",
                opset=opset,
            )
        imports[0].version = opset = 9
    if _unchanged(proto.graph, opset, OPSET):
        imports[0].version = OPSET
        return proto, note
    nearest = resizes_of(proto.graph) if opset < 11 else {}
    masks = masks_of(proto.graph) if opset < 10 else set()
    if opset < 7:
        place_slopes(proto)
    try:
        proto = onnx.version_converter.convert_version(proto, OPSET)
    except (*REFUSALS, RuntimeError) as error:
        raise ModelError(
            f"the model cannot be brought from {note}: {tidy(error)}; export it again with opset {OPSET}",
            opset=opset,
        ) from error
    keep_resizes(proto.graph, nearest)
    keep_masks(proto.graph, masks)
    return proto, note


def level_functions(proto: onnx.ModelProto) -> list[str]:
    """Give functions, in place, the opset of their model, where no operator of theirs changed between; return which.

    onnx's inliner (1.23) converts those of another opset, for which it has to know the type of every argument: behind
    calls of other functions it knows none. Its checker refuses operators whose schemas differ at all.
    """
    names: list[str] = []
    imports = [one.version for one in proto.opset_import if canonical(one.domain) == ""]
    if not imports:
        return names
    opset = imports[0]
    for function in proto.functions:
        for one in function.opset_import:
            if canonical(one.domain) == "" and one.version != opset and _unchanged(function, one.version, opset):
                one.version = opset
                names.append(function.name)
    return names


def _unchanged(graph: onnx.GraphProto | onnx.FunctionProto, old: int, new: int, besides: Sequence[str] = ()) -> bool:
    """Whether every ai.onnx operator in ``graph`` but ``besides`` means the same in opsets ``old`` and ``new``."""
    return all(
        canonical(node.domain) != "" or node.op_type in besides or same_meaning(node.op_type, old, new)
        for node in every_node(graph.node)
    )
