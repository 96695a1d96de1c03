"""`graft datatypes`: the number formats there are, and what they do to a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import MODEL, ExitCode, State, common_options, names_argument, shapes_option
from graft.cli.output import keep_clear, print_json, print_table

if TYPE_CHECKING:
    from graft.datatypes.study import SweepReport


@click.group("datatypes")
def command() -> None:
    """List number formats; convert a model to one; sweep a model through many."""


@command.command("list")
@common_options
@click.pass_obj
def list_command(state: State) -> int:
    """List the datatypes, bundled and registered by plugins, and the scaled types."""
    from graft.datatypes.scaled.scaled_type import SCALED_TYPES
    from graft.datatypes.study import listed

    state.manager().plugins()  # which registers theirs
    rows = listed()
    if state.json:
        scaled = [{"name": name, **asdict(one), "bits": one.bits} for name, one in SCALED_TYPES.items()]
        print_json([*(asdict(row) for row in rows), *scaled])
    else:
        columns = ("NAME", "TYPE", "LARGEST", "SMALLEST", "EPSILON", "FROM")
        print_table(columns, [(r.name, r.type, r.largest, r.smallest, r.epsilon, r.owner) for r in rows])
        columns = ("SCALED", "ELEMENTS", "SCALES", "BLOCK", "RULE", "BITS")
        types = [(name, one.element, one.scale, one.block, one.rule, one.bits) for name, one in SCALED_TYPES.items()]
        print_table(columns, types)
    return ExitCode.OK


@command.command("convert")
@click.argument("model", type=MODEL)
@click.option(
    "--type", "name", metavar="NAME", required=True, help="The type: posit16, float8e4m3, custom[posit]16, mxfp4, ..."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The ONNX file.")
@click.option(
    "--accumulate", default="each", show_default=True, metavar="each|quire|TYPE", help="How sums are rounded."
)
@click.option("--keep", metavar="PATTERN", multiple=True, help="Nodes, by name or operator, that stay as they are.")
@click.option(
    "--mixed", metavar="PATTERN=NAME", multiple=True, help="Nodes, by name or operator, that get another type."
)
@click.option("--depthwise", is_flag=True, help="Of scaled types: convert depthwise convolutions, too.")
@shapes_option
@common_options
@click.pass_obj
def convert_command(
    state: State,
    model: Path,
    name: str,
    output: Path,
    accumulate: str,
    keep: tuple[str, ...],
    mixed: tuple[str, ...],
    depthwise: bool,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
) -> int:
    """Write MODEL computing in a number format: an ONNX model that every other verb takes."""
    from graft.core.graph.save import save_model
    from graft.datatypes.conversion import convert
    from graft.datatypes.scaled.scaled_type import is_scaled_type
    from graft.datatypes.study import layers_of, type_named

    state.manager().plugins()  # which registers their datatypes
    if is_scaled_type(name):
        if mixed or shapes:
            only = "--keep, --depthwise and --accumulate are the only options"
            raise click.BadParameter(f"'{name}' is a scaled type, of which {only}", param_hint="--type")
        return _convert_scaled(state, model, name, output, keep, depthwise, accumulate)
    if depthwise:
        raise click.BadParameter(
            f"'{name}' is no scaled type, of which alone it is an option", param_hint="--depthwise"
        )
    pairs = [text.rpartition("=") for text in mixed]
    wrong = next((text for text, (pattern, _, _) in zip(mixed, pairs, strict=True) if not pattern), None)
    if wrong is not None:
        raise click.BadParameter(f"'{wrong}' is not PATTERN=NAME, as in Conv=posit8", param_hint="--mixed")
    dtype, types = type_named(name), {pattern: type_named(kind) for pattern, _, kind in pairs}
    converted = convert(str(model), dtype, keep=keep, types=types, accumulate=accumulate, shapes=dict(shapes))
    keep_clear(output)
    save_model(converted, output)
    layers = layers_of(converted)
    if state.json:
        print_json({"output": str(output), "type": dtype, "accumulate": accumulate, "layers": dict(layers)})
    else:
        click.echo(f"wrote {output}: {len(layers)} nodes compute in custom types; sums rounded: {accumulate}")
    return ExitCode.OK


def _convert_scaled(
    state: State, model: Path, name: str, output: Path, keep: tuple[str, ...], depthwise: bool, accumulate: str
) -> int:
    """Write MODEL with products of constant weights computed in a scaled type."""
    from graft.core.graph.save import save_model
    from graft.datatypes.scaled.conversion import convert_scaled
    from graft.datatypes.scaled.operators import DOMAIN
    from graft.datatypes.scaled.products import FLOAT32

    sums = FLOAT32 if accumulate == "each" else accumulate
    converted = convert_scaled(str(model), name, keep=keep, depthwise=depthwise, accumulate=sums)
    keep_clear(output)
    save_model(converted, output)
    layers = [node.name for node in converted.graph if node.domain == DOMAIN and node.op_type == "MatMul"]
    if state.json:
        print_json({"output": str(output), "type": name, "accumulate": sums, "layers": layers})
    else:
        click.echo(f"wrote {output}: {len(layers)} products compute in {name}; blocks are added in {sums}")
    return ExitCode.OK


@command.command("sweep")
@click.argument("model", type=MODEL)
@click.option(
    "--types", metavar="NAME,...", type=names_argument,
    help="Types: posit8, float8e4m3, custom[name]16, mxfp4, mxfp8e4m3-rceil, ...",
)  # fmt: skip
@click.option(
    "--recipes", metavar="NAME|FILE.toml,...", type=names_argument,
    help="Recipes of graft quantize: int8-channel, int4-weights, mine.toml, ...",
)  # fmt: skip
@click.option(
    "--calibration", type=click.Path(exists=True, path_type=Path), metavar="FILE.npz|DIR",
    help="What recipes are calibrated with; --data if left out.",
)  # fmt: skip
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), metavar="FILE.npz|DIR",
    help="Arrays by input name, stacked along the first dimension, and 'labels', one class per row; else random.",
)  # fmt: skip
@click.option(
    "--accumulate", default="each", show_default=True, metavar="each|quire|TYPE", help="How sums are rounded."
)
@click.option("--keep", metavar="PATTERN", multiple=True, help="Nodes, by name or operator, that stay as they are.")
@click.option("--limit", type=click.IntRange(min=1), help="Use that many rows of the data.")
@click.option("--costs", metavar="45nm|7nm|FILE.toml", help="Add energy and area of products by a table of costs.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with tables and plots.")
@shapes_option
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the programs; all available by default.")
@common_options
@click.pass_obj
def sweep_command(
    state: State,
    model: Path,
    types: tuple[str, ...] | None,
    recipes: tuple[str, ...] | None,
    calibration: Path | None,
    data: Path | None,
    accumulate: str,
    keep: tuple[str, ...],
    limit: int | None,
    costs: str | None,
    html: Path | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    threads: int | None,
) -> int:
    """Run MODEL in every type and by every recipe: accuracy, errors per layer against float64, size, time."""
    import graft

    if not (types or recipes):
        raise click.UsageError("name what to compare with --types or --recipes")
    report = graft.sweep(
        str(model), types or (), data, recipes=recipes or (), calibration=calibration, accumulate=accumulate,
        keep=keep, limit=limit, costs=costs, shapes=dict(shapes), threads=threads, manager=state.manager(),
    )  # fmt: skip
    if html is not None:
        from graft.datatypes.study_page import page
        from graft.runtime.system.files import write

        keep_clear(html)
        write(html, page(report), "report")
    if state.json:
        print_json(report.to_json())
    else:
        _print_report(report)
        if html is not None:
            click.echo(f"wrote {html}")
    return ExitCode.OK


def _print_report(report: SweepReport) -> None:
    columns = (
        "FORM", "ACCURACY", "SAME CLASS", "MAX ABS", "MAX REL", "SNR dB", "SATURATED", "UNDERFLOWED", "BITS/WEIGHT",
        "BITS/ACTIVATION", "WEIGHTS kB", "MS", "/ FLOAT32", "FRONT",
    )  # fmt: skip
    priced = any(row.energy_uj is not None for row in report.rows)
    front = {row.name for row in report.front(lambda row: row.weight_bits)}
    rows = [
        (row.name, None if row.accuracy is None else f"{row.accuracy:.4f}", f"{row.agreement:.4f}",
         row.output.max_abs, row.output.max_rel, row.output.snr_db, row.saturated, row.underflowed, row.weight_bits,
         row.activation_bits, row.weight_bytes / 1000, row.milliseconds, row.ratio, "*" if row.name in front else "",
         *((row.energy_uj, row.area_um2) if priced else ()))
        for row in report.rows
    ]  # fmt: skip
    print_table((*columns, "uJ", "um2") if priced else columns, rows)
    click.echo(f"{report.inputs} inputs; errors of the output against float64; sums rounded: {report.accumulate}")
    click.echo("* none has fewer bits a weight and is as good")
