"""Measure the models that ship for built-in pipelines with aggregations, windows, ranks, joins and service times.

    python bench/profile_applications.py [NAME ...] --folder FOLDER [--budget S] [--json]
    python bench/profile_applications.py --folder FOLDER --collect FILE [--json]

The first form runs `penstock profile` for each pipeline, into one model file each, and goes on with files that are
there. The second writes the file of the package from them: figures are rounded, and the CPU's name and the
fingerprints of machines are left out. Operators of Spark's own that were measured while others used the machine are
not taken. `operators` is how many were measured, `disturbed` how many of them while others
used more than a tenth of the machine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import penstock
from penstock.base.files import write_output
from penstock.dataflow.logic import Per
from penstock.modelling.library import QUIET, models_document, read_models
from penstock.modelling.model import Model

PROFILED: dict[str, list[str] | None] = {
    "word-count": ["count"],
    "word-count-json": ["count"],
    "top-n": ["count", "rank", "rank-all"],
    "twitter-sentiment": ["average", "count", "rank", "rank-all"],
    "page-load": ["aggregate"],
    **{f"nexmark-q{number}": ["query"] for number in (3, 4, 5, 7, 8)},
    **dict.fromkeys(("event-tp", "archival-tp", "tp1", "tp2")),
}
"""Operators to measure, by pipeline; None: all, and the pipeline as a whole. `application_models.py` measures the
others."""
HOW = "measured: penstock profile {pipeline} --quick; rounded"
DIGITS = 3
"""Figures that count."""


def rounded(value: Any) -> Any:
    """Return the value with every number of it rounded."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


def shipped(model: Model, pipeline: str) -> Model:
    """Return a model as the package has it."""
    how = dict.fromkeys(("rate", "cpu", "memory"), HOW.format(pipeline=pipeline))
    points = [
        point.model_validate(
            {**rounded(point.model_dump(exclude_none=True)), "provenance": {**how, **(point.provenance or {})}}
        )
        for point in model.points
    ]
    on = model.measured_on
    what = f"{on.what}, on a virtual machine"
    rest = {**rounded(on.model_dump(exclude_none=True, exclude={"cpu"})), "slot_memory_mb": on.slot_memory_mb}
    measured_on = on.model_validate({**rest, "what": what})
    return Model(model.name, tuple(points), measured_on)


def is_drowned(model: Model) -> bool:
    """Return whether others used so much of the machine that the difference of two streams, which is what is known of
    Spark's own operators, is noise."""
    on = model.measured_on
    return on.per is Per.DATAFRAME and (on.others_cpu or 0.0) > QUIET


def collect(folder: Path, file: Path) -> list[Model]:
    """Write the models of all profiles of a folder."""
    models: dict[str, Model] = {}
    for name in PROFILED:
        if (folder / f"{name}.json").exists():
            measured = read_models(folder / f"{name}.json")
            models |= {model.name: shipped(model, name) for model in measured if not is_drowned(model)}
    about = "Operators of built-in pipelines. Measure them on your machine with: penstock profile NAME -o models.json"
    write_output(file, json.dumps(models_document(models.values(), about), indent=1) + "\n")
    return list(models.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROFILED)}; default: all")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--collect", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.collect is not None:
        models = collect(given.folder, given.collect)
    else:
        models = []
        for name in given.names or PROFILED:
            measured = penstock.profile(
                name, given.folder / f"{name}.json", operators=PROFILED[name], quick=True, budget_seconds=given.budget
            )
            models += measured
            if not given.json:
                print(f"{name}: {len(measured)} operators")
    disturbed = sum((model.measured_on.others_cpu or 0.0) > QUIET for model in models)
    print(json.dumps({"operators": len(models), "disturbed": disturbed}))


if __name__ == "__main__":
    main()
