"""One broker for all tests that need one. Where it cannot be had they are skipped, with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.base.errors import BadInputError, ClusterError
from penstock.spark.broker.broker import RunningBroker, broker_down, broker_up

sys.path.append(str(Path(__file__).parents[2] / "placed"))  # topics are hurt the same way whoever keeps them


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    pytest.importorskip("confluent_kafka")
    folder = tmp_path_factory.mktemp("broker")
    try:
        started = broker_up(folder)
    except (ClusterError, BadInputError) as error:
        pytest.skip(f"no broker: {error}")
    yield started
    broker_down(folder)


@pytest.fixture
def restart_broker(broker: RunningBroker) -> Callable[[], None]:
    """At the same address and with what it holds."""

    def restart() -> None:
        broker_down(broker.folder.parent, keep=True)
        broker_up(broker.folder.parent)

    return restart
