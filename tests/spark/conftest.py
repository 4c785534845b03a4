"""One Spark session for all tests that need one; it ends with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.spark.session import start_session


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    started = start_session(2, tmp_path_factory.mktemp("spark") / "java.log")
    yield started
    gateway: Any = started.sparkContext._gateway
    started.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=30)
