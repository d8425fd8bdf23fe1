"""The decoder of the specification as a command, and that it stands alone."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spec import decoder
from spec.conformance.vectors import VECTORS
from spec.decoder.command import main

ROOT = Path(decoder.__file__).parents[2]
SPEC = ROOT / "spec"
STREAMS = VECTORS / "streams"
STREAM = STREAMS / "v1-by-0.1.0"


@pytest.mark.parametrize("package", ["decoder", "conformance"])
def test_nothing_is_imported_but_the_standard_library_and_numpy(package: str) -> None:
    files = [*(SPEC / package).glob("*.py"), SPEC / "answering.py", VECTORS / "__init__.py"]
    found = {path: imports(path) for path in files}
    assert len(found) > 6
    own = ("spec.answering", "spec.decoder", "spec.conformance", "spec.vectors")
    for path, modules in found.items():
        foreign = {name for name in modules if not name.startswith(own[: 2 if package == "decoder" else 4])}
        roots = {name.partition(".")[0] for name in foreign - {"__future__", "spec"}}
        assert roots - {"numpy"} <= sys.stdlib_module_names, path


def imports(path: Path) -> set[str]:
    """Every module that a file imports; it imports none by any other way."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            assert name not in ("__import__", "import_module", "exec", "eval")
    return found


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The decoder as a command."""
    return subprocess.run(
        [sys.executable, "-m", "spec.decoder", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        cwd=ROOT,
    )


def test_the_command_prints_a_version() -> None:
    versions = json.loads(STREAM.with_name("v1-by-0.1.0.json").read_text(encoding="ascii"))["versions"]
    tip, first = max(map(int, versions)), min(map(int, versions))
    for version, arguments in ((tip, []), (first, [str(first)])):
        done = run(str(STREAM), *arguments)
        assert done.returncode == 0
        expected = versions[str(version)]
        hashes = {
            tensor: hashlib.sha256(bytes.fromhex(one["bits"])).hexdigest()
            for tensor, one in expected["tensors"].items()
        }
        shown = {"version": version, "digest": expected["digest"], "tensors": hashes}
        assert json.loads(done.stdout) == shown


def test_the_command_judges_a_stream(tmp_path: Path) -> None:
    assert json.loads(run("--check", str(STREAMS / "v1-by-hand")).stdout) == {"versions": 6}
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{3:020}.json").write_bytes(b"{}")
    done = run("--check", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"log/{0:020}.json: lost_object (DS063): ")


def test_the_command_refuses(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no_stream: ")
    for arguments in ([], ["--check"], ["--check", "a", "1"], ["a", "b"], ["a", "1", "2"], ["--help"]):
        assert main(arguments) == 2


def test_a_version_that_is_not_there() -> None:
    with pytest.raises(decoder.SpecError) as caught:
        decoder.read_version(STREAM, 10**6)
    assert (caught.value.code, caught.value.check) == ("no_version", None)


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    os.symlink(STREAM / "log", tmp_path / "log")
    with pytest.raises(decoder.SpecError) as caught:
        decoder.read_version(tmp_path)
    assert (caught.value.code, caught.value.check) == ("bad_key", "DS001")


def test_crc32c_of_its_check_string() -> None:
    assert decoder.checked(b"123456789" + (0xE3069283).to_bytes(4, "little")) == b"123456789"
    with pytest.raises(decoder.SpecError) as caught:
        decoder.checked(b"123456789" + bytes(4))
    assert (caught.value.code, caught.value.check) == ("bad_anchor", "DS073")
