"""`graft export`: a model, or a compiled program, as one shared library, one C project, or a module for the web."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    common_options,
    dim_option,
    is_artifact,
    policy_options,
    switch_option,
    trust_options,
)
from graft.cli.output import print_json
from graft.cli.programs import input_option, load_artifact, refuse_options
from graft.report.quantities import size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graft.compiler.stitching.most_memory import Memory
    from graft.report.sign_off import Counted
    from graft.runtime.export.c_check import Recorded
    from graft.runtime.export.c_project import ExportedProject, Profile
    from graft.runtime.export.library import ExportedLibrary
    from graft.runtime.procedure import ProgramDescription
    from graft.runtime.program import Program

FORMATS = {"library": "library", "c-project": "C project", "wasm": "module for the web"}
NATIVE, WEB, BOARD = "native", "wasm32+simd128", "generic"
_EPILOG = """\b
Examples:
  graft export model.onnx -o model.so             one shared library: code, weights, runtime
  graft export model.graft -o model.so            the same of a program that was compiled
  graft export model.onnx -o project              sources, header, Makefile, CMakeLists.txt
  make -C project check                           builds it and runs it on a recorded input
  graft export model.onnx -o project --dim batch=1..8   C whose functions take `batch`
  graft export model.onnx -o web --format wasm    a WebAssembly module, its loader and weights

A library exports graft_model_NAME_load, _run and so on (graft/model.h; C++: graft/graft.hpp);
a project has NAME_run(inputs, outputs) in NAME.h and needs nothing but a C11 compiler."""


@click.command("export", epilog=_EPILOG)
@click.argument("model", type=MODEL, metavar="MODEL|FILE")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The library, or the folder of the project."
)
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)),
    help="By default `library` for an output that ends in .so, `wasm` for a wasm32 target, else `c-project`.",
)  # fmt: skip
@click.option("--name", metavar="NAME", help="What the names in C carry; made of the output's name by default.")
@click.option(
    "--profile", type=click.Choice(["hosted", "bare-metal", "arduino", "zephyr"]), default="hosted", show_default=True,
    help="Of a project: with bare-metal, weights are C arrays, main prints nothing, and no vectors are assumed; "
    "arduino and zephyr are that as a library and a module of theirs.",
)  # fmt: skip
@click.option(
    "--ram", metavar="BYTES", type=click.IntRange(min=0),
    help="Of a project: fail if its arena needs more, with its stack where a compiler is asked; says by how much, "
    "and for which tensors.",
)  # fmt: skip
@click.option(
    "--flash", metavar="BYTES", type=click.IntRange(min=0),
    help="Of a project: fail if weights and code need more, as --compiler makes them.",
)  # fmt: skip
@click.option(
    "--stack", metavar="BYTES", type=click.IntRange(min=0),
    help="Of a project: fail if the bound of its stack is larger; says which calls need it.",
)  # fmt: skip
@click.option(
    "--instructions", metavar="N", type=click.IntRange(min=0),
    help="Of a project: fail if a run on the emulated core of the target takes more; says which kernels take most.",
)  # fmt: skip
@click.option(
    "--compiler", metavar="COMMAND", default="",
    help="Of a project: GCC, with flags, whose frames and code are measured; by default a usual one of the target.",
)  # fmt: skip
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Of a project: write what a reviewer asks (memory, code, stack, libraries) as FILE.html or FILE.json.",
)  # fmt: skip
@click.option(
    "--threads", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
    help="Of a project: how many POSIX threads share the loops of kernels.",
)  # fmt: skip
@click.option(
    "--target", "--cpu", "target", default="native", show_default=True, help="The machine to compile a model for."
)
@click.option(
    "--memory", type=click.Choice(["binding", "maximum"]),
    help="Plan memory for each binding of the symbols, or once for the largest shapes (a project has to).",
)  # fmt: skip
@backend_options
@dim_option
@switch_option
@policy_options
@input_option
@trust_options
@common_options
@click.pass_obj
def command(
    state: State,
    /,
    model: Path,
    output: Path,
    form: str | None,
    name: str | None,
    profile: Profile,
    ram: int | None,
    flash: int | None,
    stack: int | None,
    instructions: int | None,
    compiler: str,
    report: Path | None,
    threads: int,
    given: Sequence[tuple[str, str]],
    **requested: Any,
) -> int:
    """Write MODEL, or a compiled FILE, as one shared library, one C project, or a WebAssembly module.

    A model is compiled first: for a library by the backends of -b; for a project by c_source, which then only writes C
    and needs no compiler; for the web by llvm, for wasm32+simd128 unless --target says wasm32. --input arrays are what
    a project's check runs on, with the outputs that other backends give for them here; those not given are random.
    """
    chosen = form or ("library" if output.suffix == ".so" else _folder_form(requested["target"]))
    budgets = {"ram": ram, "flash": flash, "stack": stack}
    asked: dict[str, Any] = {f"--{one}": value for one, value in budgets.items()}
    asked |= {"--instructions": instructions, "--compiler": compiler or None, "--report": report}
    if chosen != "c-project" and (named := _of_projects(profile, asked, threads, given)):
        raise click.UsageError(f"{named} is for C projects; leave it out, or say --format c-project")
    if profile != "hosted" and requested["target"] == NATIVE and not is_artifact(model):
        requested |= {"target": BOARD}  # whatever it is, it has not this machine's vectors
    description, runs = _program(state, model, chosen, requested)
    if chosen == "library":
        from graft.runtime.export.library import export_library

        _tell_library(state, export_library(description, output, name=name))
    elif chosen == "wasm":
        from graft.runtime.export.wasm import export_wasm

        _tell_web(state, output, export_wasm(description, output, name or "model"))
    else:
        done, counted = _project(
            description, output, runs(), given, target=requested["target"], report=report, instructions=instructions,
            compiler=compiler, name=name, profile=profile, threads=threads, **budgets,
        )  # fmt: skip
        _tell_project(state, done, profile, counted)
    if requested["target"] == NATIVE and not is_artifact(model) and chosen != "wasm":
        _warn_native(description)
    return ExitCode.OK


def _folder_form(target: str) -> str:
    return "wasm" if target.partition("+")[0] == "wasm32" else "c-project"


def _of_projects(profile: Profile, asked: dict[str, Any], threads: int, given: Sequence[tuple[str, str]]) -> str:
    """The first option that says something of projects, "" if there is none."""
    options = {
        "--profile": profile != "hosted",
        **{option: value is not None for option, value in asked.items()},
        "--threads": threads > 1,
        "--input": bool(given),
    }
    return next((option for option, is_given in options.items() if is_given), "")


def _program(
    state: State, path: Path, form: str, requested: dict[str, Any]
) -> tuple[ProgramDescription, Callable[[], Program]]:
    """Return the program of a file, or of a model compiled for the form, and what gives one that runs here."""
    if is_artifact(path):
        given = [*state.named(), *(["--dim"] if state.dims else []), *(["--memory"] if requested["memory"] else [])]
        given += ["--target"] if requested["target"] != NATIVE else []
        refuse_options(path, given)
        from graft.runtime.artifact import read

        return read(path), partial(load_artifact, state, path, strict=True)
    from graft.compiler.api import compile_model
    from graft.compiler.request import Request
    from graft.errors import UnsupportedError
    from graft.runtime.program import Program

    is_project = form == "c-project"
    if form == "wasm":
        requested |= {"target": WEB if requested["target"] == NATIVE else requested["target"]}
        state.backends = state.backends or ["llvm"]
    memory: Memory = requested["memory"] or ("maximum" if is_project else "binding")
    request = Request(
        state.backends, shapes=dict(state.shapes), dims=dict(state.dims),
        target=requested["target"], memory=memory, without=state.switched_off, manager=state.manager(),
        policy=state.policy(),
    )  # fmt: skip
    if form == "wasm":
        from graft.compiler.exporting import for_the_web

        request = for_the_web(request)
    here = replace(request, backends=None, policy=None, target=NATIVE, memory="binding")
    if is_project:
        request = replace(request, backends=[_writing_only(one) for one in state.backends or ["c_source"]])
    try:
        description = compile_model(str(path), request).description
    except UnsupportedError as error:
        if form == "library" or not error.facts.get("resort"):
            raise
        why = f"{error.message}: the program can then be a library (-o FILE.so), but no {FORMATS[form]}"
        raise UnsupportedError(why, nodes=error.nodes, resort=error.resort) from None
    return description, lambda: Program.from_description(compile_model(str(path), here).description)


def _writing_only(backend: str) -> str:
    """Return a backend of a project, so that ``c_source`` compiles nothing here unless its options say that it does."""
    name, _, options = backend.partition(":")
    if name != "c_source" or any(one.startswith("compiles=") for one in options.split(",")):
        return backend
    return f"{name}:{','.join([one for one in (options, 'compiles=false') if one])}"


def _project(
    description: ProgramDescription,
    output: Path,
    program: Program,
    given: Sequence[tuple[str, str]],
    *,
    target: str,
    report: Path | None,
    instructions: int | None,
    compiler: str,
    **options: Any,
) -> tuple[ExportedProject, Counted | None]:
    """Write a project, and its report where that is wanted; return what was written, and the instructions of a run."""
    from graft.report.sign_off import sign_off, write_sign_off
    from graft.runtime.export.c_build import compiler_for
    from graft.runtime.export.c_check import Recorded
    from graft.runtime.export.c_project import export_c_project
    from graft.runtime.inputs import inputs_of

    recorded = Recorded.of(program, inputs_of(program, given, 0))
    counted = _counted(description, recorded, target, compiler, report, instructions)
    if report is not None and not compiler:
        compiler = shlex.join(compiler_for(description.targets))
    done = export_c_project(description, output, recorded, compiler=compiler, **options)
    if report is not None:
        write_sign_off(sign_off(description, done, counted), report)
    return done, counted


def _counted(
    description: ProgramDescription, recorded: Recorded, target: str, compiler: str, report: Path | None,
    most: int | None,
) -> Counted | None:  # fmt: skip
    """Return the instructions of a run on the emulated core of a target; raise ArtifactError for too many.

    None where nobody asked for them, or only a report would have them and they cannot be counted here.
    """
    from graft.errors import ArtifactError, DeviceError
    from graft.measure.device.boards import counting_board
    from graft.measure.device.session import Session
    from graft.report.sign_off import Counted
    from graft.runtime.export.c_build import compiler_for

    def count(*flags: str) -> Counted:
        board = counting_board(target, [*(shlex.split(compiler) or compiler_for(description.targets)), *flags])
        with Session.open(description, board) as session:
            session.run(*recorded.inputs)
            calls = tuple((one.call, int(one.ticks * board.unit[1])) for one in session.times)
            return Counted(board.name, int(session.cost), calls)

    if most is None and report is None:
        return None
    try:
        counted = count()
    except (ArtifactError, DeviceError):
        if most is None:
            return None
        raise
    if most is not None:
        counted.check(most, lambda flag: count(flag).total)
    return counted


def _warn_native(description: ProgramDescription) -> None:
    """Say what of this processor others must have, where nobody asked for this one by name."""
    features = [str(one) for target in description.targets for one in target.get("features", ())]
    if features:
        click.echo(
            f"warning: it is compiled for this machine (target 'native') and runs only where {', '.join(features)} "
            "are; name a target for other machines, as in --target x86-64-v3",
            err=True,
        )


def _tell_library(state: State, done: ExportedLibrary) -> None:
    needs = [{"kind": one.kind, "plugin": one.plugin, "install": one.install} for one in done.needs]
    if state.json:
        print_json({"library": str(done.path), "bytes": done.bytes, "name": done.name, "needs": needs})
        return
    click.echo(f"{done.path}: {size(done.bytes)}, functions graft_model_{done.name}_load, _run, ... (graft/model.h)")
    for need in done.needs:
        click.echo(f"a program that opens it in C has to bring {need} in GraftLoadOptions.loaders")


def _tell_web(state: State, folder: Path, files: Sequence[Path]) -> None:
    if state.json:
        print_json({"folder": str(folder), "files": {file.name: file.stat().st_size for file in files}})
        return
    for file in files:
        click.echo(f"{file}: {size(file.stat().st_size)}")


def _tell_project(state: State, done: ExportedProject, profile: str, counted: Counted | None) -> None:
    if state.json:
        facts: dict[str, Any] = {"arena_bytes": done.arena_bytes, "weight_bytes": done.weight_bytes, "profile": profile}
        facts |= {"stack_bytes": done.built.stack, "code_bytes": done.built.code_bytes} if done.built else {}
        facts |= {"soft_float": done.built.soft_float} if done.built and done.built.soft_float else {}
        facts |= {"instructions": counted.total} if counted else {}
        print_json({"project": str(done.path), "bytes": done.bytes, "name": done.name, **facts})
        return
    bound = f", code {done.built.code_bytes} bytes, stack at most {done.built.stack} bytes" if done.built else ""
    bound += f", {counted.total} instructions on {counted.board}" if counted else ""
    if done.built and done.built.soft_float:
        bound += f"; floats are computed by {', '.join(done.built.soft_float)}, for the compiler was told of no FPU "
        bound += "of their width"
    takes = {
        "arduino": f"Arduino takes the folder as a library, whose example is {done.name}_check",
        "zephyr": f"a build of Zephyr takes it by -DZEPHYR_EXTRA_MODULES and CONFIG_{done.name.upper()}=y",
    }.get(profile, f"`make -C {done.path} check` builds and runs it")
    click.echo(
        f"{done.path}: {done.name}_run() in {done.name}.h, arena {done.arena_bytes} bytes, weights {done.weight_bytes} "
        f"bytes{bound}; {takes}"
    )
