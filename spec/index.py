"""The parts of SPEC.md that follow from checks and tests: its index, and whom each requirement binds.

``python -m spec.index`` writes them. Sources are the checks of the validator, the requirements as SPEC.md
states them, and the markers ``@pytest.mark.spec(...)`` of the tests.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

from deltastore.validate.checks import CHECKS, Conduct, Level

__all__ = ["CLASSES", "PROSE", "SPEC", "classes", "levels", "proved", "stated", "table", "with_index"]

ROOT: Final = Path(__file__).resolve().parents[1]
SPEC: Final = ROOT / "SPEC.md"

PROSE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
"""What is no prose: fenced blocks."""

_STATED: Final = re.compile(r"\*\*\[(DS\d{3})\]\*\*")
_HEADING: Final = re.compile(r"^###? (\d+(?:\.\d+)?|[AB](?:\.\d+)?) ", re.MULTILINE)
_TABLE: Final = re.compile(r"(<!-- index -->\n).*?(<!-- end of index -->)", re.DOTALL)
_NAMED: Final = re.compile(r"^```(levels|classes)\n.*?^```$", re.DOTALL | re.MULTILINE)
_SHOWN: Final = 3
_WIDE: Final = 110


def _range(first: int, last: int) -> tuple[str, ...]:
    return tuple(one for one in CHECKS if first <= int(one[2:]) <= last)


_READ: Final = (
    *("DS001", "DS004", *_range(10, 13), *_range(20, 25), *_range(30, 34), "DS036", *_range(40, 46)),
    *(*_range(50, 53), *_range(60, 63), *_range(70, 74), *_range(90, 93), "DS100"),
)
_WRITTEN: Final = (
    *(
        "DS001",
        "DS005",
        "DS006",
        "DS010",
        "DS011",
        "DS013",
        *_range(20, 25),
        *_range(30, 35),
        *_range(40, 45),
    ),
    *(*_range(50, 55), *_range(60, 65), *_range(70, 74), *_range(80, 84), "DS089", "DS100"),
)

CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "reader": _READ,
    "reader of a part": (*_READ, "DS094", "DS095", *_range(110, 112)),
    "writer": _WRITTEN,
    "one of several writers": (*_WRITTEN, *_range(85, 88)),
    "store": ("DS001", "DS002", "DS003", "DS004"),
    "validator": tuple(one for one, check in CHECKS.items() if isinstance(check.judged, Level)),
}
"""The requirements that each class of implementations meets."""


def stated(text: str) -> dict[str, str]:
    """Requirement -> the section that states it, of the text of SPEC.md from its first section on."""
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(text)]
    return {
        found[1]: next((number for at, number in reversed(headings) if at < found.start()), "")
        for found in _STATED.finditer(text, text.index("\n## 1 "))
    }


@cache
def proved() -> dict[str, list[str]]:
    """Requirement -> files, below ``tests/``, with a test that names it in a marker."""
    found: dict[str, set[str]] = {}
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)) if "mark.spec" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.spec"):
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        name = path.relative_to(ROOT / "tests").as_posix().removesuffix(".py")
                        found.setdefault(str(argument.value), set()).add(name)
    return {one: sorted(files) for one, files in found.items()}


def table() -> str:
    """The index, a row for each check."""
    tests = proved()
    rows = ["| id | section | judged | meaning | tests |", "|---|---|---|---|---|"]
    for check in CHECKS.values():
        judged = check.judged.name.lower()
        files = tests.get(check.id, [])
        shown = " ".join(f"`{name.replace('test_', '', 1)}`" for name in files[:_SHOWN])
        more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
        rows.append(f"| {check.id} | {check.section} | {judged} | {check.meaning} | {shown}{more} |")
    return "\n".join(rows)


def _wrapped(name: str, checks: tuple[str, ...], indent: int) -> list[str]:
    lines, line = [], f"{name:<{indent}}"
    for check in _folded(checks):
        if len(line) + len(check) + 1 > _WIDE:
            lines.append(line.rstrip())
            line = " " * indent
        line += f"{check} "
    return [*lines, line.rstrip()]


def _folded(checks: tuple[str, ...]) -> list[str]:
    """Neighbours among the checks of one ten as ranges."""
    order = list(CHECKS)
    runs: list[list[str]] = []
    for check in sorted(set(checks), key=order.index):
        if runs and runs[-1][-1][:4] == check[:4] and order.index(runs[-1][-1]) + 1 == order.index(check):
            runs[-1].append(check)
        else:
            runs.append([check])
    return [one for run in runs for one in ([f"{run[0]}–{run[-1]}"] if len(run) > 2 else run)]


def classes() -> str:
    """Class -> its requirements."""
    return "\n".join(line for name, checks in CLASSES.items() for line in _wrapped(name, checks, 24))


def levels() -> str:
    """Level, or whose conduct it is -> the requirements that are judged there."""
    lines = []
    for judged in (*Level, *Conduct):
        checks = tuple(one for one, check in CHECKS.items() if check.judged == judged)
        lines += _wrapped(judged.name.lower(), checks, 24)
    return "\n".join(lines)


def with_index(text: str) -> str:
    """The text with all of these parts made anew."""
    made = {"levels": levels(), "classes": classes()}
    named = _NAMED.sub(lambda block: f"```{block[1]}\n{made[block[1]]}\n```", text)
    return _TABLE.sub(lambda found: f"{found[1]}\n{table()}\n\n{found[2]}", named)


if __name__ == "__main__":
    SPEC.write_text(with_index(SPEC.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(0)
