"""What the reference operators need around them, started for as long as they run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.base.files import temporary_folder
from penstock.workloads.blob_server import running_blob_server
from penstock.workloads.operators.azure import BLOB_URL, ROWS, TABLE_DATABASE, TABLE_DELAY, ensure_database
from penstock.workloads.operators.file_write import WRITE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from penstock.workloads.blob_server import BlobService

VARIABLES = (BLOB_URL, TABLE_DATABASE, TABLE_DELAY, WRITE_FOLDER)


@contextlib.contextmanager
def services(
    names: Iterable[str],
    *,
    blob: BlobService | None = None,
    folder: Path | None = None,
    rows: int = ROWS,
    table_delay_ms: float = 0.0,
    given: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, str]]:
    """The environment variables that the operators `names` read, with what they point to started or built.

    Names of other operators need nothing. What `given` (`os.environ`, say) already sets is taken as it is: a server
    elsewhere. `progress` hears how many of the table's rows are there, if it has to be built (in `folder`). The files
    of batch_file_write are deleted at the end.
    """
    asked = set(names)
    environment = {name: value for name, value in (given or {}).items() if name in VARIABLES}
    with contextlib.ExitStack() as stack:
        if "azure_table" in asked:
            if TABLE_DATABASE not in environment:
                environment[TABLE_DATABASE] = str(ensure_database(folder, rows, progress))
            environment.setdefault(TABLE_DELAY, str(table_delay_ms))
        if "azure_blob" in asked and BLOB_URL not in environment:
            environment[BLOB_URL] = stack.enter_context(running_blob_server(blob))
        if "batch_file_write" in asked and WRITE_FOLDER not in environment:
            environment[WRITE_FOLDER] = str(stack.enter_context(temporary_folder("rows")))
        yield environment
