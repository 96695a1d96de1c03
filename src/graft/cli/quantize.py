"""`graft quantize`: a float model as a QDQ model, by a recipe and data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import MODEL, ExitCode, State, common_options, names_argument, shapes_option, threads_option
from graft.cli.output import keep_clear, print_json, print_table
from graft.cli.progress import counting

if TYPE_CHECKING:
    import onnx_ir as ir

    from graft.errors import GraftError
    from graft.partition.plan import Placement
    from graft.quantization.assignment import Assignment
    from graft.quantization.comparison import Comparison
    from graft.quantization.recipe import Recipe


def set_argument(text: str) -> dict[str, Any]:
    """Return the table of ``weights.group=64``; a value that is no TOML is a text."""
    import tomllib

    name, separator, value = text.partition("=")
    if not (separator and name):
        raise click.BadParameter(f"'{text}' is not FIELD=VALUE, as in weights.group=64")
    try:
        return tomllib.loads(f"{name} = {value}")
    except tomllib.TOMLDecodeError:
        try:
            return tomllib.loads(f'{name} = "{value}"')
        except tomllib.TOMLDecodeError as error:
            raise click.BadParameter(f"'{text}' is not FIELD=VALUE: {error}") from error


class FromFile:
    """The batches that a function of a file, ``FILE.py:NAME``, returns; it is called each time they are read."""

    def __init__(self, text: str) -> None:
        self._function = function_of(text, "data")

    def __iter__(self) -> Iterator[Any]:
        given = self._function()
        return iter([given] if hasattr(given, "keys") or hasattr(given, "ndim") else given)


class Data(click.ParamType[Any]):
    """A path that there is, or ``FILE.py:FUNCTION``."""

    name = "data"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | FromFile:
        """Return which of them a text is."""
        if ".py:" in value and not Path(value).exists():
            return FromFile(value)
        found: Path = click.Path(exists=True, path_type=Path).convert(value, param, ctx)
        return found


class Function(click.ParamType[Any]):
    """The function of ``FILE.py:FUNCTION``."""

    name = "function"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Callable[..., Any]:
        """Return the function that a text names."""
        return function_of(value, "function" if param is None or param.name is None else param.name)


preprocess_option = click.option(
    "--preprocess", type=Function(), metavar="FILE.py:FUNCTION",
    help="What makes a batch (a mapping, an array, or a pair of inputs and labels) of a file's arrays or path, or of "
    "what a function of --data gives.",
)  # fmt: skip
metric_option = click.option(
    "--metric",
    type=Function(),
    metavar="FILE.py:FUNCTION",
    help="What outputs and labels are worth; accuracy if left out.",
)


@click.command("quantize")
@click.argument("model", type=MODEL)
@click.option("--recipe", metavar="NAME|FILE.toml", help="How: see --show; int8, or the backend's first, if left out.")
@click.option(
    "--for", "backend", metavar="BACKEND", help="Take a recipe that this backend states, and say what it leaves."
)
@click.option(
    "--set", "changes", metavar="FIELD=VALUE", type=set_argument, multiple=True,
    help="Change a field of the recipe: weights.group=64, smooth=0.5.",
)  # fmt: skip
@click.option("--keep", metavar="PATTERN", multiple=True, help="Nodes, by name or operator, that stay in floats.")
@click.option(
    "--data", type=Data(), metavar="FILE.npz|DIR|FILE.py:FUNCTION",
    help="Arrays by input name, stacked along the first dimension, and 'labels'; a folder of such files; or a function "
    "that returns batches: a list, an iterator, a DataLoader.",
)  # fmt: skip
@click.option("--check", type=Data(), metavar="FILE.npz|DIR|FILE.py:FUNCTION",
              help="Other data for the table of errors; --data if left out.")  # fmt: skip
@preprocess_option
@click.option(
    "--resume", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Keep what calibration gathers in this folder: one that was broken off goes on there.",
)  # fmt: skip
@metric_option
@click.option(
    "--within", type=click.FloatRange(min=0), metavar="LOSS",
    help="Keep layers in floats until no more of the metric is lost; exit 4 where that is not enough.",
)  # fmt: skip
@click.option(
    "--mixed", metavar="NAME|FILE.toml,...", type=names_argument,
    help="Give each layer one of these recipes, float32 among them or not: as few bits as --within allows, or --bits.",
)  # fmt: skip
@click.option(
    "--bits", type=click.FloatRange(min=0, min_open=True), metavar="N",
    help="Give layers recipes so that the model is best with at most N bits a weight, scales counted.",
)  # fmt: skip
@click.option(
    "--save-recipe", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.toml",
    help="Write the recipe, with those of its layers, to edit it and give it to --recipe.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The ONNX file.")
@click.option("--show", is_flag=True, help="Print the recipe, as a file has it, and leave the model as it is.")
@shapes_option
@threads_option("Threads of calibration; all available by default.")
@common_options
@click.pass_obj
def command(
    state: State,
    model: Path,
    recipe: str | None,
    backend: str | None,
    changes: tuple[dict[str, Any], ...],
    keep: tuple[str, ...],
    data: Path | FromFile | None,
    check: Path | FromFile | None,
    preprocess: Callable[..., Any] | None,
    resume: Path | None,
    metric: Callable[..., Any] | None,
    within: float | None,
    mixed: tuple[str, ...] | None,
    bits: float | None,
    save_recipe: Path | None,
    output: Path | None,
    show: bool,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
) -> int:
    """Write MODEL quantised, and print the errors of its layers against the float model."""
    import graft
    from graft.core.graph.save import save_model
    from graft.quantization import assign, compare, left_by, notes_of, recipe_for, recipe_of
    from graft.quantization.assignment import MIXED
    from graft.runtime.system.files import write

    if (mixed or bits is not None) and (recipe or backend or changes or keep or show):
        raise click.UsageError("--mixed and --bits choose among recipes: no --recipe, --for, --set, --keep, --show")
    state.manager().plugins()  # which registers their datatypes
    base = recipe or "int8" if backend is None else recipe_for(backend, recipe or "", manager=state.manager())
    wanted = recipe_of({"base": base, **merged(changes)})
    if show:
        click.echo(wanted.to_toml(), nl=False)
        return ExitCode.OK
    options: dict[str, Any] = {"shapes": dict(shapes), "threads": state.threads, "manager": state.manager()}
    options["metric"] = metric
    keep_clear(output := output_of(output))
    with counting("calibration") as progress:
        given = {**options, "within": within, "progress": progress, "resume": resume}
        rows = batches_of(data, preprocess)
        search: Callable[[], ir.Model | Assignment] = partial(graft.quantize, model, wanted, rows, keep=keep, **given)
        if mixed or bits is not None:
            search = partial(assign, model, mixed or MIXED, rows, bits=bits, **given)
        quantized, chosen, failure = _best(search)
    report, notes = compare(model, quantized, batches_of(check or data, preprocess), **options), notes_of(quantized)
    if save_recipe is not None:
        write(save_recipe, (chosen or wanted).to_toml(), "recipe")
    save_model(quantized, output)
    if backend is not None:
        notes += _notes_of_backend(backend.partition(":")[0], left_by(backend, quantized, manager=state.manager()))
    if state.json:
        print_json({"output": str(output), "notes": notes, **report.to_json()})
    else:
        print_comparison(report)
        sizes = f"wrote {output}: {output.stat().st_size} bytes, of {model.stat().st_size}"
        click.echo("\n".join([*notes, sizes]))
    if failure is not None:
        raise failure
    return ExitCode.OK


def _best(search: Callable[[], ir.Model | Assignment]) -> tuple[ir.Model, Recipe | None, GraftError | None]:
    """Return the model that is found, the recipe if it was chosen, and the error where it is but the best."""
    from graft.errors import AccuracyError

    try:
        found: Any = search()
    except AccuracyError as error:
        return error.facts["model"], error.facts.get("recipe"), error  # type: ignore[return-value]
    return getattr(found, "model", found), getattr(found, "recipe", None), None


def _notes_of_backend(name: str, left: Sequence[Placement]) -> list[str]:
    """Return what a backend takes of a quantised model, and why it leaves the rest."""
    head = f"{name} takes all that is quantised" if not left else f"{name} leaves {len(left)} operators:"
    return [head, *(f"  {row.op_type} '{row.node}': {row.reasons[name].text}" for row in left)]


def merged(changes: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return tables joined, a later value in the place of an earlier one."""
    found: dict[str, Any] = {}
    for change in changes:
        for name, value in change.items():
            found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
    return found


def function_of(text: str, option: str) -> Callable[..., Any]:
    """Return the function of ``FILE.py:NAME``, which an option names."""
    import runpy

    from graft.errors import RecipeError

    path, separator, name = text.rpartition(":")
    if not (separator and name and path.endswith(".py") and Path(path).is_file()):
        raise click.BadParameter(f"'{text}' is not FILE.py:FUNCTION of a file that there is", param_hint=f"--{option}")
    try:
        names = runpy.run_path(path)
    except Exception as error:  # whatever the user's file does
        raise RecipeError(f"{option} '{path}' cannot be loaded ({type(error).__name__}: {error})") from error
    function = names.get(name)
    if not callable(function):
        raise RecipeError(f"'{path}' has no function '{name}'")
    found: Callable[..., Any] = function
    return found


def output_of(output: Path | None) -> Path:
    """Return the file to write; raise UsageError if there is none."""
    if output is None:
        raise click.UsageError("name the file to write with -o")
    return output


def batches_of(data: Path | FromFile | None, preprocess: Callable[[Any], Any] | None) -> Any:
    """Return data as `graft.quantize` takes them."""
    from graft.quantization import preprocessed

    return data if data is None or preprocess is None else preprocessed(data, preprocess)


def print_comparison(report: Comparison) -> None:
    """Print the errors of layers and outputs, and the metric of both models."""
    columns = ("LAYER", "OPERATOR", "SNR dB", "MAX ABS", "SATURATED", "UNDERFLOWED", "INVALID", "ELEMENTS")
    rows = [
        (row.layer, row.operator, row.snr_db, row.max_abs, row.saturated, row.underflowed, row.invalid, row.elements)
        for row in (*report.layers, *report.outputs)
    ]
    print_table(columns, rows)
    if report.metric is not None and report.float_metric is not None:
        click.echo(f"metric: {report.metric:.4f}, in floats {report.float_metric:.4f}")
