"""Which operators `onnx.reference` can compute."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import import_module

import onnx

from graft.core.reject import Reject
from graft.core.view import NodeView

_OTHERS = {
    "ai.onnx.ml": "aionnxml",
    "ai.onnx.preview": "aionnx_preview",
    "ai.onnx.preview.training": "aionnx_preview_training",
}
"""By domain, the package of `onnx.reference.ops` with its operators. They are imported when somebody asks: some hundred
modules, which a process without the reference backend does not need."""


def implementation(node: NodeView) -> Reject | None:
    """Return None if onnx.reference has the node's operator at the opset of its graph, else why it has not."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain and domain not in _OTHERS:
        return Reject("no-pattern", f"onnx.reference knows no operators of domain '{domain}'")
    graph = node.node.graph
    version = node.node.version or (graph.opset_imports.get(node.domain) if graph is not None else None)
    if domain == "" and node.op_type == "ImageDecoder" and importlib.util.find_spec("PIL") is None:
        return Reject("no-pattern", "onnx.reference decodes images with Pillow; pip install pillow")
    if _exists(domain, node.op_type, version or onnx.defs.onnx_opset_version()):
        return None
    return Reject("no-pattern", f"onnx.reference does not implement {node.op_type} of opset {version}")


@cache
def _exists(domain: str, op_type: str, version: int) -> bool:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import RuntimeContextError, RuntimeImplementationError
    from onnx.reference.ops import load_op

    try:
        if domain in _OTHERS:
            import_module(f"onnx.reference.ops.{_OTHERS[domain]}").load_op(domain, op_type, version)
        else:
            load_op(domain, op_type, version, evaluator_cls=ReferenceEvaluator)
    except RuntimeContextError:
        return True  # ONNX defines the operator by others, once the types of its inputs are known
    except (RuntimeImplementationError, NotImplementedError, RuntimeError, ValueError):
        return False
    return True
