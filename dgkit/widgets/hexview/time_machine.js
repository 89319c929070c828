// The slider over the session's writes: the bytes as they were after each, and who wrote them.

import { button, h } from "../base/elements.js";
import { Refresher } from "./refresher.js";
import { hexOffset } from "./values.js";

// Numbered as in time_machine.py, and so are the colours; bytes of the last are not known.
export const WRITERS = ["", "DPU, bytes from the host", "DPU", "kernel", "DPU, bytes from the client", "outside", "··"];

export class TimeMachine {
  #wanted = null;
  #moving;
  constructor(view, grid) {
    this.view = view;
    this.grid = grid;
    this.#moving = new Refresher(() => view.attempt("moment", { to: this.#wanted }));
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": "Moment: number of writes",
      oninput: () => this.#go(Number(this.slider.value)),
    });
    this.earlier = button("◀", () => this.#step(-1), { "aria-label": "Earlier write", title: "Earlier write" });
    this.later = button("▶", () => this.#step(1), { "aria-label": "Later write", title: "Later write" });
    this.now = button("Now", () => this.#go(null));
    this.select = button("Select its bytes", () => grid.choose(...view.state.history.span));
    this.find = button("Write of this byte", () => this.#find(), {
      title: "The last write to the byte at the cursor, up to the moment shown",
    });
    this.text = h("output", { class: "dg-past-text" });
    const names = WRITERS.slice(1, -1).map((name, i) =>
      h("span", {}, h("i", { class: `dg-swatch dg-hue${i + 1}` }), name),
    );
    this.controls = h(
      "div",
      { class: "dg-row" },
      this.earlier,
      this.slider,
      this.later,
      this.now,
      this.select,
      this.find,
    );
    this.legend = h("p", { class: "dg-help dg-past-legend" }, "written by ", ...names);
    this.element = h(
      "div",
      { class: "dg-past", role: "group", "aria-label": "History of the bytes", hidden: true },
      this.controls,
      this.text,
      this.legend,
    );
    view.on("history", ({ history }) => {
      view.state.history = history;
      this.apply(view.state);
      grid.refresh();
    });
  }
  apply({ history, region }) {
    this.element.hidden = !history || !region;
    if (this.element.hidden) return;
    const { why, first, last, at, span } = history;
    this.controls.hidden = this.legend.hidden = Boolean(why);
    this.text.textContent = why ? `There is no history: ${why}.` : history.text;
    this.grid.box.toggleAttribute("data-past", at !== null);
    Object.assign(this.slider, { min: first, max: last, value: at ?? last });
    this.slider.setAttribute("aria-valuetext", history.text);
    this.earlier.disabled = (at ?? last) <= first;
    this.later.disabled = this.now.disabled = at === null;
    this.select.disabled = !span;
  }
  #step(by) {
    const { first, last, at } = this.view.state.history;
    this.#go(Math.max(first, Math.min(last, (at ?? last) + by)));
  }
  // Shows a moment; while a request is in flight, the newest wins.
  #go(moment) {
    this.#wanted = moment;
    this.#moving.soon(0);
  }
  async #find() {
    const { at } = this.grid.cursor;
    const found = await this.view.attempt("last_write", { at });
    if (found && !found.moment) this.grid.setStatus(`No write to byte ${hexOffset(at)} is kept.`);
  }
}
