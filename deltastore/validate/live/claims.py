"""What readers claim beside digests: which stream, which version, and for whom they said so."""

from __future__ import annotations

from deltastore.errors import InputError, NotFoundError
from deltastore.format.attestation import Attestation
from deltastore.format.records import record_key
from deltastore.log import Log
from deltastore.validate.live.files import Attestations, LiveFiles

__all__ = ["check_claims"]


async def check_claims(log: Log, live: LiveFiles, stream: str, nonce: str | None) -> None:
    """Every claim is about this stream, and about a version that stands in its log.

    ``nonce``: what readers were asked to say. Raises ``InputError("bad_argument")`` or
    ``NotFoundError("no_version")``, naming the file.
    """
    if not isinstance(live, Attestations):
        if nonce is not None:
            raise InputError("bad_argument", "a nonce is a reader's, and a dump has none: leave it out")
        return
    records: dict[int, tuple[str, str]] = {}
    for name, one in live.attestations:
        if one.stream != stream:
            raise _refused(
                name,
                f"is about stream {one.stream}, and this one is {stream}: give the URL that the reader reads",
            )
        if nonce is not None and one.nonce != nonce:
            raise _refused(
                name, f"has nonce {one.nonce}, not {nonce}: it is stale, or another's; ask the reader again"
            )
        if one.version not in records:
            records[one.version] = await _record(log, name, one)
        where, sha256 = records[one.version]
        if one.record != sha256:
            raise _refused(
                name,
                f"is about version {one.version} with manifest {one.record[:12]}, and {where} is "
                f"{sha256[:12]}: it is not the log that the reader read",
            )


async def _record(log: Log, name: str, one: Attestation) -> tuple[str, str]:
    """(key, sha256) of the manifest of a claimed version."""
    try:
        manifest = await log.manifest(one.version)
    except NotFoundError as error:
        message = f"{name} claims version {one.version}: {error}"
        raise NotFoundError(error.code, message, where=name) from None
    return record_key(manifest.slot), manifest.sha256


def _refused(name: str, problem: str) -> InputError:
    return InputError("bad_argument", f"{name} {problem}", where=name)
