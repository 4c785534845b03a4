"""What all tests share: how hard properties are tried. Where many people wait for the same run, it is the same one.

`./run test --hypothesis-profile thorough` tries every property on ten times as many examples.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# How long an example takes is the machine's business: it fails no test.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI")))

# A shell lets what it starts in the background ignore Ctrl-C, and so would the processes of tests that send one.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("brief", PATIENT, max_examples=25)
settings.register_profile("thorough", PATIENT, max_examples=250)
settings.load_profile("brief")
