from __future__ import annotations

import pytest
from seeds import Seed, make_seeds


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seed]:
    return make_seeds(tmp_path_factory.mktemp("seeds"))
