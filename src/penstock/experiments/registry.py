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
        "model-driven": "penstock.experiments.model_driven.experiment:ModelDrivenEvaluation",
        "r-storm": "penstock.experiments.r_storm.experiment:RStormEvaluation",
        "priority": "penstock.experiments.priority.experiment:Priority",
        "p-deployer": "penstock.experiments.p_deployer.experiment:PDeployerEvaluation",
        "e-stream": "penstock.experiments.e_stream.experiment:EStreamEvaluation",
        "control": "penstock.experiments.control.experiment:Control",
        "ours": "penstock.experiments.ours:Ours",
    },
)

LIVE: Registry[Experiment] = Registry(
    kind="experiment on Spark",
    group="penstock.live_experiments",
    built_in={
        "priority": "penstock.experiments.priority.live_experiment:PriorityLive",
        "p-deployer": "penstock.experiments.p_deployer.live:PDeployerLive",
        "e-stream": "penstock.experiments.e_stream.live:EStreamLive",
        "r-storm": "penstock.experiments.r_storm.live:RStormLive",
    },
)
"""Those that can be run for real: under the controller, one case after the other."""
