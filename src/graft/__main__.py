"""The command `graft`, also as ``python -m graft``: the command line, or, without click, what runs an artifact."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without click, `graft run FILE.graft` still runs, by `graft.runtime`."""
    try:
        from graft.cli.main import main as command_line
    except ImportError as error:
        if error.name != "click":
            raise
        sys.exit(_without_click(sys.argv[1:]))
    command_line()


def _without_click(arguments: list[str]) -> int:
    from graft.runtime.__main__ import main as run

    if arguments[:1] == ["run"]:
        return run(arguments[1:])
    print(
        "graft: the command line needs click: pip install click; "
        "without it, graft run FILE.graft runs an artifact, as python -m graft.runtime FILE.graft does",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    main()
