"""What a backend answers and makes of regions, checked: a wrong field is the backend's fault and no riddle later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from graft.core.reject import Reject
from graft.errors import PluginError
from graft.plugins.backend import CompiledRegion
from graft.runtime.foreign import kind_of, shown
from graft.runtime.procedure import Module, Procedure

if TYPE_CHECKING:
    from graft.partition.region import Region

TEXTS = ("name", "kind", "plugin", "install", "bound")


def checked_answer(backend: str, question: str, answer: object, remark: Callable[[str], None]) -> bool | Reject:
    """Return the answer of a predicate as True or a `Reject`; raise PluginError for anything else.

    A bare False (and None, which a check may return for yes, is the caller's business) becomes a `Reject` without a
    reason, and is remarked upon.
    """
    if issubclass(type(answer), Reject):
        return answer  # type: ignore[return-value]
    if isinstance(answer, bool) or (kind_of(answer) in ("bool", "bool_") and type(answer).__module__ == "numpy"):
        if answer:
            return True
        remark(f"backend '{backend}': {question} returned a bare False; return graft.Reject(code, text) instead")
        return Reject("no-pattern", f"{backend} gave no reason")
    raise PluginError(
        f"backend '{backend}': {question} returned {kind_of(answer)} {shown(answer)}; "
        "return True or graft.Reject(code, text)",
        plugin=backend,
    )


def checked(compiled: object, region: Region, backend: str) -> Module | CompiledRegion:
    """Return what ``compile`` returned; raise PluginError that says what is wrong with it.

    A lone module must have a function named as the region.
    """
    who = f"backend '{backend}': compile of region '{region.name}' returned"
    if isinstance(compiled, Module):
        fault = _module_fault(compiled) or _function_fault(compiled, region.name)
    elif isinstance(compiled, CompiledRegion):
        fault = _region_fault(compiled)
    else:
        fault = f"{kind_of(compiled)}; return a graft Module or CompiledRegion"
        raise PluginError(f"{who} {fault}", plugin=backend, region=region.name)
    if fault:
        raise PluginError(f"{who} a {kind_of(compiled)} whose {fault}", plugin=backend, region=region.name)
    return compiled


def _module_fault(module: Module) -> str:
    for field in TEXTS:
        if not isinstance(value := getattr(module, field), str):
            return f"{field} is {shown(value)}; give a text"
    if not module.kind:
        return "kind is empty; give the kind that your loader has"
    if not isinstance(module.functions, tuple | list) or not all(isinstance(one, str) for one in module.functions):
        return f"functions are {shown(module.functions)}; give a tuple of names"
    if not isinstance(module.data, bytes):
        return f"data is {kind_of(module.data)}; give bytes"
    return _constants_fault(module.constants)


def _function_fault(module: Module, region: str) -> str:
    if region in module.functions:
        return ""
    return f"functions are {shown(tuple(module.functions))}; one must have the region's name"


def _region_fault(compiled: CompiledRegion) -> str:
    if not isinstance(compiled.modules, tuple | list):
        return f"modules are {shown(compiled.modules)}; give a tuple of Module objects"
    for module in compiled.modules:
        if not isinstance(module, Module):
            return f"modules hold {shown(module)}; give Module objects"
        if fault := _module_fault(module):
            return f"module '{module.name}' is wrong: its {fault}"
    if not isinstance(compiled.procedure, Procedure):
        return f"procedure is {shown(compiled.procedure)}; give a Procedure"
    return _constants_fault(compiled.constants)


def _constants_fault(constants: object) -> str:
    if not isinstance(constants, Mapping):
        return f"constants are {shown(constants)}; give a mapping of names to arrays"
    for name, array in constants.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            return f"constants hold {kind_of(array)} as {shown(name)}; give arrays of NumPy by name"
    return ""
