// What a person may change. Each is asked again, in words, before it is done; the controller keeps who asked.

import { at, patch, post, put } from "./api.js";
import { figure, h, milliseconds } from "./dom.js";

const dialog = () => document.getElementById("dialog");

// `fields` are {name, label, type, value, choices, hint}; `words` says what will be done; `act` does it
function askFor({ title, fields = [], words, act, button = "Do it", danger = false }, frame) {
  const inputs = Object.fromEntries(fields.map((field) => [field.name, field.choices
    ? h("select", { id: `ask-${field.name}` }, field.choices.map((choice) => h("option", { value: choice, selected: choice === field.value }, choice)))
    : h("input", { id: `ask-${field.name}`, type: field.type || "text", value: field.value ?? "", min: field.min, step: field.step, required: field.required })]));
  const said = h("p", { class: "said", role: "alert" });
  const confirm = h("p", { class: "confirm" });
  const values = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
  const tell = () => { confirm.textContent = words(values()); };
  const submit = h("button", { type: "submit", class: danger ? "danger" : "primary" }, button);
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      await act(values());
      dialog().close();
      frame.toast(`Done: ${words(values())}`);
      frame.refresh();
    } catch (problem) {
      said.textContent = problem.message;
    } finally {
      submit.disabled = false;
    }
  } },
  h("h2", {}, title),
  fields.map((field) => h("div", { class: "field" }, h("label", { for: `ask-${field.name}` }, field.label), inputs[field.name], field.hint ? h("p", { class: "hint" }, field.hint) : null)),
  confirm, said,
  h("div", { class: "dialog-buttons" }, h("button", { type: "button", onclick: () => dialog().close() }, "Cancel"), submit));
  for (const input of Object.values(inputs)) input.addEventListener("input", tell);
  tell();
  dialog().replaceChildren(form);
  dialog().showModal();
}

const number = (text) => (text === "" ? null : Number(text));

export function askPriority(pipeline, frame) {
  askFor({
    title: `Priority of ${pipeline.name}`,
    fields: [{ name: "priority", label: "Level (1 is the highest)", type: "number", min: 1, step: 1, value: pipeline.initial_priority, required: true }],
    words: (value) => Number(value.priority) === pipeline.priority ? `${pipeline.name} has priority ${pipeline.priority}: nothing changes.` : `${pipeline.name} gets priority ${value.priority || "?"} instead of ${pipeline.priority}; shares are divided anew.`,
    act: (value) => patch(at("pipelines", pipeline.name), { priority: Number(value.priority) }),
    button: "Set priority",
  }, frame);
}

export function askTarget(pipeline, frame) {
  askFor({
    title: `Target of ${pipeline.name}`,
    fields: [
      { name: "rate", label: "Rate, tuples/s", type: "number", min: 0, step: "any", value: pipeline.target.rate },
      { name: "latency", label: "Latency, ms (95th percentile)", type: "number", min: 0, step: "any", value: pipeline.target.latency_ms, hint: "What is left empty need not hold any more." },
    ],
    words: (value) => `${pipeline.name} is to do ${value.rate ? `${figure(Number(value.rate))}/s` : "any rate"}${value.latency ? ` within ${milliseconds(Number(value.latency))}` : ""}; its size follows.`,
    act: (value) => patch(at("pipelines", pipeline.name), { target: Object.fromEntries(Object.entries({ rate: number(value.rate), latency_ms: number(value.latency) }).filter(([, one]) => one !== null)) }),
    button: "Set target",
  }, frame);
}

export function askLimits(pipeline, frame) {
  askFor({
    title: `Limits of ${pipeline.name}`,
    fields: [
      { name: "minimum", label: "At least, units", type: "number", min: 1, step: 1, value: pipeline.minimum, required: true },
      { name: "maximum", label: "At most, units", type: "number", min: 1, step: 1, value: pipeline.maximum, required: pipeline.maximum !== null, hint: pipeline.maximum === null ? null : "It can be raised, not taken away." },
    ],
    words: (value) => `${pipeline.name} holds at least ${value.minimum || "?"}${value.maximum ? ` and at most ${value.maximum}` : ""} units.`,
    act: (value) => patch(at("pipelines", pipeline.name), { minimum: Number(value.minimum), ...(value.maximum ? { maximum: Number(value.maximum) } : {}) }),
    button: "Set limits",
  }, frame);
}

export function askPause(pipeline, frame) {
  const pause = !pipeline.paused;
  askFor({
    title: `${pause ? "Pause" : "Activate"} ${pipeline.name}`,
    words: () => (pause ? `${pipeline.name} stops reading, finishes what is in flight and gives its ${pipeline.held} units to others. Its position is kept.` : `${pipeline.name} goes on from where it stopped, when there is a share for it.`),
    act: () => patch(at("pipelines", pipeline.name), { paused: pause }),
    button: pause ? "Pause" : "Activate",
  }, frame);
}

export function askTrigger(pipeline, frame) {
  askFor({
    title: `New trigger of ${pipeline.name}`,
    fields: [
      { name: "above", label: "On when the arrival rate is above, tuples/s", type: "number", min: 0, step: "any", value: pipeline.target.rate, required: true },
      { name: "for_seconds", label: "for, seconds", type: "number", min: 0, step: "any", value: 3, required: true },
      { name: "priority", label: "Priority while it is on", type: "number", min: 1, step: 1, value: 1, required: true },
    ],
    words: (value) => `While more than ${figure(Number(value.above))}/s arrive for ${value.for_seconds} s, ${pipeline.name} has priority ${value.priority}.`,
    act: (value) => post(at("pipelines", pipeline.name, "triggers"), { kind: "arrival-rate", above: Number(value.above), for_seconds: Number(value.for_seconds), priority: Number(value.priority) }),
    button: "Add trigger",
  }, frame);
}

export function askSwitch(pipeline, trigger, frame) {
  const on = !trigger.on;
  askFor({
    title: `Trigger ${trigger.id} of ${pipeline.name}`,
    words: () => (on ? `It goes on by hand and stays on: ${pipeline.name} has priority ${trigger.priority} until it is switched off.` : `It goes off: ${pipeline.name} gets its own priority back.`),
    act: () => post(at("pipelines", pipeline.name, "triggers", String(trigger.id), on ? "on" : "off")),
    button: on ? "Switch on" : "Switch off",
  }, frame);
}

export function askPolicy(policy, policies, frame) {
  askFor({
    title: "How the cluster is shared",
    fields: [{ name: "sharing", label: "Policy", choices: policies, value: policy.sharing.split(":")[0] }],
    words: (value) => `All pipelines are shared by ${value.sharing} instead of ${policy.sharing}; shares are divided anew.`,
    act: (value) => put("/v1/policy", { sharing: value.sharing }),
    button: "Set policy",
  }, frame);
}
