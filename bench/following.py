"""A pipeline that follows its load on Spark, and the same in simulated time beside it.

    ./run bench following [--json] [--loads step,sine,spike] [--seconds 240] [--simulated-only]

A cluster of four nodes with a slot each; every tuple waits 9.5 ms, so that two cores carry four slots. `step` is three
times the load after a while. For each load, measured and simulated: `..._met_s` seconds from the rise until the backlog
falls, `..._catch_up_s` from the decision until the backlog is gone, `..._predicted_catch_up_s` what the decision said,
`..._slot_hours`, `..._outside_s` seconds with more latency than the target, `..._changes`. Every tuple is looked for in
the files of the sink: `..._lost`, `..._doubled`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock_lab.control.live import LIVE_LOADS, follow_live


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--loads", default=",".join(LIVE_LOADS))
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--simulated-only", action="store_true")
    given = parser.parse_args()
    figures: dict[str, float | None] = {}
    for load in given.loads.split(","):
        for simulated in (True,) if given.simulated_only else (True, False):
            with TemporaryDirectory(prefix="following-") as folder:
                followed = follow_live(load, Path(folder), seconds=given.seconds, simulated=simulated)
            way = "simulated" if simulated else "spark"
            figures.update({f"{load}_{way}_{name}": value for name, value in followed.items()})
            if not given.json:
                print(load, way, {name: value and round(value, 2) for name, value in followed.items()}, flush=True)
    if given.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
