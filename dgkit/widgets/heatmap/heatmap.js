// The panel of a HeatMap: its figure, the choice of what it shows, the slowest pairs as a table.

import { bytesOf, choice, field, h, newId } from "../base/elements.js";
import { reportVisibility } from "../base/page.js";
import { panel } from "../base/panel.js";
import { renderFigures } from "../figure/bokehjs.js";

class HeatMapView {
  #view;
  #figures = null;
  #waiting = null;
  #id = newId();
  constructor(view) {
    this.#view = view;
    this.status = h("p", { role: "status", class: "dg-help" });
    this.what = h("p", { class: "dg-help" });
    this.place = h("div", { class: "dg-figure", "aria-hidden": "true" });
    this.choice = choice(view.state.figures, {
      onchange: () => view.attempt("show", { figure: this.choice.value }),
    });
    this.rows = h("tbody");
    this.more = h("p", { class: "dg-help" });
    const heads = ["pair", "op, path, size", "times the median"].map((text) => h("th", { scope: "col" }, text));
    this.slow = h(
      "div",
      { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": "Slowest pairs" },
      h("table", {}, h("thead", {}, h("tr", {}, ...heads)), this.rows),
      this.more,
    );
    view.body.append(
      h("div", { class: "dg-row" }, field("Figure", this.choice)),
      this.status,
      this.what,
      this.place,
      this.slow,
    );
  }
  begin() {
    const view = this.#view;
    this.#setTexts(view.state);
    view.on("frame", (message, buffers) => {
      this.#setTexts(message);
      this.#setCells(message, buffers);
    });
    // Only a visible view is sent frames; when it becomes visible again it requests what it missed.
    reportVisibility(view, this.#id, 5000, () => this.#request());
    return renderFigures(
      view,
      () => [this.place],
      (figures) => {
        this.#figures = figures;
        if (this.#waiting) this.#setCells(...this.#waiting);
        view.root.dataset.drawn = "";
      },
    );
  }
  async #request() {
    const { buffers, ...message } = await this.#view.call("cells");
    this.#setTexts(message);
    this.#setCells(message, buffers);
  }
  #setTexts({ line, what, figure, slow, more, done, label }) {
    this.status.textContent = line;
    this.what.textContent = `Colour: ${what}, from 1 to 2; grey: not measured yet.`;
    if (this.choice.value !== figure) this.choice.value = figure;
    this.slow.hidden = !slow.length;
    this.rows.replaceChildren(
      ...slow.map(([pair, kind, value]) =>
        h("tr", {}, h("th", { scope: "row" }, pair), h("td", {}, kind), h("td", { class: "dg-number" }, value)),
      ),
    );
    this.more.textContent = more ? `and ${more.toLocaleString("en-US")} more` : "";
    this.#view.titled({ ...this.#view.state, label });
    this.#view.root.dataset.done = String(done);
  }
  // Fills the figure; redraws it if its shape changed because the sweep has more pairs.
  #setCells({ shape, line }, [cells]) {
    if (!this.#figures) {
      this.#waiting = [{ shape, line }, [cells]];
      return;
    }
    const source = this.#figures.document.get_model_by_name("cells");
    const values = new Float32Array(bytesOf(cells).slice().buffer);
    if (values.length === source.get_length()) source.data = { ...source.data, value: values };
    this.#view.root.dataset.line = line;
  }
}

export default panel({
  name: "heatmap",
  draw: (view) => new HeatMapView(view).begin(),
});
