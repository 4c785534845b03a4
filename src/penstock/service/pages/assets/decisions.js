// What was decided, why, what was rejected, what it was expected to do, and what it did.

import { get } from "./api.js";
import { markSign } from "./charts.js";
import { duration, empty, figure, h, milliseconds, moment, pipelineLink } from "./dom.js";

function expectedAndDid(decision, made) {
  const expected = decision.expected || {}, did = decision.did;
  if (expected.units === undefined) return null;
  const capable = expected.rate === null || expected.rate === undefined ? "" : `, able to do ${figure(expected.rate)}/s`;
  const told = `${expected.units} unit${expected.units === 1 ? "" : "s"}${capable}${expected.meets_target === null || expected.meets_target === undefined ? "" : expected.meets_target ? ", meets the target" : ", misses the target"}${expected.limit ? `; limited by ${expected.limit}` : ""}`;
  const came = did ? [did.held === undefined ? null : `${figure(did.held)} held`, did.rate === undefined ? null : `${figure(did.rate)}/s of ${figure(did.offered_rate)}/s`, did.latency_ms === undefined ? null : milliseconds(did.latency_ms), did.backlog ? `${figure(did.backlog)} wait` : null].filter(Boolean).join(", ") + ", in the minute after" : "not measured yet";
  return h("dl", { class: "outcome" }, h("dt", {}, "expected"), h("dd", {}, told), made && decision.kind !== "scale" ? [h("dt", {}, "did"), h("dd", {}, decision.to ? came : "–")] : null);
}

function overhead(taken) {
  if (!taken) return null;
  const stages = [["drained", taken.drained_s], ["placed", taken.placed_s], ["first tuple", taken.first_tuple_s]];
  return h("p", { class: "overhead" }, `took ${duration(stages.reduce((sum, [, seconds]) => sum + seconds, 0))}: `, stages.map(([label, seconds]) => h("span", { class: "stage" }, `${label} ${duration(seconds)}`)));
}

function slotRow(place, row) {
  const threads = Object.entries(row).filter(([name]) => name !== "memory_mb").map(([name, count]) => `${count} ${name}`).join(", ") || "all operators";
  return h("tr", {}, h("td", {}, place), h("td", {}, threads), h("td", { class: "number" }, `${figure(row.memory_mb)} MB`));
}

function planTable(title, plan) {
  if (!plan) return null;
  const keeps = plan.predicted_rate === null ? "" : `, keeps ${figure(plan.predicted_rate)}/s`;
  return h("div", {}, h("h3", {}, `${title}: ${plan.engine} by ${plan.allocator} and ${plan.placer} for ${figure(plan.rate)}/s${keeps}`),
    h("table", { class: "plan-slots" }, h("tbody", {}, Object.entries(plan.slots).map(([place, row]) => slotRow(place, row)))));
}

function planChange(change) {
  if (!change) return null;
  const { kept, moved, started, stopped } = change.threads;
  return h("details", { class: "further" }, h("summary", {}, `Plan: ${kept} threads stay, ${moved} move, ${started} start, ${stopped} stop`),
    h("p", { class: "why" }, change.why), h("div", { class: "plans" }, planTable("Before", change.before), planTable("After", change.after)));
}

// `made` is false for decisions that would be made: nothing came of them
export function decisionList(decisions, made = true) {
  if (!decisions.length) return empty(made ? "Nothing was decided yet." : "It would decide nothing.");
  return h("ol", { class: "decisions" }, decisions.map((decision) => h("li", { class: `decision decision-${decision.kind}` },
    h("div", { class: "decision-head" },
      h("span", { class: "kind" }, h("span", { "aria-hidden": "true" }, `${markSign(decision.kind)} `), decision.kind),
      decision.pipeline ? pipelineLink(decision.pipeline) : h("span", { class: "all" }, "all pipelines"),
      decision.kind === "nothing" || decision.kind === "fail" ? null : h("span", { class: "step" }, `${decision.from} → ${decision.to}`),
      h("time", {}, moment(decision.at)), h("span", { class: "count" }, `#${decision.number}`)),
    h("div", { class: "decision-body" },
      h("div", {}, h("p", { class: "why" }, decision.why),
        decision.rejected.length ? h("ul", { class: "rejected" }, decision.rejected.map((one) => h("li", {}, h("s", {}, one.alternative), ": ", one.why))) : null,
        planChange((decision.expected || {}).plan)),
      h("div", {}, expectedAndDid(decision, made), overhead(decision.overhead))))));
}

export function view(start) {
  const words = new URLSearchParams(location.search);
  let older = [], shown = "";
  const pipeline = h("input", { type: "search", list: "names", placeholder: "Any pipeline  ( / )", "data-filter": true, "aria-label": "Pipeline", value: words.get("pipeline") || "", onchange: again });
  const names = h("datalist", { id: "names" }, start.fleet.pipelines.map((row) => h("option", { value: row.name })));
  const kind = h("select", { "aria-label": "Kind", onchange: again }, h("option", { value: "" }, "Any kind"), ["start", "grow", "shrink", "move", "replan", "scale", "wait", "priority", "fail", "nothing"].map((one) => h("option", { value: one, selected: one === words.get("kind") }, one)));
  const list = h("div"), more = h("button", { type: "button", onclick: extend }, "Older");
  const root = h("div", {}, h("div", { class: "head" }, h("h1", {}, "Decisions")), h("div", { class: "toolbar" }, pipeline, names, kind), list, h("p", { class: "more" }, more));

  const asked = () => ({ pipeline: pipeline.value.trim(), kind: kind.value });
  let newest = [];

  function again() {
    older = [];
    const said = Object.entries(asked()).filter(([, value]) => value);
    history.replaceState(null, "", said.length ? `/decisions?${new URLSearchParams(said)}` : "/decisions");
    look();
  }

  function draw() {
    const all = [...newest, ...older.filter((one) => !newest.some((two) => two.number === one.number))];
    const now = JSON.stringify(all);
    if (now === shown) return;
    shown = now;
    list.replaceChildren(decisionList(all));
    more.hidden = all.length < 50;
  }

  async function look() {
    newest = (await get("/v1/views/decisions", asked())).decisions;
    draw();
  }

  async function extend() {
    const all = [...newest, ...older];
    const next = await get("/v1/views/decisions", { ...asked(), before: Math.min(...all.map((one) => one.number)) });
    older = [...older, ...next.decisions, ...newest];
    older.sort((a, b) => b.number - a.number);
    draw();
    if (!next.decisions.length) more.hidden = true;
  }

  return { title: "Decisions", root, refresh: look };
}
