#!/usr/bin/env python3
"""Count sentences in a private idiom; fail if there are more than tools/language_limits.json allows.

    tools/check_language.py            exit 1 if a count has risen, or if a folder listed as clean has a match
    tools/check_language.py --update   lower the limits to the present counts (they are never raised)
    tools/check_language.py --show spark/fused   print every match below a folder of src/
    tools/check_language.py --json     counts and shares, for programs

Each pattern below is a habit that docstrings of other projects in this field do not have. The rules are in
docs/contributing.md. A sentence that matches may be fine, and one that does not may be unclear: this is a ratchet, not
a judge. Checked: docstrings, texts below attributes, comments, and the pages below docs/.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).resolve().with_name("language_limits.json")

PATTERNS = {
    "opens with a free relative clause": re.compile(r"^(What|Who|Whoever|Whatever|Where|How) (?!.*\?)"),
    "opens with a bare preposition": re.compile(
        r"^(Of|By|As|From|Until|Behind|Beside|In|On|With|Without|For|To) [a-z`]"
    ),
    "where instead of if or when": re.compile(
        r"\b[Ww]here (it|there|that|this|they|nobody|no|none|a|an|the|some|one|its|what|Spark|nothing|several)\b"
    ),
    "a word for people, said of programs": re.compile(
        r"\b([Nn]obody|[Ww]hoever|[Ss]omebody|[Ee]verybody|[Aa]nybody)\b"
    ),
    "a program that hears or tells": re.compile(r"\b(hears?|heard|tells?|told|said|says)\b"),
    "so many, so long": re.compile(r"\b([Ss]o many|[Ss]o long|[Aa]s many as|[Ff]ewest|so much)\b"),
    "goes on, let go, came of, lies behind": re.compile(
        r"\b(goes? on|went on|lets? go|came of|(is|lies?) behind|what (is|was|has|it|comes?|came|they|nobody))\b"
    ),
}


def find_matches(text: str) -> list[str]:
    """Return the names of the patterns that `text` matches."""
    return [name for name, pattern in PATTERNS.items() if pattern.search(text)]


def read_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings, and of strings that stand alone below an attribute."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else ():
            value = item.value if isinstance(item, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield item.lineno, " ".join(value.value.split())


def read_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment, without directives for linters."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("# ")
        if token.type == tokenize.COMMENT and not text.startswith(("noqa", "type:", "!")):
            yield token.start[0], text


def read_paragraphs(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each line of a Markdown page that is not code, a table or a heading."""
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and line and not line.startswith(("    ", "#", "|")):
            yield number, line.lstrip("-*0123456789. ")


def read_all(root: Path) -> Iterator[tuple[str, str, int, str]]:
    """Yield kind ("docstrings", "comments" or "docs"), path, line and text of everything that is checked."""
    for path in sorted((root / "src").rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), str(path.relative_to(root))
        yield from (("docstrings", name, line, text) for line, text in read_docstrings(source))
        yield from (("comments", name, line, text) for line, text in read_comments(source))
    for path in sorted([*(root / "docs").glob("*.md"), *root.glob("*.md")]):
        source, name = path.read_text(encoding="utf-8"), str(path.relative_to(root))
        yield from (("docs", name, line, text) for line, text in read_paragraphs(source))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--show", metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    texts: Counter[str] = Counter()
    matched: Counter[str] = Counter()
    packages: dict[str, Counter[str]] = {}
    unclean: list[str] = []
    limits = json.loads(LIMITS.read_text(encoding="utf-8"))
    for kind, name, line, text in read_all(ROOT):
        texts[kind] += 1
        names = find_matches(text)
        if kind == "docstrings":
            package = "/".join(name.split("/")[1:3]).removesuffix(".py")
            packages.setdefault(package, Counter()).update(texts=1, matched=bool(names))
        if not names:
            continue
        matched[kind] += 1
        found = f"{name}:{line}: {names[0]}: {text[:120]}"
        if given.show is not None and given.show in name:
            print(found)
        if kind != "comments" and name.startswith(tuple(limits["clean"])):
            unclean.append(found)
    percent = 100 * matched["docstrings"] / max(1, texts["docstrings"])
    if given.show is not None:
        return 0
    if given.update:
        highest = {kind: min(matched[kind], limits["max"][kind]) for kind in sorted(texts)}
        LIMITS.write_text(json.dumps({"max": highest, "clean": limits["clean"]}, indent=1) + "\n", encoding="utf-8")
    elif given.json:
        shares = {name: round(100 * part["matched"] / part["texts"], 1) for name, part in sorted(packages.items())}
        print(json.dumps({"docstrings_percent": round(percent, 1), "matches": dict(matched), "packages": shares}))
    else:
        risen = [kind for kind in texts if matched[kind] > limits["max"][kind]]
        for kind in risen:
            print(
                f"language: {matched[kind]} {kind} in a private idiom, at most {limits['max'][kind]} are allowed;"
                " list them with: tools/check_language.py --show src"
            )
        for found in unclean:
            print(f"language: {found} (this folder is to have none)")
        print(f"language: {percent:.1f} % of docstrings match (limits: tools/language_limits.json)")
        return int(bool(risen or unclean))
    return 0


if __name__ == "__main__":
    sys.exit(main())
