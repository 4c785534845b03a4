"""The process in which one `module:attribute` of a user runs: `python -P code_child.py CODE FOLDER SECONDS`. It imports
nothing of Penstock. Questions and answers are lines of JSON on the standard input and output it was started with;
whatever the code prints or reads goes nowhere.

A first line reports whether the code was found: {"ready": true} or {"error": "..."}. Then one line for each question:
{"argument": ..., "truth": true} is answered with {"answer": 0.0 or 1.0}, without `truth` with {"answer": null or text}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from typing import Any

LONGEST_TEXT = 300


def one_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TEXT]


def reason(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}".rstrip(": "))


def look_up(code: str, folder: str) -> Any:
    """Import from installed packages, then from `folder`: a module there cannot replace an installed one."""
    sys.path.append(folder)
    module, _, attribute = code.partition(":")
    value = getattr(import_module(module), attribute)
    if not callable(value):
        raise TypeError(f"expected a function, found {type(value).__name__}")
    return value


def answered(function: Any, question: dict[str, Any]) -> dict[str, Any]:
    answer = function(question["argument"])
    if question.get("truth"):
        return {"answer": float(bool(answer))}
    return {"answer": one_line(str(answer)) if answer else None}


def main() -> None:
    code, folder, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    own = os.getpid()
    questions, answers = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)

    def say(line: dict[str, Any]) -> None:
        if os.getpid() != own:
            # the code has forked, and this is the copy: it has nothing to say here
            os._exit(0)
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    # the parent ends this process if it takes too long; if the parent is gone, the kernel does
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 60)
    try:
        function = look_up(code, folder)
    except BaseException as error:
        say({"error": reason(error)})
        return
    say({"ready": True})
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        line = questions.readline()
        if not line:
            return
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 1)
        try:
            answer = answered(function, json.loads(line))
        except BaseException as error:
            answer = {"error": reason(error)}
        say(answer)


if __name__ == "__main__":
    main()
