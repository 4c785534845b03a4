"""What the controller takes by name: trigger kinds, node providers, forecasts and round planners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.registry import Registry

if TYPE_CHECKING:
    from penstock.control.contracts import Forecast, Provider, RoundPlanner
    from penstock.control.core.trigger_kinds import TriggerKind

CODE_TRIGGER = "code"
"""The kind of a trigger whose condition is named as `module:attribute`."""
CODE_ADDRESS = "module:attribute"

TRIGGER_KINDS: Registry[TriggerKind] = Registry(
    kind="trigger kind",
    group="penstock.triggers",
    built_in={
        "arrival-rate": "penstock.control.core.trigger_kinds:ArrivalRate",
        "lag": "penstock.control.core.trigger_kinds:Lag",
        "batch-share": "penstock.control.core.trigger_kinds:BatchShare",
        CODE_TRIGGER: "penstock.control.core.trigger_kinds:CodeTrigger",
    },
)


def trigger_kind_names() -> list[str]:
    """Return what people write as a kind: the names, and the address of a function in place of `code`."""
    return [*(name for name in TRIGGER_KINDS.names() if name != CODE_TRIGGER), CODE_ADDRESS]


DEFAULT_PROVIDER = "local"

NODE_PROVIDERS: Registry[Provider] = Registry(
    kind="node provider",
    group="penstock.node_providers",
    built_in={
        DEFAULT_PROVIDER: "penstock.control.node_providers:ClusterProvider",
        "command": "penstock.control.node_providers:CommandProvider",
    },
)

FORECASTS: Registry[Forecast] = Registry(
    kind="forecast",
    group="penstock.forecasts",
    built_in={
        "seasonal": "penstock.control.elasticity.load_forecasts:Seasonal",
        "last-value": "penstock.control.elasticity.load_forecasts:LastValue",
        "none": "penstock.control.elasticity.load_forecasts:NoForecast",
    },
)

ROUND_PLANNERS: Registry[RoundPlanner] = Registry(
    kind="planner",
    group="penstock.round_planners",
    built_in={
        "measured": "penstock.control.deployment:MeasuredCosts",
        "published": "penstock.control.deployment:PublishedCosts",
    },
)
DEFAULT_ROUND_PLANNER = "measured"
