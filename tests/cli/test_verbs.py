"""Every verb, for people and for programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from outcome import Outcome, Penstock

from penstock.cli.commands.cluster_plans import BESIDE
from penstock.cli.main import app
from penstock.planning.registry import ALLOCATORS, PLACERS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("allocator", "rate", "allocated", "with_ends"),
    [
        ("lsa", 50, 7, 7),
        ("lsa", 100, 13, 13),
        ("lsa", 200, 25, 26),
        ("mba", 50, 4, 4),
        ("mba", 100, 7, 7),
        ("mba", 200, 14, 15),
    ],
)
def test_plan_prints_the_published_slots(
    penstock: Penstock, allocator: str, rate: int, allocated: int, with_ends: int
) -> None:
    outcome = penstock("plan", "linear", "--rate", rate, "--allocator", allocator, "--json")
    assert outcome.code == 0
    slots = outcome.document["slots"]
    assert (slots["allocated"], slots["allocated_with_ends"]) == (allocated, with_ends)


def test_plan_json_has_the_agreed_keys(penstock: Penstock) -> None:
    document = penstock("plan", "linear", "--rate", 100, "--json").document
    assert {
        "pipeline",
        "rate",
        "allocator",
        "placer",
        "operators",
        "slots",
        "nodes",
        "placement",
        "prediction",
        "bounds",
        "price_per_hour",
    } <= set(document)
    assert set(document["operators"]["B"]) == {"rate", "threads", "cpu", "memory"}
    assert set(document["nodes"][0]) == {"name", "rack", "size", "slots", "price"}
    assert set(document["placement"][0]) == {"node", "slot", "threads"}
    assert {"rate", "slots", "latency_ms"} <= set(document["prediction"])
    assert set(document["prediction"]["latency_ms"]) == {"p50", "p95", "p99"}
    assert set(document["prediction"]["fused"]) == {"rate", "latency_ms", "batch_tuples"}


def test_plan_for_people_names_every_operator_and_the_price(penstock: Penstock) -> None:
    out = penstock("plan", "star", "--rate", 50).out
    assert all(name in out for name in ("source", "B", "T", "X", "P", "F", "sink", "USD per hour", "slot-aware"))


def test_plan_tells_runs_that_are_placed_from_fused_ones(penstock: Penstock) -> None:
    out = penstock("plan", "linear", "--rate", 50, "--utilisation", 0.5).out
    assert "tuples/s placed, with slot-aware routing" in out
    assert re.search(r"predicted  [\d.]+ tuples/s fused on \d+ slots, in batches of \d+\n", out)
    assert re.search(r"latency    placed: p50 .* ms \(estimate for slot-aware routing\)\nlatency    fused: p50 ", out)
    # seven slots are enough for 100/s placed; fused batches take more of them, and the plan finds how many
    out = penstock("plan", "linear", "--rate", 100).out
    assert "7 for the operators" in out
    assert "tuples/s placed, with slot-aware routing (limited by B)\n" in out
    assert re.search(r"tuples/s fused on 11 slots, in batches of 242\nlatency    placed: ", out)


def test_plan_explains_threads_and_slots(penstock: Penstock) -> None:
    out = penstock("plan", "linear", "--rate", 100, "--explain").out
    assert "3 full slots for 90/s, then 20 threads for the remaining 10/s" in out
    assert "the next empty slot, for itself" in out
    reasons = penstock("plan", "linear", "--rate", 100, "--explain", "--json").document["reasons"]
    assert all(bundle["reason"] for bundle in reasons["bundles"])


@pytest.mark.parametrize("placer", PLACERS.names())
def test_every_placer_gives_a_reason_for_every_bundle(penstock: Penstock, placer: str) -> None:
    words = ("plan", "diamond", "--rate", 50, "--placer", placer, "--explain", "--json")
    assert all(bundle["reason"] for bundle in penstock(*words).document["reasons"]["bundles"])


def test_plan_compares_every_pair(penstock: Penstock) -> None:
    document = penstock("plan", "diamond", "--rate", 50, "--compare", "--json").document
    pairs = {(plan["allocator"], plan["placer"]) for plan in document["plans"]}
    assert len(pairs) == len(document["plans"]) == len(ALLOCATORS.names()) * len(PLACERS.names())
    assert {allocator for allocator, _ in pairs} == set(ALLOCATORS.names())
    table = penstock("plan", "diamond", "--rate", 50, "--compare", "--allocator", "mba").out
    assert table.count("mba") == len(PLACERS.names())


def test_plan_writes_a_plan_file_and_a_picture(penstock: Penstock, tmp_path: Path) -> None:
    plan, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    outcome = penstock("plan", "linear", "--rate", 50, "-o", plan, "--plot", picture)
    assert outcome.code == 0
    assert json.loads(plan.read_text())["rate"] == 50
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "plan.png"]


def test_capacity_of_twenty_slots(penstock: Penstock) -> None:
    words = ("capacity", "linear", "--cluster", EXAMPLES / "cluster.yaml", "--json", "--step", 40)
    document = penstock(*words, "--placer", "sam").document
    assert document["slots"] == 20
    assert set(document["rates"]) == {f"{allocator}+sam" for allocator in ALLOCATORS.names()}
    assert (document["rates"]["mba+sam"], document["rates"]["lsa+sam"]) == (280, 160)
    assert document["placed"]["mba+sam"] == 280
    assert document["predicted"]["mba+sam"] >= 280


def test_capacity_is_that_of_every_pair_unless_said(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("nodes: [{slots: 2}]")
    words = ("capacity", "linear", "--cluster", tmp_path / "one.yaml", "--step", 20)
    found = penstock(*words, "--json").document["rates"]
    assert list(found) == [f"{one}+{other}" for one in ALLOCATORS.names() for other in PLACERS.names()]
    assert "joint+compact" in penstock(*words, "--placer", "compact").out


def test_place_prints_the_costs_side_by_side(penstock: Penstock) -> None:
    document = penstock("cluster", "place", EXAMPLES / "whole-cluster.yaml", "--json", "--full").document
    assert document["placer"] == "compact"
    assert document["placed"] == ["billing", "vision"]
    assert document["refused"] == {}
    assert document["hard_violations"] == 0
    assert document["soft_overload"] == 0
    assert set(document["beside"]) == {"r-storm", "round-robin", "random"}
    threads = [row["threads"] for row in document["placement"]["billing"]]
    assert sum(row.get("rate", 0) for row in threads) == 6
    for_people = penstock("cluster", "place", EXAMPLES / "whole-cluster.yaml", "--full").out
    assert "network cost" in for_people
    assert "vision" in for_people


def test_place_exits_with_1_when_a_pipeline_is_refused(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "nodes: [{slots: 4, memory_mb: 1000, cpu: 400}]\n"
        "pipelines:\n"
        "  - {name: fits, priority: 2, operators: [{name: a, kind: source, threads: 2, cpu: 10, memory_mb: 100}]}\n"
        "  - {name: too-big, priority: 1, operators: [{name: b, kind: source, threads: 2, cpu: 10, memory_mb: 2000}]}\n"
    )
    outcome = penstock("cluster", "place", file, "--json")
    assert outcome.code == 1
    assert outcome.document["placed"] == ["fits"]
    assert "operator 'b' needs 2000 memory_mb" in outcome.document["refused"]["too-big"]


def test_plans_and_placements_keep_what_runs(penstock: Penstock, tmp_path: Path) -> None:
    now = tmp_path / "now.json"
    assert penstock("plan", "linear", "--rate", "100", "-o", now).code == 0
    # with the groupings declared the plan without moves does 90 tuples/s; the fresh one keeps the rate
    outcome = penstock("plan", "linear", "--rate", "105", "--current", now)
    assert outcome.code == 0
    assert "considered fewest moves: 90 tuples/s on 8 slots, 0 threads move\n" in outcome.out
    document = penstock("plan", "linear", "--rate", "105", "--current", now, "--json").document
    assert [(plan["name"], plan["chosen"]) for plan in document["considered"]] == [
        ("fewest moves", False),
        ("fresh", True),
    ]
    assert (document["allocator"], document["placer"]) == ("mba", "sam")
    missed = penstock("plan", "linear", "--rate", "200", "--current", now)
    assert missed.code == 1
    assert "missed     165 of 200 tuples/s" in missed.out
    assert penstock("plan", "linear", "--rate", "105", "--current", now, "--compare").code == 2
    nodes = [{"count": 2, "slots": 4, "cpu": 400, "memory_mb": 8000}]
    pipeline = {"name": "p", "operators": [{"name": "s", "kind": "source", "threads": 4, "cpu": 100, "memory_mb": 500}]}
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": nodes, "pipelines": [pipeline]}))
    placed = penstock("cluster", "place", tmp_path / "cluster.json", "--no-compare", "--json", "--full")
    (tmp_path / "placed.json").write_text(placed.out)
    words = ("place", tmp_path / "cluster.json", "--no-compare", "--current", tmp_path / "placed.json")
    assert penstock(*words, "--json").document["moves"]["p"] == {"kept": 4, "moved": 0, "started": 0, "stopped": 0}
    assert "0 threads move, 4 stay" in penstock(*words).out


def test_diff_says_what_moves(penstock: Penstock, tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    penstock("plan", "linear", "--rate", 100, "-o", before)
    penstock("plan", "linear", "--rate", 200, "-o", after)
    document = penstock("plans", "diff", before, after, "--json").document
    # B: 3 full bundles of 50 and one of 20 for 100/s; 6 full bundles and one of 30 (T(20) = 30) for 200/s.
    assert document["operators"]["B"]["before"] == 170
    assert document["operators"]["B"]["after"] == 6 * 50 + 30
    assert "threads move" in penstock("plans", "diff", before, after).out
    assert penstock("plans", "diff", before, before, "--json").document["threads_moved"] == 0


def test_init_writes_a_project_once(penstock: Penstock, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    first = penstock("init", folder)
    assert first.code == 0
    assert "penstock profile orders:pipeline" in first.out
    again = penstock("init", folder)
    assert again.code == 2
    assert "already there" in again.err


def test_models_are_listed_shown_drawn_and_imported(penstock: Penstock, tmp_path: Path) -> None:
    assert "azure_blob" in penstock("models").out
    assert "derived" in penstock("models", "show", "azure_blob").out
    assert len(penstock("models", "show", "pi", "--json").document["models"]["pi"]["points"]) == 2
    picture = tmp_path / "models.svg"
    assert penstock("models", "plot", "pi", "azure_blob", "-o", picture).code == 0
    assert "azure_blob" in picture.read_text()
    imported = tmp_path / "geocode.json"
    assert penstock("models", "import", EXAMPLES / "models.csv", "-o", imported).code == 0
    shown = penstock("models", "show", "geocode", "--models", imported, "--json").document
    assert shown["models"]["geocode"]["points"][0] == {
        "threads": 1,
        "rate": 12.0,
        "cpu": 0.08,
        "memory": 0.05,
        "rate_spread": 1.0,
    }


def test_profiles_are_listed_shown_and_converted(penstock: Penstock) -> None:
    given = ("--models", EXAMPLES / "profiles.json")
    assert "what needs most threads" in penstock("models", *given).out
    assert set(penstock("models", *given, "--json").document["profiles"]) == {"spout", "parse", "split", "count"}
    shown = penstock("models", "show", "split", *given, "--json").document
    assert shown == {
        "format": 1,
        "profiles": {
            "split": {
                "sojourn_seconds": 0.0005,
                "processing_cpu": 0.05,
                "moving_cpu": 0.02,
                "memory_mb": 0.1,
                "bound": "cpu",
            }
        },
    }
    # a core does 100 / 0.05 = 2000/s
    converted = penstock("models", "show", "split", *given, "--as", "model", "--json").document["models"]["split"]
    assert [(point["threads"], point["rate"]) for point in converted["points"]] == [(1, 2000)]
    # pi: one thread does 105/s
    costs = penstock("models", "show", "pi", "--as", "profile", "--json").document["profiles"]["pi"]
    assert costs["sojourn_seconds"] == pytest.approx(1 / 105)
    assert "unknown: a slot model's trials" in penstock("models", "show", "pi", "--as", "profile").out
    unknown = penstock("models", "show", "spill", *given)
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)


def test_a_plan_from_profiles(penstock: Penstock) -> None:
    def plan(rate: int, placer: str, *more: object) -> Outcome:
        policies = ("--allocator", "profiled", "--placer", placer)
        models = ("--models", EXAMPLES / "profiles.json")
        return penstock("plan", EXAMPLES / "word-count.yaml", "--rate", rate, *models, *policies, *more)

    out = plan(1000, "packing", "--explain").out
    assert "cpu-bound by 'split': 1000/s x 0.0005 threads per tuple/s = 1 thread of 50 to 150 points" in out
    assert plan(1000, "packing:nodes=1", "--cluster", EXAMPLES / "cluster.yaml").code == 0
    large = plan(3000, "packing:nodes=1", "--cluster", EXAMPLES / "cluster.yaml", "--json")
    assert large.code == 1
    assert "needs 2 nodes, closest is the budget with 1" in large.document["refused"]


def test_place_packs(penstock: Penstock) -> None:
    document = penstock("cluster", "place", EXAMPLES / "whole-cluster.yaml", "--placer", "packing", "--json").document
    assert document["placed"] == ["billing", "vision"]
    assert (document["hard_violations"], document["soft_overload"]) == (0, 0)


def test_spread_of_the_trials_becomes_a_range(penstock: Penstock, tmp_path: Path) -> None:
    models = tmp_path / "geocode.json"
    penstock("models", "import", EXAMPLES / "models.csv", "-o", models)
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(
        "name: p\noperators: {s: {kind: source}, geocode: {}, o: {kind: sink}}\n"
        "streams: [{from: s, to: geocode}, {from: geocode, to: o}]\n"
    )
    prediction = penstock("plan", pipeline, "--rate", 30, "--models", models, "--json").document["prediction"]
    # 30/s needs the 4 threads measured at 40 ± 2.
    assert prediction["rate"]["slot_aware"] == 40
    assert prediction["rate_range"]["slot_aware"] == [38, 42]


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys; from penstock.cli.main import run; code = run(sys.argv[1:]);"
        "heavy = {'numpy', 'pydantic', 'yaml', 'matplotlib', 'pyspark', 'rich'} & set(sys.modules);"
        "print(sorted(heavy)); sys.exit(code)"
    )
    for word in ("--help", "--version"):
        done = subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


def test_python_code_can_be_planned(penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flows_of_mine.py").write_text(
        "import penstock\n"
        "p = penstock.pipeline('mine').source('s').then('x', model='pi').sink('o')\n"
        "not_a_pipeline = 3\n"
        "def made(model='pi'): return penstock.pipeline('made').source('s').then('x', model=model).sink('o')\n"
        "def failing(): raise RuntimeError('not today')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert penstock("plan", "flows_of_mine:p", "--rate", 10, "--json").document["pipeline"] == "mine"
    assert penstock("plan", "flows_of_mine:made", "--rate", 10, "--json").document["pipeline"] == "made"
    assert (
        "'flows_of_mine:failing': RuntimeError: not today" in penstock("plan", "flows_of_mine:failing", "--rate", 1).err
    )
    wrong = penstock("plan", "flows_of_mine:not_a_pipeline", "--rate", 10)
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "expected a Pipeline" in wrong.err


def test_segments_for_people_and_programs(penstock: Penstock) -> None:
    document = penstock("plans", "segments", "star", "--segmenter", "ccr:overhead_us=20000", "--json").document
    assert document["segments"] == [["source"], ["B"], ["T"], ["X", "P", "F", "sink"]]
    assert {"from": "B", "to": "X"} in document["channels"]
    assert "channels   none" in penstock("plans", "segments", "star", "--segmenter", "whole").out


def test_rewrite_writes_a_pipeline_that_can_be_planned(penstock: Penstock, tmp_path: Path) -> None:
    pipeline, models, given = tmp_path / "new.json", tmp_path / "models.json", tmp_path / "given.json"
    given.write_text(
        json.dumps(
            {
                "name": "busy",
                "operators": {
                    "s": {"kind": "source"},
                    "a": {"model": "parse_xml"},
                    "b": {"model": "pi"},
                    "k": {"kind": "sink"},
                },
                "streams": [
                    {"from": "s", "to": "a", "bytes": 1},
                    {"from": "a", "to": "b", "bytes": 1000000},
                    {"from": "b", "to": "k", "bytes": 1},
                ],
            }
        )
    )
    outcome = penstock("plans", "rewrite", given, "--rate", 50, "-o", pipeline, "--models-output", models)
    assert "a, b fused into a+b" in outcome.out
    assert penstock("plan", pipeline, "--rate", 50, "--models", models, "--json").document["operators"]["a+b"]
    assert penstock("plans", "rewrite", "linear", "--rate", 50, "-o", tmp_path / "new.yaml").code == 2


def test_plan_from_the_current_one_says_how_many_threads_move(penstock: Penstock, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    assert penstock("plan", "linear", "--rate", 50, "--placer", "eft", "-o", before).code == 0
    words = ("plan", "linear", "--rate", 50, "--placer", "eft", "--current", before)
    assert penstock(*words, "--json").document["moves"]["moved"] == 0
    assert "0 threads move" in penstock(*words).out
    outcome = penstock(*words, "--move-cost", 1)
    assert outcome.code == 2
    assert "placer 'eft' weighs moves by its own rule" in outcome.err
    assert penstock("plan", "linear", "--rate", 50, "--move-cost", 1).code == 2


def test_place_compares_with_every_placer_of_whole_clusters(penstock: Penstock) -> None:
    document = penstock("cluster", "place", EXAMPLES / "whole-cluster.yaml", "--compare", "--json").document
    assert {document["placer"], *document["beside"]} == {
        name for name in PLACERS.names() if PLACERS.create(name).whole_cluster
    }
    assert set(penstock("cluster", "place", EXAMPLES / "whole-cluster.yaml", "--json").document["beside"]) == set(
        BESIDE
    )
    assert (
        "beside" not in penstock("cluster", "place", EXAMPLES / "whole-cluster.yaml", "--no-compare", "--json").document
    )


def test_comparing_goes_on_where_a_placer_knows_a_resource_not(penstock: Penstock, tmp_path: Path) -> None:
    pipeline, cluster = tmp_path / "gpu.yaml", tmp_path / "cluster.yaml"
    pipeline.write_text(
        "name: gpu\noperators:\n  s: {kind: source}\n  d: {threads: 2, cpu: 50, memory_mb: 100, resources: {gpu: 1}}\n"
        "streams:\n  - {from: s, to: d}\n"
    )
    cluster.write_text("nodes: [{slots: 4, resources: {gpu: 2}}]\n")
    words = ("plan", pipeline, "--rate", 5, "--cluster", cluster)
    plans = penstock(*words, "--compare", "--allocator", "mba", "--json").document["plans"]
    refused = {plan["placer"]: plan["refused"] for plan in plans if "refused" in plan}
    assert set(refused) == {name for name in PLACERS.names() if not PLACERS.create(name).keeps_resources}
    assert "operator 'd' demands gpu, and placer 'sam' knows only cpu and memory" in refused["sam"]
    assert penstock(*words, "--placer", "sam").code == 2


def test_rewrite_does_not_write_two_things_into_one_file(penstock: Penstock, tmp_path: Path) -> None:
    words = ("rewrite", "linear", "--rate", 10, "-o", tmp_path / "a.json", "--models-output", tmp_path / "a.json")
    outcome = penstock(*words)
    assert outcome.code == 2
    assert "--output and --models-output both name" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_place_explains_and_says_why_not(penstock: Penstock) -> None:
    example = EXAMPLES / "constrained-cluster.yaml"
    outcome = penstock("cluster", "place", example, "--json", "--no-compare", "--why-not", "trial")
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert found["placed"] == ["orders"]
    assert found["constraints_broken"] == 0
    assert found["explain"]["trial"]["cause"] == "constraint"
    assert found["explain"]["trial"]["changes"] == [
        "constraint most_per_node of 'read' dropped",
        "1 of its 3 threads fewer, every operator cut alike",
        "1 more node of 400 cpu, 16384 memory_mb, labels ssd",
    ]
    told = penstock("cluster", "place", example, "--no-compare", "--explain").out
    assert "orders: placed: 8 threads" in told
    assert "would get in with" in told


def test_place_with_nodes_excluded_by_hand(penstock: Penstock) -> None:
    example = EXAMPLES / "whole-cluster.yaml"
    document = penstock("cluster", "place", example, "--json", "--full", "--exclude", "n1").document
    assert all(row["node"] != "n1" for rows in document["placement"].values() for row in rows)
    unknown = penstock("cluster", "place", example, "--exclude", "n9")
    assert (unknown.code, "node 'n9' does not exist" in unknown.err) == (2, True)
    nobody = penstock("cluster", "place", example, "--why-not", "nobody")
    assert nobody.code == 2
    assert "--why-not: unknown pipeline 'nobody'; known: billing, vision" in nobody.err


def test_place_current_evicts_and_keeps_the_rest(penstock: Penstock, tmp_path: Path) -> None:
    # One node of 400 points: low takes 300, and must go for urgent's 200; small's 100 stay.
    def pipeline(name: str, priority: int, threads: int) -> dict[str, object]:
        operator = {"name": "o", "threads": threads, "cpu": 100, "memory_mb": 10}
        return {"name": name, "priority": priority, "operators": [operator]}

    nodes = [{"slots": 4, "cpu": 400, "memory_mb": 4000}]
    there = [pipeline("low", 9, 3), pipeline("small", 5, 1)]
    (tmp_path / "before.json").write_text(json.dumps({"nodes": nodes, "pipelines": there}))
    running = penstock("cluster", "place", tmp_path / "before.json", "--json", "--full", "--no-compare").out
    (tmp_path / "running.json").write_text(running)
    after = {"nodes": nodes, "pipelines": [*there, pipeline("urgent", 1, 2)]}
    (tmp_path / "after.json").write_text(json.dumps(after))
    outcome = penstock(
        "place", tmp_path / "after.json", "--current", tmp_path / "running.json", "--json", "--full", "--no-compare"
    )
    found = json.loads(outcome.out)
    assert outcome.code == 1
    assert set(found["placed"]) == {"small", "urgent"}
    assert "gave way to 'urgent'" in found["evicted"]["low"]
    assert found["placement"]["small"] == json.loads(running)["placement"]["small"]


def test_the_list_of_verbs_is_that_of_the_verbs_with_their_options(penstock: Penstock) -> None:
    """`--help` leaves out the options of verbs to be quick; what it prints is the same."""
    context = typer.Context(typer.main.get_command(app), info_name="penstock")
    assert penstock("--help").out.split() == context.get_help().split()


def test_help_names_every_policy(penstock: Penstock) -> None:
    """Help is written out, because to ask the registries for it would load numpy."""
    text = "".join(penstock("plan", "--help").out.split())
    assert [name for name in (*ALLOCATORS.names(), *PLACERS.names()) if name not in text] == []
