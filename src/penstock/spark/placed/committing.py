"""Writing a commit: the audit beside it, the commit itself, then what it names is made visible."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from penstock.connectors.log.contract import LogError
from penstock.connectors.log.publishing import PREFIX, TopicSink
from penstock.connectors.staged_sinks import publish
from penstock.connectors.storage import storage
from penstock.errors import PenstockError
from penstock.flow.commit import next_commit
from penstock.runtime.account import Account
from penstock.runtime.id_bitmaps import IdBitmaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.flow.checkpoint import Checkpoint
    from penstock.flow.commit import Commit, Output
    from penstock.flow.instructions import WriteCommit

_LOG = logging.getLogger(__name__)

KEPT_AUDITS = 3
TIDIED_EPOCHS = 10
"""State files nobody needs are looked for once in so many epochs."""


class SinkAwayError(OSError, PenstockError):
    """A sink has not taken what a commit names: nothing is committed before it has."""


class Publisher(Protocol):
    """Sends on what commits name, where sinks are no files. Of the outputs of all sinks it takes its own."""

    def add(self, outputs: Iterable[Output]) -> None:
        """Of one epoch, which is committed."""

    def publish(self) -> None:
        """All that was added is where it belongs. Raises an OSError: it waits on, and this may be called again; or a
        RunFailedError: that is no use."""

    def begin(self) -> None:
        """As `publish`, as far as that is possible now; what is not done is done by the next `publish`."""

    @property
    def waits(self) -> bool:
        """Something was added and is not where it belongs."""

    def close(self) -> None: ...


class Committer:
    """`ids` is what was delivered, over all epochs that committed."""

    def __init__(self, checkpoint: Checkpoint, commit: Commit, publishers: Sequence[Publisher]) -> None:
        self._checkpoint = checkpoint
        self._store = storage(checkpoint.place)
        self._number = commit.conductor
        self._publishers = publishers
        for publisher in publishers:
            publisher.add(commit.outputs)
        self.ids = IdBitmaps()
        if commit.audit:
            self.ids = Account.from_bytes(self._store.read(commit.audit)).ids or IdBitmaps()

    def commit(self, asked: WriteCommit, accounts: Sequence[Account]) -> Commit:
        """All or nothing; called again with the same, it does the same. Raises ReplacedError, NotWrittenError,
        SinkAwayError or another OSError; or a RunFailedError where a sink will never take what is committed."""
        # what the last commit names is where it belongs before there is another: nobody would look for it any more
        for publisher in self._publishers:
            try:
                publisher.publish()
            except OSError as error:
                raise SinkAwayError(_at_sink(error, asked.before.outputs)) from error
        ids = IdBitmaps()
        for known in (self.ids, *(account.ids for account in accounts)):
            if known is not None:
                ids.merge(known)
        audit = f"audit/{self._number}-{asked.before.epoch + 1}.bin"
        commit = next_commit(asked.before, self._number, asked.generation, asked.plan, asked.staged, audit)
        body = Account(ids=ids).to_bytes()
        self._store.write(audit, lambda file: file.write(body))
        self._checkpoint.write(commit)
        publish(commit.outputs)
        for publisher in self._publishers:
            publisher.add(commit.outputs)
            publisher.begin()
        self.ids = ids
        self._tidy(commit)
        return commit

    def close(self) -> None:
        """What is committed is sent, if that is possible; else whoever resumes the run does it (`unsent_note`)."""
        for publisher in self._publishers:
            try:
                publisher.publish()
            except (OSError, PenstockError) as error:
                _LOG.warning("committed, and waits to be sent by whoever resumes the run: %s", error)
            publisher.close()

    def _tidy(self, commit: Commit) -> None:
        """Files nobody will read again; what cannot be deleted is the next time."""
        with suppress(OSError):
            self._checkpoint.forget_old(commit.epoch)
            self._store.delete(f"audit/{self._number}-{commit.epoch - KEPT_AUDITS}.bin")
            if commit.epoch % TIDIED_EPOCHS:
                return
            needed = {where for groups in commit.states.values() for where in groups.values()}
            # what is being staged for the next epoch is not named by any commit yet
            recent = tuple(f"-{epoch}.json.z" for epoch in range(commit.epoch - 1, commit.epoch + 3))
            for path in self._store.list("state"):
                if path not in needed and not path.endswith(recent):
                    self._store.delete(path)


def unsent_note(publishers: Iterable[Publisher], folder: str) -> str | None:
    """What the report of a run that is over says where its sinks have not got all that is committed."""
    if not any(publisher.waits for publisher in publishers):
        return None
    return f"the last epoch is committed and not in its sinks yet: resume the run to send it ({folder})"


def _at_sink(error: OSError, waiting: Iterable[Output]) -> str:
    """What a sink that Spark writes says names it; a log knows nothing of sinks, but they send to its topics."""
    if not isinstance(error, LogError):
        return str(error)
    topics = dict.fromkeys(TopicSink.of(output.sink).topic for output in waiting if output.sink.startswith(PREFIX))
    return f"topic sink {', '.join(map(repr, topics))} cannot be written: {error}"
