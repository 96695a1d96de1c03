"""`graft cache`: what is kept for later compilations: kernels, tuned parameters, measured times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from graft.cli.common import ExitCode, State, common_options
from graft.cli.output import print_json, print_table, size

if TYPE_CHECKING:
    from graft.core.tuning.tunings import Row, Tunings
    from graft.partition.times import TimesDatabase
    from graft.plugins.llvm.cache import KernelCache

KINDS = ("kernels", "tuned", "times")


@click.command("cache")
@click.argument("action", type=click.Choice(["info", "tuned", "clear"]), default="info")
@click.option(
    "--what", type=click.Choice([*KINDS, "all"]), default="kernels", show_default=True, help="What `clear` removes."
)
@common_options
@click.pass_obj
def command(state: State, action: str, what: str) -> int:
    """Show what is kept for later compilations and where, list tuned parameters, or clear some of it away."""
    match action:
        case "clear":
            _clear(state, KINDS if what == "all" else (what,))
        case "tuned":
            _list(state)
        case _:
            _info(state)
    return ExitCode.OK


def _places() -> tuple[KernelCache, Tunings, TimesDatabase]:
    from graft.core.target import cache_directory, tuned_database
    from graft.core.tuning.tunings import Tunings
    from graft.measure import default_database
    from graft.partition.times import TimesDatabase
    from graft.plugins.llvm.cache import KernelCache

    return KernelCache(cache_directory() / "kernels"), Tunings(tuned_database()), TimesDatabase(default_database())


def _clear(state: State, kinds: tuple[str, ...]) -> None:
    kernels, tunings, times = _places()
    clears: dict[str, tuple[str, Callable[[], int]]] = {
        "kernels": ("kernels", kernels.clear),
        "tuned": ("tuned parameters", tunings.clear),
        "times": ("measured times", times.forget),
    }
    counts = {kind: clears[kind][1]() for kind in kinds}
    if state.json:
        print_json({"removed": sum(counts.values())})
        return
    for kind, count in counts.items():
        click.echo(f"{count} {clears[kind][0]} removed")


def _info(state: State) -> None:
    kernels, tunings, times = _places()
    count, total = kernels.size()
    tuned, measured = len(tunings.everything()), len(times)
    if state.json:
        facts = {"directory": str(kernels.directory), "kernels": count, "bytes": total, "limit": kernels.limit}
        more = {"tuned": tuned, "tuned_database": str(tunings.path), "times": measured}
        print_json({**facts, **more, "times_database": str(times.path)})
        return
    click.echo(f"{kernels.directory}: {count} kernels, {size(total)} of at most {size(kernels.limit)}")
    click.echo(f"{tunings.path}: {tuned} tuned workloads")
    click.echo(f"{times.path}: {measured} measured times")


def _list(state: State) -> None:
    from graft.core.schedule.parameters import to_json

    rows = _places()[1].everything()
    if state.json:
        print_json([_facts(row) for row in rows])
        return
    columns = ("WORKLOAD", "PARAMETERS", "MICROSECONDS", "UNTUNED", "STAGES", "PROCESSOR")
    shown = [
        (row.tuning.label, to_json(row.tuning.parameters), 1e6 * row.tuning.seconds, 1e6 * row.tuning.untuned,
         row.tuning.stage, _processor(row))
        for row in rows
    ]  # fmt: skip
    print_table(columns, shown)


def _facts(row: Row) -> dict[str, object]:
    import json

    from graft.core.schedule.parameters import to_json

    tuning = row.tuning
    return {
        "workload": row.workload,
        "machine": row.machine,
        "compiler": row.compiler,
        "label": tuning.label,
        "parameters": json.loads(to_json(tuning.parameters)),
        "seconds": tuning.seconds,
        "untuned": tuning.untuned,
        "stage": tuning.stage,
    }


def _processor(row: Row) -> str:
    """The processor and the threads, without its features."""
    _, cpu, _, threads, *_ = row.machine.split(" ")
    return f"{cpu} {threads}"
