"""The page of a plan: title, operators, and the cluster with every slot's load. Needs matplotlib."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.tolerance import TOLERANCE, covers, exceeds
from penstock.dataflow.code import why_not_placed
from penstock.pictures.canvas import ALARM, FAINT_INK, INK, number
from penstock.pictures.sheet import Sheet, first_fitting, fitted, text_width
from penstock.planning.prediction.placement import Routing, SlotUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from penstock.cluster.topology import Cluster, Node, Slot
    from penstock.planning.plan import Plan


# Positions of racks, nodes and slots on the page, in inches; y grows downwards.


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Box:
        return Box(self.x + x, self.y + y, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Detail:
    """Amount and size of details. Text sizes are points; 0 leaves the text out."""

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
"""Details from the most to the least; the first whose page is not too large is taken."""
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
        """Return the distance from a pleasant shape, and the empty part of the page."""
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
    """Return boxes from left to right, continued on the next shelf when the width is used up.

    A box goes below the one before it if it fits there without making the shelf higher.
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


COLOURS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
"""Colours of Paul Tol's "light" scheme: colour-blind readers can tell them apart, and dark text on them stays
legible."""
HATCHES = ("", "/////", "......", "xxxxx", "-----")
"""The colours repeat with the next of these."""

TIMES = "\N{MULTIPLICATION SIGN}"
MARGIN = 0.3
NARROWEST = 7.6
"""Inches: the title lines want this much even above a single slot."""
RACK_FILL, NODE_FILL, TRACK_FILL = "#f1f1ee", "#ffffff", "#e4e4e0"
EDGE, EMPTY_EDGE = "#b9b9b4", "#d4d4cf"
HIGHEST_LOAD = 1.5
"""Load at which bars of overloaded slots are cut: one bad slot must not make the bars of all others short."""
SMALLEST_TEXT = 3.0
"""Points: smaller text is left out."""


class Look(NamedTuple):
    colour: str
    hatch: str


class Part(NamedTuple):
    """One operator's part of a slot."""

    operator: str
    threads: int
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Content:
    """All that the drawing needs of a plan."""

    plan: Plan
    looks: Mapping[str, Look]
    parts: Mapping[Slot, Sequence[Part]]
    loads: Mapping[Slot, SlotUsage]
    scale: float
    """The load at the right end of a bar: 1 unless a slot is overloaded."""


def plan_page(plan: Plan) -> Figure:
    """The whole page, as large as its cluster needs."""
    content = _content(plan)
    arrangement = arrange(plan.cluster)
    width = max(NARROWEST, arrangement.width + 2 * MARGIN)
    sheet = Sheet()
    y = _draw_title(sheet, plan, width)
    y = _draw_operators(sheet, content, y, width)
    y = _draw_reading_help(sheet, content, arrangement, y, width)
    _draw_cluster(sheet, content, arrangement, MARGIN, y)
    return sheet.figure(width, y + arrangement.height + MARGIN)


def looks_of(operators: Sequence[str]) -> dict[str, Look]:
    """A colour and a hatch for every operator: different ones for the first forty."""
    return {
        name: Look(COLOURS[place % len(COLOURS)], HATCHES[place // len(COLOURS) % len(HATCHES)])
        for place, name in enumerate(operators)
    }


def _content(plan: Plan) -> Content:
    loads = plan.prediction.slots
    highest = max((max(load.cpu, load.memory) for load in loads.values()), default=1.0)
    return Content(
        plan=plan,
        looks=looks_of([operator.name for operator in plan.allocation.operators]),
        parts=dict(parts_by_slot(plan)),
        loads=loads,
        scale=min(highest, HIGHEST_LOAD) if exceeds(highest, 1.0) else 1.0,
    )


def parts_by_slot(plan: Plan) -> Iterator[tuple[Slot, list[Part]]]:
    """Each slot's predicted load, shared out among its operators in proportion to what their threads were allocated.

    The total is the prediction's; a plan does not keep how it came about.
    """
    order = {operator.name: operator for operator in plan.allocation.operators}
    for slot, threads in plan.placement.by_slot().items():
        load = plan.prediction.slots[slot]
        present = [(order[name], threads[name]) for name in order if name in threads]
        cpu = _shared(load.cpu, [operator.cpu * count / operator.threads for operator, count in present])
        memory = _shared(load.memory, [operator.memory * count / operator.threads for operator, count in present])
        yield (
            slot,
            [
                Part(operator.name, count, *amounts)
                for (operator, count), *amounts in zip(present, cpu, memory, strict=True)
            ],
        )


def _shared(total: float, weights: Sequence[float]) -> list[float]:
    whole = sum(weights)
    return [total * weight / whole if whole else total / len(weights) for weight in weights]


# Title, operators and legend, from the top down; each function returns the y of the next.


def _draw_title(sheet: Sheet, plan: Plan, width: float) -> float:
    room = width - 2 * MARGIN
    y = MARGIN + 0.1
    tail = f" at {number(plan.rate)} tuples/s"
    name = fitted(plan.pipeline.name, room - text_width(tail, 15, bold=True), 15, bold=True)
    sheet.text(MARGIN, y, name + tail, 15, bold=True)
    y += 0.3
    for facts, colour in ((_decision(plan), INK), (_forecast(plan), ALARM if _falls_short(plan) else INK)):
        for line in _wrapped(facts, room, 9.5):
            sheet.text(MARGIN, y, line, 9.5, colour=colour)
            y += 0.2
    return y + 0.06


def _decision(plan: Plan) -> list[str]:
    nodes = plan.cluster.nodes
    sizes = Counter(node.size for node in nodes if node.size)
    kinds = ", ".join(f"{count} {size}" for size, count in sizes.most_common()) if len(sizes) > 1 else "".join(sizes)
    price = plan.cluster.price
    return [
        f"allocated by {plan.allocation.allocator}",
        f"placed by {plan.placement.placer}",
        f"{plan.slots_used} of {_counted(len(plan.cluster.slots), 'slot')} used",
        _counted(len(nodes), "node") + (f" ({kinds})" if kinds else ""),
        "price unknown" if price is None else f"{number(price)} {plan.currency} per hour",
    ]


def _forecast(plan: Plan) -> list[str]:
    prediction = plan.prediction
    if prediction.fused_only:
        lines = [why_not_placed(prediction.fused_only)]
    else:
        unmeasured = f"; {', '.join(prediction.unmeasured)} not measured" if prediction.unmeasured else ""
        lines = [
            f"placed, predicted to sustain {'at most ' if unmeasured else ''}{_rate(prediction.slot_aware.rate)} "
            f"slot-aware, {_rate(prediction.shuffle.rate)} with shuffle{unmeasured}",
            f"latency ({prediction.routing}) {_latency(prediction.latency_ms)}",
        ]
    forecast = prediction.forecast
    if forecast.max_rate is not None:
        latency = _latency(forecast.latency_values or {})
        lines.append(f"{forecast.engine} {_rate(forecast.max_rate.value)}, latency {latency}")
    return lines


def _latency(percentiles: Mapping[str, float]) -> str:
    bounded = (f"{name} {_duration(value)}" for name, value in percentiles.items() if math.isfinite(value))
    return ", ".join(bounded) or "unbounded"


def _falls_short(plan: Plan) -> bool:
    prediction = plan.prediction
    supported = prediction.slot_aware if prediction.routing is Routing.SLOT_AWARE else prediction.shuffle
    return not covers(supported.rate, plan.rate)


def _draw_operators(sheet: Sheet, content: Content, y: float, width: float) -> float:
    """A swatch, the name and the threads of every operator, in rows."""
    size, swatch, x = 9.0, 0.24, MARGIN
    for operator in content.plan.allocation.operators:
        look = content.looks[operator.name]
        threads = f" {TIMES}{operator.threads}"
        name = fitted(operator.name, 3.0, size)
        needed = swatch + 0.07 + text_width(name + threads, size)
        if x > MARGIN and x + needed > width - MARGIN:
            x, y = MARGIN, y + 0.23
        sheet.box(Box(x, y - 0.075, swatch, 0.15), look.colour, hatch=look.hatch, layer=2)
        sheet.text(x + swatch + 0.07, y, name + threads, size)
        x += needed + 0.22
    return y + 0.25


def _draw_reading_help(sheet: Sheet, content: Content, arrangement: Arrangement, y: float, width: float) -> float:
    facts = [f"{TIMES}n: threads", "in each slot: upper bar CPU, lower bar memory", "dark line: the whole slot"]
    if content.scale > 1:
        facts.append("red: more than the whole slot")
    if arrangement.detail.name_text >= SMALLEST_TEXT:
        facts.append("node figures: of all its slots")
    for line in _wrapped(facts, width - 2 * MARGIN, 8):
        sheet.text(MARGIN, y, line, 8, colour=FAINT_INK)
        y += 0.17
    return y + 0.05


def _wrapped(facts: Sequence[str], width: float, size: float) -> list[str]:
    """Facts joined by dots, on as many lines as they need."""
    lines: list[str] = []
    for fact in facts:
        longer = f"{lines[-1]}  ·  {fact}" if lines else fact
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(fitted(fact, width, size))
    return lines


def _draw_cluster(sheet: Sheet, content: Content, arrangement: Arrangement, x: float, y: float) -> None:
    cluster = content.plan.cluster
    usage = content.plan.prediction.nodes
    rack_nodes = Counter(node.rack for node in cluster.nodes)
    for rack, box in arrangement.racks.items():
        name = rack if rack.lower().startswith("rack") else f"rack {rack}"
        _draw_rack(sheet, arrangement, box.moved(x, y), name, _counted(rack_nodes[rack], "node"))
    slots = iter(cluster.slots)
    for node, node_box, cells in zip(cluster.nodes, arrangement.nodes, arrangement.cells, strict=True):
        _draw_node(sheet, arrangement, node_box.moved(x, y), node, usage.get(node.name))
        for cell, slot in zip(cells, slots, strict=False):
            _draw_slot(sheet, content, arrangement, cell.moved(x, y), slot)


def _draw_rack(sheet: Sheet, arrangement: Arrangement, box: Box, name: str, nodes: str) -> None:
    detail = arrangement.detail
    sheet.box(box, RACK_FILL, edge=EDGE, line=0.8, layer=0)
    if detail.rack_text >= SMALLEST_TEXT:
        room = box.width - 2 * detail.rack_gap
        label = first_fitting([f"{name}  ·  {nodes}", name], room, detail.rack_text)
        middle = box.y + 0.3 * detail.rack_gap + detail.rack_header / 2
        sheet.text(box.x + detail.rack_gap, middle, label, detail.rack_text, colour=FAINT_INK)


def _draw_node(sheet: Sheet, arrangement: Arrangement, box: Box, node: Node, used: SlotUsage | None) -> None:
    detail = arrangement.detail
    sheet.box(box, NODE_FILL, edge=EDGE, line=0.9 * detail.line, layer=1)
    if detail.name_text < SMALLEST_TEXT:
        return
    room = box.width - 2 * detail.node_pad
    left, right = box.x + detail.node_pad, box.x + box.width - detail.node_pad
    cpu, memory = (used.cpu / node.slots, used.memory / node.slots) if used else (0.0, 0.0)
    size = detail.name_text
    names = [f"{node.name} · {node.size}", node.name] if node.size else [node.name]
    loads = [f"CPU {cpu:.0%}, memory {memory:.0%}", f"CPU {cpu:.0%}, mem {memory:.0%}", f"{cpu:.0%}, {memory:.0%}"]
    colour = ALARM if exceeds(max(cpu, memory), 1.0) else FAINT_INK
    if detail.figures:
        # Two lines: the header is as high as that.
        top = box.y + detail.node_pad
        sheet.text(left, top + 0.25 * detail.node_header, first_fitting(names, room, size, bold=True), size, bold=True)
        load = first_fitting(loads, room, 0.85 * size)
        sheet.text(left, top + 0.65 * detail.node_header, load, 0.85 * size, colour=colour)
        return
    middle = box.y + 0.6 * detail.node_pad + detail.node_header / 2
    name = first_fitting(names, room, size, bold=True)
    sheet.text(left, middle, name, size, bold=True)
    rest = room - text_width(name, size, bold=True) - 0.1
    load = next((text for text in loads if text_width(text, size) <= rest), "")
    sheet.text(right, middle, load, size, colour=colour, align="right")


def _draw_slot(sheet: Sheet, content: Content, arrangement: Arrangement, cell: Box, slot: Slot) -> None:
    detail = arrangement.detail
    parts = content.parts.get(slot, ())
    load = content.loads.get(slot, SlotUsage())
    bars = cell
    if detail.figures:
        bars = Box(cell.x + 0.10 * cell.width, cell.y, 0.74 * cell.width, cell.height)
        middle = cell.y + 0.64 * cell.height
        sheet.text(
            cell.x + 0.06 * cell.width, middle, str(slot.number), detail.cell_text, colour=FAINT_INK, align="right"
        )
    if detail.cell_text >= SMALLEST_TEXT:
        _draw_threads(sheet, detail, cell, bars.x, parts, load)
        bars = Box(bars.x, bars.y + 0.34 * bars.height, bars.width, 0.66 * bars.height)
    cpu = Box(bars.x, bars.y, bars.width, 0.60 * bars.height)
    memory = Box(bars.x, bars.y + 0.68 * bars.height, bars.width, 0.28 * bars.height)
    operators = [part.operator for part in parts]
    _draw_bar(sheet, content, detail, cpu, operators, [part.cpu for part in parts])
    _draw_bar(sheet, content, detail, memory, operators, [part.memory for part in parts])
    if detail.figures and parts:
        for bar, total in ((cpu, load.cpu), (memory, load.memory)):
            _draw_figure(sheet, cell.x + cell.width, bar.y + bar.height / 2, total, 0.92 * detail.cell_text)


def _draw_threads(sheet: Sheet, detail: Detail, cell: Box, left: float, parts: Sequence[Part], load: SlotUsage) -> None:
    """Draw the line above the bars; an overload is written here if there is no room for figures beside every bar."""
    middle, right = cell.y + 0.16 * cell.height, cell.x + cell.width
    highest = max(load.cpu, load.memory)
    if exceeds(highest, 1.0) and not detail.figures:
        _draw_figure(sheet, right, middle, highest, detail.cell_text)
        right -= text_width(f"{highest:.0%} ", detail.cell_text, bold=True)
    label = _threads_label(parts, right - left, detail.cell_text)
    sheet.text(left, middle, label, detail.cell_text, colour=INK if parts else FAINT_INK)


def _draw_figure(sheet: Sheet, x: float, y: float, load: float, size: float) -> None:
    over = exceeds(load, 1.0)
    sheet.text(x, y, f"{load:.0%}", size, colour=ALARM if over else FAINT_INK, bold=over, align="right")


def _draw_bar(
    sheet: Sheet, content: Content, detail: Detail, bar: Box, operators: Sequence[str], amounts: Sequence[float]
) -> None:
    """Draw one bar, stacked by operator; the part above 1.0 is framed in red. Without operators only an outline."""
    unit = bar.width / content.scale
    whole = Box(bar.x, bar.y, unit, bar.height)
    if not operators:
        sheet.box(whole, "none", edge=EMPTY_EDGE, line=max(0.35, 0.7 * detail.line), layer=2)
        return
    sheet.box(whole, TRACK_FILL, layer=2)
    x, end = bar.x, bar.x + bar.width
    for operator, amount in zip(operators, amounts, strict=True):
        look, width = content.looks[operator], min(amount * unit, end - x)
        if width > 0:
            sheet.box(Box(x, bar.y, width, bar.height), look.colour, hatch=look.hatch, layer=3)
            x += width
    full = bar.x + unit
    sheet.line(full, bar.y, full, bar.y + bar.height, INK, detail.line, layer=4)
    if exceeds(sum(amounts), 1.0):
        # A frame is lost on a small cell, so there the excess is all red.
        fill = "none" if detail.cell_text >= SMALLEST_TEXT else ALARM
        sheet.box(Box(full, bar.y, x - full, bar.height), fill, edge=ALARM, line=1.6 * detail.line, layer=5)


def _threads_label(parts: Sequence[Part], width: float, size: float) -> str:
    """ "X×1 B×50", the operators with most threads first where not all fit."""
    if not parts:
        return first_fitting(["empty", ""], width, size)
    names = [f"{part.operator}{TIMES}{part.threads}" for part in parts]
    whole = "  ".join(names)
    if text_width(whole, size) <= width:
        return whole
    largest = sorted(range(len(parts)), key=lambda place: -parts[place].threads)
    for count in range(len(parts) - 1, 0, -1):
        kept = "  ".join(names[place] for place in sorted(largest[:count])) + f"  +{len(parts) - count}"
        if text_width(kept, size) <= width:
            return kept
    others = f"  +{len(parts) - 1}" if len(parts) > 1 else ""
    room = width - text_width(others, size)
    return first_fitting([names[place] for place in largest], room, size) + others


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _rate(rate: float) -> str:
    return f"{number(rate)}/s" if math.isfinite(rate) else "an unknown rate"


def _duration(milliseconds: float) -> str:
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{number(float(f'{milliseconds / 1000:.3g}'))} s"
