"""``python -m graft.runtime``: runs an artifact with NumPy and the native library, and nothing else."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from graft.errors import GraftError
from graft.runtime import include_dir

PROGRAM = "python -m graft.runtime"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, or JSON where ``--json`` was asked for."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2."""
        _show("UsageError", f"{message}; --help shows the options", self.as_json)
        sys.exit(2)


def parser() -> Parser:
    """Return the parser of the command line."""
    result = Parser(PROGRAM, description="Run an artifact (.graft) once, and show its outputs.")
    result.add_argument("file", nargs="?", help="the artifact")
    result.add_argument(
        "--input", action="append", default=[], type=_input, metavar="NAME=@FILE.npy",
        help="an input, or NAME=[1, 2]; those not given are random",
    )  # fmt: skip
    result.add_argument("--output", type=Path, metavar="DIR", help="write each output to this folder as .npy")
    result.add_argument("--seed", type=_at_least(0), default=0, metavar="N", help="the seed of random inputs")
    result.add_argument("--threads", type=_at_least(1), metavar="N", help="all that may be used by default")
    result.add_argument(
        "--deadline", type=_seconds, metavar="SECONDS", help="end a run that is not done after so many seconds"
    )
    result.add_argument("--strict", action="store_true", help="fail where a region would be compiled anew")
    result.add_argument(
        "--native", choices=["run", "signed", "refuse", "recompile"],
        help="what to do with its machine code; signed where trusted keys are configured, else run",
    )  # fmt: skip
    result.add_argument("--keys", type=Path, metavar="FILE", help="the trusted keys; else those that are configured")
    result.add_argument("--json", action="store_true", help="print JSON")
    result.add_argument("--include-dir", action="store_true", help="print the folder of the C headers")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 ok, 1 failure, 2 usage, 5 plugin fault."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = parser()
    commands.as_json = "--json" in words
    options = commands.parse_args(words)
    if options.include_dir:
        print(json.dumps({"include_dir": include_dir()}) if options.json else include_dir())
        return 0
    if options.file is None:
        commands.error("no artifact is given; write python -m graft.runtime FILE.graft")
    try:
        rows = _run(options)
    except GraftError as error:
        _show(type(error).__name__, error.command_line, options.json)
        return 5 if "plugin" in error.facts else 1
    if options.json:
        print(json.dumps({"outputs": rows}, indent=2, ensure_ascii=False, default=str))
    else:
        for row in rows:
            print(_line(row))
    return 0


def _run(options: argparse.Namespace) -> list[dict[str, Any]]:
    from graft.runtime.inputs import facts, inputs_of, write_arrays
    from graft.runtime.loading import load

    program = load(
        options.file, threads=options.threads, strict=options.strict, native=options.native, keys=options.keys
    )
    results = program.run(inputs_of(program, options.input, options.seed), deadline=options.deadline)
    rows = facts(results)
    if options.output is not None:
        write_arrays(results, rows, options.output)
    return rows


def _line(row: dict[str, Any]) -> str:
    shape = ",".join(str(extent) for extent in row["shape"])
    values = ", ".join(f"{key} {row[key]:.6g}" for key in ("min", "mean", "max") if key in row)
    parts = [f"{row['name']}: {row['dtype']}[{shape}]", values, row.get("file", "")]
    return "  ".join(part for part in parts if part)


def _show(kind: str, message: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": {"type": kind, "message": message}}, indent=2, ensure_ascii=False))
    else:
        print(f"{PROGRAM}: {message}", file=sys.stderr)


def _input(text: str) -> tuple[str, str]:
    name, separator, contents = text.partition("=")
    if not (separator and name and contents):
        raise argparse.ArgumentTypeError(f"'{text}' is not an input; write NAME=@FILE.npy or NAME=[1, 2]")
    return name, contents


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def _at_least(least: int) -> Any:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least {least}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
