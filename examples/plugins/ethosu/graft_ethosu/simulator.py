"""Modules on a host: TOSA's reference model computes a region, to the bit what TOSA defines."""

import math

import numpy as np

from graft_ethosu.blob import opened

WIDENED = {"int64": np.int32}
"""Types of results that the NPU gives in fewer bits."""


def load(name, data, constants):
    """Return the functions of a module."""
    header, parts = opened(data)

    def run(inputs):
        import tosa_reference_model

        given = [np.ascontiguousarray(one).view(np.int8 if one.dtype == np.uint8 else one.dtype) for one in inputs]
        given = [one.reshape(one.shape or (1,)) for one in given]
        made, status = tosa_reference_model.run(parts["graph"], given)
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise RuntimeError(f"TOSA's reference model ends with {status.name}")
        results = []
        for array, output in zip(made, header["outputs"], strict=True):
            kind = np.dtype(output["dtype"])
            stored = np.frombuffer(np.ascontiguousarray(array), WIDENED.get(kind.name, kind))
            count = math.prod(output["shape"])
            results.append(stored[:count].astype(kind).reshape(output["shape"]))
        return results

    return {name: run}
