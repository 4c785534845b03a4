"""`penstock doctor`: check this machine, with a remedy for each problem."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output

SIGNS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check Java, Python, Spark, memory, disk, ports and clock, and print a remedy for each problem."""
    from penstock.api import doctor as checks

    findings = checks.doctor()
    document = checks.document(findings)
    if as_json:
        output.print_json(document)
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            output.say(f"{SIGNS[finding.health]:<8} {finding.name:<{width}}  {finding.value}")
            if finding.remedy:
                output.say(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
        output.say(
            "next: penstock plan linear --rate 100, or penstock init my-project"
            if document["ok"]
            else "planning, simulation and advice work without Java and Spark; the rest needs the problems mended"
        )
    if not document["ok"]:
        raise typer.Exit(1)
