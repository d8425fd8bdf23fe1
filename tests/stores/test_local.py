"""The store in a folder: the suite, and the folder itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltastore.errors import InputError, NotFoundError, StoreError
from deltastore.stores import open_store
from deltastore.stores.local import LocalStore

from .conformance import StoreConformance
from .operations import OPERATIONS, files_below, keys_of


@pytest.fixture
def store(local: LocalStore) -> LocalStore:
    return local


class TestLocalStore(StoreConformance):
    """The suite."""


class TestRoot:
    async def test_reading_does_not_create_it(self, local: LocalStore, root: Path) -> None:
        assert await keys_of(local) == []
        assert await local.stat("k") is None
        await local.delete("k")
        with pytest.raises(NotFoundError):
            await local.get("k", limit=1)
        assert list(root.parent.iterdir()) == []

    @pytest.mark.parametrize("method", ["put", "put_if_absent"])
    async def test_the_first_write_creates_it_and_what_is_above(self, root: Path, method: str) -> None:
        deep = root / "x" / "y"
        await getattr(LocalStore(deep), method)("a/k", b"x")
        assert (deep / "a" / "k").read_bytes() == b"x"
        assert files_below(root) == ["x/y/a/k"]

    async def test_it_may_be_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "there")
        local = LocalStore(tmp_path / "link")
        await local.put("k", b"x")
        assert (tmp_path / "there" / "k").read_bytes() == b"x"
        assert await keys_of(local) == ["k"]

    async def test_a_link_to_nothing_is_a_failure(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "nothing")
        local = LocalStore(tmp_path / "link")
        with pytest.raises(StoreError) as caught:
            await local.put("k", b"x")
        assert caught.value.code == "store_failed"
        assert not (tmp_path / "nothing").exists()

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("below", ["", "x"])
    async def test_a_file_is_no_root(self, tmp_path: Path, operation: str, below: str) -> None:
        (tmp_path / "file").write_bytes(b"a file")
        local = LocalStore(tmp_path / "file" / below)
        with pytest.raises(InputError, match="not a folder") as caught:
            await OPERATIONS[operation](local, "k")
        assert caught.value.code == "bad_url"
        assert (tmp_path / "file").read_bytes() == b"a file"

    async def test_a_removed_folder_is_made_again(self, local: LocalStore, root: Path) -> None:
        await local.put("a/b/k", b"x")
        (root / "a/b/k").unlink()
        (root / "a/b").rmdir()
        (root / "a").rmdir()
        await local.put("a/b/k", b"y")
        assert await local.get("a/b/k", limit=1) == b"y"

    async def test_more_folders_than_are_remembered(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("deltastore.stores.folders._REMEMBERED", 3)
        for number in range(10):
            await local.put(f"packs/{number}/k", b"x")
        assert len(await keys_of(local)) == 10

    def test_nul(self) -> None:
        with pytest.raises(InputError) as caught:
            LocalStore(Path("/a\0b"))
        assert caught.value.code == "bad_url"


async def test_parents_in_a_path_are_those_of_links(tmp_path: Path) -> None:
    (tmp_path / "there" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "below")
    local = LocalStore(tmp_path / "link" / ".." / "root")
    await local.put("k", b"x")
    assert (tmp_path / "there" / "root" / "k").read_bytes() == b"x"
    assert await open_store(local.url).get("k", limit=1) == b"x"


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreError) as caught:
        LocalStore(Path("root"))
    assert caught.value.code == "store_failed"


async def test_the_url_gives_the_store_back(tmp_path: Path) -> None:
    local = LocalStore(tmp_path / "a b" / "é%20?#")
    await local.put("k", b"x")
    assert await open_store(local.url).get("k", limit=1) == b"x"
