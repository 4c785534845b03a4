"""A cluster in memory that drives the real state machines of a run through any interleaving, with any faults.

Everything is a step that a seeded generator picks: a message arrives, a tuple moves on, a process dies. Operators
answer differently whenever they are run again, links hold few tuples, and a process that was given up goes on working.
"""

from __future__ import annotations

from calm_world import CalmWorld
from world_parts import Broken, Process, Row

from penstock.engines.placed.flow import events as ev
from penstock.engines.placed.flow.states import OVER, FlowState


class World(CalmWorld):
    """With faults."""

    def kill(self) -> None:
        process = self.any_process()
        if process is not None:
            self.end(process)
            self.report(process, ev.Lost(process.connection, "killed"))

    def any_process(self) -> Process | None:
        alive = [one for office in self.offices for one in office.processes.values() if one.alive]
        return self.dice.choice(alive) if alive else None

    def break_a_link(self) -> None:
        links = [link for o in self.offices for p in o.processes.values() if p.alive for link in p.inputs.values()]
        if links:
            self.dice.choice(links).append(Broken())

    def freeze(self) -> None:
        process = self.any_process()
        if process is not None:
            process.frozen = not process.frozen

    def crash(self) -> None:
        """The conductor dies, or only seems to and goes on with its own."""
        self.offices[-1].dead = self.dice.random() < 0.5
        self.hire(self.home)

    def change(self) -> None:
        self.ask(self.office, ev.ChangeAsked, layout=self.dice.choice([self.home, *self.alternatives]))

    def drain_or_resume(self) -> None:
        self.ask(self.office, self.dice.choice([ev.DrainAsked, ev.ResumeAsked]))

    def lose_a_node(self) -> None:
        if self.gone:
            back = self.gone.pop()
            self.tell(self.office, ev.NodeBack(back))
            return
        node = self.dice.choice(sorted({bundle.slot.node for bundle in self.home.bundles}))
        layouts = (self.home, *self.alternatives)
        if any(node not in {bundle.slot.node for bundle in one.bundles} for one in layouts):
            self.gone.add(node)
            for process in list(self.office.processes.values()):
                if process.bundle.slot.node == node and process.alive:
                    self.end(process)
            self.tell(self.office, ev.NodeGone(node, "died"))

    def fill_the_disk(self) -> None:
        self.disk_full = not self.disk_full

    def fault(self) -> None:
        self.faults += 1
        if self.office.run.state in OVER:
            # somebody resumes it
            self.hire(self.home)
        kinds = [
            self.kill,
            self.kill,
            self.break_a_link,
            self.freeze,
            self.crash,
            self.change,
            self.change,
            self.drain_or_resume,
            self.lose_a_node,
            self.fill_the_disk,
        ]
        self.dice.choice(kinds)()

    # The end.

    def calm(self) -> None:
        """No more faults; what is frozen stays so and is given up, nodes come back."""
        self.disk_full = False
        for node in sorted(self.gone):
            self.tell(self.office, ev.NodeBack(node))
        self.gone.clear()

    def finish(self, most_steps: int = 200_000) -> None:
        """Drain and end the run; standing still for a minute is a deadlock."""
        self.calm()
        asked: str | None = None
        still = resumed = 0
        for _ in range(most_steps):
            office = self.office
            if office.run.state in OVER:
                if office.run.state is FlowState.ENDED or resumed:
                    break
                # what happened before may still make it give up, once
                self.hire(self.home)
                asked, resumed = None, 1
                continue
            if asked is None or office.answers.get(asked) is not None:
                asked = self.ask(office, ev.DrainAsked, end=True)
            if self.step():
                still = 0
            else:
                still += 1
                assert still < 400, f"stands still in {office.run.state}: {office.said[-5:]}"
                self.pass_time()
            if self.dice.random() < 0.02:
                self.pass_time(0.1)
        assert self.office.run.state is FlowState.ENDED, (self.office.run.state, self.office.stopped)

    def visible(self) -> dict[str, list[Row]]:
        """What people find at the sinks: what commits name."""
        rows: dict[str, list[Row]] = {name: [] for name in self.graph.sinks}
        for commit in self.commits:
            for output in commit.outputs:
                rows[output.sink] += self.store[output.staged][0]
        return rows

    def kept(self, operator: str) -> int:
        """What an operator's state says: how many tuples it has seen."""
        states = self.commits[-1].states.get(operator, {})
        return sum(self.store[label][1][int(group)] for group, label in states.items())
