// The fields of a structure that is laid over the bytes: their values, their colours in the bytes, and
// the selection, which follows in both directions.

import { button, h } from "../base/elements.js";
import { plural } from "../base/units.js";
import { HUES } from "./grid.js";
import { Refresher } from "./refresher.js";
import { hexOffset } from "./values.js";

const FIELDS_MS = 100; // pause before values are read again

export class StructureTable {
  #key = "";
  #lines = [];
  #values;
  constructor(view, grid) {
    this.view = view;
    this.grid = grid;
    this.#values = new Refresher(async () => this.#show(await view.call("fields")));
    const place = (at) => view.attempt("place_structure", { offset: at });
    const step = (by) => place(view.state.structure.at + by * view.state.structure.size);
    this.previous = button("Previous", () => step(-1), { "aria-label": "Previous structure" });
    this.next = button("Next", () => step(1), { "aria-label": "Next structure" });
    const here = button("Place at the cursor", () => place(grid.cursor.span[0]));
    this.title = h("summary");
    this.note = h("p", { class: "dg-help" });
    this.body = h("tbody");
    const head = ["field", "type", "offset", "value"].map((name) => h("th", { scope: "col" }, name));
    this.table = h(
      "table",
      { "aria-label": "Fields of the structure" },
      h("thead", {}, h("tr", {}, ...head)),
      this.body,
    );
    this.scroll = h(
      "div",
      { class: "dg-hex-fields", role: "region", tabindex: "0", "aria-label": "Structure" },
      this.table,
    );
    this.element = h(
      "details",
      { class: "dg-hex-aside", open: true, hidden: true },
      this.title,
      h("div", { class: "dg-row" }, this.previous, this.next, here),
      this.scroll,
      this.note,
    );
    view.on("fields", (values) => this.#show(values));
  }
  apply({ structure, region }) {
    this.element.hidden = !structure || !region;
    const key = JSON.stringify(structure);
    if (key !== this.#key) this.#build(structure);
    this.#key = key;
    this.refresh();
  }
  #build(structure) {
    this.#lines = [];
    this.body.replaceChildren();
    this.grid.hues = null;
    if (!structure) return;
    const { name, size, at, fields } = structure;
    this.title.textContent = `${name} at ${hexOffset(at)}, ${plural(size, "byte")}`;
    this.previous.disabled = at < size;
    this.grid.hues = { at, map: new Uint8Array(size) };
    this.#lines = fields.map(([path, type, offset, length], i) => {
      const value = h("td", { class: "dg-mono" });
      const go = button(path, () => this.grid.choose(at + offset, at + offset + length), { class: "dg-hex-field" });
      const row = h(
        "tr",
        {},
        h("th", { scope: "row" }, h("span", { class: `dg-swatch dg-hue${(i % HUES) + 1}` }), go),
        h("td", {}, type),
        h("td", { class: "dg-number" }, hexOffset(offset)),
        value,
      );
      return { row, value, start: at + offset, stop: at + offset + length };
    });
    this.body.append(...this.#lines.map(({ row }) => row));
    this.#colour();
  }
  // Fields that are absent have no colour; of a union, the last one has.
  #colour() {
    const { at, map } = this.grid.hues;
    map.fill(0);
    this.#lines.forEach(({ row, start, stop }, i) => row.hidden || map.fill((i % HUES) + 1, start - at, stop - at));
  }
  // Reads the values again, soon.
  refresh() {
    if (!this.element.hidden) this.#values.soon(FIELDS_MS);
  }
  #show({ at, values, targets, error }) {
    if (at !== this.view.state.structure?.at) return;
    this.note.textContent = error;
    let changed = false;
    this.#lines.forEach(({ row, value }, i) => {
      const absent = values[i] === null;
      changed ||= row.hidden !== absent;
      row.hidden = absent;
      const text = values[i] ?? "";
      const target = targets[i];
      const go = () => this.grid.choose(...target);
      const key = `${text} ${target}`;
      if (value.dataset.key === key) return;
      value.dataset.key = key;
      value.replaceChildren(
        target ? button(text, go, { class: "dg-hex-field", title: "Select what it points to" }) : text,
      );
    });
    if (!changed) return;
    this.#colour();
    this.grid.repaint();
  }
  // Marks the fields that overlap the selection.
  cursorChanged() {
    const [start, stop] = this.grid.cursor.span;
    let first = null;
    for (const line of this.#lines) {
      const on = line.start < stop && start < line.stop;
      if (on) first ??= line.row;
      if (on === (line.row.getAttribute("aria-current") === "true")) continue;
      if (on) line.row.setAttribute("aria-current", "true");
      else line.row.removeAttribute("aria-current");
    }
    if (!first) return;
    const { scroll } = this;
    const top = first.offsetTop - this.body.offsetTop;
    if (
      top < scroll.scrollTop ||
      top + first.offsetHeight > scroll.scrollTop + scroll.clientHeight - this.body.offsetTop
    )
      scroll.scrollTop = top;
  }
}
