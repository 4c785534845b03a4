// A page of the dashboard: the names of all pipelines.

import { get } from "./api.js";
import { h } from "./dom.js";

export function view() {
  const list = h("ul");
  return {
    title: "Names",
    root: h("section", { class: "card" }, h("h1", {}, "Names"), list),
    async refresh() {
      const { names, at } = await get("/v1/views/names");
      list.replaceChildren(...names.map((name) => h("li", {}, name)));
      return at;
    },
  };
}
