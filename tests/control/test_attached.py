"""Advice for queries that were not written for Penstock: the arithmetic by hand, five limits, three sources."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.cli.main import run
from penstock.control.attached.advice import Limit
from penstock.control.attached.advice import advise as advice_for
from penstock.control.attached.batch_sources import PROGRESS, batches_of_log, batches_of_samples, cores_of, samples_of
from penstock.control.attached.query_model import BatchSeen, BatchTasks, LearnedModel, arrivals, batch_of, learn

if TYPE_CHECKING:
    from pathlib import Path

TASK_END = "SparkListenerTaskEnd"
PROGRESS_BATCH = {
    "id": "q-1",
    "runId": "r-1",
    "name": "counts",
    "timestamp": "2026-11-16T10:00:00.000Z",
    "batchId": 7,
    "numInputRows": 1000,
    "inputRowsPerSecond": 500.0,
    "durationMs": {"triggerExecution": 900, "addBatch": 700, "queryPlanning": 60, "walCommit": 40, "latestOffset": 100},
    "stateOperators": [{"numRowsTotal": 50, "memoryUsedBytes": 2048, "allUpdatesTimeMs": 300, "commitTimeMs": 100}],
    "sources": [{"endOffset": {"in": {"0": 600, "1": 400}}, "latestOffset": {"in": {"0": 700, "1": 400}}}],
}


def batches(
    sizes: list[float], *, fixed: float, row: float, slots: int, every: float | None = None, **more: Any
) -> list[BatchSeen]:
    """One after the other, or one `every` so many seconds; each costs fixed + rows * row / parallel."""
    found, at = [], 0.0
    parts = more.get("partitions")
    for rows in sizes:
        seconds = fixed + rows * row / min(slots, parts or slots)
        found.append(BatchSeen(at, rows, seconds, slots, **more))
        at += seconds if every is None else every
    return found


def model_of(sizes: list[float], **more: Any) -> LearnedModel:
    found = learn(batches(sizes, **more))
    assert found is not None
    return found


class TestProgress:
    def test_all_that_spark_says(self) -> None:
        found = batch_of(PROGRESS_BATCH, slots=2)
        assert found is not None
        assert (found.rows, found.seconds, found.partitions, found.backlog) == (1000, 0.9, 2, 100)
        assert found.driver_seconds == pytest.approx(0.2)
        # 400 ms of tasks, two at a time
        assert found.state_seconds == pytest.approx(0.2)

    def test_offsets_of_an_event_log_are_text(self) -> None:
        text = {name: json.dumps(offsets) for name, offsets in PROGRESS_BATCH["sources"][0].items()}  # type: ignore[index]
        seen = batch_of({**PROGRESS_BATCH, "sources": [text]}, slots=2)
        assert seen is not None
        assert (seen.partitions, seen.backlog) == (2, 100)
        odd = batch_of({**PROGRESS_BATCH, "sources": [{"endOffset": "4711", "latestOffset": "{"}]}, slots=2)
        assert odd is not None
        assert (odd.partitions, odd.backlog) == (None, None)

    def test_tasks_of_stages_with_state_count_where_most_rows_change_it(self) -> None:
        """Spark's own account is 0.4 s of tasks; stages with state took 1.2 s, reading and merging included."""
        states = [{**PROGRESS_BATCH["stateOperators"][0], "numRowsUpdated": 600}]  # type: ignore[index]
        seen = batch_of({**PROGRESS_BATCH, "stateOperators": states}, 2, BatchTasks(with_state=1.2))
        assert seen is not None
        assert seen.state_seconds == pytest.approx(0.6)
        few = batch_of(
            {**PROGRESS_BATCH, "stateOperators": [{**states[0], "numRowsUpdated": 7}]}, 2, BatchTasks(with_state=1.2)
        )
        assert few is not None
        assert few.state_seconds == pytest.approx(0.2)

    def test_no_batch_is_none_and_one_without_rows_is_one(self) -> None:
        """Spark makes batches without rows to let go state."""
        idle = {**PROGRESS_BATCH, "numInputRows": 0, "durationMs": {"triggerExecution": 5, "latestOffset": 5}}
        assert batch_of(idle, 2) is None
        seen = batch_of({**PROGRESS_BATCH, "numInputRows": 0}, 2)
        assert seen is not None
        assert (seen.rows, seen.seconds, seen.run) == (0, 0.9, "r-1")


class TestLearning:
    def test_fixed_and_row_costs_are_told_apart_by_size(self) -> None:
        """0.3 s a batch and 2 ms a row on one slot; 4 slots share the rows."""
        found = model_of([100, 400, 900, 200], fixed=0.3, row=0.002, slots=4)
        assert found.fixed_seconds == pytest.approx(0.3)
        assert found.row_seconds == pytest.approx(0.002)
        assert found.error == pytest.approx(0, abs=1e-9)
        # (2 - 0.3) s * 4 slots / 2 ms = 3,400 rows in 2 s
        assert found.most_rate(4, 2.0) == pytest.approx(1700)

    def test_batches_all_alike_are_told_apart_by_what_the_driver_says(self) -> None:
        found = model_of([500] * 5, fixed=0.5, row=0.001, slots=1, driver_seconds=0.5)
        assert found.from_driver
        assert found.fixed_seconds == pytest.approx(0.5)
        assert found.row_seconds == pytest.approx(0.001)

    def test_smaller_batches_that_took_longer_tell_nothing_by_their_size(self) -> None:
        """As on a cluster that starts: 1,200 rows in 99 s, 2,450 in 70 s, 1,750 in 47 s, the driver 0.5 s of each:
        0.0825, 0.0284 and 0.0266 s a row, not 72 s before the first and nothing after."""
        seen = [
            BatchSeen(at, rows, seconds, 1, driver_seconds=0.5)
            for at, rows, seconds in ((0.0, 1200, 99.0), (99.0, 2450, 70.0), (169.0, 1750, 47.0))
        ]
        model = learn(seen)
        assert model is not None
        assert model.fixed_seconds == 0.5
        assert model.row_seconds == pytest.approx(69.5 / 2450)

    def test_batches_without_rows_tell_what_one_costs_at_all(self) -> None:
        """All of 50 rows and 1.5 s, of which the driver needs 0.1 by itself; without rows they take 1 s: 10 ms a row,
        not 28."""
        seen = [BatchSeen(2.0 * at, 50 * (at % 2), 1 + 0.5 * (at % 2), 1, driver_seconds=0.1) for at in range(8)]
        model = learn(seen)
        assert model is not None
        assert (model.batches, model.from_driver) == (4, False)
        assert model.fixed_seconds == pytest.approx(1)
        assert model.row_seconds == pytest.approx(0.01)

    def test_the_first_batch_of_a_run_starts_workers_and_teaches_nothing(self) -> None:
        seen = batches([100, 400, 900, 200], fixed=0.3, row=0.002, slots=1, run="r")
        slow = replace(seen[0], seconds=30.0)
        model = learn([slow, *seen[1:]])
        assert model is not None
        assert model.batches == 3
        assert model.fixed_seconds == pytest.approx(0.3)
        assert learn([slow, *seen[1:3]]) is None

    def test_more_slots_than_partitions_do_nothing(self) -> None:
        found = model_of([100, 400, 900], fixed=0.1, row=0.002, slots=8, partitions=2)
        assert found.row_seconds == pytest.approx(0.002)
        assert found.most_rate(8, 1.0) == found.most_rate(2, 1.0)

    def test_what_comes_is_more_than_what_a_limited_query_takes(self) -> None:
        """1,000 rows a batch every 2 s are 500/s taken; what waits grows by 3,000 each time: (1,000 + 3,000) / 2 s."""
        seen = [
            BatchSeen(2.0 * number, 1000, 1.5, 1, backlog=3000.0 * number, arrived_rate=500.0, run="r")
            for number in range(5)
        ]
        assert arrivals(seen) == [500.0, 2000.0, 2000.0, 2000.0, 2000.0]
        found = learn(seen)
        assert found is not None
        assert found.arrived_rate == pytest.approx(2000)
        assert advice_for(found).target_rate == pytest.approx(2000)
        # a new run counts from its own first batch, and what nobody knows of is as Spark says
        again = BatchSeen(20.0, 1000, 1.5, 1, backlog=0.0, arrived_rate=400.0, run="s")
        unknown = BatchSeen(22.0, 1000, 1.5, 1, arrived_rate=450.0, run="s")
        assert arrivals([seen[-1], again, unknown]) == [500.0, 400.0, 450.0]

    def test_too_little_is_nothing(self) -> None:
        assert learn(batches([100, 200], fixed=0.1, row=0.001, slots=1)) is None


class TestLimits:
    def test_executors(self) -> None:
        """1,000 rows/s of 2 ms, batches of 1 s of which 0.2 are fixed: 2 s of work in 0.8 s at 0.7 -> 3.57 slots."""
        found = advice_for(
            model_of([100, 200, 300], fixed=0.2, row=0.002, slots=1, partitions=16), rate=1000, latency_ms=2000
        )
        assert (found.limit, found.needed_slots) == (Limit.EXECUTORS, 4)
        # 0.8 s on one slot at 2 ms: 400 rows/s
        assert found.most_rate_now == pytest.approx(400)
        assert found.headroom == pytest.approx(-0.6)

    def test_partitions(self) -> None:
        found = advice_for(
            model_of([100, 200, 300], fixed=0.2, row=0.002, slots=2, partitions=2), rate=1000, latency_ms=2000
        )
        assert (found.limit, found.needed_slots, found.useful_slots) == (Limit.PARTITIONS, None, 2)
        assert "2 partitions" in found.evidence[-1]

    def test_partitions_of_which_one_has_nearly_all_rows(self) -> None:
        """Tasks of 1, 1, 1 and 27 s: 30 s of work, of which 27 s are one after the other whatever there is."""
        model = model_of([100, 200, 300], fixed=0.2, row=0.002, slots=2, partitions=4, at_once=30 / 27)
        found = advice_for(model, rate=1000, latency_ms=2000)
        assert (found.limit, found.needed_slots, found.useful_slots) == (Limit.PARTITIONS, None, 1)
        assert "4 partitions" in found.evidence[-1]
        assert "more evenly" in found.what_to_do
        even = model_of([100, 200, 300], fixed=0.2, row=0.002, slots=2, partitions=4, at_once=3.4)
        assert (even.partitions, even.uneven) == (4, None)

    def test_state(self) -> None:
        model = model_of([100, 200, 300], fixed=0.2, row=0.002, slots=1, state_seconds=0.5, partitions=8)
        assert advice_for(model, rate=1000).limit is Limit.STATE
        # where it keeps up, nothing is a limit
        assert advice_for(model, rate=10).limit is Limit.NOTHING

    def test_driver(self) -> None:
        model = model_of([10, 20, 40], fixed=0.9, row=0.0001, slots=4, partitions=8, driver_seconds=0.8)
        found = advice_for(model, rate=1000, latency_ms=1000)
        assert found.limit is Limit.DRIVER
        assert "before its first row" in found.evidence[-1]

    def test_driver_of_batches_that_are_all_alike(self) -> None:
        """20 rows in 42 ms of which the driver needs 29: the other 13 are what tasks cost at all, not 1.3 ms a row."""
        model = model_of([20] * 5, fixed=0.029, row=0.0013, slots=2, partitions=2, driver_seconds=0.029)
        assert model.row_seconds == pytest.approx(0.0013)
        found = advice_for(model, rate=20_000, latency_ms=200)
        assert found.limit is Limit.DRIVER
        assert "69 % of each" in found.evidence[-1]

    def test_source(self) -> None:
        """Batches of 100 rows every 5 s take 0.3 s each, while thousands wait and more arrive."""
        seen = batches([100, 99, 100, 100], fixed=0.2, row=0.001, slots=1, every=5.0, arrived_rate=5000.0)
        seen = [BatchSeen(b.at, b.rows, b.seconds, 1, backlog=10_000 + 4000 * b.at, arrived_rate=5000.0) for b in seen]
        model = learn(seen)
        assert model is not None
        found = advice_for(model)
        assert found.limit is Limit.SOURCE
        assert "maxOffsetsPerTrigger" in found.what_to_do

    def test_nothing(self) -> None:
        found = advice_for(model_of([100, 200, 300], fixed=0.1, row=0.001, slots=4, every=2.0), rate=100)
        assert (found.limit, found.needed_slots) == (Limit.NOTHING, 1)
        assert found.what_to_do == "nothing; 3 of 4 executors could go"

    def test_price_and_catching_up(self) -> None:
        """Needed 4 slots do 0.8 s * 4 / 2 ms = 1,600 rows/s; 600 to spare work 1,200 rows off in 2 s."""
        model = model_of([100, 200, 300], fixed=0.2, row=0.002, slots=1, partitions=16, backlog=1200.0)
        found = advice_for(model, rate=1000, latency_ms=2000, price=0.1)
        assert found.price_per_hour == pytest.approx(0.4)
        assert found.catch_up_seconds == pytest.approx(2.0)


def write_log(path: Path, count: int = 6) -> None:
    events: list[dict[str, Any]] = [
        {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"},
        {"Event": "SparkListenerExecutorAdded", "Executor ID": "0", "Executor Info": {"Total Cores": 2}},
    ]
    for number in range(count):
        rows = 1000 * (number + 1)
        progress = {
            **PROGRESS_BATCH,
            "batchId": number,
            "timestamp": f"2026-11-16T10:00:{number * 2:02}.000Z",
            "numInputRows": rows,
            # 0.2 s and 1 ms a row on one slot, two slots
            "durationMs": {"triggerExecution": 200 + rows // 2, "queryPlanning": 150},
            "stateOperators": [],
        }
        words = {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": str(number)}
        stages = [{"Stage ID": 0, "Parent IDs": [], "Number of Tasks": 4}]
        events.append({"Event": "SparkListenerJobStart", "Job ID": number, "Stage Infos": stages, "Properties": words})
        events.append({"Event": PROGRESS, "progress": progress})
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"Event": "Spark', "utf-8")


class TestSources:
    def test_an_event_log(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_log(tmp_path / "app-1")
        assert run(["advise", str(tmp_path / "app-1"), "--rate", "10000", "--latency", "4000", "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert found["query"] == "counts"
        # 20,000 rows a batch of 2 s: 20 s of work in 1.8 s at 0.7 needs 15.9 slots, and there are 4 partitions
        assert found["limit"] == "partitions"
        assert found["executors"] == {"now": 2, "needed": None, "useful": 4}
        assert run(["advise", str(tmp_path / "app-1"), "--rate", "1000", "--price", "0.1"]) == 0
        said = capsys.readouterr().out
        assert "executors   2 of one core (now 2, more than 4 do nothing)" in said
        assert "limit       nothing" in said

    def test_tasks_of_a_log_tell_how_evenly_rows_are_divided(self, tmp_path: Path) -> None:
        """Two stages of a batch: tasks of 1 and 3 s, then 2 and 2 s: 8 s, of which 5 are one after the other."""
        words = {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "7"}
        stages = [{"Stage ID": 4, "Parent IDs": [], "Number of Tasks": 2}, {"Stage ID": 5, "Parent IDs": [4]}]
        events: list[dict[str, Any]] = [
            {"Event": "SparkListenerJobStart", "Stage Infos": stages, "Properties": words},
            *(
                {
                    "Event": "SparkListenerTaskEnd",
                    "Stage ID": stage,
                    "Task Info": {"Launch Time": 1, "Finish Time": end},
                }
                for stage, end in ((4, 1001), (4, 3001), (5, 2001), (5, 2001), (99, 50_000))
            ),
            {"Event": PROGRESS, "progress": PROGRESS_BATCH},
        ]
        (tmp_path / "log").write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
        (batch,) = batches_of_log(tmp_path / "log")
        assert batch.partitions == 2
        assert batch.at_once == pytest.approx(8 / 5)
        # by the driver's own account 0.2 s; all of its 0.9 s had tasks
        assert batch.driver_seconds == pytest.approx(0.2)
        short = batch_of(PROGRESS_BATCH, 2, BatchTasks(seconds=0.1))
        assert short is not None
        assert short.driver_seconds == pytest.approx(0.8)

    @pytest.mark.parametrize("suffix", [".zstd", ".zstd.inprogress", ".gz"])
    def test_a_compressed_log_as_spark_writes_it(self, tmp_path: Path, suffix: str) -> None:
        write_log(tmp_path / "plain")
        path = tmp_path / f"app-1{suffix}"
        with pa.output_stream(path, compression="gzip" if suffix == ".gz" else "zstd") as file:
            file.write((tmp_path / "plain").read_bytes())
        assert batches_of_log(path) == batches_of_log(tmp_path / "plain")
        # one that is still being written ends anywhere
        path.write_bytes(path.read_bytes()[:-20])
        assert len(batches_of_log(path)) <= 6
        path.write_bytes(b"no such thing")
        with pytest.raises(penstock.BadInputError, match="app-1"):
            penstock.advise(path)

    def test_a_rolling_log(self, tmp_path: Path) -> None:
        folder = tmp_path / "eventlog_v2_app-1"
        folder.mkdir()
        write_log(folder / "events_1_app-1")
        assert [one.query for one in penstock.advise(folder)] == ["counts"]

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("no json\n", "line 1: expected JSON"),
            ('{"Event": "SparkListenerExecutorAdded"}\n', "line 1: not an event of Spark's log"),
            ('{"Event": "SparkListenerLogStart"}\n', "0 batches with rows; at least 3"),
        ],
    )
    def test_what_is_no_log(self, tmp_path: Path, text: str, complaint: str) -> None:
        (tmp_path / "log").write_text(text, "utf-8")
        with pytest.raises(penstock.BadInputError, match=complaint):
            penstock.advise(tmp_path / "log")

    def test_a_checkpoint_and_where_its_topic_ends(self, tmp_path: Path) -> None:
        """Batches of 1,000, 2,000 and 3,000 rows that take 1, 2 and 3 s on one slot: 1 ms a row."""
        offsets = tmp_path / "checkpoint" / "offsets"
        offsets.mkdir(parents=True)
        at, total = 1_000_000, 0
        for number, rows in enumerate([0, 1000, 2000, 3000, 500]):
            total += rows
            ends = json.dumps({"in": {"0": total, "1": 0}})
            (offsets / str(number)).write_text(f'v1\n{{"batchTimestampMs":{at}}}\n{ends}', "utf-8")
            at += max(rows, 1)
        (tmp_path / "ends.json").write_text('{"in": {"0": 16500, "1": 0}}', "utf-8")
        with pytest.raises(penstock.BadInputError, match="give slots="):
            penstock.advise(offsets.parent)
        (found,) = penstock.advise(
            offsets.parent, slots=1, end_offsets=tmp_path / "ends.json", rate=1200, latency_ms=20_000
        )
        assert found.advice.most_rate_now == pytest.approx(1000)
        assert found.advice.needed_slots == 2
        # 10,000 rows wait; two slots do 2,000/s of which 800 are to spare
        assert found.advice.catch_up_seconds == pytest.approx(12.5)

    def test_other_offsets_do_not_tell(self, tmp_path: Path) -> None:
        offsets = tmp_path / "offsets"
        offsets.mkdir()
        (offsets / "0").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":3}', "utf-8")
        with pytest.raises(penstock.BadInputError, match="not Kafka's offsets"):
            penstock.advise(tmp_path, slots=1)

    def test_sparks_own_metrics(self) -> None:
        name = "metrics_app_1_driver_spark_streaming_counts"
        text = (
            f"{name}_inputRate_total_Value{{}} 500.0\n{name}_processingRate_total_Value{{}} 1000.0\n"
            f"{name}_latency_Value{{}} 800\n{name}_states_rowsTotal_Value{{}} 12\nother 1\n"
        )
        (sample,) = samples_of(text)
        seen = batches_of_samples([(10.0, sample), (10.5, sample)], slots=4)
        assert [(batch.rows, batch.seconds, batch.slots) for batch in seen] == [(800, 0.8, 4)]
        executors = (
            'metrics_executor_totalCores{executor_id="driver"} 0\nmetrics_executor_totalCores{executor_id="1"} 3\n'
        )
        assert cores_of(executors) == 3
