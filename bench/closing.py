"""When closed windows leave: predicted by window, lateness and batches, and seen by a sink.

    python bench/closing.py [--models FILE] [--part P] [--seconds S] [--json]

The window of `unseen.py` over skewed keys, at a part of the rate its profile predicts. The sink notes when rows of a
window come; the tuples of a window are taken to have been due evenly over it. The later half of the windows counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import penstock
from penstock.base.clock import now
from penstock.engines.fused.preparation import prepare
from penstock.planning.prediction.placement import closing_seconds
from penstock.runs.config import RunConfig
from unseen import WINDOWS, keyed, unseen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MORE_THAN_ANY = 1e9
WARM_UP_SECONDS = 15.0
PARTS = 50
"""A window's tuples are stood for by so many."""

closed: dict[float, float] = {}
"""By the end of a window: when its rows came."""


def note(frame: DataFrame, _: int) -> None:
    rows = frame.select("window_end").distinct().collect()
    closed.update({row["window_end"]: now() for row in rows})


def noted() -> penstock.Pipeline:
    """The pipeline that was profiled, with another sink."""
    built = penstock.pipeline("windows").source("load")
    built = built.then("key", logic=keyed, schema="key string, amount double").then("sum", aggregate=WINDOWS)
    return built.sink("out", write=note).build()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--part", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    models = given.models or Path(tempfile.mkdtemp()) / "models.json"
    penstock.profile(unseen()["windows"], models, quick=True)
    most = prepare(unseen()["windows"], RunConfig(rate=MORE_THAN_ANY, models=models)).predicted_rate or 0.0
    rate = round(given.part * most)
    setup = prepare(noted(), RunConfig(rate=rate, models=models)).setup
    steady = None if setup is None else setup.steady_batch(rate, RunConfig().batch_interval_ms / 1000)
    aggregate = noted().operators["sum"].aggregate
    if steady is None or aggregate is None:
        raise SystemExit(f"{rate:,} tuples/s are more than is predicted")
    penstock.run(noted(), rate, seconds=given.seconds, warm_up=WARM_UP_SECONDS, models=models)
    width = aggregate.window_seconds or 0.0
    # while Java compiles, batches take several times as long as later, and their tuples wait
    counted = sorted(closed)[len(closed) // 2 :]
    waits = [closed[end] - end + width * (part + 0.5) / PARTS for end in counted for part in range(PARTS)]
    predicted, measured = closing_seconds(aggregate, *steady), median(waits)
    figures = {
        "rate": rate,
        "windows": len(counted),
        "predicted_seconds": predicted,
        "measured_seconds": measured,
        "error": predicted / measured - 1,
    }
    print(json.dumps(figures, indent=2) if given.json else "\n".join(f"{k:20} {v:,.3f}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
