"""The hooks of the `irregular` backend. Imports neither onnx nor the library: listing backends stays cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.plugins.built_in import built
from graft.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from graft.core.operators.definition.table import Operator
    from graft.plugins.backend import Backend
    from graft.runtime.loaders import NativeLoader


@hookimpl
def graft_backends() -> list[type[Backend]]:
    """Return the backend."""
    from graft.plugins.irregular.backend import IrregularBackend

    return [IrregularBackend]


@hookimpl
def graft_operators() -> list[Operator]:
    """Return ONNX Runtime's Tokenizer, which ONNX does not have."""
    from graft.plugins.irregular.operators import tokenizer

    return [tokenizer()]


@hookimpl
def graft_module_loaders() -> list[NativeLoader]:
    """Return the native loader of module kind ``irregular``, which has all kernels in it."""
    from graft.runtime.loaders import NativeLoader

    return [NativeLoader("irregular", native_loader(), holds_code=False)]


def native_loader() -> str:
    """Return the path of the compiled loader; raise PluginError if it was not built."""
    return built("irregular", "_loader", "the kernels of the irregular backend are")
