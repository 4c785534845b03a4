"""Modules of the user's own, sent to executors that share no disk with the driver.

Code goes to workers as references to its module where it stands in one. On this machine workers have the driver's path;
elsewhere Spark sends files along (`addPyFile`). What is sent: every module that is loaded and of no library, those of
its package, and those beside it, which code may import when it is called. Other files stay here, keys and settings
among them, unless the package names them: `PENSTOCK_DATA = ("tables/*.csv",)` in its `__init__.py`.
"""

from __future__ import annotations

import sys
import sysconfig
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.modelling.code_text import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

ARCHIVE = "penstock-modules.zip"
DATA = "PENSTOCK_DATA"
"""Name in a package for patterns of files that its code reads."""
MOST_BYTES = 64 * 2**20


def own_files(modules: Iterable[ModuleType]) -> dict[str, Path]:
    """By the path that each has in an archive."""
    files: dict[str, Path] = {}
    for module in modules:
        name, file = module.__name__, getattr(module, "__file__", None)
        if file is None or not _is_own(name.partition(".")[0], Path(file)):
            continue
        folder, inside = Path(file).parent, PurePosixPath(*name.split("."))
        if "." not in name and hasattr(module, "__path__"):
            files |= {str(inside / path.relative_to(folder).as_posix()): path for path in _below(folder, module)}
        elif not hasattr(module, "__path__"):
            files |= {str(inside.parent / path.name): path for path in folder.glob("*.py")}
    return files


def _below(folder: Path, package: ModuleType) -> Iterator[Path]:
    named = getattr(package, DATA, ())
    if not isinstance(named, list | tuple) or not all(isinstance(pattern, str) for pattern in named):
        raise BadInputError(f"{package.__name__}.{DATA}: expected a list of patterns, as tables/*.csv")
    for pattern in ("**/*.py", *named):
        if pattern.startswith("/") or ".." in pattern:
            raise BadInputError(f"{package.__name__}.{DATA}: '{pattern}' leads out of the package")
        yield from (path for path in folder.glob(pattern) if path.is_file())


def _is_own(name: str, file: Path) -> bool:
    # what stands in the script itself goes to workers as it is
    if name in sys.stdlib_module_names or name in {"__main__", "penstock", "pyspark", "py4j"} or file.suffix != ".py":
        return False
    of_python = Path(sysconfig.get_paths()["stdlib"])
    return of_python not in file.parents and not any(part in LIBRARIES for part in file.parts)


def own_archive_in(folder: Path) -> Path | None:
    """What `SparkContext.addPyFile` sends; None: nothing of the user's own is loaded."""
    files = own_files(list(sys.modules.values()))
    if not files:
        return None
    size = sum(path.stat().st_size for path in files.values())
    if size > MOST_BYTES:
        raise BadInputError(
            f"modules beside the pipeline have {size / 2**20:,.0f} MB, at most {MOST_BYTES / 2**20:,.0f} are sent to "
            "executors: put its code into a folder of its own, or install it on them"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, path in sorted(files.items()):
            archive.write(path, inside)
    return folder / ARCHIVE
