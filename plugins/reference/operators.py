"""Which operators `onnx.reference` can compute."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import import_module

import onnx

from graft.core.graph.view import NodeView
from graft.core.reject import Reject

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
        return Reject("no-pattern", "onnx.reference decodes images with Pillow; pip install 'graft-compiler[images]'")
    if (ignored := _ignored(node)) is not None:
        return Reject("attribute", f"onnx.reference ignores '{ignored}' of {node.op_type}")
    if _exists(domain, node.op_type, version or onnx.defs.onnx_opset_version()):
        return None
    return Reject("no-pattern", f"onnx.reference does not implement {node.op_type} of opset {version}")


_RECURRENT = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
"""The recurrent layers and the functions that onnx.reference computes them with."""


def _ignored(node: NodeView) -> str | None:
    """Return what a node asks for and onnx.reference computes without."""
    if node.domain == "ai.onnx.ml":
        return _ignored_by_classifier(node)
    if node.domain not in ("", "ai.onnx") or node.op_type not in _RECURRENT:
        return None
    if node.input(4) is not None:
        return "sequence_lens"
    if node.attribute("clip") is not None:
        return "clip"
    if node.op_type == "LSTM" and node.attribute("input_forget", 0):
        return "input_forget"
    usual = _RECURRENT[node.op_type] * (2 if node.attribute("direction", "forward") == "bidirectional" else 1)
    given = [name.lower() for name in node.attribute("activations") or usual]
    single = node.op_type == "RNN" and given == ["affine"]
    return None if single or given == [name.lower() for name in usual] else "activations"


def _ignored_by_classifier(node: NodeView) -> str | None:
    """Two classes from one score: what onnx.reference and ONNX Runtime agree on is taken, nothing else."""
    transform = node.attribute("post_transform", "NONE")
    strings = node.attribute("classlabels_strings") or []
    if node.op_type == "LinearClassifier":
        labels = node.attribute("classlabels_ints") or strings
        one_score = len(labels) == 2 and len(node.attribute("intercepts") or []) == 1
        return "post_transform" if one_score and transform != "LOGISTIC" else None
    if node.op_type != "TreeEnsembleClassifier":
        return None
    labels, classes = node.attribute("classlabels_int64s") or strings, set(node.attribute("class_ids") or [])
    if len(labels) != 2 or len(classes) != 1:
        return None
    signed = any(weight < 0 for weight in node.attribute("class_weights") or [])
    if classes != {0}:
        return "class_ids"
    return None if transform == ("LOGISTIC" if signed else "NONE") else "post_transform"


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
