"""The backend around a vendor's compiler that reads ONNX: regions go to it as models, and come back as its bytes."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graft.core.reject import Reject
from graft.errors import ArtifactError, CompileError, GraftError
from graft.plugins.backend import Backend, ConstantOwnership, ModuleReport
from graft.plugins.options.default_object import OfDefaults
from graft.plugins.options.values import saved
from graft.runtime.foreign import kind_of, said
from graft.runtime.isolation.toolkit import Toolkit, file_of, interpreter_of
from graft.runtime.procedure import Module
from graft.runtime.system.cache_directory import cache_directory
from graft.runtime.system.printed import printed, with_settings_kept

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.core.machine.target import CompileOptions
    from graft.partition.region import Region
    from graft.runtime.loaders import Loader

PRINTED: dict[str, str] = {}
"""What toolkits printed when they compiled last, by what the result is kept by; the cache on disk has more."""
MOST_PRINTED = 256
Function = Callable[[Sequence[np.ndarray | None]], Sequence[np.ndarray]]
listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
"""Who hears what toolkits print while they compile: from an interpreter of their own as it comes, else at the end."""


MISSING = ("ImportError", "ModuleNotFoundError", "PackageNotFoundError")
"""What Python raises where a package is not there, or a library that it needs."""


class ToolkitBackend(Backend):
    """A backend with a vendor's toolkit behind it: say what it supports, and in a module of its own how it is called.

    ``toolkit`` names that module. It imports the vendor's packages and nothing of Graft's, for it runs in an
    interpreter of its own where the user gives one, by ``GRAFT_<NAME>_PYTHON`` or `graft.Isolation` (Python 3.9 or
    newer, any NumPy or none), else in this process. Its functions, options a dictionary:

    - ``version()``: a text; raises where the toolkit is too old or too new, saying what to install;
    - ``compile(model, options)``: the bytes that it makes of an ONNX model's;
    - ``load(blob, options)``: a function from a list of arrays to a list of arrays, in the order of the model's;
    - others as the backend likes: ``self.ask("name", ...)``.

    Models are of ``opset``, from 13 on, by default Graft's own: what has no older form is refused. ``needs`` is the
    package that has to be importable where no interpreter is given.
    """

    toolkit: ClassVar[str] = ""
    opset: ClassVar[int | None] = None
    needs: ClassVar[str] = ""
    threaded: ClassVar[bool] = False
    """Whether what is compiled depends on the program's number of threads: an option more, ``program_threads``."""
    constants: ClassVar[ConstantOwnership] = "embedded"

    @property
    def refits(self) -> bool:
        """Whether what is compiled serves any weights: constants that products alone read, behind their first input.

        Then it is kept without them, and ``load`` finds the model, which has them, in ``options["model"]``.
        """
        return False

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return what a function of the toolkit gives; raise what it raises, in its own interpreter ToolkitError."""
        return self._apart().call(function, *arguments)

    def _apart(self) -> Toolkit | Here:
        state = vars(self)
        if "_asked" not in state:  # made where it is needed, in whatever process that is
            python = interpreter_of(self.name)
            state["_asked"] = (
                Here(self.toolkit) if python is None else Toolkit(self.name, file_of(self.toolkit), python)
            )
        found: Toolkit | Here = state["_asked"]
        return found

    def available(self) -> str | None:
        """Return why the toolkit cannot be had, without starting it."""
        if interpreter_of(self.name) is None and self.needs and find_spec(self.needs) is None:
            where = f"GRAFT_{self.name.upper().replace('-', '_')}_PYTHON"
            return f"{self.needs} is not installed; {self.install}, or name a python that has it in {where}"
        return None

    def version(self) -> str:
        """Return what the toolkit says of itself; raise CompileError with how to get it where a package is missing."""
        try:
            return str(self.ask("version"))
        except (ImportError, GraftError) as error:
            text = error.message if isinstance(error, GraftError) else f"its toolkit: {said(error)}"
            if not isinstance(error, ImportError) and not any(f"raised {kind} " in text for kind in MISSING):
                raise
            raise CompileError(f"{text}; {self.install}" if self.install else text) from error

    def fingerprint(self) -> str:
        """Return the version of the toolkit, and what its module is known by: measured times hold for these."""
        return f"{self.version()}, {hashlib.sha256(self._source()).hexdigest()[:12]}"

    def supports(self, node: NodeView) -> bool | Reject:
        """Return what the methods marked with `supports` say, and whether the toolkit's opset has the node."""
        from graft.plugins.toolkits.older_opsets import refusal

        found = super().supports(node)
        if isinstance(found, Reject) or not found:
            return found
        reason = refusal(node, self.opset)
        return True if reason is None else reason

    def compile(self, region: Region, options: CompileOptions) -> Module:
        """Return what the toolkit makes of the region; raise CompileError with what it raised."""
        from graft.plugins.toolkits.compile_cache import key_of, remembered
        from graft.plugins.toolkits.older_opsets import older, refusal
        from graft.plugins.toolkits.region_model import whole_model_of, without_weights

        inside = [one for node in region.nodes() for one in region.opened(node)]
        refused = {one.name: answer for one in inside if (answer := refusal(one, self.opset)) is not None}
        if refused:
            reason = next(iter(refused.values()))
            raise CompileError(f"{self.name}: {reason.text}", nodes=list(refused), reject=reason)
        model = older(whole_model_of(region), self.opset).SerializeToString(deterministic=True)
        values = self.settings(region) | ({"program_threads": options.threads} if self.threaded else {})
        known = json.dumps(values, sort_keys=True, default=_digest).encode()
        parts = self.version().encode(), known, self._source(), without_weights(model) if self.refits else model

        def make() -> bytes:
            made: object = self._apart().call("compile", model, values, heard=listener.get())
            if not isinstance(made, bytes):
                raise CompileError(f"compile of {self.toolkit} returned {kind_of(made)}; return bytes")
            return packed({"printed": self._apart().printed}, made)

        try:
            kept, blob = opened(remembered(options.cache, parts, make), region.name)
        except GraftError as error:
            raise CompileError(f"{self.name} does not compile region '{region.name}': {error.message}") from error
        key = key_of(parts)
        header = {"version": self.version(), "bytes": len(blob), "key": key}
        while len(PRINTED) >= MOST_PRINTED:
            del PRINTED[next(iter(PRINTED))]
        PRINTED[key] = kept["printed"]
        data = packed(header, blob + model if self.refits else blob)
        return Module(region.name, self.kind(), (region.name,), data, install=self.install)

    def settings(self, region: Region) -> dict[str, Any]:
        """Return what the toolkit's `compile` gets as options: the backend's, and what a region needs, arrays too.

        Raises CompileError where the user has not given what is needed.
        """
        return self.option_values()

    def _source(self) -> bytes:
        """Return the text of the toolkit's module: another may compile otherwise."""
        return file_of(self.toolkit).read_bytes()

    @classmethod
    def kind(cls) -> str:
        """Return the kind of this backend's modules."""
        return f"toolkit:{cls.name}"

    def report(self, module: Module) -> ModuleReport | None:
        """Return the version of the toolkit, and what it printed when it compiled the module, here or before."""
        from graft.plugins.toolkits.compile_cache import recalled

        if module.kind != self.kind():
            return None
        header, _ = opened(module.data, module.name)
        key = header.pop("key", "")
        if key not in PRINTED and (kept := recalled(cache_directory(), key)) is not None:
            PRINTED[key] = opened(kept, module.name)[0]["printed"]
        text = PRINTED.get(key, "")
        whole = f"{header['version']}, {header['bytes']:,} B\n{text}".rstrip()
        return ModuleReport(self.name, {**header, "printed": text}, whole, f"<pre>{escape(whole)}</pre>")

    @OfDefaults
    def module_loaders(self) -> list[Loader]:
        """Return the loader of this backend's modules."""
        from graft.runtime.loaders import PythonLoader

        options = saved(self.option_rows(), self.option_values())
        return [PythonLoader(self.kind(), self._load, options, holds_code=False)]

    def _load(self, name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> dict[str, Function]:
        header, blob = opened(data, name)
        made, model = blob[: header["bytes"]], blob[header["bytes"] :]
        try:
            function = self.ask("load", made, self.option_values() | ({"model": model} if model else {}))
        except Exception as error:
            raise ArtifactError(
                f"module '{name}' is not loaded: {kind_of(error)}: {said(error)}; it was compiled by "
                f"{header['version']}, and here is {self.version()}",
                module=name,
            ) from error
        return {name: lambda inputs: function(list(inputs))}


class Here:
    """A toolkit's module in this process; what it prints is kept, and what it sets for the process is put back.

    What it leaves in the working directory is named behind what it prints: in an interpreter of its own that is empty.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self.printed = ""

    def call(self, function: str, *arguments: Any, heard: Callable[[str], None] | None = None) -> Any:
        """Return what a function of the module gives; ``heard`` gets what it printed."""
        folder = os.getcwd()
        before = set(os.listdir(folder))
        with printed() as text, with_settings_kept():
            found = getattr(importlib.import_module(self._module), function)(*arguments)
        left = sorted(set(os.listdir(folder)) - before)
        self.printed = text[0] + (f"left behind in {folder}: {', '.join(left)}\n" if left else "")
        if heard is not None and self.printed:
            heard(self.printed)
        return found


def _digest(array: np.ndarray) -> list[str]:
    """Return what an array is known by in a key."""
    return [str(array.dtype), str(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


def packed(header: Mapping[str, Any], blob: bytes) -> bytes:
    """Return a module's bytes: a digest of all others, what is known of the blob, and the blob."""
    text = json.dumps(header, sort_keys=True).encode()
    body = len(text).to_bytes(4, "little") + text + blob
    return hashlib.sha256(body).digest() + body


def opened(data: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """Return what is known of a module's blob, and the blob; raise ArtifactError where the bytes are damaged."""
    body = bytes(data[32:])
    if hashlib.sha256(body).digest() != bytes(data[:32]):
        raise ArtifactError(f"module '{name}' is damaged: its bytes are not those that were written; compile it again")
    end = 4 + int.from_bytes(body[:4], "little")
    return json.loads(body[4:end]), body[end:]
