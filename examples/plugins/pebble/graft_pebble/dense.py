"""Dense layers: which the library takes, and their weights as it wants them."""

import numpy as np

import graft

PANEL = 16
"""PEBBLE_PANEL of pebble.h."""


def fits(match):
    """Return True for a layer that the library has a kernel for, else the reason."""
    operands = [value for value in (match["x"], match["w"], match.get("bias")) if value is not None]
    x, w, *bias = operands
    for value in operands:
        if value.dtype != "float32":
            return graft.Reject("dtype", f"float32 only, but '{value.name}' is {value.dtype}")
    if w.rank != 2 or not x.rank:
        return graft.Reject("rank", f"weights are a matrix, got operands of rank {x.rank} and {w.rank}")
    if bias and bias[0].shape != w.shape[1:]:
        return graft.Reject("shape", f"a bias has one element for each of {w.shape[1]} columns, got {bias[0].shape}")
    return True


def call_dense(kernel):
    """Return the call of a dense layer; its weights are packed here, once, where the model is compiled."""
    depth, columns = kernel["w"].shape
    activation = "PEBBLE_RELU" if kernel.body[-1].op == "Relu" else "PEBBLE_LINEAR"
    bias = "{bias}" if kernel.has("bias") else "NULL"
    text = f"pebble_dense({{x}}, {{w}}, {bias}, {{Y.size}}, {depth}, {columns}, {activation}, {{Y}})"
    return graft.CCall(text, packed={"w": panels(kernel["w"].constant)})


def panels(weights):
    """Return a matrix of weights as panels of columns: [panel, depth, PANEL]."""
    depth, columns = weights.shape
    padded = np.pad(weights, ((0, 0), (0, -columns % PANEL)))
    return np.ascontiguousarray(padded.reshape(depth, -(-columns // PANEL), PANEL).transpose(1, 0, 2))
