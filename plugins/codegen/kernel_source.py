"""The C text of kernels: of one, as a cache keeps it under another name, and of all of a region together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from graft.runtime.c_source import PRELUDE, CFunction, CSource

_VECTOR = re.compile(r"(?:float|int)\d+x\d+")
LINE = 116
"""Characters of a line of comment."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The C functions of one kernel; the names of all of them begin with that of the last, which is the kernel."""

    text: str
    function: CFunction

    def renamed(self, name: str) -> KernelSource:
        """Return the same kernel under another name."""
        own = re.compile(rf"\b{re.escape(self.function.entry)}(?=_task\d+|\b)")
        return KernelSource(own.sub(name, self.text), replace(self.function, entry=name))


def joined(sources: Mapping[str, KernelSource], origins: Mapping[str, Sequence[str]]) -> CSource:
    """Return kernels by the names of their module's functions as one text, with the nodes that each computes."""
    nodes: dict[str, list[str]] = {}
    for name, one in sources.items():
        nodes.setdefault(one.function.entry, []).extend(origins.get(name, ()))
    texts = [f"{comment(nodes[one.function.entry])}{one.text}" for one in sources.values() if one.text]
    return CSource(
        "\n".join([*opening(sources.values()), *texts]), {name: one.function for name, one in sources.items()}
    )


def opening(sources: Iterable[KernelSource]) -> list[str]:
    """Return the lines before kernels that have vectors, so that the prelude has the types of these."""
    has_vectors = any(_VECTOR.search(one.text) for one in sources)
    return (
        ["#ifndef GRAFT_VECTORS", "#define GRAFT_VECTORS", "#endif", f'#include "{PRELUDE}"\n'] if has_vectors else []
    )


def comment(nodes: Sequence[str]) -> str:
    """Return lines of C comment that name nodes of the model, "" for none."""
    if not nodes:
        return ""
    named = ", ".join(f"'{node}'" for node in nodes).replace("*/", "* /").replace("/*", "/ *")
    named = "".join(letter if letter.isprintable() else "?" for letter in named)
    return "/* {} */\n".format("\n * ".join(wrap(named, LINE, break_long_words=False, break_on_hyphens=False)))


def entry_text(function: CFunction, inputs: int) -> str:
    """Return the C function with the ABI of GraftFunction that calls a plain one with so many inputs."""
    arguments = ["context"] if function.needs_host else []
    arguments += ["(GraftKept *)state"] if function.keeps else []
    for number, (shape, strides) in enumerate(zip(function.shapes, function.strides, strict=True)):
        tensor = f"inputs[{number}]" if number < inputs else f"outputs[{number - inputs}]"
        arguments.append(f"GRAFT_DATA({tensor})")
        arguments += [f"GRAFT_SHAPE({tensor})"] if shape else []
        arguments += [f"GRAFT_STRIDES({tensor})"] if strides else []
    name = function.entry
    call = f"{name}({', '.join(arguments)});"
    return (
        f"int32_t GRAFT_ENTRY({name})(GraftContext *context, void *state, const DLTensor *const *inputs,\n"
        "    DLTensor *const *outputs) {\n"
        "  (void)context, (void)state, (void)inputs, (void)outputs;\n"
        f"  {f'return {call}' if function.needs_host else f'{call} return GRAFT_OK;'}\n"
        "}\n"
    )
