"""What the verbs share: options and their types, exit codes, the state of one invocation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import reduce
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graft.core.backend_spec import texts_of
from graft.errors import OptionError

if TYPE_CHECKING:
    from graft.core.graph.dimensions import DimensionSpec
    from graft.partition.policy import Policy
    from graft.plugins.registry.manager import PluginManager
    from graft.runtime.isolation.options import Isolation
    from graft.runtime.trust.policy import Native

Command = TypeVar("Command", bound=Callable[..., Any])
MODEL = click.Path(exists=True, dir_okay=False, path_type=Path)
DimensionSpecs = Sequence[tuple[str, "DimensionSpec"]]
ARTIFACT_MAGICS = (b"PK\x03\x04", b"\x7fELF")
"""Of a file of its own, and of a shared library that holds one."""


class ExitCode(IntEnum):
    """The exit codes of `graft`."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    COVERAGE = 3
    ACCURACY = 4
    PLUGIN = 5


@dataclass(slots=True)
class State:
    """The options that every verb has, and the plugin manager that they make."""

    json: bool = False
    verbose: bool = False
    plugin_files: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    switched_off: list[str] = field(default_factory=list)
    isolation: list[tuple[str, Isolation]] = field(default_factory=list)
    native: Native | None = None
    keys: Path | None = None
    backends: list[str] | None = None
    shapes: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    dims: list[tuple[str, DimensionSpec]] = field(default_factory=list)
    threads: int | None = None
    strict: bool = False
    precision: str = "float32"
    placing: dict[str, Any] = field(default_factory=dict)
    """The options of `policy_options` that were given, by name."""
    _manager: PluginManager | None = None

    def policy(self) -> Policy:
        """Return what is asked of placement."""
        from graft.partition.policy import Policy

        given = {**self.placing, "pin": dict(self.placing.get("pin", ()))}
        return Policy(placement=given.pop("place", None), measure_seconds=given.pop("place_seconds", 10.0), **given)

    def named(self, ranges: object = None) -> list[str]:
        """Return the options that were given and are for models alone, with what was said of ranges by ``--dim``."""
        given = {"-b": self.backends, "--shape": self.shapes, "a range of --dim": ranges,
                 "--precision": self.precision != "float32", "--switch-off": self.switched_off}  # fmt: skip
        return [*(option for option, value in given.items() if value),
                *(f"--{name.replace('_', '-')}" for name in self.placing)]  # fmt: skip

    def manager(self) -> PluginManager:
        """Return the plugin manager, with the files of ``--plugin``, without ``--without`` and what is disabled."""
        if self._manager is None:
            from graft.compiler.configuration import configuration
            from graft.plugins.registry.manager import PluginManager

            settings = configuration()
            disabled = (*self.without, *settings.disabled)
            self._manager = PluginManager(disabled, isolation=dict(self.isolation), limits=settings.limits)
            for path in self.plugin_files:
                self._manager.load_file(path)
        return self._manager


def shape_argument(text: str) -> tuple[str, tuple[int, ...]]:
    """Return name and shape of ``x:1x3x224x224`` or ``x=1,3,224,224``; names may hold colons, the last one counts."""
    name, separator, extents = text.rpartition("=" if "=" in text else ":")
    parts = extents.replace(",", "x").split("x")
    if not (separator and name) or not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"'{text}' is not a shape; write x:1x3x224x224 or x=1,3,224,224")
    return name, tuple(int(part) for part in parts)


def dim_argument(text: str) -> tuple[str, DimensionSpec]:
    """Return name and number, name and range, or two names, of ``seq=128``, ``seq=1..512``, ``seq=1..``, ``m=seq``."""
    name, separator, spec = text.rpartition("=")
    low, dots, high = spec.partition("..")
    if separator and name and spec.isidentifier():
        return name, spec
    numbers = low.isdecimal() and (high.isdecimal() or (dots and not high) or not dots)
    if not (separator and name and numbers):
        raise click.BadParameter(f"'{text}' is not a dimension; write seq=128 or seq=1..512")
    return name, (int(low), int(high) if high else None) if dots else int(low)


def dims_argument(text: str) -> tuple[str, DimensionSpec | list[int]]:
    """Return what `dim_argument` does, or name and several numbers of ``seq=16,32``."""
    name, _, spec = text.rpartition("=")
    numbers = spec.split(",")
    if len(numbers) > 1 and name and all(number.isdecimal() for number in numbers):
        return name, [int(number) for number in numbers]
    return dim_argument(text)


def choices_argument(text: str) -> tuple[str, list[int | tuple[int, int | None]]]:
    """Return name and numbers, or ranges, of ``seq=128,384`` or ``seq=128,1..64``."""
    name, _, specs = text.rpartition("=")
    try:
        found = [dim_argument(f"{name}={spec}")[1] for spec in specs.split(",")]
        if any(isinstance(one, str) for one in found):
            raise click.BadParameter(text)
        return name, [one for one in found if not isinstance(one, str)]
    except click.BadParameter:
        raise click.BadParameter(f"'{text}' names no versions; write seq=128,384 or seq=128,1..64") from None


def numbers_argument(text: str) -> tuple[str, list[int]]:
    """Return name and numbers of ``seq=16,128``."""
    name, _, specs = text.rpartition("=")
    numbers = specs.split(",")
    if not name or not all(number.isdecimal() for number in numbers):
        raise click.BadParameter(f"'{text}' names no values; write {name or 'seq'}=16,128")
    return name, [int(number) for number in numbers]


def values_and_ranges(
    dims: DimensionSpecs,
) -> tuple[dict[str, int], dict[str, DimensionSpec]]:
    """Return, of what a verb that runs something is given, the numbers to run with and the ranges to compile for."""
    values = {name: spec for name, spec in dims if isinstance(spec, int)}
    return values, {name: spec for name, spec in dims if not isinstance(spec, int)}


def bindings_and_ranges(
    dims: Sequence[tuple[str, DimensionSpec | list[int]]],
) -> tuple[list[dict[str, int]], dict[str, DimensionSpec]]:
    """Return the values of dimensions to run with, each with each, and the ranges to compile for."""
    lists = {name: spec if isinstance(spec, list) else [spec] for name, spec in dims if isinstance(spec, int | list)}
    bindings = [dict(zip(lists, numbers, strict=True)) for numbers in product(*lists.values())]
    return bindings, {name: spec for name, spec in dims if isinstance(spec, tuple | str)}


def names_argument(text: str) -> tuple[str, ...]:
    """Return the backends of ``npu:bits=8,mode=fast,llvm``, in order, each with its options."""
    try:
        names = texts_of(text)
    except OptionError as error:
        raise click.BadParameter(error.message) from error
    if not all(names):
        raise click.BadParameter(f"'{text}' has an empty name; write names with commas between, as in onednn,llvm")
    return names


def pin_argument(text: str) -> tuple[str, str]:
    """Return node and backend of ``node=backend``."""
    node, separator, backend = text.rpartition("=")
    if not (separator and node and backend):
        raise click.BadParameter(f"'{text}' does not pin a node; write NODE=BACKEND")
    return node, backend


def set_state(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that keeps an option's value in the `State`."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(State), name, list(value) if isinstance(value, tuple) else value)
            if name == "verbose":
                logging.getLogger("graft").setLevel(logging.INFO)

    return callback


def _all(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        decorated: Command = reduce(lambda done, decorator: decorator(done), reversed(decorators), command)
        return decorated

    return apply


def common_options(command: Command) -> Command:
    """Add what every verb has: ``--json``, ``--plugin``, ``--without``, ``-v``."""
    hidden: dict[str, Any] = {"expose_value": False}
    return _all(
        click.option("--json", is_flag=True, callback=set_state("json"), help="Print JSON.", **hidden),
        click.option(
            "--plugin", "plugin_files", metavar="FILE", multiple=True, callback=set_state("plugin_files"),
            help="Load a Python file as a plugin, for this call.", **hidden,
        ),
        click.option(
            "--without", metavar="NAME", multiple=True, callback=set_state("without"),
            help="Leave out a plugin, backend or distribution.", **hidden,
        ),
        click.option("-v", "--verbose", is_flag=True, callback=set_state("verbose"), help="Show tracebacks.", **hidden),
    )(command)  # fmt: skip


def backend_options(command: Command) -> Command:
    """Add what chooses backends and shapes: ``-b``, ``--shape``."""
    return _all(
        click.option(
            "-b",
            "--backends",
            metavar="NAME[:OPTION=VALUE,...],...",
            type=names_argument,
            callback=set_state("backends"),
            expose_value=False,
            help="Backends in order of preference; if left out all that take part unnamed, by cost.",
        ),
        click.option(
            "--shape",
            "shapes",
            metavar="NAME:1x3x224x224",
            type=shape_argument,
            multiple=True,
            callback=set_state("shapes"),
            expose_value=False,
            help="The shape of an input with symbolic dimensions.",
        ),
    )(command)


def shapes_option(command: Command) -> Command:
    """Add ``--shape`` to a command that compiles nothing: its argument ``shapes`` are pairs of a name and a shape."""
    return click.option(
        "--shape", "shapes", metavar="NAME:1x3x224x224", type=shape_argument, multiple=True,
        help="The shape of an input with symbolic dimensions.",
    )(command)  # fmt: skip


def dim_option(command: Command) -> Command:
    """Add what says of dimensions which numbers they have: ``--dim``."""
    return click.option(
        "--dim", "dims", metavar="NAME=128|1..512|OTHER", type=dim_argument, multiple=True,
        callback=set_state("dims"), expose_value=False,
        help="The number or range of a symbolic dimension, or one that it is; without, every shape is possible.",
    )(command)  # fmt: skip


def switch_option(command: Command) -> Command:
    """Add what the compiler is to do without: ``--switch-off``."""
    return click.option(
        "--switch-off", metavar="NAME", multiple=True, callback=set_state("switched_off"), expose_value=False,
        help="Do without an optimisation (attention, fusion, horizontal, views, winograd, ...) or a graph pass.",
    )(command)  # fmt: skip


def comparison_options(*more: str) -> Callable[[Command], Command]:
    """Add what results are held against, and how near they must be: ``--against``, ``--rtol``, ``--atol``."""
    return _all(
        click.option(
            "--against", type=click.Choice(["reference", "onnxruntime", *more]), default="reference", show_default=True,
            help="Who says what is right.",
        ),
        click.option("--rtol", type=float, default=1e-3, show_default=True, help="Relative tolerance."),
        click.option("--atol", type=float, default=1e-4, show_default=True, help="Absolute tolerance."),
    )  # fmt: skip


def compile_options(command: Command) -> Command:
    """Add what steers compilation: ``--threads``, ``--strict``."""
    return _all(
        threads_option("Threads of the program; all available by default."),
        click.option(
            "--strict", is_flag=True, callback=set_state("strict"), expose_value=False,
            help="Fail where a region would go to another backend.",
        ),
    )(command)  # fmt: skip


def threads_option(text: str) -> Callable[[Command], Command]:
    """Return what adds ``--threads``, with what ``--help`` says of it."""
    return click.option(
        "--threads", type=click.IntRange(min=1), callback=set_state("threads"), expose_value=False, help=text
    )


def trust_options(command: Command) -> Command:
    """Add what is done with the machine code of an artifact: ``--native``, ``--keys``."""
    hidden: dict[str, Any] = {"expose_value": False}
    return _all(
        click.option(
            "--native", type=click.Choice(["run", "signed", "refuse", "recompile"]), callback=set_state("native"),
            help="What to do with an artifact's machine code; signed where trusted keys are configured, else run.",
            **hidden,
        ),
        click.option(
            "--keys", type=click.Path(dir_okay=False, path_type=Path), callback=set_state("keys"), metavar="FILE",
            help="The trusted keys; those of the user's configuration if left out.", **hidden,
        ),
    )(command)  # fmt: skip


def precision_option(command: Command) -> Command:
    """Add ``--precision``."""
    return click.option(
        "--precision",
        type=click.Choice(("float32", "bf16", "fp16", "tf32")),
        default="float32",
        show_default=True,
        callback=set_state("precision"),
        expose_value=False,
        help="Of float32 products in the built-in compiler; bf16 rounds factors and images to bfloat16.",
    )(command)


def policy_options(command: Command) -> Command:
    """Add options of placement, which `State.policy` gives: ``--place``, exclusions, pins, bounds on regions."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value not in (None, ()):
            ctx.ensure_object(State).placing[str(param.name)] = value

    kept: dict[str, Any] = {"callback": keep, "expose_value": False}
    return _all(
        click.option(
            "--place", type=click.Choice(("auto", "greedy", "model", "measured")), **kept,
            help="First backend that can (greedy), or the cheapest plan: by recorded times, else a cost model (auto), "
            "by the model alone, by times measured now. By default greedy with -b, auto without.",
        ),
        click.option(
            "--place-seconds", type=click.FloatRange(min=0, min_open=True), **kept,
            help="The time for --place measured, 10 if left out.",
        ),
        click.option("--exclude-op", metavar="[BACKEND:]OP", multiple=True, **kept,
                     help="Keep an operator from a backend."),
        click.option("--exclude-node", metavar="[BACKEND:]NODE", multiple=True, **kept,
                     help="Keep a node from a backend."),
        click.option(
            "--allow-inaccurate", metavar="[BACKEND:]OP", multiple=True, **kept,
            help="Let a backend have an operator that it refuses for its accuracy.",
        ),
        click.option(
            "--pin", metavar="NODE=BACKEND", type=pin_argument, multiple=True, **kept,
            help="Insist on a backend for a node.",
        ),
        click.option("--min-region-ops", type=click.IntRange(min=0), **kept, help="Give up smaller regions."),
        click.option("--min-region-flops", type=click.IntRange(min=0), **kept, help="Give up cheaper regions."),
        click.option("--max-regions", type=click.IntRange(min=0), **kept,
                     help="Keep only the largest regions of a backend."),
        click.option("--max-region-layers", type=click.IntRange(min=1), **kept,
                     help="Part regions of more layers than these."),
    )(command)  # fmt: skip


def is_artifact(path: Path) -> bool:
    """Whether a file is an artifact rather than a model, by its first bytes."""
    if path.suffix == ".pt2":  # a program of `torch.export`, which is an archive, too
        return False
    with path.open("rb") as file:
        return file.read(4) in ARTIFACT_MAGICS
