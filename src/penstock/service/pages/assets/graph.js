// A pipeline's operators and streams; busy share as colour and as a figure, backlog as a badge.

import { figure, percent, s } from "./dom.js";

const WIDTH = 132, HEIGHT = 58, GAP_X = 46, GAP_Y = 22, EDGE = 16;

function level(busy) {
  if (busy === null || busy === undefined) return "unknown";
  if (busy >= 0.9) return "full";
  if (busy >= 0.7) return "high";
  return busy >= 0.3 ? "some" : "low";
}

function shortened(name) {
  return name.length > 15 ? `${name.slice(0, 14)}…` : name;
}

export function drawGraph(graph, operators) {
  const width = graph.layers * WIDTH + (graph.layers - 1) * GAP_X + 2 * EDGE;
  const height = Math.max(1, graph.widest) * (HEIGHT + GAP_Y) + EDGE;
  const place = new Map(graph.operators.map((one) => [one.name, { x: EDGE + one.x * (WIDTH + GAP_X), y: one.y * height - HEIGHT / 2 }]));
  const streams = graph.streams.map((stream) => {
    const from = place.get(stream.from), to = place.get(stream.to);
    const x1 = from.x + WIDTH, y1 = from.y + HEIGHT / 2, x2 = to.x - 5, y2 = to.y + HEIGHT / 2, half = (x2 - x1) / 2;
    return s("path", { class: "stream", d: `M${x1},${y1} C${x1 + half},${y1} ${x2 - half},${y2} ${x2},${y2}`, "marker-end": "url(#arrow)" }, s("title", {}, `${stream.from} → ${stream.to}: ${stream.grouping}`));
  });
  const boxes = graph.operators.map((one) => {
    const at = place.get(one.name), does = operators[one.name] || {};
    const busy = does.busy, how = level(busy);
    const lines = [does.threads ? `${figure(does.threads)} thread${does.threads === 1 ? "" : "s"}` : one.kind === "operator" ? "" : one.kind, does.rate === undefined ? "" : `${figure(does.rate)}/s`].filter(Boolean);
    const about = `${one.name} (${one.kind})${busy === null || busy === undefined ? "" : `, busy ${percent(busy)}`}${does.measured ? ", measured" : ", by the models"}${does.backlog ? `, ${figure(does.backlog)} tuples wait` : ""}`;
    return s("g", { class: `operator busy-${how}`, transform: `translate(${at.x},${at.y})`, tabindex: "0", role: "img", "aria-label": about },
      s("title", {}, about),
      s("rect", { width: WIDTH, height: HEIGHT, rx: one.kind === "operator" ? 7 : 26, class: "operator-box" }),
      busy === null || busy === undefined ? null : s("rect", { x: 10, y: HEIGHT - 10, width: WIDTH - 20, height: 4, rx: 2, class: "busy-track" }),
      busy === null || busy === undefined ? null : s("rect", { x: 10, y: HEIGHT - 10, width: Math.max(2, (WIDTH - 20) * Math.min(1, busy)), height: 4, rx: 2, class: "busy-fill" }),
      s("text", { x: 12, y: 20, class: "operator-name" }, shortened(one.name)),
      s("text", { x: WIDTH - 12, y: 20, class: "operator-busy" }, busy === null || busy === undefined ? "" : percent(busy)),
      s("text", { x: 12, y: 37, class: "operator-more" }, lines.join(" · ")),
      does.backlog ? s("g", { class: "backlog-badge" }, s("rect", { x: WIDTH - 74, y: -11, width: 78, height: 19, rx: 9 }), s("text", { x: WIDTH - 35, y: 3 }, `${figure(does.backlog)} wait`)) : null);
  });
  return s("svg", { class: "graph", viewBox: `0 -14 ${width} ${height + 14}`, width, height: height + 14, role: "group", "aria-label": "Graph of the pipeline" },
    s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0,0 L8,4 L0,8 z", class: "arrow-head" }))),
    streams, boxes);
}
