"""Where racks, nodes and slots stand on the page. All lengths are inches; y grows downwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.dataflow.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.cluster.topology import Cluster


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Box:
        return Box(self.x + x, self.y + y, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Detail:
    """How much is shown, and how large. Text sizes are points; 0 leaves the text out."""

    cell_width: float
    cell_height: float
    gap: float
    """Between cells; nodes and racks keep a multiple of it."""
    node_header: float
    rack_header: float
    name_text: float
    cell_text: float
    rack_text: float
    figures: bool
    """Write the number of each slot, and its load in figures beside the bars."""
    page: float
    """The most square inches a page of this detail may have."""

    def scaled(self, factor: float) -> Detail:
        return Detail(
            self.cell_width * factor,
            self.cell_height * factor,
            self.gap * factor,
            self.node_header * factor,
            self.rack_header * factor,
            self.name_text * factor,
            self.cell_text * factor,
            self.rack_text * factor,
            self.figures,
            self.page,
        )

    @property
    def line(self) -> float:
        """Points: thin lines for small cells."""
        return min(0.7, 2.2 * self.cell_height)

    @property
    def node_pad(self) -> float:
        return 1.6 * self.gap

    @property
    def node_gap(self) -> float:
        return 2.0 * self.gap

    @property
    def rack_gap(self) -> float:
        return 3.5 * self.gap


DETAILS = (
    Detail(1.72, 0.50, 0.060, 0.40, 0.28, 8.0, 6.5, 8.0, figures=True, page=190.0),
    Detail(0.72, 0.36, 0.050, 0.22, 0.26, 6.5, 5.5, 9.0, figures=False, page=190.0),
    Detail(0.34, 0.15, 0.035, 0.15, 0.24, 5.0, 0.0, 8.0, figures=False, page=190.0),
    Detail(0.20, 0.10, 0.025, 0.00, 0.22, 0.0, 0.0, 8.0, figures=False, page=math.inf),
)
"""From the most to the least; the first whose page is not too large is taken."""
LARGEST_PAGE = 220.0
"""Square inches: what still does not fit is shrunk to this."""
LARGEST_FACTOR = 1.3
"""A page with little on it is enlarged, up to this, and up to the width below."""
COMFORTABLE_WIDTH = 10.5
SHAPE, PAGE_SHAPE = 1.5, 1.7
"""Width by height of a pleasant node, and of a pleasant page."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Boxes of racks by name and of nodes and slots in the cluster's order."""

    cluster: Cluster
    detail: Detail
    width: float
    height: float
    racks: dict[str, Box]
    nodes: tuple[Box, ...]

    @property
    def cells(self) -> Iterator[tuple[Box, ...]]:
        """The boxes of the slots, node by node."""
        for node, box in zip(self.cluster.nodes, self.nodes, strict=True):
            yield _cells(node.slots, box, self.detail)


def arrange(cluster: Cluster) -> Arrangement:
    """The most detail that fits a page."""
    for detail in DETAILS:
        arrangement = _best_width(cluster, detail)
        if arrangement.width * arrangement.height <= detail.page:
            break
    area = arrangement.width * arrangement.height
    factor = min(LARGEST_FACTOR, COMFORTABLE_WIDTH / arrangement.width)
    if area > LARGEST_PAGE:
        factor = math.sqrt(LARGEST_PAGE / area)
    elif factor <= 1:
        return arrangement
    return _at_width(cluster, arrangement.detail.scaled(factor), arrangement.width * factor * (1 + TOLERANCE))


def _best_width(cluster: Cluster, detail: Detail) -> Arrangement:
    widest = max(_node_size(node.slots, detail)[0] for node in cluster.nodes)
    area = sum(math.prod(_node_size(node.slots, detail)) for node in cluster.nodes)
    guess = math.sqrt(PAGE_SHAPE * area)
    widths = [max(widest, guess * (0.7 + 0.1 * step)) + 4 * detail.rack_gap for step in range(16)]
    arrangements = [_at_width(cluster, detail, width) for width in widths]

    def badness(arrangement: Arrangement) -> float:
        """How far from the pleasant shape, and how much of the page is left empty."""
        return (
            abs(math.log(arrangement.width / arrangement.height / PAGE_SHAPE))
            + arrangement.width * arrangement.height / area
        )

    return min(arrangements, key=badness)


def _at_width(cluster: Cluster, detail: Detail, width: float) -> Arrangement:
    by_rack: dict[str, list[int]] = {}
    for position, node in enumerate(cluster.nodes):
        by_rack.setdefault(node.rack, []).append(position)
    sizes = [_node_size(node.slots, detail) for node in cluster.nodes]
    inner = width - 2 * detail.rack_gap
    packed = {
        rack: _shelves([sizes[position] for position in positions], inner, detail.node_gap)
        for rack, positions in by_rack.items()
    }
    pad, header = detail.rack_gap, detail.rack_header
    outer = [_extent(boxes, 2 * pad, 1.6 * pad + header) for boxes in packed.values()]
    rack_boxes = _shelves(outer, width, detail.rack_gap)
    nodes = [Box(0, 0, 0, 0)] * len(cluster.nodes)
    for rack_box, (rack, boxes) in zip(rack_boxes, packed.items(), strict=True):
        for position, box in zip(by_rack[rack], boxes, strict=True):
            nodes[position] = box.moved(rack_box.x + pad, rack_box.y + header + 0.6 * pad)
    whole = _extent(rack_boxes, 0, 0)
    return Arrangement(cluster, detail, *whole, dict(zip(packed, rack_boxes, strict=True)), tuple(nodes))


def _shelves(sizes: Sequence[tuple[float, float]], width: float, gap: float) -> list[Box]:
    """Boxes from left to right, on to the next shelf where the width is used up.

    A box goes below the one before it where it fits under it without making the shelf higher.
    """
    boxes: list[Box] = []
    right, shelf_y, shelf = -gap, 0.0, 0.0
    for box_width, box_height in sizes:
        last = boxes[-1] if boxes else Box(0, 0, 0, 0)
        below = last.y + last.height + gap
        if boxes and box_width <= last.width + TOLERANCE and below + box_height <= shelf_y + shelf + TOLERANCE:
            boxes.append(Box(last.x, below, box_width, box_height))
            continue
        if boxes and right + gap + box_width > width + TOLERANCE:
            right, shelf_y, shelf = -gap, shelf_y + shelf + gap, 0.0
        boxes.append(Box(right + gap, shelf_y, box_width, box_height))
        right += gap + box_width
        shelf = max(shelf, box_height)
    return boxes


def _extent(boxes: Iterable[Box], more_width: float, more_height: float) -> tuple[float, float]:
    right, bottom = 0.0, 0.0
    for box in boxes:
        right, bottom = max(right, box.x + box.width), max(bottom, box.y + box.height)
    return right + more_width, bottom + more_height


@lru_cache(maxsize=1000)
def _columns(slots: int, detail: Detail) -> int:
    """Columns of cells that give a node a pleasant shape; a full last row counts for something too."""

    def badness(columns: int) -> float:
        rows = math.ceil(slots / columns)
        shape = columns * detail.cell_width / (rows * detail.cell_height)
        return abs(math.log(shape / SHAPE)) + 4.0 * (columns * rows - slots) / slots

    return min(range(1, min(slots, 64) + 1), key=badness)


@lru_cache(maxsize=1000)
def _node_size(slots: int, detail: Detail) -> tuple[float, float]:
    columns = _columns(slots, detail)
    rows = math.ceil(slots / columns)
    return (
        columns * detail.cell_width + (columns - 1) * detail.gap + 2 * detail.node_pad,
        rows * detail.cell_height + (rows - 1) * detail.gap + 2 * detail.node_pad + detail.node_header,
    )


def _cells(slots: int, box: Box, detail: Detail) -> tuple[Box, ...]:
    columns = _columns(slots, detail)
    left, top = box.x + detail.node_pad, box.y + detail.node_pad + detail.node_header
    return tuple(
        Box(
            left + index % columns * (detail.cell_width + detail.gap),
            top + index // columns * (detail.cell_height + detail.gap),
            detail.cell_width,
            detail.cell_height,
        )
        for index in range(slots)
    )
