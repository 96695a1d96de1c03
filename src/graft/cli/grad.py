"""`graft grad`: a model that computes gradients, as ONNX."""

from __future__ import annotations

from pathlib import Path

import click

from graft.cli.common import MODEL, ExitCode, State, common_options, names_argument, shapes_option
from graft.cli.output import keep_clear, print_json


@click.command("grad")
@click.argument("model", type=MODEL)
@click.option("--of", "of", metavar="VALUE", default="loss", show_default=True, help="The loss: a value of one number.")
@click.option("--wrt", metavar="VALUE", multiple=True, help="What gradients are by; all weights if left out.")
@click.option(
    "--keep", "outputs", metavar="VALUE", multiple=True, help="Other outputs; those of the model if left out."
)
@click.option("--stop", metavar="VALUE", multiple=True, help="A value that no gradient comes through.")
@click.option("--loss", "kind", metavar="KIND", help="Add a loss first, such as cross-entropy: see docs/training.md.")
@click.option(
    "--recompute",
    metavar="WAY",
    default="none",
    show_default=True,
    help="What the backward pass computes again to save memory: none, sqrt, min-cut, or a number of bytes to fit.",
)
@click.option(
    "-b",
    "--backends",
    metavar="NAME[:OPTION=VALUE,...],...",
    type=names_argument,
    help="Backends, in order, whose composites are differentiated by their own rules; none if left out.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The ONNX file.")
@shapes_option
@common_options
@click.pass_obj
def command(
    state: State,
    model: Path,
    of: str,
    wrt: tuple[str, ...],
    outputs: tuple[str, ...],
    stop: tuple[str, ...],
    kind: str | None,
    recompute: str,
    backends: tuple[str, ...] | None,
    output: Path,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
) -> int:
    """Write a model that computes outputs of MODEL and the gradients of a loss, named <value>_grad."""
    import graft
    from graft.compiler.request import choose
    from graft.core.graph.save import save_model
    from graft.training.gradients import notes_of

    keep_clear(output)
    way = int(recompute) if recompute.isdecimal() else recompute
    given = graft.load(model, shapes=dict(shapes))
    if kind is not None:
        given = graft.loss(given, kind, name=of)
    chosen = tuple(choose(list(backends), state.manager())) if backends else ()
    found = graft.grad(
        given, of, list(wrt) or None, outputs=list(outputs) or None, stop=stop, recompute=way, backends=chosen
    )
    save_model(found, output)
    names, notes = [value.name for value in found.graph.outputs], notes_of(found)
    if state.json:
        print_json({"output": str(output), "outputs": names, "notes": list(notes)})
    else:
        for note in notes:
            click.echo(note)
        click.echo(f"wrote {output}: {', '.join(map(str, names))}")
    return ExitCode.OK
