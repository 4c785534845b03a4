"""Checkpoints under a URI: of two conductors at most one shows anything of an epoch, in whatever order they act."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import FileSystem

from effort import tries
from penstock.base.errors import BadInputError
from penstock.base.lease import RunLease
from penstock.connectors.checkpoint import KEPT, Checkpoint, FolderCheckpoint, NotWrittenError, ReplacedError
from penstock.connectors.commit import Commit, Output
from penstock.connectors.storage import ArrowStorage, storage
from penstock.connectors.url_checkpoint import UrlCheckpoint, checkpoint_at


def first() -> Commit:
    return Commit(run="r", conductor=0, generation=0, epoch=0, plan="p")


def after(commit: Commit) -> Commit:
    return commit.model_copy(update={"epoch": commit.epoch + 1})


def in_memory() -> UrlCheckpoint:
    system, base = FileSystem.from_uri("mock:///bucket/run")
    return UrlCheckpoint("mock:///bucket/run", ArrowStorage(system, base))


@pytest.fixture(params=["folder", "file", "memory"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    match request.param:
        case "folder":
            made: Checkpoint = checkpoint_at(str(tmp_path))
            assert isinstance(made, FolderCheckpoint)
        case "file":
            made = checkpoint_at(f"file://{tmp_path}/run")
        case _:
            made = in_memory()
    made.create()
    return made


def test_the_last_commit_counts_and_old_ones_go(checkpoint: Checkpoint) -> None:
    assert checkpoint.last() is None
    commit = checkpoint.take_over(first(), "p")
    for _ in range(KEPT + 3):
        commit = after(commit)
        checkpoint.write(commit)
        checkpoint.write(commit)  # not knowing that it succeeded
        checkpoint.forget_old(commit.epoch)
        assert checkpoint.last() == commit


def test_whoever_takes_over_fences_the_one_before(checkpoint: Checkpoint) -> None:
    old = after(checkpoint.take_over(first(), "p"))
    checkpoint.write(old)
    taken = checkpoint.take_over(old, "p")
    assert (taken.epoch, taken.conductor) == (old.epoch + 1, old.conductor + 1)
    with pytest.raises(ReplacedError):
        checkpoint.write(after(old))
    checkpoint.write(after(taken))
    assert checkpoint.last() == after(taken)


def test_a_lease_is_whoevers_it_says_or_nobodys(checkpoint: Checkpoint) -> None:
    assert checkpoint.lease is None
    lease = RunLease(host="h", process=7, started=1.0, number=2, renewed=5.0)
    checkpoint.sign(lease)
    assert checkpoint.lease == lease


def test_a_file_that_is_no_commit_is_named(tmp_path: Path) -> None:
    place = f"file://{tmp_path}"
    checkpoint = checkpoint_at(place)
    storage(place).write("commits/000000000003-000001-w.json", lambda file: file.write(b"{"))
    with pytest.raises(BadInputError, match=r"000000000003-000001-w\.json: .*not valid JSON"):
        checkpoint.last()


def test_a_store_that_takes_nothing_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where a folder should be")
    with pytest.raises(NotWrittenError, match="cannot be written"):
        checkpoint_at(f"file://{tmp_path}/run").take_over(first(), "p")


def test_a_place_that_cannot_be_reached_is_one_line() -> None:
    with pytest.raises(BadInputError, match=r"^nowhere://x: cannot be reached"):
        checkpoint_at("nowhere://x")


class Turns:
    """Conductors as threads, of which one at a time makes its next call to the store, in the order that is given."""

    def __init__(self, conductors: int) -> None:
        self._may_go = [threading.Semaphore(0) for _ in range(conductors)]
        self._stands = threading.Semaphore(0)
        self._over = [False] * conductors

    def wait(self, conductor: int) -> None:
        self._stands.release()
        self._may_go[conductor].acquire()

    def end(self, conductor: int) -> None:
        self._over[conductor] = True
        self._stands.release()

    def run(self, works: list[Callable[[], None]], order: Iterable[int]) -> None:
        for work in works:
            threading.Thread(target=work, daemon=True).start()
            self._stands.acquire()
        for conductor in chain(order, cycle(range(len(works)))):
            if all(self._over):
                return
            if not self._over[conductor]:
                self._may_go[conductor].release()
                self._stands.acquire()


class SteppedStore:
    """A store that is called when it is this conductor's turn."""

    def __init__(self, store: Any, wait: Callable[[], None]) -> None:
        self._store, self._wait = store, wait

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def stepped(*arguments: Any) -> Any:
            self._wait()
            return call(*arguments)

        return stepped


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 4))
@tries(2)
def test_no_epoch_is_shown_twice_whatever_the_order(order: list[int], epochs: int) -> None:
    """Three conductors take a run over and commit epochs of one tuple each; what a commit names they show, under the
    name it says. A tuple under two names is doubled, one under none is lost."""
    system, base = FileSystem.from_uri("mock:///run")
    store, turns = ArrowStorage(system, base), Turns(3)
    shown: dict[str, int] = {}

    def show(commit: Commit) -> None:
        shown.update({output.final: commit.offsets["src"] - 1 for output in commit.outputs})

    def conduct(number: int) -> None:
        checkpoint = UrlCheckpoint("mock:///run", SteppedStore(store, partial(turns.wait, number)))
        try:
            commit = checkpoint.take_over(first(), "p")
            show(commit)
            for _ in range(epochs):
                name = f"{number}-{commit.epoch}"
                rows = commit.offsets.get("src", 0) + 1
                output = Output(sink="s", staged=name, final=name, rows=1)
                commit = after(commit).model_copy(update={"offsets": {"src": rows}, "outputs": (output,)})
                checkpoint.write(commit)
                show(commit)
        except ReplacedError:
            pass
        finally:
            turns.end(number)

    turns.run([partial(conduct, number) for number in range(3)], order)
    last = UrlCheckpoint("mock:///run", store).take_over(first(), "p")
    show(last)
    assert sorted(shown.values()) == list(range(last.offsets.get("src", 0)))
    assert last.offsets["src"] >= 1
