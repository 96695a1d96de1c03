"""Models of other operator sets, brought to the one that everything behind the importer knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx.version_converter

from graft.core.model.batched_scans import unbatch_scans
from graft.core.model.check import canonical, subgraphs
from graft.core.model.old_operators import keep_resizes, resizes_of
from graft.core.model.opset_changes import same_meaning
from graft.core.model.soundness import REFUSALS, tidy
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
    if opset == 8 and any(node.op_type == "Scan" for node in _all_nodes(proto.graph)):
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
    try:
        proto = onnx.version_converter.convert_version(proto, OPSET)
    except (*REFUSALS, RuntimeError) as error:
        raise ModelError(
            f"the model cannot be brought from {note}: {tidy(error)}; export it again with opset {OPSET}",
            opset=opset,
        ) from error
    keep_resizes(proto.graph, nearest)
    return proto, note


def _unchanged(graph: onnx.GraphProto, old: int, new: int, besides: Sequence[str] = ()) -> bool:
    """Whether every ai.onnx operator in ``graph`` but ``besides`` means the same in opsets ``old`` and ``new``."""
    return all(
        canonical(node.domain) != "" or node.op_type in besides or same_meaning(node.op_type, old, new)
        for node in _all_nodes(graph)
    )


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _all_nodes(inner)
