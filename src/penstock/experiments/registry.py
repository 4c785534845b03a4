"""Experiments by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.experiments.contract import Experiment

EXPERIMENTS: Registry[Experiment] = Registry(
    kind="experiment",
    group="penstock.experiments",
    built_in={
        "model-driven": "penstock.experiments.model_driven:ModelDriven",
        "r-storm": "penstock.experiments.r_storm:RStorm",
        "priority": "penstock.experiments.priority:Priority",
        "p-deployer": "penstock.experiments.p_deployer:PDeployer",
        "e-stream": "penstock.experiments.e_stream:EStream",
        "ours": "penstock.experiments.ours:Ours",
    },
)
