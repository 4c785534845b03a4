// Elements and figures. Text only ever becomes text: names of pipelines, nodes and people are never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, setting] of Object.entries(value)) element.style.setProperty(key, setting);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

// 1234567 -> 1.23M; small numbers keep three figures, those below 1 two
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  for (const [limit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return trimmed(value / (letter === "k" ? 1e3 : limit)) + letter;
  }
  return trimmed(value);
}

function trimmed(value) {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size < 1) return String(Number(value.toPrecision(2)));
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${trimmed(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${trimmed(seconds / 3600)} h`;
  return `${trimmed(seconds / 86400)} d`;
}

export const milliseconds = (value) => (value === null || value === undefined ? "–" : duration(value / 1000));
export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);
export const money = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export function moment(at) {
  const day = new Date(at * 1000);
  return `${day.toLocaleDateString("en-CA")} ${day.toLocaleTimeString("en-GB")}`;
}

const SIGNS = {
  active: "●", starting: "▸", submitted: "○", waiting: "◔", draining: "▽", drained: "◇",
  paused: "‖", "backing-off": "↻", ending: "▿", failed: "✕", killed: "✕",
  alive: "●", joining: "▸", leaving: "▽", lost: "✕", gone: "✕",
};

// A state is a sign, a word and a colour: any one of them is enough.
export function stateMark(state) {
  return h("span", { class: `state state-${state}` }, h("span", { "aria-hidden": "true", class: "sign" }, SIGNS[state] || "·"), ` ${state}`);
}

export const pipelineLink = (name) => h("a", { href: pipelineAddress(name), class: "pipeline-link" }, name);
export const pipelineAddress = (name) => `/pipeline?name=${encodeURIComponent(name)}`;

// A pipeline's own colour: the same on every page, from its name alone.
export function hue(name) {
  let sum = 2166136261;
  for (const letter of name) sum = Math.imul(sum ^ letter.codePointAt(0), 16777619);
  return ((sum >>> 0) * 0.61803398875 * 360) % 360;
}

export function empty(text, ...more) {
  return h("div", { class: "empty" }, h("p", {}, text), ...more);
}
