"""The options of ``torch.compile(..., backend="graft", options={...})``, checked by name and kind."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from graft.errors import OptionError
from graft.partition.plan import Plan
from graft.runtime.arguments import FLAG, TEXT, WHOLE, Kind, instance, optional, require
from graft.runtime.isolation.options import ISOLATION


@dataclass(frozen=True)
class Options:
    """What a user says of a compiled module; what is left out is as for `graft.compile`."""

    backends: Any = None
    """Names or objects in order of preference; None for all that compile, placed by cost."""
    plan: Plan | None = None
    """For a module that becomes one part; a user may give the file of one."""
    datatype: str | None = None
    """What float32 is computed as, such as ``custom[posit]16``."""
    precision: str = "float32"
    threads: int | None = None
    """None for as many as PyTorch has: `torch.get_num_threads` when it is compiled."""
    freeze: bool = False
    """Whether parameters and buffers are constants: packed once, and later changes of them are not seen."""
    isolate: Any = None
    """Plugins that run in processes of their own, as `graft.compile` takes them as ``isolation``."""
    strict: bool = False
    """Whether what stays in PyTorch is an error."""


KINDS: dict[str, Kind] = {
    "plan": optional(instance(Plan, str, os.PathLike, wanted="a graft.Plan or the path of one")),
    "datatype": optional(TEXT),
    "precision": TEXT,
    "threads": optional(WHOLE),
    "freeze": FLAG,
    "isolate": optional(ISOLATION),
    "strict": FLAG,
}


def options_of(given: Mapping[str, Any] | None) -> Options:
    """Return the options.

    Raises OptionError for a name that is none, ArgumentError for what is no dict or a value of another kind, and
    PlanError for a file that cannot be read or holds no plan.
    """
    require("torch.compile", "options", given, optional(instance(Mapping, wanted="a dict of options by name")))
    names = [one.name for one in fields(Options)]
    for name, value in (given or {}).items():
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise OptionError(
                f"backend 'graft' of torch.compile has no option '{name}'{hint} (there are {', '.join(names)})",
                option=name,
            )
        if name in KINDS:
            require("torch.compile", f"option '{name}'", value, KINDS[name])
    values = dict(given or {})
    if isinstance(values.get("plan"), str | os.PathLike):
        values["plan"] = Plan.load(values["plan"])
    return Options(**values)
