// One pipeline: its graph, predicted beside measured, where its threads sit, and what was changed.

import { get } from "./api.js";
import { askLimits, askPause, askPriority, askSwitch, askTarget, askTrigger } from "./actions.js";
import { Chart, markSign } from "./charts.js";
import { decisionList } from "./decisions.js";
import { duration, empty, figure, h, milliseconds, moment, money, percent, setClass, setText, stateMark } from "./dom.js";
import { drawGraph } from "./graph.js";

const SPANS = [["5 min", 300], ["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400]];

function tile(label) {
  const value = h("div", { class: "tile-value" }, "–"), more = h("div", { class: "tile-more" });
  return { root: h("div", { class: "tile" }, h("div", { class: "tile-label" }, label), value, more), value, more };
}

export function view(start, frame) {
  const name = new URLSearchParams(location.search).get("name") || "";
  if (!name) return { title: "Pipeline", root: h("div", {}, h("h1", {}, "Pipeline"), empty("No pipeline is named. Choose one of the fleet.")), refresh: () => {} };
  let span = 900, series = null, found = null, drawn = "", seated = "", triggered = "";
  const title = h("h1", {}, name), state = h("span"), why = h("p", { class: "waiting", role: "status" });
  const tiles = { rate: tile("Rate"), offered: tile("Arrives"), lag: tile("Lag"), latency: tile("Latency p95"), share: tile("Held / needed"), busy: tile("Busy"), priority: tile("Priority"), cost: tile("Cost per hour"), fairness: tile("Fairness") };
  const acts = [["Priority", askPriority], ["Target", askTarget], ["Limits", askLimits], ["Pause", askPause], ["Trigger", askTrigger]]
    .map(([label, ask]) => h("button", { type: "button", "data-act": label.toLowerCase(), disabled: true, title: start.may_act ? null : "Your token may only read", onclick: () => found && ask(found.pipeline, frame) }, label));
  const graph = h("div", { class: "graph-box" }), legend = h("p", { class: "graph-legend" },
    ["low", "some", "high", "full", "unknown"].map((how) => h("span", { class: `key busy-${how}` }, h("span", { class: "swatch", "aria-hidden": "true" }), { low: "under 30 %", some: "30–70 %", high: "70–90 %", full: "90 % and more", unknown: "not known" }[how])));
  const shownMarks = () => (series ? series.changes.filter((change) => change.kind !== "state") : []);
  const charts = {
    rate: new Chart({ title: "Rate", unit: "tuples/s", group: "pipeline", marks: shownMarks, lines: [{ label: "arrives", colour: "--c-offered", fill: true, width: 1 }, { label: "measured", colour: "--c-measured" }, { label: "predicted", colour: "--c-predicted", dash: [6, 4] }, { label: "target", colour: "--c-target", dash: [2, 3] }] }),
    cpu: new Chart({ title: "CPU", unit: "cores", group: "pipeline", marks: shownMarks, lines: [{ label: "measured", colour: "--c-measured" }, { label: "predicted", colour: "--c-predicted", dash: [6, 4] }] }),
    memory: new Chart({ title: "Memory", unit: "MB", group: "pipeline", marks: shownMarks, lines: [{ label: "measured", colour: "--c-measured" }, { label: "predicted", colour: "--c-predicted", dash: [6, 4] }] }),
    latency: new Chart({ title: "Latency, 95th percentile", unit: "ms", group: "pipeline", marks: shownMarks, lines: [{ label: "measured", colour: "--c-measured" }, { label: "predicted", colour: "--c-predicted", dash: [6, 4] }, { label: "target", colour: "--c-target", dash: [2, 3] }] }),
    backlog: new Chart({ title: "Backlog", unit: "tuples", group: "pipeline", marks: shownMarks, lines: [{ label: "measured", colour: "--c-measured", fill: true }, { label: "predicted", colour: "--c-predicted", dash: [6, 4] }] }),
    units: new Chart({ title: "Share", unit: "units", group: "pipeline", marks: shownMarks, lines: [{ label: "held", colour: "--c-measured", fill: true }, { label: "needed", colour: "--c-predicted", dash: [6, 4] }] }),
  };
  const spans = SPANS.map(([label, seconds]) => h("button", { type: "button", class: "span", "aria-pressed": String(seconds === span), onclick: (event) => {
    span = seconds;
    for (const one of spans) one.setAttribute("aria-pressed", String(one === event.target));
    look();
  } }, label));
  const advice = h("section", { class: "card", hidden: true }), seats = h("div"), triggers = h("div"), changes = h("ol", { class: "changes" }), decisions = h("div");
  const noSeries = empty("Nothing has been measured yet.", h("p", {}, "The first window of 10 s is on its way."));
  const chartGrid = h("div", { class: "charts" }, Object.values(charts).map((chart) => chart.root));
  const root = h("div", {},
    h("p", { class: "crumbs" }, h("a", { href: "/" }, "Fleet"), " / ", name),
    h("div", { class: "head" }, title, state, h("div", { class: "head-buttons" }, acts, h("a", { class: "button", href: `/what-if?pipeline=${encodeURIComponent(name)}` }, "What if…"))),
    why,
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.root)),
    advice,
    h("section", { class: "card" }, h("h2", {}, "Graph"), graph, legend),
    h("div", { class: "section-head" }, h("h2", {}, "Predicted beside measured"), h("div", { class: "spans", role: "group", "aria-label": "Time shown" }, spans)),
    noSeries, chartGrid,
    h("div", { class: "columns" },
      h("section", { class: "card" }, h("h2", {}, "Where it sits"), seats),
      h("section", { class: "card" }, h("h2", {}, "Changes, as marked in the charts"), changes)),
    h("section", { class: "card" }, h("h2", {}, "Triggers"), triggers),
    h("section", {}, h("div", { class: "section-head" }, h("h2", {}, "Decisions"), h("a", { href: `/decisions?pipeline=${encodeURIComponent(name)}` }, "all of them")), decisions));

  function drawTop() {
    const p = found.pipeline;
    setText(title, p.name);
    if (state.dataset.state !== p.state) {
      state.dataset.state = p.state;
      state.replaceChildren(stateMark(p.state));
    }
    setText(why, p.waiting || "");
    setText(tiles.rate.value, p.rate === null ? "–" : `${figure(p.rate)}/s`);
    setText(tiles.rate.more, [p.target.rate === null ? "no target" : `target ${figure(p.target.rate)}/s`].join(""));
    setClass(tiles.rate.root, p.meets === false ? "tile tile-warn" : "tile");
    setText(tiles.offered.value, p.offered_rate === null ? "–" : `${figure(p.offered_rate)}/s`);
    setText(tiles.offered.more, found.capacity === null ? "at its sources" : `can do ${figure(found.capacity)}/s`);
    setText(tiles.lag.value, duration(p.lag_s));
    setText(tiles.lag.more, `${figure(p.backlog)} tuples wait`);
    setText(tiles.latency.value, milliseconds(p.latency_ms));
    setText(tiles.latency.more, p.target.latency_ms === null ? "no target" : `target ${milliseconds(p.target.latency_ms)}`);
    setClass(tiles.latency.root, p.target.latency_ms !== null && p.latency_ms > p.target.latency_ms ? "tile tile-warn" : "tile");
    setText(tiles.share.value, `${p.held} / ${p.needed}`);
    setText(tiles.share.more, `min ${p.minimum}${p.maximum === null ? "" : `, max ${p.maximum}`} · ${p.nodes.length} node${p.nodes.length === 1 ? "" : "s"}`);
    setClass(tiles.share.root, p.held < p.needed ? "tile tile-warn" : "tile");
    setText(tiles.busy.value, percent(p.busy));
    setText(tiles.busy.more, "of its slots");
    setText(tiles.priority.value, String(p.priority));
    setText(tiles.priority.more, p.pending_priority !== null ? `becomes ${p.pending_priority}` : p.priority === p.initial_priority ? "as submitted or set" : `own level ${p.initial_priority}; a trigger is on`);
    setText(tiles.cost.value, money(p.cost_per_hour));
    setText(tiles.cost.more, p.cost_per_hour === null ? "nodes have no price" : "of the slots it holds");
    setText(tiles.fairness.value, percent(p.fairness));
    setText(tiles.fairness.more, "held of desired");
    setText(acts[3], p.paused ? "Activate" : "Pause");
    for (const act of acts) act.disabled = !start.may_act;
    if (p.engine === "attached") {
      acts[3].disabled = true;
      acts[3].title = "Its queries are its own: nobody else pauses them";
    }
  }

  // of an attached application: what it needs by the model it learned of itself, and what limits it
  function drawAdvice() {
    const said = found.advice;
    advice.hidden = !said || said.limit === undefined;
    const now = JSON.stringify(said);
    if (advice.hidden || advice.dataset.shown === now) return;
    advice.dataset.shown = now;
    advice.replaceChildren(
      h("h2", {}, "Advice"),
      h("p", { class: "why" }, said.limit === "nothing" ? "Not limited: " : `Limited by ${said.limit}: `, said.what_to_do, said.acts ? "" : ` (advice only: ${said.why_not})`),
      h("ul", { class: "evidence" }, said.evidence.map((line) => h("li", {}, line))),
      h("p", { class: "note" }, `${said.needed === null ? "No number of slots is enough" : `${said.needed} slot${said.needed === 1 ? "" : "s"} needed`}, headroom ${percent(said.headroom)}, maxOffsetsPerTrigger ${figure(said.max_offsets_per_trigger)} in batches of ${duration(said.batch_seconds)}`));
  }

  function drawGraphBox() {
    const now = JSON.stringify([found.graph, found.operators]);
    if (now === drawn) return;
    drawn = now;
    const x = graph.scrollLeft;
    graph.replaceChildren(found.graph ? drawGraph(found.graph, found.operators) : empty("An attached application: its graph is Spark's own."));
    graph.scrollLeft = x;
    legend.hidden = !found.graph;
  }

  function drawSeats() {
    const now = JSON.stringify([found.seats, found.pipeline.slots]);
    if (now === seated) return;
    seated = now;
    const slots = found.seats ? found.seats.slots : found.pipeline.slots.map(([node, slot]) => ({ node, slot, threads: null }));
    if (!slots.length) {
      seats.replaceChildren(empty("It holds no slot."));
      return;
    }
    const byNode = new Map();
    for (const slot of slots) byNode.set(slot.node, [...(byNode.get(slot.node) || []), slot]);
    seats.replaceChildren(...[
      found.seats?.every_slot_runs ? h("p", { class: "note" }, "Fused: every slot runs the whole pipeline on its share of the stream: ", h("code", {}, found.seats.every_slot_runs.join(" → "))) : null,
      h("div", { class: "seat-nodes" }, [...byNode].map(([node, mine]) => h("div", { class: "seat-node" }, h("div", { class: "seat-name" }, node), h("ul", {}, mine.map((slot) => h("li", {}, h("span", { class: "slot-number" }, `slot ${slot.slot}`), slot.threads ? Object.entries(slot.threads).map(([operator, threads]) => h("span", { class: "chip" }, `${operator} ×${threads}`)) : null)))))),
    ].filter(Boolean));
  }

  function drawTriggers() {
    const now = JSON.stringify(found.pipeline.triggers);
    if (now === triggered) return;
    triggered = now;
    const rows = found.pipeline.triggers;
    triggers.replaceChildren(rows.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Number", "Kind", "Above", "Priority", "State", ""].map((label) => h("th", { scope: "col" }, label)))), h("tbody", {}, rows.map((trigger) => h("tr", {}, h("td", {}, String(trigger.id)), h("td", {}, trigger.kind), h("td", {}, figure(trigger.above)), h("td", {}, String(trigger.priority)), h("td", {}, `${trigger.enabled ? "" : "disabled, "}${trigger.on ? "● on" : "○ off"}${trigger.by_hand && trigger.on ? ", by hand" : ""}`), h("td", {}, h("button", { type: "button", disabled: !start.may_act || !trigger.enabled, onclick: () => askSwitch(found.pipeline, trigger, frame) }, trigger.on ? "Switch off" : "Switch on"))))))) : empty("No triggers. One moves the pipeline to a higher priority while a condition holds."));
  }

  function drawCharts() {
    const { at, measured, predicted } = series, p = found.pipeline;
    noSeries.hidden = at.length > 0;
    chartGrid.hidden = !at.length;
    if (!at.length) return;
    const flat = (value) => at.map(() => value);
    charts.rate.set([at, measured.offered_rate, measured.rate, predicted.rate, flat(p.target.rate)]);
    charts.cpu.set([at, measured.cpu, predicted.cpu]);
    charts.memory.set([at, measured.memory_mb, predicted.memory_mb]);
    charts.latency.set([at, measured.latency_ms, predicted.latency_ms, flat(p.target.latency_ms)]);
    charts.backlog.set([at, measured.backlog, predicted.backlog]);
    charts.units.set([at, measured.held, measured.needed]);
    const shown = shownMarks().slice(-12).reverse();
    changes.replaceChildren(...(shown.length ? shown.map((change) => h("li", {}, h("time", {}, moment(change.at)), h("span", { class: "mark" }, `${markSign(change.kind)} ${change.kind}${change.after === null || change.kind === "request" ? "" : ` ${change.before} → ${change.after}`}`), h("span", { class: "why" }, change.why))) : [h("li", { class: "empty" }, "None in the time shown.")]));
  }

  async function look() {
    found = await get("/v1/views/pipeline", { name });
    drawTop();
    drawAdvice();
    drawGraphBox();
    drawSeats();
    drawTriggers();
    series = await get("/v1/views/series", { name, since: found.at - span });
    drawCharts();
    const log = await get("/v1/views/decisions", { pipeline: name, most: 5 });
    const now = JSON.stringify(log.decisions);
    if (decisions.dataset.shown !== now) {
      decisions.dataset.shown = now;
      decisions.replaceChildren(decisionList(log.decisions));
    }
    return found.at;
  }

  return {
    title: name,
    root,
    refresh: look,
    refused(text) { setText(why, text); },
    themed() { for (const chart of Object.values(charts)) chart.make(); },
    close() { for (const chart of Object.values(charts)) chart.close(); },
  };
}
