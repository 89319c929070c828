// The panel of a queue pair: who is ahead of whom in the ring, its entries, and its completions.

import { button, h, newId, statusLine } from "../base/elements.js";
import { reportVisibility, toClipboard } from "../base/page.js";
import { panel } from "../base/panel.js";

const KEEPALIVE_MS = 5000; // how often a view reports that it is still visible
const FLAWED = /^(failed|.* error)$/; // an entry's state, a completion's kind
const MONO = new Set(["local address", "lkey", "remote address", "rkey"]);
const NUMBERS = new Set(["number", "entry", "bytes"]);

const headClass = (column) => (NUMBERS.has(column) ? "dg-number" : null);
const cellClass = (column) => (MONO.has(column) ? "dg-mono" : headClass(column));

// A table under a heading; fill(rows) replaces its rows and marks those of errors.
function makeTable(title, columns) {
  const rows = h("tbody");
  const empty = h("p", { class: "dg-help" }, "None yet.");
  const heads = columns.map((column) => h("th", { scope: "col", class: headClass(column) }, column));
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), rows);
  const root = h(
    "div",
    { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": title },
    h("h3", { class: "dg-queue-title" }, title),
    table,
    empty,
  );
  const fill = (values) => {
    table.hidden = !values.length;
    empty.hidden = values.length > 0;
    rows.replaceChildren(
      ...values.map((cells) =>
        h(
          "tr",
          { class: FLAWED.test(cells[1]) ? "dg-queue-failed" : null },
          ...cells.map((cell, at) => h("td", { class: cellClass(columns[at]) }, cell)),
        ),
      ),
    );
  };
  return { root, fill };
}

class QueueView {
  #view;
  constructor(view) {
    this.#view = view;
    this.status = h("p", { role: "status", class: "dg-queue-status" });
    this.line = h("p", { class: "dg-help" });
    this.bar = h("div", { class: "dg-queue-bar", role: "img" });
    this.said = statusLine();
    this.entries = makeTable("Work queue entries, oldest first", view.state.entry_columns);
    this.completions = makeTable("Completions, oldest first", view.state.completion_columns);
    const copy = button("Copy as text", () => this.#copy());
    view.body.append(
      this.status,
      this.bar,
      this.line,
      h("div", { class: "dg-queue-tables" }, this.entries.root, this.completions.root),
      h("div", { class: "dg-row dg-queue-copy" }, copy, this.said),
    );
  }
  begin() {
    const view = this.#view;
    this.#draw(view.state);
    view.on("frame", (message) => this.#draw(message));
    reportVisibility(view, newId(), KEEPALIVE_MS, (state) => this.#draw(state));
  }
  #draw({ status, why, line, notes, places, entries, completions }) {
    const text = why ? `${status}: ${why}` : status;
    if (this.status.textContent !== text) this.status.textContent = text; // screen readers announce it
    this.status.classList.toggle("dg-queue-error", Boolean(why));
    this.line.textContent = [line, ...notes].join("; ");
    const used = places.filter(([, n]) => n);
    const words = used.map(([name, n]) => `${n.toLocaleString("en-US")} ${name}`);
    this.bar.setAttribute("aria-label", `Places of the ring: ${words.join(", ")}`);
    this.bar.replaceChildren(
      ...used.map(([name], at) =>
        h("span", { class: "dg-queue-part", "data-part": name, style: `flex-grow: ${used[at][1]}` }, words[at]),
      ),
    );
    this.entries.fill(entries);
    this.completions.fill(completions);
    this.#view.root.dataset.state = status;
  }
  async #copy() {
    const reply = await this.#view.attempt("as_text");
    if (!reply) return;
    try {
      await toClipboard(reply.text);
      this.said.textContent = "Copied.";
    } catch (error) {
      this.#view.fail(error);
    }
  }
}

export default panel({
  name: "queuepair",
  draw: (view) => new QueueView(view).begin(),
});
