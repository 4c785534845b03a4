"""Experiments by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plugins import Registry

if TYPE_CHECKING:
    from penstock_lab.contract import Experiment

EXPERIMENTS: Registry[Experiment] = Registry(
    kind="experiment",
    group="penstock.experiments",
    built_in={
        "model-driven": "penstock_lab.experiments.model_driven:ModelDrivenEvaluation",
        "r-storm": "penstock_lab.experiments.r_storm:RStormEvaluation",
        "priority": "penstock_lab.experiments.priority:Priority",
        "p-deployer": "penstock_lab.experiments.p_deployer:PDeployerEvaluation",
        "e-stream": "penstock_lab.experiments.e_stream:EStreamEvaluation",
        "control": "penstock_lab.control.experiment:Control",
        "ours": "penstock_lab.experiments.own_policies:Ours",
    },
)

LIVE: Registry[Experiment] = Registry(
    kind="experiment on Spark",
    group="penstock.live_experiments",
    built_in={
        "model-driven": "penstock_lab.experiments.model_driven_live:ModelDrivenLive",
        "priority": "penstock_lab.experiments.live_experiments:PriorityLive",
        "p-deployer": "penstock_lab.experiments.live_experiments:PDeployerLive",
        "e-stream": "penstock_lab.experiments.live_experiments:EStreamLive",
        "r-storm": "penstock_lab.experiments.live_experiments:RStormLive",
    },
)
"""Those that can be run for real: under the controller, one case after the other."""
