"""The cluster a placed run is on, as it is now: nodes come and go while the run lives."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.cluster.file import read_cluster
from penstock.cluster.topology import Slot
from penstock.errors import BadInputError, ClusterError
from penstock.jobs.placed import check_nodes, cluster_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.cluster.topology import Cluster
    from penstock.jobs.placed import PlacedJob
    from penstock.planning.file import SavedPlan
    from penstock.spark.standalone.state import RunningCluster

_LOG = logging.getLogger(__name__)


class PlacedCluster:
    """`running` is the one of `penstock cluster up`; without one, what the plan says of its nodes is all there is."""

    def __init__(self, running: RunningCluster | None, plan: SavedPlan) -> None:
        self.running = running
        self.offered = {node.name: node.slots for node in (running or plan).nodes}
        self.machines: Cluster = cluster_of(plan) if running is None else read_cluster(running.cluster_file)

    def nodes(self) -> Collection[str]:
        """Those of now."""
        from penstock.spark.standalone.state import read_state  # noqa: PLC0415 - Spark loads only when it is used

        try:
            state = None if self.running is None else read_state(self.running.folder)
            if state is not None and state != self.running:
                self.running, self.machines = state, read_cluster(state.cluster_file)
                self.offered = {node.name: node.slots for node in state.nodes}
        except BadInputError as error:
            # somebody takes the cluster down, or spoilt its files: the run goes on with what it knows
            _LOG.warning("%s", error)
        return self.offered

    def slots(self) -> list[Slot]:
        self.nodes()
        return [Slot(node, number) for node, count in self.offered.items() for number in range(count)]

    def held_by_others(self, application: str) -> Mapping[Slot, str]:
        from penstock.spark.standalone.held_slots import held_slots  # noqa: PLC0415 - Spark loads only when it is used

        return {} if self.running is None else held_slots(self.running.web_url, except_for=application)

    def check(self, job: PlacedJob, application: str) -> None:
        """The nodes of a plan must be there, and its slots not be held by others."""
        if self.running is None:
            return
        self.nodes()
        check_nodes(job, self.running)
        held = self.held_by_others(application)
        taken = [f"{slot} ({held[slot]})" for slot in sorted(job.threads) if slot in held]
        if taken:
            raise ClusterError(f"slots of the plan are held by others: {', '.join(taken)}")
