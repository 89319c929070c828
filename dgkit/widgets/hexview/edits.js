// The list of the edits of the region that can be undone, and its file.

import { button, h } from "../base/elements.js";
import { download } from "../base/page.js";
import { plural } from "../base/units.js";
import { Refresher } from "./refresher.js";
import { hexOffset } from "./values.js";

export class EditList {
  #rows;
  constructor(view, grid) {
    this.#rows = new Refresher(async () => this.#show((await view.call("edits")).edits));
    this.title = h("summary");
    this.body = h("tbody");
    this.grid = grid;
    const head = ["offset", "before", "after"].map((name) => h("th", { scope: "col" }, name));
    const save = async () => {
      const file = await view.attempt("copy", { start: 0, stop: 1, form: "edits" });
      if (file) download("edits.py", "text/x-python", new TextEncoder().encode(file.text));
    };
    this.element = h(
      "details",
      { class: "dg-hex-aside", hidden: true, ontoggle: () => this.#ask() },
      this.title,
      h("div", { class: "dg-row" }, button("Save", save, { title: "As Python that makes the edits again" })),
      h(
        "div",
        { class: "dg-hex-fields", role: "region", tabindex: "0", "aria-label": "Edits" },
        h("table", { "aria-label": "Edits" }, h("thead", {}, h("tr", {}, ...head)), this.body),
      ),
    );
  }
  apply({ undoable, region }) {
    this.element.hidden = !undoable || !region;
    this.title.textContent = plural(undoable, "edit");
    this.#ask();
  }
  #ask() {
    if (this.element.open && !this.element.hidden) this.#rows.soon(0);
  }
  #show(edits) {
    const line = ([at, size, before, after]) =>
      h(
        "tr",
        {},
        h(
          "th",
          { scope: "row" },
          button(hexOffset(at), () => this.grid.choose(at, at + size), { class: "dg-hex-field" }),
        ),
        h("td", { class: "dg-mono" }, before),
        h("td", { class: "dg-mono" }, after),
      );
    this.body.replaceChildren(...edits.map(line));
  }
}
