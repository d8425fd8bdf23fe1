"""A manifest in words."""

from __future__ import annotations

from collections.abc import Iterator

from deltastore.cli.wording import moment, per_element, percent, plain, plural, size
from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord, Certificate, DeltaRecord, file_key, record_key
from deltastore.log import Manifest

__all__ = ["manifest_lines"]


def manifest_lines(manifest: Manifest) -> Iterator[str]:
    """One fact a line, the packs or files and the metadata last."""
    on = f" on version {manifest.base}" if isinstance(manifest, DeltaRecord) else ""
    yield f"version {manifest.version}, {'a delta' if on else 'an anchor'}{on}"
    yield from _facts(manifest)
    if isinstance(manifest, DeltaRecord):
        yield from _packs(manifest)
    else:
        yield from _anchor(manifest)
    if manifest.metadata:
        yield "metadata"
    for key, value in manifest.metadata.items():
        yield f"  {plain(key)} = {plain(value)}"


def _facts(manifest: Manifest) -> Iterator[str]:
    said = manifest.statistics
    cost = per_element(said.bytes, said.changed) if isinstance(manifest, DeltaRecord) else None
    yield _fact("record", record_key(manifest.slot))
    yield _fact("sha256", manifest.sha256)
    yield _fact("parent", str(manifest.parent))
    yield _fact("epoch", str(manifest.epoch))
    yield _fact("time", f"{moment(manifest.time)} UTC")
    yield _fact("digest", manifest.digest)
    yield _fact("table", manifest.table)
    share = percent(said.changed, said.elements)
    yield _fact("changed", f"{share} ({said.changed:,} of {plural(said.elements, 'element')})")
    yield _fact("bytes", size(said.bytes) + ("" if cost is None else f", {cost:.2f} per changed element"))
    yield _fact("detector", plain(said.detector))
    if said.certificate is not None:
        yield _fact("found", _found(said.certificate))


def _found(certificate: Certificate) -> str:
    uncertain = f"{certificate.uncertain:,} of {plural(certificate.inverted, 'inverted element')} uncertain"
    blocks = f"{certificate.settled:,} settled and {certificate.unexplained:,} unexplained"
    return f"{uncertain}; of {plural(certificate.blocks, 'block')} {blocks}"


def _packs(manifest: DeltaRecord) -> Iterator[str]:
    yield _fact("writers", str(manifest.writers))
    if manifest.packs:
        yield "packs"
    for pack in manifest.packs:
        low, high = pack.slabs
        counts = plural(pack.rows, "patch", "patches")
        yield f"  {pack_key(manifest.version, pack.sha256)}"
        yield f"    {size(pack.bytes)}, {counts}, {plural(pack.count, 'element')}, slabs {low} to {high}"


def _anchor(manifest: AnchorRecord) -> Iterator[str]:
    yield _fact("anchor", manifest.anchor.prefix(manifest.version))
    yield _fact("inventory", f"{manifest.anchor.inventory_sha256}, {size(manifest.anchor.inventory_bytes)}")
    if manifest.files:
        yield "files"
    for file in manifest.files:
        yield f"  {plain(file.name)}, {size(file.bytes)}, {file_key(file.sha256)}"


def _fact(name: str, value: str) -> str:
    return f"{name:<9} {value}"
