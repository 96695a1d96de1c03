"""Level 4: an artifact loads where there is no compiler, says what is missing, and has the same bytes each time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graft.errors import GraftError
from graft.runtime.artifact import read
from graft.runtime.foreign import one_line
from graft.runtime.program import Program
from graft.runtime.system.files import write
from graft.testkit.conformance import processes
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed, NotRun, Trial
from graft.testkit.conformance.differences import unlike
from graft.testkit.conformance.kit import REFERENCE, Kit
from graft.testkit.conformance.other_options import with_other_options
from graft.testkit.conformance.samples import OWN_MODELS, of_samples

OWN_KINDS = ("native", "c_source")
"""Modules that the runtime itself loads, plugin or none."""


def subjects(kit: Kit) -> list[str]:
    """Return the checks."""
    return list(CHECKS)


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the check for each of the sample models."""
    yield from of_samples(kit, 4, subject, CHECKS[subject])


def saved(kit: Kit, trial: Trial, folder: Path) -> tuple[Path, Path]:
    """Compile a model onto the backend and `llvm`, save the program and its inputs, and return both paths.

    Raises NotRun where `reference` takes a part: that needs onnx, wherever it runs.
    """
    _, program = kit.compiled(trial, ("llvm", REFERENCE))
    if any(module.plugin == REFERENCE for module in program.description.modules):
        if kit.name == REFERENCE:
            raise NotClaimed
        raise NotRun(f"no model of whose operators '{kit.name}' and llvm take all was found; {OWN_MODELS}")
    artifact, inputs = folder / "model.graft", folder / "inputs.npz"
    try:
        program.save(artifact)
    except GraftError as error:
        raise Failure(f"cannot be saved: {one_line(error.message)}", trial) from error
    feeds: dict[str, Any] = dict(trial.feeds)
    np.savez(inputs, **feeds)
    return artifact, inputs


def apart(kit: Kit, action: str, *arguments: object, **options: Any) -> str:
    """Run an action of `child` in a new process, to which the kit's plugin files are given first."""
    return processes.run(action, os.pathsep.join(kit.plugin_files), *arguments, **options)


def compare_apart(kit: Kit, trial: Trial, action: str, where: str, **options: Any) -> None:
    """Raise Failure if what an action of `child` computes in a new process is wrong."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        artifact, inputs = saved(kit, trial, folder)
        apart(kit, action, artifact, inputs, folder / "results.npz", **options)
        with np.load(folder / "results.npz") as results:
            text = unlike(dict(results), kit.reference(trial), trial.rtol, trial.atol)
    if text:
        raise Failure(f"{where}: {text}", trial)


def _deployed(kit: Kit, trial: Trial) -> None:
    """A process without onnx, LLVM and the compiler loads and runs it."""
    compare_apart(kit, trial, "deployed", "without the compiler")


def _missing(kit: Kit, trial: Trial) -> None:
    """Where the plugin is missing, the error names its kind and the plugin."""
    with tempfile.TemporaryDirectory() as place:
        artifact, _ = saved(kit, trial, Path(place))
        modules = [one for one in read(artifact).modules if one.kind not in OWN_KINDS and one.plugin]
        if not modules or any(module.plugin in _own(kit) for module in modules):
            raise NotClaimed
        said = processes.run("missing", artifact, modules[0].plugin).strip()
    if not (modules[0].kind in said and modules[0].plugin in said):
        raise Failure(f"where the plugin is missing, the error does not name it: '{said}'", trial)


def _own(kit: Kit) -> frozenset[str]:
    """Return Graft's own plugins, which are never missing."""
    return frozenset(source.name for source in kit.manager.sources() if source.is_own)


def _other_version(kit: Kit, trial: Trial) -> None:
    """Modules of a kind that no version of the plugin knows are refused by name."""
    with tempfile.TemporaryDirectory() as place:
        artifact, _ = saved(kit, trial, Path(place))
        description = read(artifact)
    modules = [replace(one, kind=f"{one.kind}:of-another-version") for one in description.modules]
    if all(one.kind.startswith(OWN_KINDS) for one in description.modules):
        raise NotClaimed
    try:
        Program.from_description(replace(description, modules=tuple(modules)), threads=1)
    except GraftError as error:
        if "of-another-version" not in error.message:
            raise Failure(f"a module of another version: {one_line(error.message)}", trial) from error
    else:
        raise Failure("a module of another version is loaded as if it were of this one", trial)


def _reproducible(kit: Kit, trial: Trial) -> None:
    """Two processes, with other hash seeds, write the same bytes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder / "model.onnx", trial.proto.SerializeToString(), "model")
        for number in ("1", "2"):
            artifact = folder / f"{number}.graft"
            apart(kit, "compiled", kit.text, folder / "model.onnx", artifact, PYTHONHASHSEED=number)
        same = (folder / "1.graft").read_bytes() == (folder / "2.graft").read_bytes()
    if not same:
        raise Failure("two processes compile one model to other bytes", trial)


def _in_process(kit: Kit, trial: Trial) -> None:
    """What is loaded in the same process gives the bits of what was saved."""
    _, program = kit.compiled(trial)
    with tempfile.TemporaryDirectory() as place:
        artifact, _ = saved(kit, trial, Path(place))
        description = read(artifact)
        loaded = Program.from_description(
            description, threads=2, loaders=kit.manager.loaders_for(description.modules, [kit.backend])
        )
        feeds = dict(trial.feeds)
        text = unlike(loaded.run(feeds), program.run(feeds), 1e-6, 1e-6)
    if text:
        raise Failure(f"loaded from a file: {text}", trial)


def _options(kit: Kit, trial: Trial) -> None:
    """A process without the compiler computes by the options that the program was compiled with."""
    compared = False
    for other in with_other_options(kit):
        try:
            _, program = other.compiled(trial, ("llvm", REFERENCE))
            own = program.run(dict(trial.feeds))
        except (Failure, GraftError, NotClaimed):
            continue  # what it refuses with such options
        compare_apart(other, replace(trial, expected=own, rtol=0.0, atol=0.0), "deployed", f"loaded as {other.text}")
        compared = True
    if not compared:
        raise NotClaimed


CHECKS: dict[str, Callable[[Kit, Trial], None]] = {
    "saved": _in_process,
    "without-compiler": _deployed,
    "options": _options,
    "missing-library": _missing,
    "other-version": _other_version,
    "reproducible": _reproducible,
}
