"""The peers by name, and how each is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from graft.errors import GraftError
from graft.measure.peers.runtimes import mnn_run, onnxruntime_run, openvino_run

if TYPE_CHECKING:
    import onnx_ir as ir

Run = Callable[[], object]


def peer(name: str, model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int, precision: str = "float32") -> Run:
    """Return a call of a peer on the same model and inputs, which gives the list of outputs.

    Only OpenVINO has another ``precision`` than float32 here, ``bf16``. Raises GraftError if the peer is unknown or not
    installed.
    """
    if name not in PEERS:
        raise GraftError(f"cannot compare with '{name}'; choose among {', '.join(COMPARE)}", peer=name)
    try:
        if name == "openvino":
            return openvino_run(model, feeds, threads, "bf16" if precision == "bf16" else "f32")
        return PEERS[name](model, feeds, threads)
    except ImportError as error:
        raise GraftError(f"{name} is not installed; {INSTALL[name]}", peer=name) from error


def _iree(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Run:
    from graft.measure.peers.iree import iree_run

    return iree_run(model, feeds, threads)


def _torch(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Run:
    from graft.measure.peers.torch_compile import torch_run

    return torch_run(model, feeds, threads)


def _tvm(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Run:
    from graft.measure.peers.tvm import tvm_run

    return tvm_run(model, feeds, threads)


PEERS: Mapping[str, Callable[[ir.Model, Mapping[str, np.ndarray], int], Run]] = {
    "onnxruntime": onnxruntime_run,
    "openvino": openvino_run,
    "mnn": mnn_run,
    "torch": _torch,
    "iree": _iree,
    "tvm": _tvm,
}
COMPARE = tuple(PEERS)
PACKAGES = {
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
    "mnn": ("MNN",),
    "torch": ("torch",),
    "iree": ("iree-base-compiler", "iree-base-runtime"),
    "tvm": ("apache-tvm", "apache-tvm-ffi"),
}
"""The distributions that each peer needs."""
INSTALL = {
    "onnxruntime": "pip install 'graft-compiler[onnxruntime]'",
    "openvino": "pip install openvino",
    "mnn": "pip install MNN",
    "torch": "pip install 'graft-compiler[torch]', and have a C++ compiler",
    "iree": "pip install iree-base-compiler iree-base-runtime",
    "tvm": "pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0 xgboost cloudpickle psutil",
}


def installed(name: str) -> bool:
    """Return whether a peer's distributions are installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return all(version(package) for package in PACKAGES[name])
    except PackageNotFoundError:
        return False
