"""The import rule of the folders, read from the source."""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = (
    "errors",
    "runtime",
    "core",
    "datatypes",
    "patterns",
    "partition",
    "plugins",
    "compiler",
    "quantization",
    "training",
    "measure",
    "report",
    "testkit",
)
FOLDERS = ORDER[1:]
ROOMS = (
    "core",
    "core/affine",
    "core/machine",
    "core/tensor_ir",
    "core/tensor_ir/interpreting",
    "core/tensor_ir/rewriting",
    "core/tensor_ir/arithmetic",
    "core/tensor_ir/verifying",
    "core/graph",
    "core/operators/definition",
    "core/operators/elementwise",
    "core/operators/movement",
    "core/operators/reductions",
    "core/operators/products",
    "core/operators/images",
    "core/operators/without_lowering",
    "core/operators/functions",
    "core/operators",
    "core/schedule",
    "core/schedule/primitives",
    "core/schedule/loops",
    "core/schedule/products",
    "core/schedule/templates",
    "core/schedule/strategies",
    "core/schedule/strategies/nests",
    "core/schedule/strategies/contractions",
    "core/schedule/strategies/convolutions",
    "core/schedule/strategies/attention",
    "core/schedule/strategies/sequential",
    "core/schedule/selection",
    "core/tuning",
    "core/rewriting",
    "core/shapes",
    "core/passes",
    "core/passes/integer",
    "core/differentiation",
    "core/importer",
)
"""Folders from low to high, each without its subfolders: a file imports from its own room and from those before it."""


@cache
def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def sources() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def front_door() -> list[Path]:
    """What stands in src/graft itself, not in the folders that are linked there."""
    found = (ROOT / "src" / "graft").rglob("*.py")
    return sorted(path for path in found if path.relative_to(ROOT / "src" / "graft").parts[0] not in FOLDERS)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_imports_only_from_those_to_its_left(path):
    allowed = set(ORDER[: ORDER.index(path.relative_to(ROOT).parts[0]) + 1])
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "graft" and len(parts) > 1 and parts[1] != "__version__":
            assert parts[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


def imports_upwards(rooms: Sequence[str], root: Path = ROOT) -> list[str]:
    """The imports of a room's file from a room behind it, each by file and line."""
    known = {f"{room}/{path.stem}": room for room in rooms for path in sorted((root / room).glob("*.py"))}
    found = []
    for name, room in known.items():
        for node in ast.walk(ast.parse((root / f"{name}.py").read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            module = node.module.removeprefix("graft.").replace(".", "/")
            asked = {module, *(f"{module}/{alias.name}" for alias in node.names)} & known.keys()
            behind = sorted({known[one] for one in asked if rooms.index(known[one]) > rooms.index(room)})
            found += [f"{name}.py:{node.lineno}: '{room}' imports from '{one}', which is above it" for one in behind]
    return found


def test_every_folder_of_core_is_a_room_of_the_order():
    folders = [one.parent for one in (ROOT / "core").rglob("__init__.py")]
    assert {str(one.relative_to(ROOT)) for one in folders if any(one.glob("[!_]*.py"))} == set(ROOMS)


def test_a_room_imports_only_from_those_below():
    assert imports_upwards(ROOMS) == []


def test_an_import_from_a_room_above_is_named_by_file_and_line(tmp_path):
    for room, text in (
        ("core/low", "\nfrom graft.core.high import one\n"),
        ("core/high", "from graft.core.low import a\n"),
    ):
        (tmp_path / room).mkdir(parents=True)
        (tmp_path / room / "one.py").write_text(text)
    said = ["core/low/one.py:2: 'core/low' imports from 'core/high', which is above it"]
    assert imports_upwards(("core/low", "core/high"), tmp_path) == said


@pytest.mark.parametrize("path", sorted((ROOT / "plugins").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_plugin_never_imports_another(path):
    parts = path.relative_to(ROOT / "plugins").parts
    own = parts[0] if len(parts) > 1 else None
    plugins = {folder.name for folder in (ROOT / "plugins").iterdir() if (folder / "plugin.py").exists()}
    for name in imported(path):
        pieces = name.split(".")
        if pieces[:2] == ["graft", "plugins"] and len(pieces) > 2 and pieces[2] in plugins:
            assert pieces[2] == own, f"{path.relative_to(ROOT)} imports {name}"


def modules() -> dict[str, Path]:
    """The files by full name. A package itself is left out: it gathers names, and its files never ask it for any."""
    found = {("graft", *path.relative_to(ROOT).with_suffix("").parts): path for path in sources()}
    base = ROOT / "src" / "graft"
    found |= {("graft", *path.relative_to(base).with_suffix("").parts): path for path in front_door()}
    return {".".join(name): path for name, path in found.items() if name[-1] != "__init__"}


def circles(imports: dict[str, list[str]]) -> list[tuple[str, ...]]:
    """The sets of modules that import each other, each sorted (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_modules: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        open_modules.append(module)
        for other in imports[module]:
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in open_modules:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            place = open_modules.index(module)
            component = tuple(sorted(open_modules[place:]))
            del open_modules[place:]
            if len(component) > 1:
                found.append(component)

    for module in imports:
        if module not in number:
            visit(module)
    return sorted(found)


def test_no_files_import_each_other_in_a_circle():
    """Every import counts: one inside a function or for the type checker as well."""
    files = modules()
    imports = {name: sorted((imported(path) & set(files)) - {name}) for name, path in files.items()}
    assert circles(imports) == []


def test_no_folder_is_in_a_circle_with_what_stands_beside_it():
    """The files and folders of each folder, every folder as one: a reader may take it for a file."""
    files = modules()
    found = []
    for folder in sorted({name.rpartition(".")[0] for name in files}):
        inside = {name: name[len(folder) + 1 :].split(".")[0] for name in files if name.startswith(f"{folder}.")}
        imports: dict[str, set[str]] = {unit: set() for unit in inside.values()}
        for name, unit in inside.items():
            imports[unit] |= {inside[one] for one in imported(files[name]) & inside.keys()} - {unit}
        found += [(folder, *circle) for circle in circles({unit: sorted(others) for unit, others in imports.items()})]
    assert found == []


def test_circles_are_found_and_named():
    imports = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": [], "f": ["g", "a"], "g": ["f"]}
    assert circles(imports) == [("a", "b", "c"), ("f", "g")]


def test_every_folder_is_linked_into_the_package():
    for folder in FOLDERS:
        link = ROOT / "src" / "graft" / folder
        assert link.is_symlink()
        assert link.resolve() == (ROOT / folder).resolve()


WRITERS = ("runtime/system/files.py", "measure/peers/iree.py", "measure/peers/runtimes.py")
"""What writes files by itself: the module that does it for all others; inputs of foreign tools in temporary folders."""


@pytest.mark.parametrize("path", [*sources(), *front_door()], ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_written_by_one_module(path):
    if str(path.relative_to(ROOT)) in WRITERS:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        modes = [ast.unparse(argument) for argument in (*node.args, *(word.value for word in node.keywords))]
        opens = called.endswith("open") and any(mode.strip("'b+t") in ("w", "x", "a") for mode in modes)
        other = called.split(".")[-1] in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "fdopen")
        assert not opens, f"{path.relative_to(ROOT)}:{node.lineno}: {called}"
        assert not other, f"{path.relative_to(ROOT)}:{node.lineno}: {called}"
        assert called not in ("ir.save", "onnx.save"), f"{path.relative_to(ROOT)}:{node.lineno}: {called}"
