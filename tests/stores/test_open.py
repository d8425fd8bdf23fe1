"""URLs of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltastore.errors import InputError
from deltastore.stores import LocalStore, MemoryStore, open_store
from deltastore.stores.memory import MEMORY_STORES


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("file:///a/b", "/a/b"),
        ("file:///a/b/", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file://LOCALHOST/a", "/a"),
        ("file:///a%20b/%C3%A9%25%3F%23", "/a b/é%?#"),
        ("file:///a%2Fb", "/a/b"),
        ("file:///a/../b/./c", "/b/c"),
        ("file:///%80", "/\udc80"),
        ("file:///", "/"),
        ("/a/b c%20", "/a/b c%20"),
        ("/a/../b", "/b"),
    ],
)
def test_local_folders(url: str, root: str) -> None:
    store = open_store(url)
    assert isinstance(store, LocalStore)
    assert store.root == Path(root)
    again = open_store(store.url)
    assert isinstance(again, LocalStore)
    assert (again.root, again.url) == (store.root, store.url)


@pytest.mark.parametrize("url", [".", "./", "./x/y", "..", "../x"])
def test_relative_paths_are_of_the_current_folder(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    store = open_store(url)
    monkeypatch.chdir("/")
    assert isinstance(store, LocalStore)
    assert store.root == (tmp_path / "here" / url).resolve()


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_store(str(tmp_path / "a" / "b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["memory://a-name", "memory://a-name/", "Memory://a-name"])
async def test_memory(url: str) -> None:
    store = open_store(url)
    try:
        assert isinstance(store, MemoryStore)
        assert store.url == "memory://a-name"
        await store.put("k", b"x")
        assert await open_store("memory://a-name").get("k", limit=1) == b"x"
    finally:
        del MEMORY_STORES["a-name"]


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("", "file:///abs/path"),
        ("policy", "./"),
        ("runs/policy", "./"),
        ("~/policy", "./"),
        ("file:/abs", "file:///abs/path"),
        ("file:abs", "file:///abs/path"),
        ("s3:/bucket", "file:///abs/path"),
        ("file://", "file:///abs/"),
        ("file://runs/policy", "file:///abs/runs/policy"),
        ("file://runs/policy", "./runs/policy without"),
        ("file://./policy", "./policy without"),
        ("file:///a?b", "%3F"),
        ("file:///a#b", "%23"),
        ("file:///100%", "%25"),
        ("file:///%zz", "%25"),
        ("file:///a%00", "NUL"),
        ("/a\0", "NUL"),
        ("memory://", "memory://name"),
        ("memory://a b", "memory://name"),
        ("s3://bucket/prefix", "not s3://"),
        ("gs://bucket", "not gs://"),
        ("az://container", "not az://"),
        ("http://host/x", "not http://"),
        ("https://host/x", "not https://"),
        ("odd+scheme://x", "not odd+scheme://"),
    ],
)
def test_what_is_refused_and_how(url: str, advice: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(url)
    assert caught.value.code == "bad_url"
    assert advice in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@host/x",
        "s3://key:hunter2@bucket/x?sig=hunter2",
        "file://user:hunter2@host/x",
        "file://user:hun#hunter2@host/x",
        "file:///x?token=hunter2",
        "memory://user:hunter2@x",
        "user:hunter2@host",
        "host?sig=a@hunter2",
    ],
)
def test_no_message_repeats_a_secret(url: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.where is None
