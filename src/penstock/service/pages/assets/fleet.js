// Every pipeline in one table: state, target, rate, lag, latency, share, cost, fairness.

import { get } from "./api.js";
import { duration, empty, figure, h, milliseconds, money, percent, pipelineLink, s, setClass, setText, stateMark } from "./dom.js";

const COLUMNS = [
  { key: "name", label: "Pipeline", by: (row) => row.name },
  { key: "state", label: "State", by: (row) => row.state },
  { key: "priority", label: "Priority", by: (row) => row.priority, number: true },
  { key: "target", label: "Target", by: (row) => row.target.rate, number: true },
  { key: "rate", label: "Rate", by: (row) => row.rate, number: true },
  { key: "lag", label: "Lag", by: (row) => (row.lag_s === null && row.backlog ? Infinity : row.lag_s), number: true },
  { key: "latency", label: "Latency p95", by: (row) => row.latency_ms, number: true },
  { key: "share", label: "Held / needed", by: (row) => row.held / Math.max(1, row.needed), number: true },
  { key: "cost", label: "Cost / h", by: (row) => row.cost_per_hour, number: true },
  { key: "fairness", label: "Fairness", by: (row) => row.fairness, number: true },
];

function spark(values) {
  const width = 72, height = 18;
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, index) => `${((index * width) / Math.max(1, values.length - 1)).toFixed(1)},${(height - 1 - (value / most) * (height - 3)).toFixed(1)}`);
  return { points: points.join(" "), width, height };
}

class Row {
  constructor() {
    this.cells = Object.fromEntries(COLUMNS.map((column) => [column.key, h("td", { "data-label": column.label, class: column.number ? "number" : null })]));
    this.root = h("tr", {}, Object.values(this.cells));
    this.link = null;
    this.state = "";
    this.line = s("polyline", { class: "spark-line" });
    this.rate = h("span", { class: "figure" });
    this.cells.rate.append(h("div", { class: "rate-cell" }, s("svg", { class: "spark", viewBox: "0 0 72 18", width: 72, height: 18, "aria-hidden": "true" }, this.line), this.rate));
    this.bar = h("span", { class: "bar-fill" });
    this.share = h("span", { class: "figure" });
    this.cells.share.append(h("div", { class: "share-cell" }, h("span", { class: "bar", "aria-hidden": "true" }, this.bar), this.share));
  }

  update(row) {
    const cells = this.cells;
    if (!this.link) cells.name.append((this.link = pipelineLink(row.name)));
    const state = `${row.state}|${row.waiting || ""}`;
    if (state !== this.state) {
      this.state = state;
      cells.state.replaceChildren(stateMark(row.state));
      cells.state.title = row.waiting || "";
    }
    setText(cells.priority, String(row.priority));
    const target = [row.target.rate === null ? null : `${figure(row.target.rate)}/s`, row.target.latency_ms === null ? null : `≤ ${milliseconds(row.target.latency_ms)}`].filter(Boolean);
    setText(cells.target, target.join(", ") || "–");
    setText(this.rate, row.rate === null ? "–" : `${figure(row.rate)}/s`);
    if (row.trail.length > 1) this.line.setAttribute("points", spark(row.trail).points);
    const behind = row.backlog ? (row.lag_s === null ? `${figure(row.backlog)} wait` : duration(row.lag_s)) : row.backlog === null ? "–" : "0 s";
    setText(cells.lag, behind);
    setClass(cells.lag, row.lag_s > 30 || (row.backlog && row.lag_s === null) ? "number warn" : "number");
    setText(cells.latency, milliseconds(row.latency_ms));
    setClass(cells.latency, row.target.latency_ms !== null && row.latency_ms > row.target.latency_ms ? "number warn" : "number");
    setText(this.share, `${row.held} / ${row.needed}`);
    const part = Math.min(1, row.held / Math.max(1, row.needed));
    this.bar.style.width = `${Math.round(100 * part)}%`;
    setClass(this.bar, part < 1 ? "bar-fill short" : "bar-fill");
    setText(cells.cost, money(row.cost_per_hour));
    setText(cells.fairness, percent(row.fairness));
    setClass(this.root, row.meets === false ? "misses" : "");
    this.link.title = row.meets === false ? "misses its target" : row.meets ? "meets its target" : "";
    setText(this.flag(), row.meets === false ? "misses target" : "");
  }

  flag() {
    if (!this.mark) this.cells.name.append((this.mark = h("span", { class: "flag" })));
    return this.mark;
  }
}

function tile(label) {
  const value = h("div", { class: "tile-value" }, "–");
  const more = h("div", { class: "tile-more" });
  return { root: h("div", { class: "tile" }, h("div", { class: "tile-label" }, label), value, more), value, more };
}

export function view(start, frame) {
  const rows = new Map();
  let sort = { key: "name", down: false, given: false };
  let found = start.fleet;
  const tiles = { pipelines: tile("Pipelines"), targets: tile("Meeting their target"), rate: tile("Rate of all"), units: tile("Units held"), nodes: tile("Nodes"), cost: tile("Cost per hour") };
  const filter = h("input", { type: "search", placeholder: "Filter by name or state  ( / )", "data-filter": true, "aria-label": "Filter pipelines", oninput: () => draw() });
  const only = h("input", { type: "checkbox", id: "only-missing", onchange: () => draw() });
  const count = h("span", { class: "count", role: "status" });
  const head = COLUMNS.map((column) => h("th", { scope: "col", class: column.number ? "number" : null }, h("button", { type: "button", onclick: () => { sort = { key: column.key, down: sort.key === column.key ? !sort.down : Boolean(column.number), given: true }; draw(); } }, column.label, h("span", { class: "arrow", "aria-hidden": "true" }))));
  const body = h("tbody");
  const table = h("table", { class: "fleet" }, h("caption", { class: "hidden" }, "All pipelines"), h("thead", {}, h("tr", {}, head)), body);
  const none = empty("No pipeline runs yet.", h("p", {}, "Submit one: ", h("code", {}, "penstock submit orders linear --rate 50")));
  const root = h("div", {},
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.root)),
    h("div", { class: "toolbar" }, filter, h("label", { class: "check", for: "only-missing" }, only, "only those that miss their target"), count),
    h("div", { class: "card scroll" }, table), none);

  function totals() {
    const judged = found.pipelines.filter((row) => row.meets !== null);
    const well = judged.filter((row) => row.meets).length;
    setText(tiles.pipelines.value, String(found.pipelines.length));
    setText(tiles.pipelines.more, Object.entries(found.states).map(([state, number]) => `${number} ${state}`).join(" · "));
    setText(tiles.targets.value, judged.length ? `${well} of ${judged.length}` : "–");
    setText(tiles.targets.more, judged.length && well < judged.length ? `${judged.length - well} miss it` : judged.length ? "all of them" : "no targets");
    setClass(tiles.targets.root, well < judged.length ? "tile tile-warn" : "tile");
    setText(tiles.rate.value, `${figure(found.rate)}/s`);
    setText(tiles.rate.more, "tuples processed");
    setText(tiles.units.value, `${found.units.held} / ${found.units.all}`);
    setText(tiles.units.more, `${found.units.desired} desired · ${found.policy.sharing}`);
    setText(tiles.nodes.value, String(found.nodes.alive || 0));
    setText(tiles.nodes.more, Object.entries(found.nodes).filter(([state]) => state !== "alive").map(([state, number]) => `${number} ${state}`).join(" · ") || "all alive");
    setClass(tiles.nodes.root, found.nodes.lost ? "tile tile-warn" : "tile");
    setText(tiles.cost.value, money(found.cost_per_hour));
    setText(tiles.cost.more, found.cost_per_hour === null ? "nodes have no price" : "of what is held");
  }

  function draw() {
    totals();
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = found.pipelines.filter((row) => (!only.checked || row.meets === false) && words.every((word) => row.name.toLowerCase().includes(word) || row.state.includes(word)));
    const column = COLUMNS.find((one) => one.key === sort.key);
    if (sort.given) {
      const value = (row) => column.by(row) ?? -Infinity;
      shown.sort((a, b) => (typeof value(a) === "string" ? value(a).localeCompare(value(b), "en", { numeric: true }) : value(a) - value(b)) * (sort.down ? -1 : 1));
    }
    head.forEach((cell, index) => {
      const mine = sort.given && COLUMNS[index].key === sort.key;
      cell.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
      setText(cell.querySelector(".arrow"), mine ? (sort.down ? " ▼" : " ▲") : "");
    });
    for (const row of shown) {
      if (!rows.has(row.name)) rows.set(row.name, new Row());
      rows.get(row.name).update(row);
    }
    const wanted = shown.map((row) => rows.get(row.name).root);
    const there = [...body.children];
    if (wanted.length !== there.length || wanted.some((one, index) => one !== there[index])) {
      const focus = document.activeElement;
      body.replaceChildren(...wanted);
      if (body.contains(focus)) focus.focus({ preventScroll: true });
    }
    for (const name of rows.keys()) if (!found.pipelines.some((row) => row.name === name)) rows.delete(name);
    setText(count, shown.length === found.pipelines.length ? "" : `${shown.length} of ${found.pipelines.length}`);
    table.parentElement.hidden = !found.pipelines.length;
    none.hidden = Boolean(found.pipelines.length);
  }

  draw();
  return {
    title: "Fleet",
    root,
    async refresh() {
      found = await get("/v1/views/fleet");
      draw();
      return found.at;
    },
  };
}
