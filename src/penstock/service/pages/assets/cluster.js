// Racks, nodes and slots, and who holds what: as the pictures of plans draw it.

import { get } from "./api.js";
import { askPolicy } from "./actions.js";
import { empty, h, hue, money, pipelineAddress, pipelineLink, setText, stateMark } from "./dom.js";

const shortName = (name) => (name.length > 7 ? `${name.slice(0, 3)}…${name.slice(-3)}` : name);

export function view(start, frame) {
  let found = null, drawn = "", lit = "";
  const summary = h("p", { class: "summary" }), map = h("div", { class: "racks" }), legend = h("ul", { class: "legend" });
  const filter = h("input", { type: "search", placeholder: "Find a pipeline  ( / )", "data-filter": true, "aria-label": "Find a pipeline", oninput: () => drawLegend() });
  const root = h("div", {},
    h("div", { class: "head" }, h("h1", {}, "Cluster"), summary, h("div", { class: "head-buttons" }, h("button", { type: "button", "data-act": "policy", disabled: true, title: start.may_act ? null : "Your token may only read", onclick: () => found && askPolicy(found.policy, start.policies, frame) }, "Policy"))),
    h("div", { class: "cluster" }, map, h("aside", { class: "card holders", "aria-label": "Who holds what" }, h("h2", {}, "Who holds what"), filter, legend)));

  const counts = () => {
    const held = new Map();
    for (const rack of found.racks) for (const node of rack.nodes) for (const slot of node.slots) if (slot) held.set(slot.pipeline, (held.get(slot.pipeline) || 0) + 1);
    return [...held].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  };

  function light(name) {
    lit = name;
    map.classList.toggle("dimmed", Boolean(name));
    for (const slot of map.querySelectorAll(".slot")) slot.classList.toggle("lit", slot.dataset.pipeline === name && Boolean(name));
  }

  function amounts(resources) {
    return Object.entries(resources).map(([name, amount]) => `${name}: ${amount.free === null ? "?" : Math.round(amount.free)} of ${amount.capacity} free${amount.demand === null ? "" : `, ${Math.round(amount.demand)} needed`}`).join("\n");
  }

  function drawSlot(slot, number, node) {
    if (!slot) return h("span", { class: "slot free", title: `${node.name} slot ${number}: free` }, h("span", { class: "hidden" }, "free"));
    return h("a", { class: slot.held ? "slot" : "slot promised", href: pipelineAddress(slot.pipeline), "data-pipeline": slot.pipeline, style: { "--hue": hue(slot.pipeline).toFixed(0) }, title: `${node.name} slot ${number}: ${slot.pipeline}${slot.held ? "" : " (promised, or being let go)"}`, onpointerenter: () => light(slot.pipeline), onpointerleave: () => light(""), onfocus: () => light(slot.pipeline), onblur: () => light("") }, shortName(slot.pipeline));
  }

  function draw() {
    const now = JSON.stringify(found.racks);
    if (now === drawn) return;
    drawn = now;
    const nodes = found.racks.flatMap((rack) => rack.nodes), slots = nodes.filter((node) => node.state === "alive").flatMap((node) => node.slots);
    const price = nodes.every((node) => node.price !== null) ? nodes.reduce((sum, node) => sum + node.price, 0) : null;
    setText(summary, `${nodes.length} nodes, ${slots.length} slots, ${slots.filter((slot) => !slot).length} free · shared by ${found.policy.sharing}${price === null ? "" : ` · ${money(price)} per hour`}`);
    map.replaceChildren(...(found.racks.length ? found.racks.map((rack) => h("section", { class: "rack card" }, h("h2", {}, `Rack ${rack.name}`, h("span", { class: "count" }, ` ${rack.nodes.length} node${rack.nodes.length === 1 ? "" : "s"}`)), h("div", { class: "nodes" }, rack.nodes.map((node) => h("div", { class: `node node-${node.state}` }, h("div", { class: "node-head" }, h("span", { class: "node-name", title: amounts(node.resources) }, node.name), node.state === "alive" ? null : stateMark(node.state)), h("div", { class: "slots" }, node.slots.map((slot, number) => drawSlot(slot, number, node)))))))) : [empty("No nodes yet.")]));
    light(lit);
    drawLegend();
  }

  function drawLegend() {
    const word = filter.value.toLowerCase();
    legend.replaceChildren(...counts().filter(([name]) => name.toLowerCase().includes(word)).map(([name, number]) => h("li", { onpointerenter: () => light(name), onpointerleave: () => light("") }, h("span", { class: "swatch", "aria-hidden": "true", style: { "--hue": hue(name).toFixed(0) } }), pipelineLink(name), h("span", { class: "count" }, `${number} slot${number === 1 ? "" : "s"}`))));
  }

  return {
    title: "Cluster",
    root,
    async refresh() {
      found = await get("/v1/views/cluster");
      root.querySelector("[data-act]").disabled = !start.may_act;
      draw();
    },
  };
}
