"""Arrows between rooms run downwards, and no module needs itself to be imported.

A room is a module or folder directly under deltastore/; kernels/ is the room ``kernels``. A module may import
from rooms of its own tier and of the tiers below, as long as the rooms draw no circle.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

TIERS: tuple[frozenset[str], ...] = (
    frozenset({"__main__", "cli", "service", "integrations"}),
    frozenset(
        {
            "deltastore",
            "sync",
            "stream",
            "writer",
            "reader",
            "maintain",
            "transfer",
            "validate",
            "inspect",
            "history",
            "export",
            "pull",
            "demo",
            "bench",
        }
    ),
    frozenset({"replay", "windows", "carried_config", "lent_loop", "layouts"}),
    frozenset({"detect", "layout", "log", "anchors", "checkpoints"}),
    frozenset({"format", "stores", "entropy"}),
    frozenset({"kernels"}),
    frozenset({"errors"}),
)
"""Rooms from top to bottom; ``deltastore`` is deltastore/__init__.py."""

APART = frozenset({("format", "stores"), ("stores", "format")})
"""Rooms of one tier that know nothing of each other: the format does no I/O, and a store knows no format."""

Imports = dict[str, set[str]]


def module_files() -> dict[str, Path]:
    """Every module of the package by its dotted name; a compiled one is its stub."""
    files: dict[str, Path] = {}
    for folder, package in (("deltastore", ("deltastore",)), ("kernels", ("deltastore", "kernels"))):
        for path in sorted((ROOT / folder).rglob("*.py*")):
            if path.suffix not in (".py", ".pyi"):
                continue
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            files[".".join(package + tuple(part for part in inner if part != "__init__"))] = path
    return files


def room_of(module: str) -> str:
    return [*module.split("."), "deltastore"][1]


def tier_of(room: str) -> int:
    for tier, rooms in enumerate(TIERS):
        if room in rooms:
            return tier
    raise AssertionError(f"room {room!r} is in no tier: give it one in TIERS of tests/test_layers.py")


def import_statements(body: Iterable[ast.AST], *, deferred: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports of a module, ``TYPE_CHECKING`` blocks included; those inside functions only if ``deferred``."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif deferred or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from import_statements(ast.iter_child_nodes(node), deferred=deferred)


def targets(
    statement: ast.Import | ast.ImportFrom, module: str, is_package: bool, known: Container[str]
) -> set[str]:
    """The modules of this package that an import statement names."""
    if isinstance(statement, ast.Import):
        names = {alias.name for alias in statement.names}
    else:
        package = module.split(".") if is_package else module.split(".")[:-1]
        above = package[: len(package) - statement.level + 1] if statement.level else []
        base = ".".join(above + ([statement.module] if statement.module else []))
        longer = {f"{base}.{alias.name}" for alias in statement.names}
        names = {name if name in known else base for name in longer}
    return {name for name in names if name.partition(".")[0] == "deltastore"}


def imports_of(sources: Mapping[str, tuple[str, bool]], *, deferred: bool) -> Imports:
    """Edges between modules of this package. ``sources``: name -> text and whether it is an ``__init__``."""
    edges: Imports = {}
    for module, (text, is_package) in sources.items():
        statements = import_statements(ast.parse(text).body, deferred=deferred)
        named = [targets(statement, module, is_package, sources) for statement in statements]
        edges[module] = set().union(*named) - {module}
    return edges


def wrong_arrows(edges: Imports) -> list[str]:
    """Imports that run upwards or between rooms that are kept apart."""
    wrong = []
    for module, imported in edges.items():
        for target in sorted(imported):
            here, there = room_of(module), room_of(target)
            if tier_of(there) < tier_of(here) or (here, there) in APART:
                wrong.append(f"{module} may not import {target}")
    return wrong


def find_circle(edges: Imports) -> list[str]:
    """One circle of the graph as a path that ends where it began, or nothing."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(edges.get(module, ())):
            circle = walk(target, [*path, module])
            if circle:
                return circle
        done.add(module)
        return []

    return next((circle for module in sorted(edges) if (circle := walk(module, []))), [])


def rooms_graph(edges: Imports) -> Imports:
    rooms: Imports = {}
    for module, imported in edges.items():
        rooms.setdefault(room_of(module), set()).update(room_of(target) for target in imported)
    return {room: targets - {room} for room, targets in rooms.items()}


@pytest.fixture(scope="module")
def sources() -> dict[str, tuple[str, bool]]:
    return {name: (path.read_text(), path.stem == "__init__") for name, path in module_files().items()}


def test_every_room_has_a_tier(sources: dict[str, tuple[str, bool]]) -> None:
    assert {"errors", "kernels", "format", "stores"} <= {room_of(module) for module in sources}
    assert all(tier_of(room_of(module)) >= 0 for module in sources)


def test_every_import_of_this_package_names_a_module_of_it(sources: dict[str, tuple[str, bool]]) -> None:
    edges = imports_of(sources, deferred=True)
    unknown = {target for imported in edges.values() for target in imported} - set(sources)
    assert unknown == set()


def test_arrows_run_downwards(sources: dict[str, tuple[str, bool]]) -> None:
    assert wrong_arrows(imports_of(sources, deferred=True)) == []


def test_no_module_is_part_of_a_circle(sources: dict[str, tuple[str, bool]]) -> None:
    assert find_circle(imports_of(sources, deferred=False)) == []


def test_no_room_is_part_of_a_circle(sources: dict[str, tuple[str, bool]]) -> None:
    assert find_circle(rooms_graph(imports_of(sources, deferred=True))) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("deltastore.format.pack", "import deltastore.log"),
        ("deltastore.format.pack", "from deltastore import log"),
        ("deltastore.format.pack", "from ..log import Log"),
        ("deltastore.format.pack", "def load():\n    from deltastore.log import Log"),
        ("deltastore.format.pack", "if TYPE_CHECKING:\n    from deltastore.log import Log"),
        ("deltastore.format.pack", "from deltastore import stores"),
        ("deltastore.kernels.cpu", "from deltastore.format import pack"),
        ("deltastore.errors", "import deltastore.kernels"),
        ("deltastore.log", "from deltastore import __version__"),
    ],
)
def test_a_wrong_arrow_is_found(module: str, text: str) -> None:
    others = {"deltastore.log", "deltastore.stores", "deltastore.format", "deltastore.kernels", "deltastore"}
    sources = dict.fromkeys(others, ("", True)) | {module: (text, False)}
    assert len(wrong_arrows(imports_of(sources, deferred=True))) == 1


def test_a_circle_is_found_and_a_deferred_import_is_none() -> None:
    one = ("from deltastore.format import two", False)
    two = ("if TYPE_CHECKING:\n    from deltastore.format.one import One", False)
    late = ("def load():\n    from deltastore.format.one import One", False)
    names = ("deltastore.format.one", "deltastore.format.two")
    circle = find_circle(imports_of(dict(zip(names, (one, two), strict=True)), deferred=False))
    assert circle == [names[0], names[1], names[0]]
    assert find_circle(imports_of(dict(zip(names, (one, late), strict=True)), deferred=False)) == []


def test_an_unknown_room_names_the_table_to_extend() -> None:
    with pytest.raises(AssertionError, match=r"TIERS of tests/test_layers\.py"):
        tier_of("cellar")
