// Another rate, node count, policy or priority: planned and simulated on a copy; nothing is changed.

import { get } from "./api.js";
import { Chart } from "./charts.js";
import { decisionList } from "./decisions.js";
import { duration, empty, figure, h, milliseconds, pipelineLink, setText } from "./dom.js";

const LINES = [{ label: "as it is", colour: "--c-offered" }, { label: "with the change", colour: "--c-predicted", dash: [6, 4], width: 2.2 }];

export function view(start) {
  const words = new URLSearchParams(location.search);
  const rows = start.fleet.pipelines;
  const choose = h("select", { id: "wi-pipeline", required: true }, rows.map((row) => h("option", { value: row.name, selected: row.name === words.get("pipeline") }, row.name)));
  const box = (name, attributes) => h("input", { id: `wi-${name}`, type: "number", value: words.get(name) || "", ...attributes });
  const inputs = {
    rate: box("rate", { min: 0, step: "any" }), priority: box("priority", { min: 1, step: 1 }), nodes: box("nodes", { min: 1, step: 1 }),
    policy: h("select", { id: "wi-policy" }, h("option", { value: "" }, "as it is"), start.policies.map((name) => h("option", { value: name, selected: name === words.get("policy") }, name))),
    seconds: box("seconds", { min: 10, max: 1800, step: 10, placeholder: "300" }),
  };
  const button = h("button", { type: "submit", class: "primary" }, "Ask"), said = h("p", { class: "said", role: "alert" }), result = h("div", { "aria-live": "polite" });
  const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
  const form = h("form", { class: "card ask", onsubmit: (event) => { event.preventDefault(); ask(); } },
    field("Pipeline", choose), field("Rate, tuples/s", inputs.rate), field("Priority", inputs.priority), field("Nodes of the cluster", inputs.nodes), field("Policy", inputs.policy), field("Simulated seconds", inputs.seconds), h("div", { class: "field" }, button));
  const root = h("div", {}, h("div", { class: "head" }, h("h1", {}, "What if"), h("p", { class: "summary" }, "The controller's own code goes on from now in simulated time, once as it is and once with your change. Nothing is changed.")), rows.length ? form : empty("No pipeline runs yet: there is nothing to ask about."), said, result);
  let charts = [];

  function hints() {
    const row = rows.find((one) => one.name === choose.value);
    if (!row) return;
    inputs.rate.placeholder = row.target.rate === null ? `now ${figure(row.rate)}` : `now ${figure(row.target.rate)}`;
    inputs.priority.placeholder = `now ${row.priority}`;
    inputs.nodes.placeholder = `now ${start.fleet.nodes.alive || 0}`;
  }
  choose.addEventListener("change", hints);
  hints();

  const close = () => { for (const chart of charts) chart.close(); charts = []; };

  async function ask() {
    const asked = { pipeline: choose.value, ...Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value])) };
    const given = Object.entries(asked).filter(([, value]) => value !== "");
    history.replaceState(null, "", `/what-if?${new URLSearchParams(given)}`);
    setText(said, "");
    button.disabled = true;
    setText(button, "Simulating…");
    try {
      show(await get("/v1/views/what-if", asked));
    } catch (problem) {
      close();
      result.replaceChildren();
      setText(said, problem.message);
    } finally {
      button.disabled = false;
      setText(button, "Ask");
    }
  }

  function change(before, after, shown = figure) {
    const same = before === after || (before !== null && after !== null && Math.abs(before - after) < 1e-9 * Math.abs(before + after));
    if (same) return h("span", { class: "same" }, shown(after));
    const sign = after === null || before === null ? "" : after > before ? "▲ " : "▼ ";
    return h("span", { class: "changed" }, `${shown(before)} → ${sign}${shown(after)}`);
  }

  function show(found) {
    close();
    const mine = found.pipelines.find((row) => row.name === found.pipeline);
    const moved = found.pipelines.filter((row) => !row.before || row.before.held !== row.after.held);
    const sorted = [...found.pipelines].sort((a, b) => Number(b.name === found.pipeline) - Number(a.name === found.pipeline) || Number(moved.includes(b)) - Number(moved.includes(a)));
    const tile = (label, value, more) => h("div", { class: "tile" }, h("div", { class: "tile-label" }, label), h("div", { class: "tile-value" }, value), h("div", { class: "tile-more" }, more));
    charts = [["Rate", "tuples/s", "rate"], ["Backlog", "tuples", "backlog"], ["Latency, 95th percentile", "ms", "latency_ms"], ["Share", "units", "held"]].map(([title, unit, key]) => ({ key, chart: new Chart({ title, unit, lines: LINES, group: "what-if", times: false }) })).map(({ key, chart }) => Object.assign(chart, { key }));
    result.replaceChildren(
      h("div", { class: "tiles" },
        tile("Share after " + duration(found.seconds), change(mine.before?.held ?? null, mine.after.held), `of ${mine.after.desired} desired`),
        tile("Rate", change(mine.before?.rate ?? null, mine.after.rate, (value) => `${figure(value)}/s`), mine.after.waiting || mine.after.state),
        tile("Backlog", change(mine.before?.backlog ?? null, mine.after.backlog), "tuples wait at the end"),
        tile("Latency p95", change(mine.before?.latency_ms ?? null, mine.after.latency_ms, milliseconds), "at the end"),
        tile("Others moved", String(moved.filter((row) => row.name !== found.pipeline).length), `of ${found.pipelines.length - 1}`),
        tile("Nodes", change(found.nodes.before, found.nodes.after), "alive")),
      h("div", { class: "charts four" }, charts.map((chart) => chart.root)),
      h("div", { class: "columns" },
        h("section", { class: "card" }, h("h2", {}, "Everybody's share"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Pipeline", "Priority", "Held", "Rate", "Backlog"].map((label, index) => h("th", { scope: "col", class: index ? "number" : null }, label)))), h("tbody", {}, sorted.slice(0, 40).map((row) => h("tr", {}, h("td", {}, pipelineLink(row.name)), h("td", { class: "number" }, change(row.before?.priority ?? null, row.after.priority)), h("td", { class: "number" }, change(row.before?.held ?? null, row.after.held)), h("td", { class: "number" }, change(row.before?.rate ?? null, row.after.rate)), h("td", { class: "number" }, change(row.before?.backlog ?? null, row.after.backlog))))))), sorted.length > 40 ? h("p", { class: "note" }, `and ${sorted.length - 40} more that keep their share`) : null),
        h("section", { class: "card" }, h("h2", {}, "The plan"), planned(found.plan))),
      h("section", {}, h("h2", {}, "What it would decide"), ...decided(found.decisions, found.pipeline)));
    for (const chart of charts) chart.set([found.series.before.at, found.series.before[chart.key], found.series.after[chart.key]]);
  }

  // those about the pipeline that was asked for; the others on request
  function decided(decisions, name) {
    const mine = decisions.filter((one) => one.pipeline === name), others = decisions.filter((one) => one.pipeline !== name);
    return [decisionList(mine, false), others.length ? h("details", { class: "further" }, h("summary", {}, `${others.length} about others`), decisionList(others, false)) : null].filter(Boolean);
  }

  function planned(plan) {
    if (!plan) return empty("It has no target rate, or its models do not say what it needs.");
    return h("div", {},
      h("p", {}, `For ${figure(plan.rate)}/s: ${plan.slots} slots.`, plan.latency_ms ? ` Predicted latency p50 ${milliseconds(plan.latency_ms.p50)}, p95 ${milliseconds(plan.latency_ms.p95)}.` : ""),
      plan.refused ? h("p", { class: "said" }, plan.refused) : null,
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Operator"), h("th", { scope: "col", class: "number" }, "Threads"))), h("tbody", {}, Object.entries(plan.threads).map(([operator, threads]) => h("tr", {}, h("td", {}, operator), h("td", { class: "number" }, String(threads)))))));
  }

  if (["rate", "priority", "nodes", "policy"].some((name) => words.get(name)) && rows.length) ask();
  return { title: "What if", root, refresh: async () => (await get("/health"), undefined), themed() { for (const chart of charts) chart.make(); }, close };
}
