"""Become another program that dies with the process that started this one, however that ends.

    python leash.py PARENT-PID PROGRAM ARGUMENT...

Strictly, with the *thread* that started it: start servers from one that stays. The request must come from the
child, and a ``preexec_fn`` would run between fork and exec, where the locks of other threads may be held for
ever: so this is a program of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        return  # it died before the request was made
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
