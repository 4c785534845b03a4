"""Check the subject of a commit: imperative, at most 72 characters, an empty line before the body.

    python tools/check_commit_message.py FILE

As a hook without pre-commit: ln -s ../../tools/check_commit_message.py .git/hooks/commit-msg
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MAX_SUBJECT = 72
MADE_BY_GIT = re.compile(r"^(Merge|Revert|fixup!|squash!) ")
NOT_IMPERATIVE = re.compile(
    r"^(what|who|whoever|where|when|how|of|by|as|the|a|an|it|this|there|no|some|all|now|one|more)$"
    r"|(?<!e)ed$|(?<!s)ing$|(?<![sui])s$",
    re.IGNORECASE,
)
"""First words that begin no imperative: articles, pronouns, and verbs in another form (added, adding, adds)."""
IMPERATIVES = frozenset(
    {"bring", "bypass", "embed", "express", "focus", "shed", "spring", "string", "swing", "process"}
)


def find_problem(message: str) -> str | None:
    """Return what is wrong with a commit message; None if nothing is."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if MADE_BY_GIT.match(subject):
        return None
    first = subject.partition(" ")[0]
    length = f"the subject has {len(subject)} characters; at most {MAX_SUBJECT} are allowed: put the reason in the body"
    verb = f"the subject must begin with a verb in the imperative (Add, Fix, Remove), not '{first}'"
    checks = (
        (not first, "the subject is empty"),
        (len(subject) > MAX_SUBJECT, length),
        (first[:1].islower(), f"the subject must begin with a capital letter: '{first}'"),
        (subject.endswith("."), "the subject must not end with a full stop"),
        (first.lower() not in IMPERATIVES and bool(NOT_IMPERATIVE.search(first)), verb),
        (len(lines) > 1 and bool(lines[1].strip()), "an empty line must separate the subject from the body"),
    )
    return next((problem for wrong, problem in checks if wrong), None)


def main() -> int:
    problem = find_problem(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if problem is not None:
        print(f"commit message: {problem}", file=sys.stderr)
    return int(problem is not None)


if __name__ == "__main__":
    sys.exit(main())
