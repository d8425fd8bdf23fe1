"""What came of all cases."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from spec.conformance.case import Case
from spec.vectors import RELEASE

READING: Final = ("table", "digest", "patch", "pack", "record", "inventory", "stream")
CLASSES: Final = {
    "reader": READING,
    "reader of a part": (*READING, "layout"),
    "writer": ("names", "canonical", "table", "digest", "record", "inventory", "encode"),
    "one of several writers": (
        *("names", "canonical", "table", "digest", "record", "inventory", "encode"),
        "word",
    ),
    "validator": (*READING, "check"),
}
"""The classes of SPEC section 22 that are asked about, and the operations that each has to answer rightly."""


@dataclass(frozen=True)
class Failure:
    """One case that was not answered as it must be."""

    file: str
    name: str
    problem: str


@dataclass
class Results:
    """Counts by file, and all failures. ``operations``: by operation, how often it went how."""

    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    operations: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """Every file, in the order in which they came."""
        return list(dict.fromkeys([*self.passed, *self.failed, *self.unsupported]))

    @property
    def ok(self) -> bool:
        """Whether something passed, and nothing failed."""
        return bool(self.passed.total()) and not self.failures

    def take(self, case: Case) -> None:
        """Note that a case was answered rightly."""
        self.passed[case.file] += 1
        self._count(case, "passed")

    def leave(self, case: Case) -> None:
        """Note that a case was passed over as unsupported."""
        self.unsupported[case.file] += 1
        self._count(case, "unsupported")

    def fail(self, case: Case, problem: str) -> None:
        """Note a failure."""
        self.failed[case.file] += 1
        self.failures.append(Failure(case.file, case.name, problem))
        self._count(case, "failed")

    def _count(self, case: Case, how: str) -> None:
        self.operations.setdefault(case.request["op"], Counter())[how] += 1

    def classes(self) -> dict[str, str]:
        """By class ``passed``, ``failed``, ``unsupported``, or ``not asked``: the worst of its operations."""
        found = {}
        for name, operations in CLASSES.items():
            asked = [self.operations.get(operation, Counter()) for operation in operations]
            worst = [how for how in ("failed", "unsupported") if any(one[how] for one in asked)]
            found[name] = (worst or ["passed" if all(asked) else "not asked"])[0]
        return found

    def table(self, failures: int) -> str:
        """Counts as a table, the classes, and the first failures of all."""
        rows = [(file, self.passed[file], self.failed[file], self.unsupported[file]) for file in self.files]
        total = ("all", self.passed.total(), self.failed.total(), self.unsupported.total())
        lines = [f"{'':20}{'passed':>9}{'failed':>9}{'unsupported':>13}"]
        lines += [f"{file:20}{passed:9}{failed:9}{left:13}" for file, passed, failed, left in (*rows, total)]
        lines += ["", f"vectors of release {RELEASE}"]
        lines += [f"{name + ':':24}{how}" for name, how in self.classes().items()]
        for failure in self.failures[:failures]:
            lines += ["", f"{failure.file}: {failure.name}", f"    {failure.problem}"]
        if len(self.failures) > failures:
            lines += ["", f"and {len(self.failures) - failures} more; --failures N or --json shows them"]
        return "\n".join(lines)

    def as_json(self) -> str:
        """Everything, for programs."""
        files = {
            file: {
                "passed": self.passed[file],
                "failed": self.failed[file],
                "unsupported": self.unsupported[file],
            }
            for file in self.files
        }
        failures = [vars(one) for one in self.failures]
        made = {"ok": self.ok, "vectors": RELEASE, "classes": self.classes()}
        return json.dumps({**made, "files": files, "failures": failures})
