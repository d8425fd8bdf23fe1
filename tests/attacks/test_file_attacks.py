"""What stands in a folder that is no object: links, pipes, sockets, devices, folders for files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deltastore.format.pack import pack_key
from deltastore.format.records import record_key, table_key
from deltastore.stores.local import LocalStore
from deltastore.validate import CHECKS
from tests.doubles.stores import copied

from .attack import OLD, WRITER
from .mutants import in_one_thread
from .resealing import Rewriting, prefix_of
from .victim import Victim, victim
from .ways import FOLLOWERS, PRODUCT, READERS, Scene, refusal_of

Plant = Callable[[Path, Path, ExitStack], None]
"""Puts something in the place of a path; the second one is a sound copy of it, outside the store."""


def _link(path: Path, outside: Path, _: ExitStack) -> None:
    path.symlink_to(outside)


def _relative_link(path: Path, outside: Path, _: ExitStack) -> None:
    path.symlink_to(os.path.relpath(outside, path.parent))


def _inner_link(path: Path, outside: Path, _: ExitStack) -> None:
    """A link that stays in the store."""
    beside = path.parent / "beside"
    beside.write_bytes(outside.read_bytes())
    path.symlink_to("beside")


def _dangling(path: Path, outside: Path, _: ExitStack) -> None:
    path.symlink_to(outside.parent / "nothing")


def _loop(path: Path, outside: Path, _: ExitStack) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path, outside: Path, _: ExitStack) -> None:
    os.mkfifo(path)


def _socket(path: Path, outside: Path, stack: ExitStack) -> None:
    """A socket; bound by a short name, since paths of sockets are short."""
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    short = Path(f"/tmp/{os.getpid()}-socket")
    server.bind(str(short))
    os.rename(short, path)


def _terminal(path: Path, outside: Path, _: ExitStack) -> None:
    """A link to a device that never ends."""
    path.symlink_to("/dev/zero")


def _folder(path: Path, outside: Path, _: ExitStack) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"x")


PLANTS: dict[str, tuple[Plant, str, str]] = {
    "a link out of the store": (_link, "bad_key", "DS001"),
    "a relative link out of it": (_relative_link, "bad_key", "DS001"),
    "a link within the store": (_inner_link, "bad_key bad_anchor", "DS001 DS072"),
    "a link to nothing": (_dangling, "bad_key", "DS001"),
    "a link to itself": (_loop, "bad_key", "DS001"),
    "a link to a device": (_terminal, "bad_key", "DS001"),
    "a pipe": (_pipe, "bad_length", "DS061 DS063 DS072 DS073 DS100 DS002 DS051"),
    "a socket": (_socket, "bad_length", "DS061 DS063 DS072 DS073 DS100 DS002 DS051"),
    "a folder": (_folder, "lost_object bad_anchor", "DS063 DS072"),
}


@dataclass(frozen=True)
class Place:
    """Where it is planted; ``passes``: ways that do not look there."""

    key: Callable[[Victim], str]
    passes: frozenset[str]


def _newest_pack(target: Victim) -> str:
    record = Rewriting(target.objects).records[6]
    return pack_key(record["version"], record["packs"][0]["sha256"])


def _in_anchor(name: str) -> Callable[[Victim], str]:
    return lambda target: prefix_of(Rewriting(target.objects).records[2]) + name


PLACES = {
    "record": Place(lambda _: record_key(5), WRITER),
    "table": Place(lambda target: table_key(Rewriting(target.objects).records[2]["table"]), FOLLOWERS),
    "pack": Place(_newest_pack, WRITER),
    "shard": Place(_in_anchor("array-00001/c/0/0/0"), OLD),
    "inventory": Place(_in_anchor("inventory.json"), OLD),
}


@contextmanager
def planted(target: Victim, folder: Path, plant: Plant, key: str) -> Iterator[Path]:
    """The stream in a folder, with something else in the place of one object."""
    root, outside = folder / "stream", folder / "outside"
    for name, data in target.objects.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    outside.write_bytes((root / key).read_bytes())
    (root / key).unlink()
    with ExitStack() as stack:
        plant(root / key, outside, stack)
        yield root


@pytest.mark.spec("DS001")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("where", PLACES)
async def test_what_is_no_object_is_refused_and_not_followed(what: str, where: str, tmp_path: Path) -> None:
    target, place = await victim(), PLACES[where]
    plant, codes, rules = PLANTS[what]
    gone = where == "record" and what == "a folder"
    with planted(target, tmp_path, plant, place.key(target)) as root, in_one_thread():
        before = _everything(tmp_path)
        for way in PRODUCT:
            folder = tmp_path / way
            folder.mkdir()
            refusal = await refusal_of(
                way, Scene(target, await copied(target.known), LocalStore(root), folder)
            )
            if refusal is None:
                assert way in place.passes or (gone and way in FOLLOWERS), way
                continue
            assert refusal.code in codes.split(), (way, refusal)
            assert refusal.rule in rules.split(), (way, refusal)
            assert refusal.rule in CHECKS
            assert way not in place.passes, (way, refusal)
        after = _everything(tmp_path)
        assert {path: after[path] for path in before if path in after} == before
        new = {path.split("/")[0] for path in after.keys() - before.keys()}
        assert new <= {*PRODUCT, "stream"}


def _everything(folder: Path) -> dict[str, bytes | str]:
    """All files below, links as what they point to, and nothing else opened."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@pytest.mark.parametrize("where", ["log", "packs", "anchors", "tables"])
async def test_a_folder_that_is_a_link_is_not_entered(where: str, tmp_path: Path) -> None:
    target = await victim()
    with planted(target, tmp_path, _link, record_key(6)) as root, in_one_thread():
        (root / record_key(6)).unlink()
        (root / record_key(6)).write_bytes(target.objects[record_key(6)])
        (root / where).rename(tmp_path / "moved")
        (root / where).symlink_to(tmp_path / "moved")
        for way in ("structure", "reader", "export", "replay"):
            folder = tmp_path / way
            folder.mkdir()
            refusal = await refusal_of(
                way, Scene(target, await copied(target.known), LocalStore(root), folder)
            )
            assert refusal is not None
            assert (refusal.code, refusal.rule) == ("bad_key", "DS001"), (way, refusal)


async def test_a_second_name_of_a_file_is_only_a_file(tmp_path: Path) -> None:
    """Nobody can tell a hard link, and nothing is written through it."""
    target = await victim()
    with planted(
        target, tmp_path, lambda path, outside, _: os.link(outside, path), _newest_pack(target)
    ) as root:
        for way in READERS | {"deep"}:
            (tmp_path / way).mkdir()
            scene = Scene(target, await copied(target.known), LocalStore(root), tmp_path / way)
            assert await refusal_of(way, scene) is None
