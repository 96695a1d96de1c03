"""The process that runs models by ONNX Runtime, whose crashes end this process alone; see `peer.py`.

It reads pickles of (model, outputs, inputs) and writes what ONNX Runtime computes, None where it refuses.
"""

from __future__ import annotations

import os
import pickle
import sys
from functools import lru_cache
from typing import Any

import onnxruntime


@lru_cache(2)
def session(model: bytes) -> Any:
    """Return a session of ONNX Runtime; None where it refuses the model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # as the model is written
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # whatever it has against a model
        return None


def answer(model: bytes, outputs: list[str], feeds: dict[str, Any]) -> dict[str, Any] | None:
    """Return the outputs by name; None where ONNX Runtime refuses."""
    try:
        return dict(zip(outputs, session(model).run(outputs, feeds), strict=True))
    except Exception:
        return None


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no reply
    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        pickle.dump(answer(*asked), replies)
        replies.flush()
