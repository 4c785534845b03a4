"""A cluster in memory in which nothing fails: messages arrive and tuples move on, in any order."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from world_parts import LINK_HOLDS, Broken, Graph, Office, Process, Row

from penstock.connectors.commit import Commit, Output, next_commit, state_of
from penstock.engines.placed.flow import events as ev
from penstock.engines.placed.flow import instructions as do
from penstock.engines.placed.flow.bundle import SayBroken, SayLinked, Stage, Standing
from penstock.engines.placed.flow.layout import Bundle, Channel, Layout
from penstock.engines.placed.flow.run import FlowRun
from penstock.engines.placed.flow.states import Patience


class CalmWorld:
    def __init__(self, graph: Graph, layout: Layout, seed: int, alternatives: list[Layout], limit: int = 10**9) -> None:
        self.graph = graph
        self.dice = random.Random(seed)  # noqa: S311 - dice
        self.now = 0.0
        self.commits: list[Commit] = [Commit(run="r", conductor=0, generation=0, epoch=0, plan=layout.plan)]
        self.store: dict[str, Any] = {}
        self.alternatives = alternatives
        self.home = layout
        self.limit = limit
        """Tuples a source has."""
        self.offices: list[Office] = []
        self.gone: set[str] = set()
        self.faults = 0
        self.disk_full = False
        self._connections = 0
        self._requests = 0
        self.longest_link = 0
        self.hire(layout)

    # Conductors.

    def hire(self, layout: Layout) -> Office:
        """A conductor takes the run over: the epoch behind the last commit is its own at once."""
        last = self.commits[-1]
        taken = last.model_copy(
            update={"conductor": last.conductor + 1, "epoch": last.epoch + 1, "plan": layout.plan, "outputs": ()}
        )
        self.commits.append(taken)
        office = Office(taken.conductor, FlowRun(layout, taken, Patience(most_failures=10**6, epoch=0.5)))
        self.offices.append(office)
        self.tell(office, ev.Tick())
        return office

    @property
    def office(self) -> Office:
        return self.offices[-1]

    def tell(self, office: Office, event: ev.Event) -> None:
        if office.dead:
            return
        for instruction in office.run.handle(event, self.now):
            self.carry_out(office, instruction)

    def carry_out(self, office: Office, instruction: do.Instruction) -> None:  # noqa: PLR0912 - one per instruction
        match instruction:
            case do.StartBundle(bundle, _):
                self.check_room(office, bundle)
                office.awaited = [one for one in office.awaited if one.bundle.name != instruction.bundle.name]
                office.awaited.append(instruction)
            case do.EndBundle(name):
                office.awaited = [one for one in office.awaited if one.bundle.name != name]
                for process in office.processes.values():
                    if process.bundle.name == name:
                        process.orders.append(instruction)
            case do.Dismiss(connection):
                if connection in office.processes:
                    office.processes[connection].orders.append(instruction)
            case do.Form():
                for connection in instruction.connections.values():
                    office.processes[connection].orders.append(instruction)
            case do.OpenEpoch() | do.Go():
                for process in office.processes.values():
                    if process.bundle.sources:
                        process.orders.append(instruction)
            case do.WriteCommit():
                office.write = instruction
            case do.SeekRefuge(unusable):
                fit = [one for one in (self.home, *self.alternatives) if not {b.slot for b in one.bundles} & unusable]
                found: ev.Event = ev.RefugeFound(self.dice.choice(fit)) if fit else ev.NoRefuge("no slot is left")
                office.inbox.append(deque([found]))
            case do.Answer(request, refused):
                office.answers[request] = refused
            case do.Say(text):
                office.said.append(text)
            case do.Stop():
                office.stopped = instruction

    def check_room(self, office: Office, bundle: Bundle) -> None:
        """A slot has room for one executor: where its memory changes, all that ran there was told to end before."""
        for process in office.processes.values():
            other = process.bundle
            if process.alive and other.slot == bundle.slot and other.memory_mb != bundle.memory_mb:
                assert any(isinstance(order, do.EndBundle | do.Dismiss) for order in process.orders)

    def ask(self, office: Office, kind: Any, **more: Any) -> str:
        self._requests += 1
        request = f"request-{self._requests}"
        self.tell(office, kind(request, **more))
        return request

    # One step of anybody.

    def step(self) -> bool:
        """Something that can happen happens; False: nothing can but time passing."""
        choices: list[Any] = []
        for office in self.offices:
            if office.dead:
                # its processes do not know yet
                choices += [(self.work, process) for process in office.processes.values() if self.can_work(process)]
                continue
            choices += [(self.start, office, one) for one in office.awaited if one.bundle.slot.node not in self.gone]
            choices += [(self.hear, office, queue) for queue in office.inbox if queue]
            if office.write is not None:
                choices.append((self.write, office))
            for process in office.processes.values():
                if process.alive and not process.frozen and process.orders:
                    choices.append((self.obey, process))
                if self.can_work(process):
                    choices.append((self.work, process))
        if not choices:
            return False
        action, *arguments = self.dice.choice(choices)
        action(*arguments)
        return True

    def pass_time(self, seconds: float = 0.3) -> None:
        self.now += seconds
        for office in self.offices:
            if office.dead:
                continue
            for process in list(office.processes.values()):
                if process.alive and not process.frozen:
                    self.tell(office, ev.Beat(process.connection))
            self.tell(office, ev.Tick())

    def start(self, office: Office, asked: do.StartBundle) -> None:
        office.awaited.remove(asked)
        self._connections += 1
        process = Process(asked.bundle, asked.start, self._connections, office)
        office.processes[process.connection] = process
        hello = ev.Hello(asked.bundle.name, asked.start, process.connection, f"at-{process.connection}")
        office.inbox.append(deque([hello]))

    def hear(self, office: Office, queue: deque[ev.Event]) -> None:
        self.tell(office, queue.popleft())
        office.inbox = [one for one in office.inbox if one]

    def report(self, process: Process, event: ev.Event) -> None:
        """What a process says arrives in the order it said it."""
        for queue in process.office.inbox:
            if queue and getattr(queue[0], "bundle", None) == process.bundle.name:
                queue.append(event)
                return
        process.office.inbox.append(deque([event]))

    def write(self, office: Office) -> None:
        asked = office.write
        assert asked is not None
        office.write = None
        commit = next_commit(asked.before, office.number, asked.generation, asked.plan, asked.staged)
        if self.disk_full:
            self.tell(office, ev.NotCommitted(commit.epoch, "disk full"))
        elif self.commits[-1].epoch >= commit.epoch:
            self.tell(office, ev.Fenced("another"))
        else:
            self.commits.append(commit)
            self.tell(office, ev.Committed(commit))

    # Processes.

    def can_work(self, process: Process) -> bool:
        if not process.alive or process.frozen or process.form is None:
            return False
        if process.flow.standing is Standing.LINKING:
            return any(link is None for link in process.outputs.values())
        if process.flow.standing is not Standing.FLOWING:
            return False
        if process.unsent:
            return self.room(process, process.unsent[0][0])
        readable = any(process.flow.may_read(channel) and queue for channel, queue in process.inputs.items())
        return readable or (process.flow.may_emit and process.offset < self.limit)

    def room(self, process: Process, channel: Channel) -> bool:
        link = process.outputs.get(channel)
        return link is None or len(link) < LINK_HOLDS or any(isinstance(item, Broken) for item in link)

    def work(self, process: Process) -> None:
        flow = process.flow
        if flow.standing is Standing.LINKING:
            self.connect(process)
        elif process.unsent:
            channel, item = process.unsent.popleft()
            link = process.outputs[channel]
            assert link is not None
            if any(isinstance(one, Broken) for one in link):
                self.act(process, flow.link_down(flow.generation, "reset"))
                return
            link.append(item)
            self.longest_link = max(self.longest_link, len(link))
        else:
            self.move_a_tuple(process)

    def move_a_tuple(self, process: Process) -> None:
        flow = process.flow
        ready = [channel for channel, queue in process.inputs.items() if flow.may_read(channel) and queue]
        emit = flow.may_emit and process.offset < self.limit
        if ready and not (emit and self.dice.random() < 0.5):
            channel = self.dice.choice(ready)
            item = process.inputs[channel].popleft()
            if isinstance(item, Broken):
                self.act(process, flow.link_down(flow.generation, "reset"))
            elif isinstance(item, int):
                self.act(process, flow.marker(channel, flow.generation, item))
            else:
                self.operate(process, item)
        elif emit:
            row = (process.bundle.sources[0], process.offset, (), 0)
            process.offset += 1
            self.operate(process, row)

    def operate(self, process: Process, row: Row) -> None:
        operator = process.bundle.operators[0]
        source, number, path, _ = row
        answer = self.dice.randrange(10**9)
        group = process.bundle.groups[0].first
        process.counts[group] = process.counts.get(group, 0) + 1
        if operator in self.graph.sinks:
            process.rows.append((source, number, path, answer))
        for stream in self.graph.out_of(operator):
            targets = [channel for channel in process.outputs if channel.stream == stream]
            process.unsent.append((self.dice.choice(targets), (source, number, (*path, stream), answer)))

    def connect(self, process: Process) -> None:
        channel = next(channel for channel, link in process.outputs.items() if link is None)
        assert process.form is not None
        peer = process.office.processes[process.form.connections[channel.receiver]]
        generation = process.flow.generation
        if not peer.alive or peer.flow.generation > generation:
            self.act(process, process.flow.link_down(generation, "refused"))
        elif peer.flow.generation == generation and peer.flow.standing is Standing.LINKING:
            link: deque[Any] = deque()
            process.outputs[channel] = peer.inputs[channel] = link
            self.act(peer, peer.flow.link_up(channel, generation))
            self.act(process, process.flow.link_up(channel, generation))
        elif peer.flow.generation == generation:
            self.act(process, process.flow.link_down(generation, "reset"))

    def act(self, process: Process, acts: list[Any]) -> None:
        for one in acts:
            match one:
                case SayLinked(generation):
                    self.report(process, ev.Linked(process.bundle.name, generation))
                case SayBroken(generation, reason):
                    self.cut(process)
                    self.report(process, ev.Broken(process.bundle.name, generation, reason))
                case Stage(epoch):
                    self.stage(process, epoch)

    def stage(self, process: Process, epoch: int) -> None:
        flow, name = process.flow, process.bundle.name
        label = f"{process.office.number}-{flow.generation}-{epoch}-{name}-{process.connection}"
        for channel in process.outputs:
            process.unsent.append((channel, epoch))
        self.store[label] = (process.rows, dict(process.counts))
        operator = process.bundle.operators[0]
        outputs = (Output(sink=operator, staged=label, final=label, rows=len(process.rows)),) if process.rows else ()
        states = {operator: {str(group): label for group in process.counts}}
        offsets = dict.fromkeys(process.bundle.sources, process.offset)
        process.rows = []
        self.report(process, ev.Staged(name, flow.generation, epoch, offsets, states, outputs))
        flow.staged(flow.generation, epoch)

    def obey(self, process: Process) -> None:
        match process.orders.popleft():
            case do.Form() as form:
                self.form(process, form)
            case do.OpenEpoch(generation, epoch, hold):
                self.act(process, process.flow.open_epoch(generation, epoch, hold=hold))
            case do.Go(generation):
                process.flow.go(generation)
            case do.EndBundle() | do.Dismiss():
                self.end(process)

    def form(self, process: Process, form: do.Form) -> None:
        self.cut(process)
        name = process.bundle.name
        process.form = form
        process.bundle = form.layout.by_name[name]
        process.outputs = dict.fromkeys(form.layout.out_of(name))
        process.rows, process.counts = [], {}
        for groups in process.bundle.groups:
            for group, label in state_of(form.commit, groups.operator, groups.first, groups.end).items():
                process.counts[group] = self.store[label][1][group]
        process.offset = form.commit.offsets.get(process.bundle.sources[0], 0) if process.bundle.sources else 0
        inputs, outputs = frozenset(form.layout.into(name)), frozenset(process.outputs)
        acts = process.flow.form(
            form.generation,
            form.commit.epoch,
            inputs,
            outputs,
            has_sources=bool(process.bundle.sources),
            held=form.held,
        )
        self.act(process, acts)

    def cut(self, process: Process) -> None:
        """Its links are closed: whoever is at their other end finds out when it looks."""
        for link in (*process.inputs.values(), *process.outputs.values()):
            if link is not None:
                link.append(Broken())
        process.inputs, process.outputs = {}, dict.fromkeys(process.outputs)
        process.unsent.clear()

    def end(self, process: Process) -> None:
        process.alive = False
        self.cut(process)

    # Faults.
