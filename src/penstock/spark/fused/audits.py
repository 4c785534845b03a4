"""The audit of ids over a run, and over all processes that ever ran it: one small file per batch, in its folder.

The file of a batch is written before Spark commits the batch, under its number: one that is run again replaces it, and
one that was never committed does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.digits import is_whole
from penstock.files import write_bytes
from penstock.report.report import Audit
from penstock.runtime.account import Account

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.runtime.id_bitmaps import IdBitmaps
    from penstock.spark.fused.accounts import BatchRecords

FOLDED_EVERY = 512
"""So many batches are folded into one file."""
_FOLDED = "until-"


class AuditFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, batch: int, account: Account) -> None:
        only_ids = Account(ids=account.ids, operators=account.operators)
        write_bytes(self._folder / f"{batch:012d}", only_ids.to_bytes())
        if batch and batch % FOLDED_EVERY == 0:
            self._fold(batch - 1)

    def account_for(
        self, batch: int, records: BatchRecords, work_out: Callable[[], BatchRecords] | None
    ) -> BatchRecords:
        """`work_out` runs a batch that was begun before. Sinks that have it from then leave it out, and no task says
        anything of it: what was written down then stays. Where that attempt did not come so far the batch is worked
        out, only to be counted."""
        if not records.tasks and work_out is not None:
            if (self._folder / f"{batch:012d}").exists():
                return records
            records = work_out()
        self.write(batch, records.account())
        return records

    def _fold(self, last: int) -> None:
        """Batches up to `last` are committed, or the next one would not have begun. Their files are removed when one
        file holds them all, which says up to where: whoever dies in between leaves only what is not read any more."""
        target = self._folder / f"{_FOLDED}{last:012d}"
        files = self._files(last)
        if files == [target]:
            return  # the batch behind them is written a second time
        write_bytes(target, self._merged(files).to_bytes())
        for file in files:
            file.unlink()

    def _files(self, last: int) -> list[Path]:
        """Those that together hold every batch up to `last`, each once."""
        names = {file.name for file in self._folder.iterdir()}
        folded = max((name for name in names if name.startswith(_FOLDED)), default=None)
        until = -1 if folded is None else int(folded.removeprefix(_FOLDED))
        single = sorted(name for name in names if is_whole(name) and until < int(name) <= last)
        return [self._folder / name for name in ([] if folded is None else [folded]) + single]

    @staticmethod
    def _merged(files: list[Path]) -> Account:
        whole = Account()
        for file in files:
            whole.merge(Account.from_bytes(file.read_bytes()))
        return whole

    def audit(self, last_committed: int, reached: int) -> Audit:
        """Every id up to the highest seen, and up to where the source says it is (`reached`), must have come out
        somewhere; no sink may have one twice on one path."""
        whole = self._merged(self._files(last_committed))
        filtered = sum(count.filtered for count in whole.operators.values())
        if whole.ids is None:
            return Audit(reached, reached, 0, whole.dead, filtered)
        return audit_of(whole.ids, reached, whole.dead, filtered)


def audit_of(ids: IdBitmaps, reached: int, dead: int, filtered: int) -> Audit:
    accounted = ids.accounted()
    emitted = max(reached, accounted.max() + 1 if accounted else 0)
    return Audit(emitted, emitted - len(accounted), ids.duplicated, dead, filtered)
