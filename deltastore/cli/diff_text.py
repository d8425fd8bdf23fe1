"""What differs between two versions, in facts and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltastore.cli.aligned import columns
from deltastore.cli.wording import moment, percent, plain, plural, size
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.numbers import bits_text, number_text
from deltastore.format.records import DeltaRecord
from deltastore.history.comparing import ArrayDifference, Comparison, ElementDifference, TensorDifference
from deltastore.history.places import index_text
from deltastore.log import Manifest

__all__ = ["comparison_facts", "comparison_lines"]

_LISTED = 10


def comparison_facts(found: Comparison) -> dict[str, Any]:
    """All of it, ready for JSON."""
    before, after = found.before, found.after
    return {
        "before": before.version,
        "after": after.version,
        "equal": found.equal,
        "by_patches": found.by_patches,
        "elements": found.elements,
        "changed": found.changed,
        "digest_difference": _difference(before, after),
        "manifests": {
            name: {"before": one, "after": other} for name, (one, other) in _manifests(before, after).items()
        },
        "missing": list(found.missing),
        "added": list(found.added),
        "largest": [_element_facts(one) for one in found.largest],
        "arrays": [_array_facts(array) for array in found.arrays],
    }


def _array_facts(array: ArrayDifference) -> dict[str, Any]:
    return {
        "pattern": array.pattern,
        "dtype": array.dtype,
        "tensors": array.tensors,
        "elements": array.elements,
        "changed": array.changed,
        "differing": [
            {
                "name": tensor.name,
                "elements": tensor.elements,
                "changed": tensor.changed,
                "largest": _element_facts(tensor.largest),
                "digest_difference": tensor.digest_difference,
            }
            for tensor in array.differing
        ],
    }


def _element_facts(one: ElementDifference) -> dict[str, Any]:
    return {
        "tensor": one.tensor,
        "index": list(one.index),
        "step": one.step,
        "before": number_text(one.dtype, one.before),
        "after": number_text(one.dtype, one.after),
        "before_bits": bits_text(one.dtype, one.before),
        "after_bits": bits_text(one.dtype, one.after),
    }


def _difference(before: Manifest, after: Manifest) -> str:
    return digest_text((int(after.digest, 16) - int(before.digest, 16)) % MODULUS)


def _manifests(before: Manifest, after: Manifest) -> dict[str, tuple[Any, Any]]:
    """What the manifests say otherwise, by name."""
    return {
        name: (one, other)
        for name, one, other in zip(
            _facts(before), _facts(before).values(), _facts(after).values(), strict=True
        )
        if one != other
    } | {
        f"metadata {key}": (before.metadata.get(key), after.metadata.get(key))
        for key in dict.fromkeys((*before.metadata, *after.metadata))
        if before.metadata.get(key) != after.metadata.get(key)
    }


def _facts(manifest: Manifest) -> dict[str, Any]:
    delta = isinstance(manifest, DeltaRecord)
    return {
        "kind": manifest.kind,
        "base": manifest.base if isinstance(manifest, DeltaRecord) else None,
        "epoch": manifest.epoch,
        "time": manifest.time,
        "table": manifest.table,
        "digest": manifest.digest,
        "changed": manifest.statistics.changed if delta else None,
        "bytes": manifest.statistics.bytes,
        "detector": manifest.statistics.detector,
    }


def comparison_lines(found: Comparison, *, by_tensor: bool) -> Iterator[str]:
    """The result first, then the manifests, then arrays or tensors, then the largest steps."""
    before, after = found.before, found.after
    share = percent(found.changed, found.elements)
    how = "by the patches between them" if found.by_patches else "by replay of both"
    yield (
        f"versions {before.version} and {after.version}: {found.changed:,} of "
        f"{plural(found.elements, 'element')} differ ({share}), compared {how}"
    )
    yield from _said(before, after)
    for names, what in ((found.missing, before), (found.added, after)):
        for name in names[:_LISTED]:
            yield f"  only in version {what.version}: {plain(name)}"
        if len(names) > _LISTED:
            yield f"  … {len(names) - _LISTED:,} more only in version {what.version}"
    yield from (_tensors(found) if by_tensor else _arrays(found))
    yield from _largest(found)


def _said(before: Manifest, after: Manifest) -> Iterator[str]:
    rows = []
    for name, pair in _manifests(before, after).items():
        rows.append([name, *(_said_text(name, value) for value in pair)])
    if rows:
        heads = ("manifest", f"version {before.version}", f"version {after.version}")
        yield from columns(heads, rows, left=frozenset(heads))


def _said_text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "time":
        return moment(value)
    if name == "bytes":
        return size(value)
    return plain(value)[:16] if name == "table" else plain(value)


def _arrays(found: Comparison) -> Iterator[str]:
    heads = ("changed", "share", "tensors", "largest step", "array")
    rows = [
        (
            *(f"{array.changed:,}", percent(array.changed, array.elements)),
            *(f"{len(array.differing):,} of {array.tensors:,}", _step(array.largest), plain(array.pattern)),
        )
        for array in found.arrays
    ]
    if rows:
        yield from columns(heads, rows, left=frozenset({"array"}))


def _tensors(found: Comparison) -> Iterator[str]:
    heads = ("changed", "share", "largest step", "digest difference", "tensor")
    differing: list[TensorDifference] = [one for array in found.arrays for one in array.differing]
    rows = [
        (
            *(f"{one.changed:,}", percent(one.changed, one.elements), _step(one.largest)),
            *(one.digest_difference, plain(one.name)),
        )
        for one in differing
    ]
    if rows:
        yield from columns(heads, rows, left=frozenset({"tensor"}))
    same = sum(array.tensors for array in found.arrays) - len(differing)
    if same:
        yield f"  {plural(same, 'tensor')} without a difference"


def _step(one: ElementDifference | None) -> str:
    return "-" if one is None else f"{one.step:+,}"


def _largest(found: Comparison) -> Iterator[str]:
    if not found.largest:
        return
    yield "largest steps"
    heads = ("step", "before", "after", "element")
    rows = [
        (
            f"{one.step:+,}",
            *(
                f"{number_text(one.dtype, bits)} ({bits_text(one.dtype, bits)})"
                for bits in (one.before, one.after)
            ),
            plain(one.tensor) + index_text(one.index),
        )
        for one in found.largest
    ]
    yield from columns(heads, rows, left=frozenset({"element"}))
