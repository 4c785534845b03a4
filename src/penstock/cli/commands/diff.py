"""`penstock diff`: what moves from one plan to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A plan file.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another plan file.")],
    json: JsonOption = False,
) -> None:
    """What changes, and which threads move, from one plan to another."""
    from penstock.verbs.diff import diff as diff_plans

    difference = diff_plans(before, after)
    if json:
        output.print_json(difference.document())
        return
    screen = output.console()
    document = difference.document()
    old, new = document["before"], document["after"]
    screen.print(
        output.table(
            f"{before} -> {after}",
            ("", "before", "after"),
            (
                ("pipeline", old["pipeline"], new["pipeline"]),
                ("tuples/s", output.figure(old["rate"]), output.figure(new["rate"])),
                ("policies", f"{old['allocator']}+{old['placer']}", f"{new['allocator']}+{new['placer']}"),
                ("slots", str(old["slots"]), str(new["slots"])),
                ("nodes", str(old["nodes"]), str(new["nodes"])),
                ("per hour", output.money(old["price_per_hour"]), output.money(new["price_per_hour"])),
            ),
        )
    )
    screen.print(
        output.table(
            "Threads",
            ("operator", "before", "after", "stay", "move"),
            ((o.operator, str(o.before), str(o.after), str(o.kept), str(o.moved)) for o in difference.operators),
        )
    )
    screen.print(
        output.table(
            "Slots that change",
            ("slot", "threads "),
            (
                (str(change.slot), ", ".join(f"{name} {count:+d}" for name, count in change.change.items()))
                for change in difference.slots
            ),
            output.MOST_ROWS,
        )
    )
    for title, names in (("nodes added", difference.nodes_added), ("nodes removed", difference.nodes_removed)):
        if names:
            screen.print(f"{title}: {', '.join(names)}")
    screen.print(f"{difference.threads_moved} threads move")
