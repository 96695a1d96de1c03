"""`graft inspect`: what is in an artifact, or what a model is at a stage of its way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
)
from graft.cli.output import print_json, print_table
from graft.cli.plan import partitioned_as
from graft.cli.sources import print_sources
from graft.core.backend_spec import backend_text
from graft.errors import ArtifactError
from graft.report.artifact_contents import embedded_model, read_manifest
from graft.report.quantities import dearer, knobs, shape, size

if TYPE_CHECKING:
    import onnx_ir as ir

STAGES = ("loaded", "normalized", "partitioned")


@click.command("inspect")
@click.argument("file", type=MODEL)
@click.option("--stage", type=click.Choice(STAGES), default="loaded", show_default=True, help="The stage of a model.")
@click.option("--text", is_flag=True, help="Print the model in ONNX's text syntax, large weights left out.")
@click.option("--disassemble", is_flag=True, help="Print the instructions in an artifact, where a plugin knows them.")
@click.option("--source", is_flag=True, help="Print the sources that the modules of an artifact keep: C, CUDA C.")
@click.option("--schedules", is_flag=True, help="Print the steps by which the loops of an artifact's kernels are made.")
@backend_options
@dim_option
@policy_options
@common_options
@click.pass_obj
def command(
    state: State,
    file: Path,
    stage: str,
    text: bool,
    disassemble: bool,
    source: bool,
    schedules: bool,
) -> int:
    """Show what FILE is, an artifact or a model."""
    if disassemble:
        _print_instructions(state, file)
    elif source:
        print_sources(state, file)
    elif schedules:
        _print_schedules(state, file)
    elif not is_artifact(file):
        model = _model(state, file, stage)
        if text:
            _print_text(state, model)
        else:
            _print_model(state, model)
    elif text:
        import onnx_ir as ir

        _print_text(state, ir.from_proto(embedded_model(file)))
    else:
        _print_artifact(state, file)
    return ExitCode.OK


def _print_instructions(state: State, path: Path) -> None:
    """Print the modules whose plugin tells what instructions they hold."""
    from graft.plugins.registry.module_reports import disassembly
    from graft.runtime.artifact import read

    if not is_artifact(path):
        raise click.UsageError(f"--disassemble takes an artifact, and '{path}' is a model; compile it first")
    modules = read(path).modules
    texts = disassembly(modules, state.manager())
    if state.json:
        print_json({"modules": texts})
        return
    for name, text in texts.items():
        click.echo(f"; module {name}\n{text}")
    if not texts:
        kinds = ", ".join(sorted({module.kind for module in modules})) or "none"
        click.echo(f"{path}: no plugin tells the instructions of its modules (kinds: {kinds})")


def _print_schedules(state: State, path: Path) -> None:
    """Print the schedules that are lists of steps; others are loops that a strategy writes itself."""
    from graft.core.schedule.primitives.schedule_text import print_schedules

    if not is_artifact(path):
        raise click.UsageError(f"--schedules takes an artifact, and '{path}' is a model; compile it first")
    manifest = read_manifest(path)
    kernels = dict(_kernels(manifest))
    texts = {name: str(one["steps"]) for name, one in kernels.items() if one.get("steps")}
    if state.json:
        print_json({"schedules": texts})
        return
    notes = {name: f"{one['strategy']} {knobs(one)}".strip() for name, one in kernels.items()}
    if texts:
        click.echo(print_schedules(texts, notes, manifest["targets"]))
    others = [name for name in kernels if name not in texts]
    if others:
        click.echo(f"# {len(others)} kernels whose strategies write the loops themselves, by no list of steps:")
    for name in others:
        click.echo(f"# [{name}]  # {notes[name]}")


def _print_artifact(state: State, path: Path) -> None:
    manifest = read_manifest(path)
    if state.json:
        print_json(manifest)
        return
    try:
        _print_manifest(path, manifest)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ArtifactError(
            f"'{path}' has a damaged manifest: {type(error).__name__} {error}", path=str(path)
        ) from error


def _print_manifest(path: Path, manifest: dict[str, Any]) -> None:
    from graft.report.arena import arena_text, peak_text
    from graft.runtime.caches import caches_of
    from graft.runtime.procedure import procedure_from_json, shape_texts

    entry, members = manifest["procedures"][0], manifest["members"]
    procedure = procedure_from_json(entry)
    click.echo(f"{path}: {size(path.stat().st_size)}, format {manifest['format']}, ABI {manifest['abi']}")
    for target in manifest["targets"]:
        click.echo(f"target     {target['arch']} {' '.join(target.get('features', ()))}".rstrip())
    for device in manifest.get("devices", ()):
        number = 1 + manifest["devices"].index(device)
        arena = sum(procedure["device_arenas"][number - 1] for procedure in manifest["procedures"])
        click.echo(f"device     {device['name']}, arena {size(arena)}")
    if "precision" in manifest["metadata"]:
        click.echo(f"precision  {manifest['metadata']['precision']}")
    if "without" in manifest["metadata"]:
        click.echo(f"without    {', '.join(manifest['metadata']['without'])}")
    if "summary" in manifest["metadata"]:
        click.echo(f"plan       {manifest['metadata']['summary']}")
    click.echo(f"calls      {sum(len(procedure['calls']) for procedure in manifest['procedures'])}")
    if "arena_bytes" in entry:
        largest = ", planned for the largest shapes" if entry.get("symbols") else ""
        click.echo(f"arena      {arena_text(procedure)}{largest}")
        if peak := peak_text(procedure):
            click.echo(f"peak       {peak}")
    else:
        click.echo("arena      planned for each binding of the symbols")
    click.echo(f"constants  {size(members['constants.safetensors']['size'])}")
    tensors = procedure.tensors
    for kind in ("inputs", "outputs"):
        for index in entry[kind]:
            tensor = tensors[index]
            click.echo(f"{kind[:-1]:<9}  {tensor.name} {tensor.dtype} {shape(shape_texts(tensor))}")
    for symbol in procedure.symbols:
        where = f"axis {symbol.axis} of {tensors[symbol.tensor].name}"
        click.echo(f"symbol     {symbol.name} {symbol.low}..{'' if symbol.high is None else symbol.high}: {where}")
    for cache in caches_of(procedure, manifest["metadata"]):
        how = f"copied: {cache.copied}" if cache.copied else "appended in place"
        click.echo(f"cache      {cache.input} -> {cache.output} along axis {cache.axis}: {how}")
    for bound in procedure.bounds:
        click.echo(f"bound      {bound.extent} {bound.low}..{'' if bound.high is None else bound.high}")
    for equation in procedure.equations:
        click.echo(f"equation   {equation.kind}: {equation.left}, {equation.right}")
    for number in manifest.get("variants", ()):
        variant = procedure_from_json(manifest["procedures"][number])
        inputs = ", ".join(
            f"{one.name} {shape(shape_texts(one))}" for one in map(variant.tensors.__getitem__, variant.inputs)
        )
        click.echo(f"variant    {variant.name}: {inputs}; {len(variant.calls)} calls")
    _print_modules(manifest)


def _print_modules(manifest: dict[str, Any]) -> None:
    from graft.runtime.procedure import SECRET

    members = manifest["members"]
    rows = [
        (one["name"], one["kind"], len(one["functions"]), size(members[one["member"]]["size"]), one["plugin"],
         one["install"])
        for one in manifest["modules"]
    ]  # fmt: skip
    click.echo()
    print_table(("MODULE", "KIND", "FUNCTIONS", "SIZE", "PLUGIN", "INSTALL"), rows)
    for one in manifest["modules"]:
        if one.get("options"):
            shown = {name: "(secret)" if value == SECRET else value for name, value in one["options"].items()}
            click.echo(f"{one['name']} was compiled by {backend_text(one['backend'], shown)}")
        if one.get("source", {}).get("compiler"):
            click.echo(f"{one['name']} was compiled from C by {one['source']['compiler']}")
    kernels = dict(_kernels(manifest))
    if kernels:
        click.echo()
        print_table(
            ("KERNEL", "STRATEGY", "KNOBS", "REFUSED"),
            [(name, one.get("strategy", ""), knobs(one), dearer(one)) for name, one in kernels.items()],
        )


def _kernels(manifest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every kernel's name, with its variant where it is of one, and how it was made."""
    first = min(manifest.get("variants", ()), default=len(manifest["procedures"]))
    for number, procedure in enumerate(manifest["procedures"]):
        for call in procedure["calls"]:
            if "schedule" in call:
                place = f"{procedure['name']} " if number >= first else ""
                yield f"{place}{call['function']}", dict(call["schedule"])


def _model(state: State, path: Path, stage: str) -> ir.Model:
    shapes, dims = dict(state.shapes), dict(state.dims)
    if stage == "loaded":
        from graft.core.importer.load import load

        return load(str(path), shapes=shapes, dims=dims)
    if stage == "partitioned":
        return partitioned_as(state, path).model
    from graft.compiler.backend_passes import unwanted_passes
    from graft.compiler.driver import prepare
    from graft.compiler.request import choose

    chosen = choose(state.backends, state.manager())
    return prepare(str(path), shapes, state.manager(), unwanted_passes(chosen), dims)


def _print_text(state: State, model: ir.Model) -> None:
    if state.json:
        print_json({"text": _text(model)})
    else:
        click.echo(_text(model))


def _text(model: ir.Model) -> str:
    """Return the model in ONNX's text syntax; weights of more than 64 elements become inputs' declarations."""
    import onnx
    import onnx_ir as ir

    proto = ir.to_proto(model)
    for tensor in proto.graph.initializer:
        count = 1
        for extent in tensor.dims:
            count *= extent
        if count > 64:
            data_type, dims, name = tensor.data_type, list(tensor.dims), tensor.name
            tensor.Clear()
            tensor.name, tensor.data_type = name, data_type
            tensor.dims.extend(dims)
    return str(onnx.printer.to_text(proto))


def _print_model(state: State, model: ir.Model) -> None:
    from graft.core.graph.view import ValueView

    counts = Counter(node.op_type if not node.domain else f"{node.domain}::{node.op_type}" for node in model.graph)
    constants = [value for value in model.graph.initializers.values() if value.const_value is not None]
    facts: dict[str, Any] = {
        "ir_version": model.ir_version,
        "opsets": dict(model.graph.opset_imports),
        "inputs": [_facts(ValueView(value)) for value in model.graph.inputs],
        "outputs": [_facts(ValueView(value)) for value in model.graph.outputs],
        "constants": len(constants),
        "constant_bytes": sum(value.const_value.nbytes for value in constants if value.const_value is not None),
        "operators": dict(counts.most_common()),
    }
    if state.json:
        print_json(facts)
        return
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in model.graph.opset_imports.items())
    click.echo(f"IR version {model.ir_version}, opsets {opsets}")
    click.echo(f"constants  {len(constants)}, {size(facts['constant_bytes'])}")
    for kind in ("inputs", "outputs"):
        for one in facts[kind]:
            click.echo(f"{kind[:-1]:<9}  {one['name']} {one['dtype']} {shape(one['shape'])}")
    click.echo()
    print_table(("OPERATOR", "COUNT"), counts.most_common())


def _facts(view: Any) -> dict[str, Any]:
    return {"name": view.name, "dtype": view.dtype, "shape": None if view.shape is None else list(view.shape)}
