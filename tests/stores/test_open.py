"""URLs of stores."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from deltastore.errors import InputError
from deltastore.stores import LocalStore, MemoryStore, open_store
from deltastore.stores.memory import MEMORY_STORES
from deltastore.stores.objects import ObjectsStore
from deltastore.stores.s3 import S3Store


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
    ("url", "canonical"),
    [
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/", "s3://bucket"),
        ("s3://bucket?", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a?region=eu-west-1&profile=dev", "s3://bucket/a?region=eu-west-1&profile=dev"),
        (
            "s3://b-1.x_y?path_style=true&endpoint=http%3A%2F%2F127.0.0.1%3A8333%2F",
            "s3://b-1.x_y?endpoint=http://127.0.0.1:8333&path_style=true",
        ),
        ("s3://bucket?endpoint=https://[::1]:9000", "s3://bucket?endpoint=https://[::1]:9000"),
        ("s3://bucket?endpoint=HTTPS://Host.Example", "s3://bucket?endpoint=https://host.example"),
        ("s3://bucket?concurrency=008&path_style=false", "s3://bucket?path_style=false&concurrency=8"),
        ("s3+obstore://bucket/a?region=x", "s3+obstore://bucket/a?region=x"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a?concurrency=4", "az://container/a?concurrency=4"),
    ],
)
def test_buckets(url: str, canonical: str) -> None:
    store = open_store(url)
    assert isinstance(store, S3Store if canonical.startswith("s3:") else ObjectsStore)
    assert store.url == canonical
    assert open_store(store.url).url == canonical
    assert canonical in repr(store)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://bucket", "aiobotocore", "s3"),
        ("s3+obstore://bucket", "obstore", "objects"),
        ("gs://bucket", "obstore", "objects"),
        ("az://bucket", "obstore", "objects"),
    ],
)
def test_a_missing_extra_is_named(url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else found(name))
    with pytest.raises(InputError, match=rf"pip install 'deltastore\[{extra}\]'") as caught:
        open_store(url)
    assert caught.value.code == "bad_url"


def test_opening_a_bucket_loads_no_client() -> None:
    program = (
        "import sys, deltastore.stores as stores\n"
        "stores.open_store('s3://bucket')\n"
        "stores.open_store('gs://bucket')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"aiobotocore", "botocore", "aiohttp", "obstore"}.isdisjoint(done.stdout.split())


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
        ("s3://", "s3://bucket/prefix"),
        ("s3:///prefix", "s3://bucket/prefix"),
        ("s3://b", "2 to 63"),
        ("s3://buck:et", "2 to 63"),
        ("s3://arn:aws:s3:::bucket", "2 to 63"),
        ("s3://bucket//a", "single slashes"),
        ("s3://bucket/a/../b", "single slashes"),
        ("s3://bucket/a%20b", "single slashes"),
        ("s3://bucket?region", "name=value"),
        ("s3://bucket?region=a&region=b", "given twice"),
        ("s3://bucket?colour=red", "endpoint, region, path_style, profile, concurrency"),
        ("s3://bucket?region=eu/west", "region"),
        ("s3://bucket?profile=a%00b", "profile"),
        ("s3://bucket?path_style=yes", "true or false"),
        ("s3://bucket?concurrency=0", "1 to 1024"),
        ("s3://bucket?concurrency=9999", "1 to 1024"),
        ("s3://bucket?concurrency=x", "1 to 1024"),
        ("s3://bucket?endpoint=127.0.0.1:8333", "http://host:port"),
        ("s3://bucket?endpoint=http://host:x", "http://host:port"),
        ("s3://bucket?endpoint=http://host/path", "http://host:port"),
        ("s3://bucket?endpoint=ftp://host", "http://host:port"),
        ("s3://bucket?endpoint=http://", "http://host:port"),
        ("s3://bucket#x", "nor has #"),
        ("s3+obstore://bucket?profile=a", "endpoint, region, path_style, concurrency"),
        ("gs://bucket?endpoint=http://host", "the parameters concurrency"),
        ("az://", "az://bucket/prefix"),
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
        "s3://bucket/key:hunter2@x",
        "s3://bucket?endpoint=http://user:hunter2@host",
        "s3://bucket?hunter2=x",
        "s3://bucket?region=hunter2@",
        "s3://bucket?AWS_SECRET_ACCESS_KEY=hunter2",
        "s3+obstore://user:hunter2@bucket",
        "gs://bucket?key=hunter2",
        "az://container?sig=hunter2",
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
