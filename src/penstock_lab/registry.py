"""Experiments by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock_lab.contract import Experiment

EXPERIMENTS: Registry[Experiment] = Registry(
    kind="experiment",
    group="penstock.experiments",
    built_in={
        "model-driven": "penstock_lab.model_driven.experiment:ModelDrivenEvaluation",
        "r-storm": "penstock_lab.r_storm.experiment:RStormEvaluation",
        "priority": "penstock_lab.priority.experiment:Priority",
        "p-deployer": "penstock_lab.p_deployer.experiment:PDeployerEvaluation",
        "e-stream": "penstock_lab.e_stream.experiment:EStreamEvaluation",
        "control": "penstock_lab.control.experiment:Control",
        "ours": "penstock_lab.ours:Ours",
    },
)

LIVE: Registry[Experiment] = Registry(
    kind="experiment on Spark",
    group="penstock.live_experiments",
    built_in={
        "priority": "penstock_lab.priority.live_experiment:PriorityLive",
        "p-deployer": "penstock_lab.p_deployer.live:PDeployerLive",
        "e-stream": "penstock_lab.e_stream.live:EStreamLive",
        "r-storm": "penstock_lab.r_storm.live:RStormLive",
    },
)
"""Those that can be run for real: under the controller, one case after the other."""
