"""Graft: bring your own codegen to machine-learning models.

The public API, written out once. Everything is imported on first use, so that ``import graft`` needs neither onnx nor
llvmlite, and a program runs where only `graft.runtime` is installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.compiler.api import compile, plan
    from graft.compiler.explaining import explain
    from graft.compiler.exporting import export_wasm
    from graft.core.device_memory import DeviceMemory
    from graft.core.importer.load import load
    from graft.core.operators.definition.table import Cost
    from graft.core.reject import Reject, Yield
    from graft.core.tuning.options import TuneOptions
    from graft.errors import GraftError
    from graft.measure.bisect.api import bisect
    from graft.measure.format_sweep import sweep
    from graft.measure.latency import bench
    from graft.measure.verification import verify
    from graft.partition.plan import Plan
    from graft.partition.policy import Policy
    from graft.partition.region import Region
    from graft.plugins.backend import Backend, CompiledRegion
    from graft.plugins.c_calls import C, CCall, CKernel
    from graft.plugins.c_source_backend import CSourceBackend
    from graft.plugins.hooks import hookimpl
    from graft.plugins.json_backend import JsonBackend
    from graft.plugins.options.declared import option
    from graft.plugins.supports import supports
    from graft.plugins.tensor_ir_backend import TensorIrBackend
    from graft.plugins.toolkits.backend import ToolkitBackend
    from graft.quantization.api import quantize
    from graft.runtime._native import CancelToken
    from graft.runtime.isolation.options import Isolation
    from graft.runtime.procedure import Module
    from graft.runtime.program import Program
    from graft.training.gradients import grad
    from graft.training.losses import loss

__version__: str
"""The version of the distribution, which is that of its tag; "0" where it is not installed."""

__all__ = [
    "Backend",
    "C",
    "CCall",
    "CKernel",
    "CSourceBackend",
    "CancelToken",
    "CompiledRegion",
    "Cost",
    "DeviceMemory",
    "GraftError",
    "Isolation",
    "JsonBackend",
    "Module",
    "Plan",
    "Policy",
    "Program",
    "Region",
    "Reject",
    "TensorIrBackend",
    "ToolkitBackend",
    "TuneOptions",
    "Yield",
    "bench",
    "bisect",
    "compile",
    "explain",
    "export_wasm",
    "grad",
    "hookimpl",
    "load",
    "loss",
    "option",
    "plan",
    "quantize",
    "supports",
    "sweep",
    "verify",
]

_HOMES = {
    "Backend": "graft.plugins.backend",
    "C": "graft.plugins.c_calls",
    "CCall": "graft.plugins.c_calls",
    "CKernel": "graft.plugins.c_calls",
    "CSourceBackend": "graft.plugins.c_source_backend",
    "CancelToken": "graft.runtime._native",
    "CompiledRegion": "graft.plugins.backend",
    "Cost": "graft.core.operators.definition.table",
    "DeviceMemory": "graft.core.device_memory",
    "GraftError": "graft.errors",
    "Isolation": "graft.runtime.isolation.options",
    "JsonBackend": "graft.plugins.json_backend",
    "Module": "graft.runtime.procedure",
    "Plan": "graft.partition.plan",
    "Policy": "graft.partition.policy",
    "Program": "graft.runtime.program",
    "Region": "graft.partition.region",
    "Reject": "graft.core.reject",
    "TensorIrBackend": "graft.plugins.tensor_ir_backend",
    "ToolkitBackend": "graft.plugins.toolkits.backend",
    "TuneOptions": "graft.core.tuning.options",
    "Yield": "graft.core.reject",
    "bench": "graft.measure.latency",
    "bisect": "graft.measure.bisect.api",
    "compile": "graft.compiler.api",
    "explain": "graft.compiler.explaining",
    "export_wasm": "graft.compiler.exporting",
    "grad": "graft.training.gradients",
    "hookimpl": "graft.plugins.hooks",
    "load": "graft.core.importer.load",
    "loss": "graft.training.losses",
    "option": "graft.plugins.options.declared",
    "plan": "graft.compiler.api",
    "quantize": "graft.quantization.api",
    "supports": "graft.plugins.supports",
    "sweep": "graft.measure.format_sweep",
    "verify": "graft.measure.verification",
}
_REGISTRIES = {
    "datatypes": ("graft.datatypes.registry", "DATATYPES"),
    "load": ("graft.core.operators.definition.table", "OPERATORS"),
}
"""What plugins add to, by the name that needs it."""
_FOLDERS = frozenset({
    "compiler", "core", "datatypes", "measure", "partition", "patterns", "plugins", "quantization", "report", "runtime",
    "testkit", "torch", "training",
})  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _REGISTRIES:
        _ask_plugins(*_REGISTRIES[name])
    if name in _FOLDERS:
        return importlib.import_module(f"graft.{name}")
    if name == "__version__":
        globals()[name] = found = importlib.import_module("graft.runtime.system.version").version()
        return found
    if name not in _HOMES:
        raise AttributeError(f"module 'graft' has no attribute '{name}'; the public names are {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def _ask_plugins(module: str, name: str) -> None:
    """Let a registry ask the plugins for what it does not know."""
    registry = getattr(importlib.import_module(module), name)

    def discover() -> None:
        importlib.import_module("graft.compiler.request").ask_plugins()

    registry.discover = discover


def __dir__() -> list[str]:
    return sorted({*__all__, *_FOLDERS, "__version__"})
