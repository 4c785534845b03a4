"""The worked cases of every published algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters import (
    SLOT_MEMORY_MB,
    Given,
    by_slot,
    cases,
    close,
    cluster,
    demands,
    library,
    model,
    numbered,
    operator_request,
    packing_request,
    packing_room,
    pipeline,
    profile,
    request,
    room,
    traffic,
)
from penstock.base.errors import BadInputError, Refusal
from penstock.cluster.topology import Acquisition, acquire
from penstock.dataflow.pipeline import gains
from penstock.modelling.task_profile import (
    Traffic,
    cpu,
    memory,
    parallelism,
    thread_cpu_range,
    threads_per_tuple,
)
from penstock.planning.allocation.contract import ThreadBundle
from penstock.planning.capacity import capacity
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.placers.packing import OpenNode, Packing, PackingTasks, pack
from penstock.planning.placement.placers.rsm import Rsm
from penstock.planning.planner import Planner, allocate_pipeline
from penstock.planning.prediction.placement import Routing, slot_usage, supported_rate
from penstock.planning.registry import ALLOCATORS, PLACERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.planning.allocation.contract import Allocation


@pytest.mark.parametrize(("given", "expected"), cases("acquire"))
def test_acquire(given: Given, expected: list[int]) -> None:
    rule = Acquisition.EXACT if given.get("exact") else Acquisition.COVER
    assert acquire(given["rho"], given["sizes"], rule) == expected


@pytest.mark.parametrize(("given", "expected"), cases("rates"))
def test_rates(given: Given, expected: dict[str, float]) -> None:
    rates = {name: gain.at(given["omega"]) for name, gain in gains(pipeline(given)).items()}
    assert rates == close(expected)


@pytest.mark.parametrize(("given", "expected"), cases("model_query"))
def test_model_query(given: Given, expected: list[Any]) -> None:
    found = model("case", *given["points"], percent=True)
    answers: dict[str, Callable[[float], Any]] = {
        "I": found.rate,
        "C": lambda threads: 100 * found.cpu(threads),
        "M": lambda threads: 100 * found.memory(threads),
        "T": found.threads_for,
        "peak": lambda _: [found.peak_rate, found.peak_threads],
    }
    for (query, argument), answer in zip(given["queries"], expected, strict=True):
        if answer == "error":
            with pytest.raises(BadInputError, match=r"at most .* tuples/s, asked for"):
                answers[query](argument)
        else:
            assert answers[query](argument) == close(answer), (query, argument)


def allocate(given: Given, allocator: str) -> Allocation:
    return allocate_pipeline(
        pipeline(given), given["omega"], demands(given), ALLOCATORS.create(allocator), SLOT_MEMORY_MB
    )


@pytest.mark.parametrize(("given", "expected"), cases("lsa"))
def test_lsa(given: Given, expected: dict[str, Any]) -> None:
    allocation = allocate(given, "lsa")
    # The cases count sources and sinks in.
    assert allocation.slots_with_sources_and_sinks == expected["slots"]
    for name, task in expected["tasks"].items():
        found = allocation.operator(name)
        assert found.threads == task["threads"]
        assert (100 * found.cpu, 100 * found.memory) == close((task["cpu"], task["mem"]))


@pytest.mark.parametrize(("given", "expected"), cases("mba"))
def test_mba(given: Given, expected: dict[str, Any]) -> None:
    allocation = allocate(given, "mba")
    assert allocation.slots_with_sources_and_sinks == expected["slots"]
    for name, task in expected["tasks"].items():
        found = allocation.operator(name)
        partial = next((bundle for _, bundle in found.bundles if not bundle.exclusive), ThreadBundle(0, 0.0, 0.0))
        assert found.threads == task["threads"]
        assert (100 * found.cpu, 100 * found.memory) == close((task["cpu"], task["mem"]))
        assert sum(count for count, bundle in found.bundles if bundle.exclusive) == task["full"]
        assert partial.threads == task["partial_threads"]
        assert (100 * partial.cpu, 100 * partial.memory) == close((task["partial_cpu"], task["partial_mem"]))


@pytest.mark.parametrize(("given", "expected"), cases("plan"))
def test_plan(given: Given, expected: float) -> None:
    offer = cluster([given["slots"]])
    planner = Planner(pipeline(given), library(given), offer)
    allocator, step = ALLOCATORS.create(given["algorithm"]), given.get("step", 10)
    found = capacity(planner, offer, allocator, PLACERS.create("round-robin"), step)
    assert found.allocated == expected


@pytest.mark.parametrize(("given", "expected"), cases("predict_rate"))
def test_predict_rate(given: Given, expected: dict[str, Any]) -> None:
    routing = Routing(given.get("routing", "slot-aware"))
    found = supported_rate(gains(pipeline(given)), demands(given), by_slot(given["mapping"]), routing)
    assert found.rate == close(expected["rate"])
    assert found.bottleneck == expected["bottleneck"]


@pytest.mark.parametrize(("given", "expected"), cases("predict_usage"))
def test_predict_usage(given: Given, expected: dict[str, list[float]]) -> None:
    routing = Routing(given.get("routing", "slot-aware"))
    threads = by_slot(given["mapping"])
    usage = slot_usage(gains(pipeline(given)), demands(given), {}, threads, given["omega"], routing)
    found = {f"{slot.node}s{slot.number}": [100 * used.cpu, 100 * used.memory] for slot, used in usage.items()}
    assert found == {name: close(amounts) for name, amounts in expected.items()}


@pytest.mark.parametrize(("given", "expected"), cases("dsm"))
def test_dsm(given: Given, expected: dict[str, list[str]]) -> None:
    wanted = request([operator_request(name, (count, ThreadBundle(1, 0.0, 0.0))) for name, count in given["threads"]])
    answer = PLACERS.create("round-robin").place(wanted, room(given["vms"]))
    assert isinstance(answer, Placement)
    assert numbered(answer) == expected


def check(answer: Placement | Refusal, expected: dict[str, Any]) -> None:
    """The placement expected, or a refusal of the operator expected."""
    if "error" in expected:
        assert isinstance(answer, Refusal)
        assert [shortage.operator for shortage in answer.shortages] == [expected["error"]]
    else:
        assert isinstance(answer, Placement)
        assert numbered(answer) == expected


@pytest.mark.parametrize(("given", "expected"), cases("rsm"))
def test_rsm(given: Given, expected: dict[str, Any]) -> None:
    operators = []
    for name in given["tasks"]:
        cpu, memory = given["demand"][name]
        operators.append(operator_request(name, (given["counts"][name], ThreadBundle(1, cpu / 100, memory / 100))))
    memory_weight, cpu_weight, network_weight = given.get("weights", (1, 1, 1))
    placer = Rsm(cpu_weight=cpu_weight, memory_weight=memory_weight, network_weight=network_weight)
    check(placer.place(request(operators, given["edges"]), room(given["vms"], given.get("racks"))), expected)


@pytest.mark.parametrize(("given", "expected"), cases("sam"))
def test_sam(given: Given, expected: dict[str, Any]) -> None:
    operators = []
    for name in given["tasks"]:
        task, size = given["alloc"][name], given["bundle"][name]
        bundles = []
        if task["full"]:
            bundles.append((task["full"], ThreadBundle(size, 1.0, 1.0, exclusive=True)))
        if rest := task["threads"] - task["full"] * size:
            bundles.append((1, ThreadBundle(rest, task["partial_cpu"] / 100, task["partial_mem"] / 100)))
        operators.append(operator_request(name, *bundles))
    check(PLACERS.create("sam").place(request(operators, given["edges"]), room(given["vms"])), expected)


# ------------------------------------------------------------------------------------------------ P-Deployer


@pytest.mark.parametrize(("given", "expected"), cases("pd_eq1"))
def test_cpu_and_memory_of_a_task(given: Given, expected: dict[str, float]) -> None:
    inputs, outputs = given["inputs"], given["outputs"]
    seen = Traffic(0, tuple(inputs), tuple(outputs))
    remote = sum(inputs[k] for k in given.get("remote_in", [])) + sum(outputs[k] for k in given.get("remote_out", []))
    found = {
        "C": cpu(profile(given), seen.received, remote),
        "C_min": cpu(profile(given), seen.received, 0),
        "C_max": cpu(profile(given), seen.received, seen.moved),
        "M": memory(profile(given), seen),
    }
    assert found == close(expected)


def cpu_beside(given: Given) -> float:
    """Points of one more thread of an operator on a node that holds so many threads of its neighbours."""
    wanted = packing_request(given)
    names = [operator.name for operator in wanted.operators]
    machines = packing_room({**given, "Wc": 1e9, "Wm": 1e9})
    node = OpenNode(PackingTasks(wanted, machines), machines.capacity[0], machines.free[0], saving_weight=1.0)
    for other, count in given["adj"].items():
        for _ in range(count):
            node.put(names.index(other))
    return node.cpu_of(names.index(given["op"])) * node.cpu_capacity


@pytest.mark.parametrize(("given", "expected"), cases("pd_eq3"))
def test_cpu_beside_neighbours(given: Given, expected: dict[str, Any]) -> None:
    app, threads, name = given["app"], given["P"], given["op"]
    costs = next(profile(entry) for entry in app["operators"] if entry["name"] == name)
    seen = traffic(app, name)
    assert cpu_beside(given) == close(expected["C"])
    assert list(thread_cpu_range(costs, threads[name], seen)) == close(expected["range"])
    assert memory(costs, seen, threads[name]) == close(expected["M"])


@pytest.mark.parametrize(("given", "expected"), cases("pd_parallelism"))
def test_parallelism(given: Given, expected: dict[str, int]) -> None:
    limits = given.get("alpha", 0.1), given.get("beta", 512)
    found = {
        entry["name"]: parallelism(
            threads_per_tuple(profile(entry), *limits), traffic(given["app"], entry["name"]).received
        )
        for entry in given["app"]["operators"]
    }
    assert found == expected


@pytest.mark.parametrize(("given", "expected"), cases("pd_score"))
def test_priority_on_a_machine(given: Given, expected: dict[str, Any]) -> None:
    machines, wanted = packing_room(given), packing_request(given)
    tasks = PackingTasks(wanted, machines)
    names = [operator.name for operator in wanted.operators]
    machine = OpenNode(tasks, machines.capacity[0], machines.free[0], given.get("ar", 1))
    for there in given["machine"]:
        machine.put(names.index(there.partition("#")[0]))
    operator = names.index(given["task"].partition("#")[0])
    found = {
        "fits": bool(machine.fits()[operator]),
        "s": machine.saving(operator),
        "p": float(machine.priorities()[operator]),
    }
    assert found == close(expected)


@pytest.mark.parametrize(("given", "expected"), cases("pd_pack"))
def test_packing(given: Given, expected: Any) -> None:
    machines, wanted = packing_room(given), packing_request(given)
    weight = given.get("ar", 1)
    answer = Packing(saving_weight=weight).place(wanted, machines)
    tasks = PackingTasks(wanted, machines)
    packed = pack(tasks, wanted, machines, weight, None)
    if isinstance(expected, dict):
        assert isinstance(answer, Refusal)
        names = [operator.name for operator in wanted.operators]
        next_thread = dict(zip(names, tasks.threads - tasks.left + 1, strict=True))
        assert [f"{s.operator}#{next_thread[s.operator]}" for s in answer.shortages] == [expected["error"]]
        assert not answer.more_slots_may_help
        return
    assert not tasks.left.any()
    rows: dict[int, list[str]] = {}
    done: dict[str, int] = {}
    for operator, node in zip(packed.operators, packed.nodes, strict=True):
        name = wanted.operators[operator].name
        done[name] = done.get(name, 0) + 1
        rows.setdefault(node, []).append(f"{name}#{done[name]}")
    assert list(rows.values()) == expected
    assert isinstance(answer, Placement)
    assert [sorted(names) for names in numbered(answer).values()] == [sorted(names) for names in expected]
