"""Listeners that Java calls: the rows that Spark counts of a frame as it is written, and the progress of queries.

Rows are counted (`DataFrame.observe`) in every action on a frame. A user's function may look at its frame before it
writes it, or write it twice. The pass that saw most rows counts, and none that a limit ended, as `isEmpty`, `take` and
`show` do: such a pass may have seen any number.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.spark.internals.declarations import touches
from penstock.spark.internals.error_messages import java_error
from penstock.spark.internals.java import java_classes, java_context, java_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

ROWS = "rows"
"""The column that has the number of rows of a pass."""
PATIENCE_MS = 1000
"""Milliseconds to wait for Spark's event of an action."""
_LIMITED = re.compile(r"\b(?:GlobalLimit|LocalLimit|Tail) \d")
"""Operators in the plan of a pass that may end before it has seen all rows."""


@touches(
    "QueryExecutionListener by py4j, `sessionUUID`, `listenerBus().waitUntilEmpty`, `observedMetrics`",
    "PySpark's `Observation` has the first action on a frame only, and not its plan: it may have been cut short.",
)
class PassCounter:
    """Hears of every action in the sessions that its frames are of: a query has one of its own."""

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)

    def __init__(self, session: SparkSession) -> None:
        self._bus: Any = java_context(session).listenerBus()
        self._heard: set[str] = set()
        self._passes: dict[str, Mapping[str, int] | None] = {}
        """Present counts by name; None: no whole pass yet."""

    def observed(self, frame: DataFrame, *columns: Column) -> tuple[str, DataFrame]:
        """The same frame, of which rows are counted, and `columns` over them. `counts` knows them by the name."""
        from pyspark.sql import functions  # noqa: PLC0415 - Spark loads only when it is used

        java = java_session(frame.sparkSession)
        if (who := str(java.sessionUUID())) not in self._heard:
            self._heard.add(who)
            java.listenerManager().register(self)
        name = f"penstock-{secrets.token_hex(8)}"
        self._passes[name] = None
        return name, frame.observe(name, functions.count(functions.lit(1)).alias(ROWS), *columns)

    def counts(self, name: str) -> Mapping[str, int] | None:
        """Return the counts by column of a frame that will not be read any more. None: no action has seen all of its
        rows."""
        try:
            self._bus.waitUntilEmpty(PATIENCE_MS)
        except java_error():  # too much is going on to wait for it: the last pass may not be known yet
            self._passes.pop(name, None)
            return None
        return self._passes.pop(name, None)

    def onSuccess(self, _action: str, execution: Any, _nanoseconds: int) -> None:  # noqa: N802 - Spark's name
        metrics = execution.observedMetrics()
        names = metrics.keysIterator()
        while names.hasNext():
            name = names.next()
            if name in self._passes and not is_limited(str(execution.optimizedPlan())):
                row = metrics.apply(name)
                counts = {column: int(row.getAs(column)) for column in row.schema().fieldNames()}
                self._take(name, counts)

    def onFailure(self, _action: str, _execution: Any, _error: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def _take(self, name: str, counts: Mapping[str, int]) -> None:
        before = self._passes.get(name)
        if before is None or counts[ROWS] > before[ROWS]:
            self._passes[name] = counts


def is_limited(plan: str) -> bool:
    return _LIMITED.search(plan) is not None


class _ToldByJava:
    """Pass on the JSON of every progress as plain values. Spark's own wrapper asks Java for every figure of it one by
    one, some hundred calls: that cost batches of half a second 17 % of their time."""

    def __init__(self, on_progress: Callable[[dict[str, Any]], None]) -> None:
        self._on_progress = on_progress

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A query without a batch has no figures yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._on_progress(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing arrived."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Its progress came before."""

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


@touches(
    "`StreamingQueryListener._jlistener`, PythonStreamingQueryListenerWrapper",
    "The public listener turns every figure into a Python object, whether it is read or not.",
)
def progress_listener(session: SparkSession, on_progress: Callable[[dict[str, Any]], None]) -> Any:
    """Return what `StreamingQueryManager.addListener` takes; `on_progress` gets every progress as plain values."""
    from pyspark.sql.streaming.listener import StreamingQueryListener  # noqa: PLC0415 - Spark loads when it is used

    class Progress(_ToldByJava, StreamingQueryListener):
        @cached_property
        def _jlistener(self) -> Any:
            # asked for after `addListener` has imported the wrapper
            return java_classes(session).PythonStreamingQueryListenerWrapper(_ToldByJava(on_progress))

    return Progress(on_progress)
