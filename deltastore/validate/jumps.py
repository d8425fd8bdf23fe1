"""Which digests do not follow from that of the base and the differences of all rows (SPEC DS062)."""

from __future__ import annotations

from deltastore.errors import CorruptError
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.records import record_key
from deltastore.validate.chain import Chain, Committed

__all__ = ["Jumps", "Suspects"]


class Jumps:
    """By how much digests are not what follows from the base's, mod 2**64, where they are not."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._jumps: dict[int, int] = {}

    def measure(self, one: Committed, difference: int | None) -> bool:
        """Take in a version whose rows change the digest by ``difference``; whether that tells anything."""
        if one.base is None or difference is None:
            return False
        jump = (one.digest - self._chain.committed[one.base].digest - difference) % MODULUS
        if jump:
            self._jumps[one.version] = jump
        return True

    def of(self, version: int) -> int:
        """The jump of a version, or 0."""
        return self._jumps.get(version, 0)

    def base(self, version: int) -> int | None:
        """The version that one builds on."""
        return self._chain.committed[version].base

    def error(self, version: int) -> CorruptError:
        """What is wrong with a digest that jumps."""
        one = self._chain.committed[version]
        where, found = record_key(one.slot), digest_text((one.digest - self.of(version)) % MODULUS)
        message = (
            f"{where} says that version {version} has digest {digest_text(one.digest)}: that of version "
            f"{one.base} and the differences of its patches make {found}"
        )
        return CorruptError("bad_digest", message, where=where, rule="DS062")


class Suspects:
    """Versions whose digests are wrong by themselves, and not because those before them are.

    A jump back, after a digest that was wrong, is right. To be asked of versions after their bases.
    """

    def __init__(self, jumps: Jumps) -> None:
        self._jumps = jumps
        self._off: dict[int, int] = {}
        self._found: set[int] = set()

    def anchor_is_off(self, version: int, off: int) -> None:
        """The digest of an anchor is so far from that of its weights, as only a replay knows."""
        self._off[version] = off

    def has(self, version: int) -> bool:
        """Whether the digest of a version is wrong by itself."""
        base, jump = self._jumps.base(version), self._jumps.of(version)
        if base is None:
            return False
        here = (self._off.get(base, 0) + jump) % MODULUS
        if here:
            self._off[version] = here
        back = base in self._found and (jump + self._jumps.of(base)) % MODULUS == 0
        if jump and here and not back:
            self._found.add(version)
        return version in self._found
