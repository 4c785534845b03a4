"""Calls of every verb that needs no Spark, with files of every kind; what stands in braces is a file, or drawn. Files
behind a bar are there too, where the verb looks by itself."""

from __future__ import annotations

from random import Random

RATES = ("1", "10", "100", "250", "1000", "0.001")
NASTY_RATES = ("0", "-1", "nan", "inf", "1e-300", "1e300", "1e12", "5e-324", "x", "")
LOADS = ("10", "steps:1x5,2x20", "on-off:20,1,1", "trace:{trace}")
NASTY_LOADS = (
    *("1e-300", "1e300", "0", "nan", "on-off:10,1e-300,1e-300", "on-off:10,1e300,1", "steps:1x", "steps:0x0"),
    *("steps:1e300x1", "steps:1e-300x10", "trace:missing.csv", "trace:", "waves:1", "on-off:1"),
)
SECONDS = ("2", "5")
NASTY_SECONDS = ("0", "-1", "nan", "inf", "1e12", "1e-300", "1e300")
STEPS = ("10", "50")
NASTY_STEPS = ("1e-9", "0", "nan", "1e300", "-1", "1e-300")
ALLOCATORS = ("lsa", "mba", "profiled", "per-node", "mba:x=1")
PLACERS = (
    "sam",
    "rsm",
    "r-storm",
    "round-robin",
    "compact",
    "random",
    "packing",
    "eft",
    "balanced-eft",
    "exact",
    "rsm:w=",
)
WHOLE_PLACERS = ("compact", "r-storm", "round-robin", "random", "packing", "eft", "balanced-eft")
POLICIES = (
    *("shared", "isolation", "static-priority", "dynamic-priority", "max-min", "fair-priority", "fair-max-min"),
    "dominant-fair",
)
SEGMENTERS = ("ccr", "whole", "ends", "single", "ccr:delta=1e300", "ccr:overhead_us=-1")
COUNTS = ("1", "12")
NASTY_COUNTS = ("0", "-1", "1000000000000", "x", "1.5")

DRAWN = {
    "rate": (RATES, NASTY_RATES),
    "load": (LOADS, NASTY_LOADS),
    "seconds": (SECONDS, NASTY_SECONDS),
    "step": (STEPS, NASTY_STEPS),
    "allocator": (ALLOCATORS[:-1], ALLOCATORS),
    "placer": (PLACERS[:-1], PLACERS),
    "whole-placer": (WHOLE_PLACERS, WHOLE_PLACERS),
    "policy": (POLICIES, POLICIES),
    "segmenter": (SEGMENTERS[:4], SEGMENTERS),
    "count": (COUNTS, NASTY_COUNTS),
}

CALLS = (
    "plan {pipeline} --rate {rate}",
    "plan {pipeline} --rate {rate} --json -o {out}.json",
    "plan {pipeline} --rate {rate} --allocator {allocator} --placer {placer}",
    "plan {pipeline} --rate {rate} --models {models} --cluster {cluster} --json",
    "plan {pipeline} --rate {rate} --catalogue {catalogue} --explain",
    "plan {plain} --rate {rate} --current {plan} --json",
    "plan {declared} --rate {rate} --cluster {cluster} --placer {placer}",
    "plan {profiled} --rate {rate} --models {profiles} --allocator {allocator}",
    "plan {plain} --rate 20 --batch-interval-ms {rate} --move-cost {rate} --current {plan}",
    "capacity {pipeline} --cluster {cluster} --step {step} --allocator mba --placer rsm --json",
    "place {whole-cluster} --placer {whole-placer} --no-compare",
    "place {whole-cluster} --json --full --no-compare",
    "place {whole-cluster} --current {placement} --no-compare --move-cost {rate}",
    "place {whole-cluster} --explain --no-compare",
    "place {whole-cluster} --why-not vision --no-compare --json",
    "share {tenants} --policy {policy}",
    "share {tenants} --policy {policy} --json --nodes {count}",
    "share {tenants} --compare",
    "diff {plan} {other-plan}",
    "diff {plan} {other-plan} --json",
    "segments {pipeline} --segmenter {segmenter} --rate {rate}",
    "segments {pipeline} --models {models} --json",
    "rewrite {pipeline} --rate {rate} -o {out}.json --models-output {out-2}.json",
    "rewrite {pipeline} --rate 100 --heavier {rate} --busier {rate} --json",
    "simulate {plan} --seconds {seconds} --load {load}",
    "simulate {plan} --seconds {seconds} --json --load {load} --arrivals poisson --service exponential",
    "simulate {plan} {neighbour} --seconds 2 --load 5 --cluster {cluster}",
    "simulate {plan} --seconds 2 --load {load} --measured {measured} --models {models}",
    "simulate {plan} --seconds 2 --load 5 --mode fused --slots {count} --batch-interval-ms {rate} --cores {count}",
    "simulate {plan} --seconds 4 --load 5 --switch {other-plan}@{seconds} --pause {seconds}",
    "simulate {plan} --seconds 4 --load 5 --fail n1@1-{seconds} --replay {seconds} --queue {count}",
    "simulate {plan} --seconds 2 --load 5 --network same-node={rate},bandwidth={rate} --in-flight {count}",
    "simulate {plan} --seconds 2 --find-max --skew {rate}",
    "models --models {models}",
    "models show geocode --models {models} --as profile",
    "models show geocode --models {models} --json",
    "models show parse --models {profiles} --as model",
    "models import {models-csv} -o {out}.json",
    "deploy {plain} --rate {rate} --simulated --rounds 2 --stabilise 2 --read 2 --budget {count} --json",
    "deploy {pipeline} --rate 10 --simulated --models {models} --rounds 1 --stabilise {seconds} --read 2",
    "advise {event-log}",
    "advise {event-log} --json --rate {rate} --latency {rate}",
    "advise {checkpoint-folder}/.. --slots {count} --json",
    "advise {checkpoint-folder}/.. --slots 1 --end-offsets {ends} --price {rate}",
    "drain {run-folder}",
    "drain {run-folder} --stop --json",
    "drain {fused-folder}",
    "rescale {fused-folder} --slots {count}",
    "runs | {fused-folder}",
    "runs --json | {fused-folder}",
    "cluster status --folder {cluster-folder}",
    "cluster status --folder {cluster-folder} --json",
)

NASTY_OPTION = 0.1
"""How often a drawn option is one nobody means."""


def drawn(draw: Random, name: str) -> str:
    usual, strange = DRAWN[name]
    return draw.choice(strange if draw.random() < NASTY_OPTION else usual)
