"""`graft cache`: what is kept for later compilations: kernels, PyTorch's programs, tuned parameters, measured times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import ExitCode, State, common_options
from graft.cli.output import print_json, print_table
from graft.report.quantities import size

if TYPE_CHECKING:
    from graft.core.tuning.tunings import Row, Tunings
    from graft.partition.times import TimesDatabase
    from graft.plugins.codegen.kernel_cache import KernelCache

KINDS = ("kernels", "programs", "tuned", "times")


@click.command("cache")
@click.argument("action", type=click.Choice(["info", "tuned", "export", "merge", "clear"]), default="info")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--what", type=click.Choice([*KINDS, "all"]), default="kernels", show_default=True, help="What `clear` removes."
)
@common_options
@click.pass_obj
def command(state: State, action: str, file: Path | None, what: str) -> int:
    """Show what is kept for later compilations and where, or clear some of it away.

    `tuned` lists what tuning has found; `export FILE` writes it as text, and `merge FILE` takes over such a file.
    """
    if file is not None and action not in ("export", "merge"):
        raise click.UsageError(f"'{action}' takes no file, and got '{file}'")
    match action:
        case "export" | "merge":
            _exchange(state, action, file)
        case "clear":
            _clear(state, KINDS if what == "all" else (what,))
        case "tuned":
            _list(state)
        case _:
            _info(state)
    return ExitCode.OK


def _places() -> tuple[KernelCache, KernelCache, Tunings, TimesDatabase] | None:
    """What is kept in the cache directory; None where there is no such directory."""
    from graft.compiler.plan_times import default_database
    from graft.core.machine.target import tuned_database
    from graft.core.tuning.tunings import Tunings
    from graft.partition.times import TimesDatabase
    from graft.plugins.codegen.kernel_cache import PROGRAM_BYTES, KernelCache
    from graft.runtime.system.cache_directory import cache_directory

    directory, tuned, times = cache_directory(), tuned_database(), default_database()
    if directory is None or tuned is None or times is None:
        return None
    programs = KernelCache(directory / "programs", PROGRAM_BYTES)
    return KernelCache(directory / "kernels"), programs, Tunings(tuned), TimesDatabase(times)


def _refusals(
    kernels: KernelCache, programs: KernelCache, tunings: Tunings, times: TimesDatabase
) -> dict[str, str | None]:
    """Why something that is kept is not used; None for what is."""
    from graft.core.tuning.database import why_not_usable

    return {
        "kernels": kernels.refusal,
        "programs": programs.refusal,
        "tuned": why_not_usable(tunings.path),
        "times": why_not_usable(times.path),
    }


def _clear(state: State, kinds: tuple[str, ...]) -> None:
    places = _places()
    counts = dict.fromkeys(kinds, 0) if places is None else _cleared(kinds, *places)
    if state.json:
        print_json({"removed": sum(counts.values())})
        return
    names = {"kernels": "kernels", "programs": "programs", "tuned": "tuned parameters", "times": "measured times"}
    for kind, count in counts.items():
        click.echo(f"{count} {names[kind]} removed")


def _cleared(
    kinds: tuple[str, ...], kernels: KernelCache, programs: KernelCache, tunings: Tunings, times: TimesDatabase
) -> dict[str, int]:
    """Clear what is of some kinds; raise DatabaseError for a database that others may have made."""
    from graft.errors import DatabaseError

    clears: dict[str, Callable[[], int]] = {
        "kernels": kernels.clear, "programs": programs.clear, "tuned": tunings.clear, "times": times.forget,
    }  # fmt: skip
    refusals = _refusals(kernels, programs, tunings, times)
    for kind, path in (("tuned", tunings.path), ("times", times.path)):
        if kind in kinds and refusals[kind] is not None:
            raise DatabaseError(
                f"the database '{path}' is not used and not cleared: {refusals[kind]}; mend that, or remove the file",
                path=str(path),
            )
    return {kind: clears[kind]() for kind in kinds}


def _info(state: State) -> None:
    places = _places()
    if places is None:
        _nothing(state)
        return
    kernels, programs, tunings, times = places
    refused = _refusals(*places)
    count, total = kernels.size()
    held, used = programs.size()
    tuned = 0 if refused["tuned"] else len(tunings.everything())
    measured = 0 if refused["times"] else len(times)
    if state.json:
        facts = {"directory": str(kernels.directory), "kernels": count, "bytes": total, "limit": kernels.limit}
        more = {
            "programs": programs.size()[0],
            "program_bytes": programs.size()[1],
            "tuned": tuned,
            "tuned_database": str(tunings.path),
            "times": measured,
        }
        print_json({**facts, **more, "times_database": str(times.path), "refused": refused})
        return
    lines = {
        "kernels": f"{kernels.directory}: {count} kernels, {size(total)} of at most {size(kernels.limit)}",
        "programs": f"{programs.directory}: {held} programs, {size(used)} of at most {size(programs.limit)}",
        "tuned": f"{tunings.path}: {tuned} tuned workloads",
        "times": f"{times.path}: {measured} measured times",
    }
    for kind, line in lines.items():
        click.echo(line if refused[kind] is None else f"{line}; not used: {refused[kind]}")


def _nothing(state: State) -> None:
    """Say that nothing is kept."""
    from graft.core.tuning.database import why_not_usable

    reason = why_not_usable(None)
    if state.json:
        print_json(
            {
                "directory": None,
                "kernels": 0,
                "programs": 0,
                "bytes": 0,
                "tuned": 0,
                "times": 0,
                "refused": dict.fromkeys(KINDS, reason),
            }
        )
    else:
        click.echo(f"nothing is kept: {reason}")


def _rows() -> list[Row]:
    places = _places()
    return [] if places is None or _refusals(*places)["tuned"] else places[2].everything()


def _exchange(state: State, action: str, file: Path | None) -> None:
    """Write what tuning has found to a file, or take over what another has in one."""
    from graft.core.tuning.exchange import read_rows, write_rows

    if file is None:
        raise click.UsageError(f"'{action}' needs a file, as in `graft cache {action} tuned.json`")
    if action == "export":
        count, text = write_rows(_rows(), file), f"written to {file}"
    else:
        rows = read_rows(file)
        places = _places()
        if places is None or _refusals(*places)["tuned"]:
            raise click.UsageError("there is no database of tuned parameters to merge into; see `graft cache`")
        count, text = places[2].merge(rows), f"of {len(rows)} merged into {places[2].path}"
    if state.json:
        print_json({"rows": count, "file": str(file)})
    else:
        click.echo(f"{count} tuned workloads {text}")


def _list(state: State) -> None:
    from graft.core.schedule.parameters import to_json
    from graft.core.tuning.exchange import facts

    rows = _rows()
    if state.json:
        print_json([facts(row) for row in rows])
        return
    columns = ("WORKLOAD", "PARAMETERS", "MICROSECONDS", "UNTUNED", "STAGES", "PROCESSOR")
    shown = [
        (row.tuning.label, to_json(row.tuning.parameters), 1e6 * row.tuning.seconds, 1e6 * row.tuning.untuned,
         row.tuning.stage, _processor(row))
        for row in rows
    ]  # fmt: skip
    print_table(columns, shown)


def _processor(row: Row) -> str:
    """The processor and the threads, without its features."""
    _, cpu, _, threads, *_ = row.machine.split(" ")
    return f"{cpu} {threads}"
