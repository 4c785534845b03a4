"""Working off a ticket: read what it names, run the segment, write what it sends, publish. Runs inside a slot."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa

from penstock.clock import Stopwatch, cpu_seconds, now
from penstock.dataflow.pipeline import Grouping
from penstock.spark.calls import DeadLetter
from penstock.spark.channels import BundleFolder, Manifest, Sent, Ticket
from penstock.spark.payloads import NOT_TEXT, cannot_travel
from penstock.spark.process_tree import tree_usage
from penstock.spark.routing import DirectError, deal, named_thread
from penstock.spark.segment import Segment
from penstock.spark.sinks import Ends, TaskName
from penstock.spark.tuple_files import read_tuples, write_table, write_tuples
from penstock.spark.tuples import Tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.spark.bundles import Bundle
    from penstock.spark.segment import Result

MEMORY_INTERVAL = 1.0
"""Seconds between looks at the memory of a slot's processes: each look costs milliseconds."""


class BundleWorker:
    """One bundle in one Python worker; its threads and connections live across tickets."""

    def __init__(self, run: Path, bundle: Bundle, ends: Ends | None = None) -> None:
        self._bundle = bundle
        self._ends = ends or Ends()
        self._folder = BundleFolder(run, bundle.name)
        self._segment = Segment(bundle.steps)
        self._meter = SlotMeter()

    def work_off(self, ticket: Ticket, where: Mapping[str, Any]) -> bool:
        """False: that ticket was worked off before."""
        if self._folder.is_published(ticket.number):
            return False
        begun, watch, cpu = now(), Stopwatch(), cpu_seconds()
        entering = self._read(ticket)
        result = self._segment.process(entering)
        shown = self._ends.take(result, TaskName(f"{self._folder.run.name}-{self._bundle.name}", ticket.number, 0))
        with self._folder.attempt(ticket.number) as attempt:
            sent = send(self._bundle, self._folder, result, ticket.number, attempt)
            outcome = _write_outcome(result, attempt)
            emission = ticket.emission
            manifest = Manifest(
                bundle=self._bundle.name,
                number=ticket.number,
                ends=ticket.ends,
                emitted_until=None if emission is None else emission.last,
                sent=sent,
                outcome=None if outcome is None else self._folder.relative(outcome),
                counts={name: _count(asdict(count)) for name, count in result.counts.items()},
                used={
                    "rows": len(entering),
                    "cpu_seconds": cpu_seconds() - cpu,
                    "wall_seconds": watch.seconds(),
                    **self._meter.read(),
                },
                where=where,
                begun=begun,
                finished=now(),
                shown=tuple(shown),
            )
            if not self._folder.publish(manifest):
                shutil.rmtree(attempt)
                return False
        return True

    def close(self) -> None:
        self._segment.close()

    def _read(self, ticket: Ticket) -> list[Tuple]:
        if ticket.emission is not None:
            if self._bundle.load is None:
                raise ValueError(f"bundle '{self._bundle.name}' has no load to emit from")
            first, last = ticket.emission.first, ticket.emission.last
            due = (ticket.emission.start + self._bundle.load.due_seconds(first, last)).tolist()
            return [Tuple(n, due[n - first], 0, {"value": n}) for n in range(first, last)]
        return [
            item for part in ticket.rows for item in read_tuples(self._folder.run / part.file, part.first, part.last)
        ]


def send(bundle: Bundle, folder: BundleFolder, result: Result, ticket: int, attempt: Path) -> dict[str, Sent]:
    """Deal what leaves the segment to the bundles that read it, into one file for each."""
    outgoing: dict[str, list[Tuple]] = {}
    for route in bundle.routes:
        items = result.sent[route.sender]
        if route.grouping is Grouping.DIRECT:
            items = _sort_out(result, route.sender, items, _names_no_thread)
        for receiver, dealt in deal(items, route, ticket).items():
            outgoing.setdefault(receiver, []).extend(dealt)
    sent = {}
    for receiver, items in outgoing.items():
        file = attempt / f"{receiver}.arrow"
        try:
            write_tuples(file, items)
        except NOT_TEXT:
            items = _sort_out(result, bundle.operators[-1], items, cannot_travel)  # noqa: PLW2901 - those that can
            write_tuples(file, items)
        sent[receiver] = Sent(folder.relative(file), len(items))
    return sent


def _sort_out(
    result: Result, operator: str, items: list[Tuple], problem_of: Callable[[dict[str, Any]], str | None]
) -> list[Tuple]:
    """Those without a problem; the others become dead letters."""
    fit = []
    for item in items:
        problem = problem_of(item.payload)
        if problem is None:
            fit.append(item)
        else:
            result.dead.append(DeadLetter(operator, item, problem))
            result.counts[operator].dead += 1
    return fit


def _names_no_thread(payload: dict[str, Any]) -> str | None:
    try:
        named_thread(payload)
    except DirectError as error:
        return str(error)
    return None


def _count(count: dict[str, float]) -> dict[str, float]:
    return {("busy_seconds" if name == "seconds" else name): value for name, value in count.items()}


OUTCOME_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("operator", pa.string()),
        ("id", pa.int64()),
        ("path", pa.int64()),
        ("latency", pa.float64()),
        ("text", pa.string()),
    ]
)


def _write_outcome(result: Result, attempt: Path) -> Path | None:
    done = now()
    rows: list[tuple[str, str, int, int, float, str]] = []
    for sink, delivered in result.delivered.items():
        rows += [("delivered", sink, item.id, item.path, done - item.due, "") for item in delivered]
    rows += [
        ("dead", letter.operator, letter.tuple.id, letter.tuple.path, done - letter.tuple.due, letter.error)
        for letter in result.dead
    ]
    rows += [("filtered", "", item.id, item.path, done - item.due, "") for item in result.filtered]
    if not rows:
        return None
    columns = [
        pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), OUTCOME_SCHEMA, strict=True)
    ]
    file = attempt / "outcome.arrow"
    write_table(file, pa.table(columns, schema=OUTCOME_SCHEMA))
    return file


class SlotMeter:
    """CPU and memory of the slot this process belongs to: its Java process and all below it."""

    def __init__(self) -> None:
        self._root = next((one for one in psutil.Process().parents() if "java" in one.name()), psutil.Process())
        self._memory = 0.0
        self._since: Stopwatch | None = None

    def read(self) -> dict[str, float]:
        if self._since is None or self._since.seconds() > MEMORY_INTERVAL:
            self._since = Stopwatch()
            self._usage = tree_usage(self._root)
        return {
            "slot_cpu_seconds": self._usage.cpu_seconds,
            "slot_memory_mb": self._usage.memory_mb,
            "own_memory_mb": psutil.Process().memory_info().rss / 2**20,
        }


def where_it_runs() -> dict[str, Any]:
    """What Spark says about this task (its resources name the node and the slot), and whose process this is."""
    from pyspark import TaskContext  # noqa: PLC0415 - only known inside a task

    context = TaskContext.get()
    resources = {} if context is None else {name: list(found.addresses) for name, found in context.resources().items()}
    java = next((one for one in psutil.Process().parents() if "java" in one.name()), None)
    words = java.cmdline() if java is not None else []
    said = {
        key: words[words.index(f"--{key}") + 1]
        for key in ("executor-id", "worker-url", "app-id")
        if f"--{key}" in words[:-1]
    }
    return {"resources": resources, "pid": os.getpid(), "java": None if java is None else java.pid, **said}
