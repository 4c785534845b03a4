"""Everything that runs here: free slots for `plan --cluster live`, runs, and a client of the controller."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.files import read_text
from penstock.base.former_names import report_former_name
from penstock.base.state_folder import state_folder
from penstock.cluster.books import free_slots
from penstock.cluster.contract import open_cluster
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.runs import folder as run_folders
from penstock.runs.folder import ANSWER_SECONDS, run_folder
from penstock.runs.states import RunRequest, check_permitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.planning.plan import Plan
    from penstock.runs.folder import ListedRun
    from penstock.service.client import Client


@dataclass(frozen=True)
class LiveCluster:
    """Nodes that are alive, and the numbers of their slots that nobody has."""

    nodes: tuple[Node, ...]
    free: Mapping[str, tuple[int, ...]]

    @property
    def cluster(self) -> Cluster:
        """As if what is taken were not there: nodes with their free slots and that part of their capacity."""
        left = []
        for node in self.nodes:
            count = len(self.free[node.name])
            if count:
                part = {name: amount * count / node.slots for name, amount in node.capacity.items()}
                left.append(replace(node, slots=count, capacity=part))
        if not left:
            raise ClusterError("no slot of the live cluster is free")
        return Cluster(tuple(left))

    def numbered(self, plan: Plan) -> Plan:
        """The plan with the numbers slots really have: the first free slot of a node may be its third."""

        def real(slot: Slot) -> Slot:
            return Slot(slot.node, self.free[slot.node][slot.number])

        bundles = tuple(bundle._replace(slot=real(bundle.slot)) for bundle in plan.placement.bundles)
        predicted = {real(slot): usage for slot, usage in plan.prediction.slots.items()}
        used = {node.name for node in plan.cluster.nodes}
        return replace(
            plan,
            cluster=Cluster(tuple(node for node in self.nodes if node.name in used)),
            placement=replace(plan.placement, bundles=bundles),
            prediction=replace(plan.prediction, slots=predicted),
        )


def live_cluster(folder: str | Path | None = None) -> LiveCluster:
    """By the controller that runs here; where none does, by the Master of `penstock cluster up`."""
    from penstock.service.local import controller_folder, read_running  # noqa: PLC0415 - needs the extra `control`

    home = state_folder(folder)
    if home.is_dir() and read_running(controller_folder(home)) is not None:
        return _of_controller(folder)
    return _of_master(folder)


def _of_controller(folder: str | Path | None) -> LiveCluster:

    with connect(folder=folder) as client:
        alive = [node for node in client.nodes() if node["state"] == "alive"]
    nodes = tuple(Node(node["name"], node["rack"], node["slots"], node["capacity"]) for node in alive)
    return LiveCluster(nodes, {node["name"]: tuple(node["free_slots"]) for node in alive})


def _of_master(folder: str | Path | None) -> LiveCluster:
    manager = open_cluster(folder=folder)
    states, holdings, known = manager.nodes(), manager.holdings(), manager.topology()
    if states is None or holdings is None or known is None:
        raise ClusterError(f"the manager at {manager.master} does not answer; penstock cluster status")
    alive = [state for state in states if state.alive]
    nodes = tuple(known.node(state.name) for state in alive)
    return LiveCluster(nodes, free_slots(alive, holdings))


def list_runs() -> list[ListedRun]:
    """Runs that live, are paused, were lost with their process or failed, and those stopped in a folder of their own;
    the newest last."""
    return run_folders.list_runs()


def stop_run(run: str | Path, *, patience: float = ANSWER_SECONDS) -> float:
    """Commit the rows in flight and end the run. Return the seconds it took.

    Here and below `run` is its folder or URI, or the name that `runs` shows.
    """
    return ask_run(run, RunRequest.STOP, patience)


def pause(run: str | Path, *, keep_executors: bool = False, patience: float = ANSWER_SECONDS) -> float:
    """Commit the rows in flight and keep the position until `resume`. Return the seconds it took."""
    return ask_run(run, RunRequest.PAUSE, patience, keep_executors=keep_executors)


def rescale(
    run: str | Path,
    slots: int | None = None,
    *,
    plan: str | Path | None = None,
    patience: float = ANSWER_SECONDS,
) -> float:
    """Change the slots or the plan of a run while it runs. Return the seconds it took."""
    if slots is not None and slots < 1:
        raise BadInputError(f"slots=: expected at least 1, found {slots}")
    return ask_run(run, RunRequest.RESCALE, patience, slots=slots, plan=absolute(plan))


def kill(run: str | Path, *, patience: float = ANSWER_SECONDS) -> float:
    """End a run at once. Rows that were not committed are processed again on resume."""
    return ask_run(run, RunRequest.KILL, patience)


def drain(run: str | Path, *, stop: bool = False, patience: float = ANSWER_SECONDS) -> float:
    """Former name: of a placed run `pause(keep_executors=True)`; with `stop`, or of a fused run, `stop_run`."""
    ends = drain_stops(run, stop=stop)
    report_former_name("drain", "stop" if ends else "pause(keep_executors=True)")
    return stop_run(run, patience=patience) if ends else pause(run, keep_executors=True, patience=patience)


def drain_stops(run: str | Path, *, stop: bool) -> bool:
    """Whether `drain` of version 0.1 ended this run."""
    return stop or run_folder(run).description.engine == "fused"


def log_lines(run: str | Path, count: int) -> list[str]:
    """The last lines of the log of a run."""
    return run_folder(run).log_lines(count)


def ask_run(run: str | Path, request: RunRequest, patience: float, **more: Any) -> float:
    """Ask the process that conducts a run, and wait for its answer."""
    folder = run_folder(run)
    check_permitted(request, folder.state()[0], folder.description.run)
    return float(folder.ask(str(request), patience, **more)["seconds"])


def absolute(path: str | Path | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def connect(url: str | None = None, token: str | None = None, *, folder: str | Path | None = None) -> Client:
    """A controller by its address and token; without, the one `penstock.up()` started on this machine."""
    from penstock.service import client  # noqa: PLC0415 - needs the extra `control`

    return client.connect(url, token, folder)


def dashboard(*, read_only: bool = False, folder: str | Path | None = None) -> str:
    """The code in the link logs one browser in and is then used up; it is good for ten minutes. It stands behind the
    `#`, which browsers keep to themselves. With `read_only` whoever opens it may look and change nothing."""
    from penstock.service.client import Client  # noqa: PLC0415 - needs the extra `control`
    from penstock.service.local import find_controller  # noqa: PLC0415

    controller = find_controller(folder)
    token = read_text(controller.read_token_file if read_only else controller.token_file).strip()
    with Client(controller.url, token) as client:
        return f"{controller.url}/#code={client.login_code()}"
