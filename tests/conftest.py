"""What all tests share: how hard properties are tried. Where many people wait for the same run, it is the same one.

`./run test --hypothesis-profile thorough` tries every property on twenty times as many examples, `./run test tests/fuzz
--fuzz 10000` makes so many calls with files made wrong, `--long` runs tests that take minutes by themselves,
`--unproven` those that were not yet seen to pass.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's business: it fails no test.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI")))

# A shell lets what it starts in the background ignore Ctrl-C, and so would the processes of tests that send one.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("brief", PATIENT, max_examples=8)
settings.register_profile("thorough", PATIENT, max_examples=250)
settings.load_profile("brief")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, default=700, help="So many calls with files made wrong (tests/fuzz).")
    parser.addoption("--fuzz-only", type=int, default=None, help="Only the call of this number.")
    parser.addoption("--lane", choices=["shared", "clusters", "contracts"], help="Of tests/spark: only these.")
    parser.addoption("--long", action="store_true", help="Also tests that take minutes by themselves.")
    parser.addoption("--unproven", action="store_true", help="Also tests that were not yet seen to pass.")


SKIPPED = {"unproven": "not yet seen to pass", "long": "takes minutes"}
"""By mark, which is the name of the option that runs them too."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that takes minutes, or that nobody saw pass, says so, with what is known; it runs when asked for."""
    for name, reason in SKIPPED.items():
        if config.getoption(f"--{name}"):
            continue
        for item in items:
            mark = item.get_closest_marker(name)
            if mark is not None:
                item.add_marker(pytest.mark.skip(reason=f"{reason} (--{name} runs it): {mark.args[0]}"))
