"""One call of the command, and what is wrong with what it did."""

from __future__ import annotations

import json
import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.cli.main import run

LONGEST_SECONDS = 30
LONGEST_MESSAGE = 3000
"""Characters on standard error; more is somebody's file, not a message about it."""

FORMER_WORD = re.compile(r"\Anote: 'penstock [^\n]*' is now 'penstock [^\n]*'\n")
PROGRESS = "round "
"""What lines begin with that tell how a deployment gets on."""


class TookTooLongError(BaseException):
    """Not an `Exception`: no handler of the code under test takes it for one of its own."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TookTooLongError

    # CPU seconds, so that a busy machine breaks no test; and, for what waits and works nothing, five times as many
    before = [signal.signal(number, give_up) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 5 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def faults(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is wrong with what a command did."""
    try:
        with time_limit(LONGEST_SECONDS):
            code = run(words)
    except TookTooLongError:
        return [f"took more than {LONGEST_SECONDS} s: {traceback.format_exc(limit=-6)}"]
    except BaseException:  # whatever it is, it is a fault, and the calls after it are made too
        return [traceback.format_exc(limit=-6)]
    finally:
        captured = capsys.readouterr()
    # the note about a former word of the command line stands before whatever the command itself prints
    out, err = captured.out, FORMER_WORD.sub("", captured.err, count=1)
    shown = (out + err).replace("\n", "")
    complaints = [line for line in err.splitlines() if not line.startswith(PROGRESS)]
    made = [path.name for path in (folder / "out").iterdir()]
    rules = {
        f"exit code {code}": code in {0, 1, 2},
        f"bad input takes one line on stderr: {err!r}, {out!r}": code != 2 or (not out and err.count("\n") == 1),
        f"a refusal takes one line on standard error: {err!r}": code != 1 or len(complaints) <= 1,
        f"{len(err)} characters on standard error": len(err) <= LONGEST_MESSAGE,
        f"control characters in {shown!r}": shown.isprintable(),
        f"a traceback: {err}": "Traceback" not in err,
        f"not JSON: {out}": "--json" not in words or not out or is_json(out),
        f"left behind: {made}": code != 2 or not made,
        f"half written: {made}": all(is_json((folder / "out" / name).read_text("utf-8")) for name in made),
    }
    return [fault for fault, kept in rules.items() if not kept]


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
