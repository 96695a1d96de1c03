"""A fingerprint of a model's structure, by which a plan knows its model."""

from __future__ import annotations

import hashlib

import onnx_ir as ir

from graft.partition.graph import bodies, has_bodies


def fingerprint(model: ir.Model) -> str:
    """Return 16 hexadecimal digits of a SHA-256 over operators, names and edges; weights do not count."""
    digest = hashlib.sha256()
    _add(model.graph, digest)
    return digest.hexdigest()[:16]


def _add(graph: ir.Graph, digest: hashlib._Hash) -> None:
    names = ",".join(value.name or "" for value in (*graph.inputs, *graph.outputs))
    digest.update(f"graph {names}\n".encode())
    for node in graph:
        inputs = ",".join("" if value is None else value.name or "" for value in node.inputs)
        outputs = ",".join(value.name or "" for value in node.outputs)
        digest.update(f"{node.domain}:{node.op_type} {node.name} {inputs} {outputs}\n".encode())
        if has_bodies(node):
            for _, body in bodies(node):
                _add(body, digest)
