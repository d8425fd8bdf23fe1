"""An implementation that is wrong on purpose: ``python -m tests.spec.wrong HOW``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from spec.answering import answer

Fields = dict[str, Any]


def right(request: Fields) -> Fields:
    """The right answer; NumPy is imported only by those who want to know it."""
    from spec.decoder.serving import OPERATIONS

    return OPERATIONS[request["op"]](request)


def off_by_one(request: Fields) -> Fields:
    """A digest that is one too high, and a chunk more in every table."""
    found = right(request)
    if "digest" in found:
        found["digest"] = f"{(int(found['digest'], 16) + 1) % 2**64:016x}"
    if "index" in found:
        found["index"] = [index + 1 for index in found["index"]]
    return found


def believing(request: Fields) -> Fields:
    """Takes everything that it is given for good."""
    return {"kind": "delta", "result": request.get("base", ""), "count": 1}


def dying(request: Fields) -> Fields:
    """Dies of the third request."""
    if request["id"] == 3:
        raise ZeroDivisionError("this cannot be divided")
    return right(request)


def leaving(request: Fields) -> Fields:
    """Ends without a word, and leaves a process behind that holds its output."""
    subprocess.Popen(["sleep", "60"])
    os._exit(7)


def hanging(request: Fields) -> Fields:
    """Never answers."""
    time.sleep(60)
    return {}


def breaking_off(request: Fields) -> Fields:
    """Ends in the middle of a reply."""
    os.write(1, b'{"id": 1, "ok"')
    os._exit(0)


def raw(line: bytes) -> Callable[[Fields], Fields]:
    """Writes this instead of every reply."""

    def written(request: Fields) -> Fields:
        os.write(1, line)
        return hanging(request)

    return written


def refusing(request: Fields) -> Fields:
    """Refuses with another code than was asked for."""
    raise ValueError


def as_told(error: Exception) -> Fields | None:
    """Refuses what the decoder refuses."""
    from spec.decoder.serving import refusal

    return refusal(error)


def another_check(error: Exception) -> Fields | None:
    """Names the wrong requirement."""
    found = as_told(error)
    return None if found is None else {**found, "check": "DS002"}


def other_code(error: Exception) -> Fields | None:
    """Names the wrong code."""
    return {"code": "bad_url"}


OPERATIONS = ("names", "digest", "record", "patch", "inventory")
HOW: dict[str, Callable[[Fields], Fields]] = {
    "off-by-one": off_by_one,
    "believing": believing,
    "dying": dying,
    "leaving": leaving,
    "hanging": hanging,
    "nonsense": raw(b"hello\n"),
    "not-utf-8": raw(b"\xff\xfe\n"),
    "a-list": raw(b"[]\n"),
    "another-request": raw(b'{"id": 0, "ok": {}}\n'),
    "breaking-off": breaking_off,
    "half": raw(b'{"id": 1, "ok"'),
    "deep": raw(b"[" * 100_000 + b"\n"),
    "refusing": refusing,
    "checks": right,
}


def endless() -> None:
    """A reply without an end."""
    sys.stdin.readline()
    while True:
        sys.stdout.write("x" * (1 << 20))


def main(how: str) -> int:
    """Answer in that way."""
    if how == "endless":
        endless()
    if how == "deaf":  # reads nothing, says nothing
        time.sleep(60)
    if how == "unwilling":
        return answer({}, as_told, sys.stdin.buffer, sys.stdout.buffer)
    if how == "shy":  # a reply that says nothing at all
        for line in sys.stdin:
            print(json.dumps({"id": json.loads(line)["id"]}), flush=True)
        return 0
    judged = {"refusing": other_code, "checks": another_check}.get(how, as_told)
    return answer(dict.fromkeys(OPERATIONS, HOW[how]), judged, sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
