"""The services of the reference operators, once for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.workloads.operators import reference_logic, services
from workload_builders import AT_ONCE, ROWS


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the operators need, set in the environment."""
    cache = tmp_path_factory.mktemp("cache")
    with (
        services(reference_logic, blob=AT_ONCE, folder=cache, rows=ROWS) as environment,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in environment.items():
            patch.setenv(name, value)
        yield environment
