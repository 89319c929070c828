// The table of records: a row per record, of which only those in view exist. It sorts and filters in
// the kernel, and its selection is that of the bytes, in both directions.

import { button, h } from "../base/elements.js";
import { plural } from "../base/units.js";
import { Scroller } from "./grid.js";
import { Refresher } from "./refresher.js";

const SHOWN = 12; // rows
const PAUSE_MS = 100; // before the rows are read again

export class RecordTable {
  #key = "";
  #lines = [];
  #rows;
  constructor(view, grid) {
    this.view = view;
    this.grid = grid;
    this.#rows = new Refresher(async () => {
      this.#show(await view.call("records", { first: this.scroller.top, count: SHOWN }));
    });
    this.title = h("summary");
    this.where = h("input", {
      size: 24,
      spellcheck: "false",
      autocomplete: "off",
      placeholder: "size > 0x40 and kind == 3",
      "aria-label": "Show the records that satisfy",
      onkeydown: (event) => event.key === "Enter" && this.#arrange({ where: this.where.value }),
    });
    const filter = button("Filter", () => this.#arrange({ where: this.where.value }));
    this.all = button("Show all", () => this.#arrange({ where: "", sort: "", descending: false }));
    this.head = h("tr");
    this.body = h("tbody");
    this.note = h("p", { class: "dg-help", role: "status" });
    this.table = h("table", { "aria-label": "Records" }, h("thead", {}, this.head), this.body);
    const spacer = h("div");
    this.box = h(
      "div",
      { class: "dg-hex-records", role: "region", tabindex: "0", "aria-label": "Records" },
      h("div", { class: "dg-hex-record-rows" }, this.table),
      spacer,
    );
    this.scroller = new Scroller(this.box, spacer, () => this.refresh(0));
    this.box.addEventListener("keydown", (event) => this.#keyDown(event));
    this.element = h(
      "details",
      { class: "dg-hex-aside", open: true, hidden: true, ontoggle: () => this.#resize() },
      this.title,
      h("div", { class: "dg-row" }, this.where, filter, this.all),
      this.box,
      this.note,
    );
  }
  apply({ records, region }) {
    this.element.hidden = !records || !region;
    if (!records || !region) return;
    const key = JSON.stringify(records.columns);
    if (key !== this.#key) this.#build(records.columns);
    this.#key = key;
    const { count, shown, size, sort, descending, where } = records;
    const of = shown < count ? `${shown.toLocaleString("en-US")} of ` : "";
    this.title.textContent = `${of}${plural(count, "record")} of ${plural(size, "byte")}`;
    if (document.activeElement !== this.where) this.where.value = where;
    this.all.disabled = !where && !sort;
    for (const cell of this.head.children) {
      const direction = descending ? "descending" : "ascending";
      cell.setAttribute("aria-sort", cell.dataset.field && cell.dataset.field === sort ? direction : "none");
    }
    this.#resize();
  }
  #build(columns) {
    const heads = columns.map(([name, type]) =>
      h(
        "th",
        { scope: "col", "data-field": name, title: type },
        button(name, () => this.#sort(name), { class: "dg-hex-field" }),
      ),
    );
    this.head.replaceChildren(h("th", { scope: "col", class: "dg-number" }, "record"), ...heads);
    this.#lines = Array.from({ length: SHOWN }, () => {
      const cells = columns.map(() => h("td", { class: "dg-mono" }));
      const number = h("th", { scope: "row", class: "dg-number" });
      const line = { number: -1, head: number, cells, row: h("tr", {}, number, ...cells) };
      line.row.addEventListener("click", () => this.#choose(line.number));
      return line;
    });
    this.body.replaceChildren(...this.#lines.map(({ row }) => row));
  }
  #resize() {
    const { records } = this.view.state;
    if (!records || !this.element.open) return;
    this.scroller.resize(records.shown, SHOWN);
    this.refresh();
  }
  async #arrange(changes) {
    const { where, sort, descending } = this.view.state.records;
    this.where.removeAttribute("aria-invalid");
    if (!(await this.view.attempt("arrange", { where, sort, descending, ...changes })))
      this.where.setAttribute("aria-invalid", String("where" in changes));
  }
  // Sorts by a field: ascending, then descending, then as in memory.
  #sort(name) {
    const { sort, descending } = this.view.state.records;
    const again = sort === name;
    this.#arrange({ sort: again && descending ? "" : name, descending: again && !descending });
  }
  #choose(number) {
    if (number < 0) return;
    const { first, size } = this.view.state.records;
    const start = first + number * size;
    this.view.attempt("place_structure", { offset: start });
    this.grid.choose(start, start + size);
  }
  #keyDown(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: SHOWN, PageUp: -SHOWN }[event.key];
    const end = { Home: 0, End: this.scroller.rows }[event.key];
    if (event.target !== this.box || (step === undefined && end === undefined)) return;
    event.preventDefault();
    this.scroller.go(end ?? this.scroller.top + step);
    this.refresh(0);
  }
  // Reads the rows in view, soon.
  refresh(pause = PAUSE_MS) {
    if (!this.element.hidden && this.element.open) this.#rows.soon(pause);
  }
  #show({ rows, error }) {
    this.note.textContent = error;
    this.#lines.forEach((line, at) => {
      const [number = -1, ...values] = rows[at] ?? [];
      line.number = number;
      line.row.hidden = number < 0;
      line.head.textContent = number < 0 ? "" : number.toLocaleString("en-US");
      line.cells.forEach((cell, i) => {
        const text = values[i] ?? "";
        if (cell.textContent !== text) cell.textContent = text;
      });
    });
    this.cursorChanged();
  }
  // Marks the records that overlap the selection.
  cursorChanged() {
    const { records } = this.view.state;
    if (!records || this.element.hidden) return;
    const [start, stop] = this.grid.cursor.span;
    for (const { row, number } of this.#lines) {
      const at = records.first + number * records.size;
      if (number >= 0 && at < stop && start < at + records.size) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }
}
