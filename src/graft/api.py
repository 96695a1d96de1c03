"""The front door: `plan` and `compile`, over the installed plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from graft.compiler import CompiledModel, Compiler, compile_options, prepare
from graft.core.load import Source
from graft.core.operators.all import OPERATORS
from graft.errors import UnsupportedError
from graft.partition.partitioner import partition
from graft.plugins.backend import Backend
from graft.plugins.manager import PluginManager

if TYPE_CHECKING:
    import os

    from graft.partition.plan import Plan
    from graft.partition.policy import Policy
    from graft.runtime.procedure import ProgramDescription
    from graft.runtime.program import Program


__all__ = ["compile", "compile_model", "plan", "plugins"]


@cache
def plugins() -> PluginManager:
    """Return the plugin manager of this process; it finds the installed plugins on first use."""
    return PluginManager()


def choose(backends: Sequence[str | Backend] | None, manager: PluginManager | None = None) -> list[Backend]:
    """Return backends in order of preference: named ones, given objects, or all that are installed, by priority."""
    manager = manager or plugins()
    if backends is None:
        chosen = manager.backends(None)
    else:
        chosen = []
        for one in backends:
            chosen += [manager.admit(one)] if isinstance(one, Backend) else manager.backends([one])
    if not chosen:
        raise UnsupportedError("no backend was chosen; `graft backends doctor` says which are installed")
    return chosen


def plan(
    model: Source,
    backends: Sequence[str | Backend] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    policy: Policy | None = None,
    manager: PluginManager | None = None,
) -> Plan:
    """Return where every operator would run and why, without compiling anything.

    ``backends`` are in order of preference; ``shapes`` gives values to symbolic dimensions.
    """
    chosen = choose(backends, manager)
    return partition(prepare(model, shapes), chosen, policy=policy, operators=OPERATORS).plan


def compile(
    model: Source,
    backends: Sequence[str | Backend] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    cpu: str = "native",
    strict: bool = False,
    plan: Plan | None = None,
    policy: Policy | None = None,
    keep_intermediates: str | os.PathLike[str] | None = None,
    manager: PluginManager | None = None,
) -> Program:
    """Compile a model to a program that is ready to run and to save.

    ``backends`` are in order of preference: names or `Backend` objects; all installed ones by default. ``threads`` is
    the number of threads the program uses, all available ones by default; ``cpu`` is the processor to compile for:
    ``native``, or a level such as ``x86-64-v3`` for an artifact that runs on other machines. With ``strict`` a region
    that its backend fails to compile is an error; otherwise it goes to the next backend. ``plan`` is a saved decision
    to follow.
    """
    options = compile_options(threads, strict, cpu)
    compiled = compile_model(
        model, backends, shapes=shapes, threads=threads, cpu=cpu, strict=strict, plan=plan, policy=policy,
        keep_intermediates=keep_intermediates, manager=manager,
    )  # fmt: skip
    return program_of(compiled.description, options.threads, backends, manager)


def program_of(
    description: ProgramDescription,
    threads: int | None,
    backends: Sequence[str | Backend] | None = None,
    manager: PluginManager | None = None,
) -> Program:
    """Return a program in this process; backend objects and the manager's plugins load the modules they made."""
    from graft.runtime.program import Program

    given = [one for one in backends or () if isinstance(one, Backend)]
    loaders = (manager or plugins()).loaders_for(description.modules, given)
    return Program.from_description(description, threads=threads, loaders=loaders)


def compile_model(
    model: Source,
    backends: Sequence[str | Backend] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    cpu: str = "native",
    strict: bool = False,
    plan: Plan | None = None,
    policy: Policy | None = None,
    keep_intermediates: str | os.PathLike[str] | None = None,
    manager: PluginManager | None = None,
) -> CompiledModel:
    """Compile as `compile` does and return everything on the way: description, plan, models, times."""
    manager = manager or plugins()
    compiler = Compiler(
        choose(backends, manager),
        compile_options(threads, strict, cpu),
        policy=policy,
        plan=plan,
        manager=manager,
        keep_intermediates=None if keep_intermediates is None else Path(keep_intermediates),
    )
    return compiler.compile(model, shapes)
