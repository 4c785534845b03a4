// Charts over time: measured as a line, predicted dashed, a target dotted, changes as upright marks.

import { clock, figure, h } from "./dom.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const MARKS = { grow: "▲", shrink: "▼", start: "▸", move: "↔", scale: "↕", wait: "◔", fail: "✕", priority: "!", state: "·", request: "✎" };

export const markSign = (kind) => MARKS[kind] || "·";

function marksPlugin(marks) {
  return {
    hooks: {
      draw: [(plot) => {
        const { ctx, bbox } = plot;
        const ratio = devicePixelRatio || 1;
        ctx.save();
        ctx.font = `${11 * ratio}px system-ui, sans-serif`;
        ctx.textAlign = "center";
        for (const mark of marks()) {
          const x = plot.valToPos(mark.at, "x", true);
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.strokeStyle = colour("--mark");
          ctx.fillStyle = colour("--mark");
          ctx.lineWidth = ratio;
          ctx.setLineDash([2 * ratio, 3 * ratio]);
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          ctx.fillText(markSign(mark.kind), x, bbox.top + 10 * ratio);
        }
        ctx.restore();
      }],
    },
  };
}

// Without a pointer over a chart its legend has the newest figures.
function newestPlugin() {
  const last = (column) => {
    let index = column.length - 1;
    while (index > 0 && (column[index] === null || column[index] === undefined)) index -= 1;
    return Math.max(0, index);
  };
  const show = (plot) => { if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idxs: plot.data.map(last) }, false); };
  return { hooks: { draw: [show], setCursor: [show] } };
}

// `lines` are {label, colour, dash, width, fill}; `data` is [times, column, ...]; `at` says how the first axis is read
export class Chart {
  constructor({ title, unit, lines, marks = () => [], group, height = 170, times = true, about = "" }) {
    this.settings = { title, unit, lines, marks, group, height, times };
    this.box = h("div", { class: "chart-box" });
    this.root = h("figure", { class: "chart card" }, h("figcaption", {}, h("span", { class: "chart-title" }, title), h("span", { class: "chart-unit" }, unit)), this.box, about ? h("p", { class: "chart-about" }, about) : null);
    this.data = null;
    this.plot = null;
    this.seen = new ResizeObserver(() => this.fit());
    this.seen.observe(this.box);
  }

  options() {
    const { lines, marks, group, height, times, unit } = this.settings;
    const grid = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--muted"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
    return {
      width: Math.max(200, this.box.clientWidth),
      height,
      cursor: { sync: group ? { key: group } : undefined, points: { size: 6 }, drag: { x: true, y: false } },
      legend: { live: true, markers: { dash: (_, index) => (!lines[index - 1]?.dash ? "solid" : lines[index - 1].dash[0] > 3 ? "dashed" : "dotted") } },
      scales: { x: { time: times }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.08] } },
      axes: [
        { ...axis, space: 70, values: times ? (_, splits) => splits.map((at) => clock(at).slice(0, splits.length > 1 && splits[1] - splits[0] < 60 ? 8 : 5)) : (_, splits) => splits.map((at) => `${at} s`) },
        { ...axis, size: 52, values: (_, splits) => splits.map((value) => figure(value)) },
      ],
      series: [
        { label: "at", value: (_, at) => (at === null ? "" : times ? clock(at) : `${at.toFixed(0)} s`) },
        ...lines.map((line) => ({
          label: line.label,
          stroke: colour(line.colour),
          width: line.width || 1.8,
          dash: line.dash,
          fill: line.fill ? `${colour(line.colour)}22` : undefined,
          points: { show: false },
          spanGaps: true,
          value: (_, value) => (value === null || value === undefined ? "–" : `${figure(value)} ${unit}`),
        })),
      ],
      plugins: [marksPlugin(marks), newestPlugin()],
    };
  }

  set(data) {
    this.data = data;
    if (!this.plot) this.make();
    else this.plot.setData(data);
  }

  make() {
    if (!this.data || !this.box.isConnected || !this.box.clientWidth) return;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), this.data, this.box);
  }

  fit() {
    if (!this.plot) this.make();
    else if (this.plot.width !== this.box.clientWidth && this.box.clientWidth) this.plot.setSize({ width: this.box.clientWidth, height: this.settings.height });
  }

  close() {
    this.seen.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}
