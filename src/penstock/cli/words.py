"""Errors name arguments as Python does (`find_max=`); whoever typed options reads the options (`--find-max`)."""

from __future__ import annotations

import re

OPTION_OF = {
    "batch_overhead_ms": "--batch-overhead",
    "checkpoint": "--checkpoint",
    "cluster": "--cluster",
    "cores": "--cores",
    "current": "--current",
    "dead_letters": "--dead-letters",
    "executor_memory_mb": "--executor-memory",
    "find_max": "--find-max",
    "folder": "--folder",
    "fresh": "--fresh",
    "high": "--high",
    "in_flight": "--in-flight",
    "load": "--load",
    "low": "--low",
    "mode": "--mode",
    "most_dead": "--most-dead",
    "network": "--network",
    "outages": "--fail",
    "queue_limit": "--queue",
    "rate": "--rate",
    "replay_seconds": "--replay",
    "routing": "--routing",
    "service": "--service",
    "skew": "--skew",
    "slots": "--slots",
    "switches": "--switch",
    "until_end": "--until-end",
}
"""Arguments that errors name, and the option that gives each."""

_ARGUMENT = re.compile(rf"(?<![\w-])({'|'.join(OPTION_OF)})=(?:'([^']*)'|(?!\w))")


def in_options(message: str) -> str:
    """`rate=: expected ...` as `--rate: expected ...`, `mode='fused'` as `--mode fused`.

    What users write themselves, in the options of a policy (`rate=5`), stays as it is.
    """

    def option(argument: re.Match[str]) -> str:
        name, value = argument.groups()
        return OPTION_OF[name] if value is None else f"{OPTION_OF[name]} {value}"

    return _ARGUMENT.sub(option, message)
