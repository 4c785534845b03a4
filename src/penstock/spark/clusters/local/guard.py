"""What a block has started ends with its process, also where that is killed and ends nothing itself.

A process beside it holds one end of a pipe. Whoever leaves the block says so; where the pipe ends without a word, the
other process is gone, and what was left to be done is done here.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEFT = b"left"


@contextmanager
def guarded(command: Sequence[str]) -> Iterator[None]:
    """`command` is run when this process is gone before the block has ended. A session of its own: what ends us, Ctrl-C
    among it, does not reach it."""
    guard = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-m", "penstock.spark.clusters.local.guard", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate(LEFT)


def main() -> int:
    if sys.stdin.buffer.read() == LEFT:
        return 0
    return subprocess.run(sys.argv[1:], check=False).returncode  # noqa: S603 - what whoever started us asked for


if __name__ == "__main__":
    sys.exit(main())
