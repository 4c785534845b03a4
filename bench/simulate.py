"""How fast the simulator is: Linear on 20 slots, the same system in SimPy, and the real cluster that ships.

    python bench/simulate.py [--seconds S] [--simpy-seconds S] [--repeat N] [--skip-cluster]

Times are of one core: CPU seconds of this process (and seconds by the clock beside them), the best of N runs. A
tuple-hop is one tuple processed by one operator other than a source. SimPy models the same stations, dealing and
delays, one process per tuple; it is asked for less time, and both must report the same numbers for that time.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

import penstock
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT
from penstock.dataflow.load import Load
from penstock.modelling.library import demands_of
from penstock.planning.files import read_whole_cluster
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.prediction.placement import Routing
from penstock.planning.whole_cluster import place_all
from penstock.simulation.array_engine import simulate_arrays
from penstock.simulation.event_engine import simulate_events
from penstock.simulation.from_plan import Options, from_plan
from penstock.simulation.layout import Emission, layout
from penstock.simulation.scenario import NANOSECONDS, Scenario, SimulatedPipeline, SimulatedRoute, Station

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from penstock.planning.placement.contract import Placement, PlacementRequest
    from penstock.simulation.layout import StageLayout
    from penstock.simulation.outcome import SimulationOutcome

LINEAR_PLANNED = 280.0
LINEAR_RATE = 270.0
CLUSTER_RATE = 1000.0
"""Tuples/s of every pipeline of the real cluster: the file says what threads need, not how fast tuples come."""
DECLARED_RATE = CLUSTER_RATE / 0.9
"""What threads declare is enough for a little more."""


def timed(what: Callable[[], Any], repeat: int) -> tuple[Any, float, float]:
    """The answer, and the fewest CPU seconds and seconds by the clock."""
    cpu, clock = [], []
    for _ in range(repeat):
        start, began = time.process_time(), time.perf_counter()
        answer = what()
        cpu.append(time.process_time() - start)
        clock.append(time.perf_counter() - began)
    return answer, min(cpu), min(clock)


def linear(seconds: float) -> Scenario:
    """What MBA and SAM plan for 280 tuples/s: 20 slots; dealt slot-aware."""
    plan = penstock.plan("linear", LINEAR_PLANNED)
    demands = demands_of(plan.pipeline, penstock.models())
    pipeline = from_plan(plan, demands, LINEAR_RATE, Options(Routing.SLOT_AWARE))
    return Scenario(plan.cluster, (pipeline,), seconds)


class SimPyModel:
    """A process per tuple that asks for a thread of its station at every operator."""

    def __init__(self, scenario: Scenario) -> None:
        self.env = simpy.Environment()
        self.pipeline = scenario.pipelines[0]
        self.length = round(scenario.seconds * NANOSECONDS)
        self.found: StageLayout = layout(self.pipeline, self.pipeline.stations, scenario, 0)
        self.threads = [
            [simpy.Resource(self.env, capacity=station.threads) for station in stage.stations]
            for stage in self.found.stages
        ]
        self.latencies: list[int] = []
        self.hops = 0
        self.emission = Emission(self.pipeline.load, self.pipeline.arrivals, np.random.default_rng(0), self.length)

    def source(self) -> Generator[Any, Any, None]:
        while len(due := self.emission.take(self.length, 10_000)):
            for moment in due.tolist():
                yield self.env.timeout(moment - self.env.now)
                self.env.process(self.tuple(moment))

    def tuple(self, born: int) -> Generator[Any, Any, None]:
        position, station = self.found.sources[0], 0
        while True:
            stage = self.found.stages[position]
            if stage.service[station]:
                with self.threads[position][station].request() as thread:
                    yield thread
                    yield self.env.timeout(int(stage.service[station]))
            if not stage.source:
                self.hops += 1
            if not stage.outputs:
                self.latencies.append(int(self.env.now) - born)
                return
            lane = stage.outputs[0]
            target = lane.dealer.next_target(station)
            delay = int(lane.delays[station, target])
            if delay:
                yield self.env.timeout(delay)
            position, station = lane.receiver, target

    def run(self) -> SimPyModel:
        self.env.process(self.source())
        self.env.run(until=self.length)
        return self


def figures(latencies: Sequence[float]) -> str:
    milliseconds = np.array(latencies) * 1000
    return f"{len(latencies)} completed, latency mean {milliseconds.mean():.6f} ms, largest {milliseconds.max():.6f} ms"


def compare(seconds: float, simpy_seconds: float, repeat: int) -> None:
    whole = linear(seconds)
    outcome: SimulationOutcome
    outcome, cpu, clock = timed(lambda: simulate_arrays(whole), repeat)
    speed = outcome.hops / cpu
    print(f"Linear on {len(whole.cluster.slots)} slots, {LINEAR_RATE:g} tuples/s, {seconds:g} s simulated")
    print(f"  arrays   {outcome.hops:>10} hops {cpu:8.3f} s CPU {clock:8.3f} s: {speed / 1e6:.2f} million hops/s")
    short = linear(simpy_seconds)
    by_events, cpu, clock = timed(lambda: simulate_events(short), 1)
    rate = by_events.hops / cpu
    print(f"  events   {by_events.hops:>10} hops {cpu:8.3f} s CPU {clock:8.3f} s: {rate / 1e6:.3f} million hops/s")
    model, cpu, clock = timed(lambda: SimPyModel(short).run(), 1)
    rate = model.hops / cpu
    print(f"  SimPy    {model.hops:>10} hops {cpu:8.3f} s CPU {clock:8.3f} s: {rate / 1e6:.3f} million hops/s")
    print(f"  arrays / SimPy: {speed / rate:.0f} times as fast")
    ours = np.sort(simulate_arrays(short).pipelines["linear"].latency.sample)
    theirs = np.sort(np.array(model.latencies) / NANOSECONDS)
    print(f"  {simpy_seconds:g} s by arrays: {figures(ours.tolist())}")
    print(f"  {simpy_seconds:g} s by SimPy:  {figures(theirs.tolist())}")
    same = len(ours) == len(theirs) and bool(np.allclose(ours, theirs, rtol=0, atol=1e-9))
    print(f"  the same latencies, tuple by tuple: {'yes' if same else 'NO'}")


def simulated(request: PlacementRequest, placement: Placement) -> SimulatedPipeline:
    """A placed pipeline at CLUSTER_RATE: every operator gets that many tuples/s (over all its input streams), and its
    threads need the CPU they declare at DECLARED_RATE. Operators without input are sources; streams back are left
    out."""
    names = [operator.name for operator in request.operators]
    streams = [pair for pair in dict.fromkeys(request.streams) if pair[0] < pair[1]]
    inputs = {receiver: [a for a, b in streams if b == receiver] for _, receiver in streams}
    demand = {operator.name: operator for operator in request.operators}
    stations = []
    for slot, row in placement.by_slot().items():
        for name, threads in row.items():
            cores = demand[name].demand[0] / CPU_POINTS_PER_SLOT
            cpu = cores * demand[name].threads / DECLARED_RATE
            source = names.index(name) not in inputs
            seconds = 0.0 if source else cpu / max(1.0, cores)
            stations.append(Station(name, slot, threads, seconds, 0.0 if source else cpu))
    return SimulatedPipeline(
        request.pipeline,
        tuple(stations),
        tuple(SimulatedRoute(names[a], names[b], selectivity=1 / len(inputs[b])) for a, b in streams),
        tuple(name for position, name in enumerate(names) if position not in inputs),
        Load.constant(CLUSTER_RATE),
    )


def whole_cluster(repeat: int) -> None:
    path = Path(str(files("penstock.workloads") / "clusters" / "yahoo-1312-nodes.json"))
    whole = read_whole_cluster(path)
    assert whole.cluster.dimensions[0].name == CPU
    placed = place_all(whole.cluster, whole.requests, Compact())
    pipelines = tuple(
        simulated(request, placed.placements[request.pipeline])
        for request, _ in whole.requests
        if request.pipeline in placed.placements
    )
    scenario = Scenario(whole.cluster, pipelines, 60.0, warm_up=20.0, slot_cores=None)
    outcome: SimulationOutcome
    outcome, cpu, clock = timed(lambda: simulate_arrays(scenario), repeat)
    stations = sum(len(pipeline.stations) for pipeline in pipelines)
    stable = sum(seen.stable for seen in outcome.pipelines.values())
    print(f"{len(whole.cluster.nodes)} nodes, {len(pipelines)} pipelines, {stations} stations, a simulated minute")
    print(f"  arrays   {outcome.hops:>10} hops {cpu:8.3f} s CPU {clock:8.3f} s; {stable} pipelines stable")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=7200.0, help="simulated by arrays (default 7200)")
    parser.add_argument("--simpy-seconds", type=float, default=120.0, help="simulated by SimPy (default 120)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument("--skip-cluster", action="store_true", help="only Linear")
    options = parser.parse_args(arguments)
    compare(options.seconds, options.simpy_seconds, options.repeat)
    if not options.skip_cluster:
        whole_cluster(options.repeat)


if __name__ == "__main__":
    main(sys.argv[1:])
