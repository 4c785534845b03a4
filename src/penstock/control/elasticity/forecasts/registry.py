"""Forecasts by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.control.elasticity.forecasts.contract import Forecast

_HERE = "penstock.control.elasticity.forecasts"
FORECASTS: Registry[Forecast] = Registry(
    kind="forecast",
    group="penstock.forecasts",
    built_in={
        "seasonal": f"{_HERE}.seasonal:Seasonal",
        "last-value": f"{_HERE}.last_value:LastValue",
        "none": f"{_HERE}.none:NoForecast",
    },
)
