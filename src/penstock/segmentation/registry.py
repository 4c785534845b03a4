"""The segmenters there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.segmentation.contract import Segmenter

SEGMENTERS: Registry[Segmenter] = Registry(
    kind="segmenter",
    group="penstock.segmenters",
    built_in={
        "whole": "penstock.segmentation.whole:Whole",
        "single": "penstock.segmentation.single:Single",
        "ends": "penstock.segmentation.ends:EndsApart",
        "ccr": "penstock.segmentation.ccr:Ccr",
    },
)

DEFAULT_SEGMENTER = "ccr"
