// The overview strip: the mean value or the entropy of each part of the region, what changed, and the
// bytes in view. A click goes there.

import { bytesOf, choice, field, h } from "../base/elements.js";
import { plural, shortSize } from "../base/units.js";
import { hexOffset } from "./values.js";

const OVERVIEW_NAMES = [
  ["value", "mean value"],
  ["entropy", "entropy"],
];
const OVERVIEW_KEYS = {
  ArrowRight: 1,
  ArrowUp: 1,
  ArrowLeft: -1,
  ArrowDown: -1,
  PageUp: 16,
  PageDown: -16,
  Home: -Infinity,
  End: Infinity,
};

const svgTag = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

export class OverviewStrip {
  #parts = null;
  #dragging = false;
  #sized = "";
  #latest = null;
  constructor(view, grid) {
    this.view = view;
    this.grid = grid;
    this.visible = false;
    this.kind = choice(OVERVIEW_NAMES, { onchange: () => view.attempt("show", { overview_of: this.kind.value }) });
    this.bars = svgTag("path", { class: "dg-over-bars" });
    this.changes = svgTag("path", { class: "dg-over-changes" });
    this.drawing = svgTag("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }, this.changes, this.bars);
    this.frame = h("span", { class: "dg-over-window" });
    this.cursor = h("span", { class: "dg-over-cursor" });
    this.strip = h(
      "div",
      {
        class: "dg-over-strip",
        role: "slider",
        tabindex: "0",
        "aria-label": "Overview of all bytes",
        "aria-valuemin": 0,
      },
      this.drawing,
      this.frame,
      this.cursor,
    );
    this.note = h("p", { class: "dg-help" });
    this.row = h("div", { class: "dg-over-row" }, field("Overview", this.kind), this.note);
    this.element = h("div", { class: "dg-over" }, this.strip, this.row);
    this.#listen();
    view.on("overview", (message, buffers) => this.#receive(message, buffers));
  }
  ask() {
    if (this.view.state.region) this.view.call("overview", { view: this.grid.id }).catch(() => {});
  }
  apply(state) {
    this.element.hidden = !state.region;
    this.kind.value = state.overview_of;
    const key = `${state.region?.id} ${state.source}`;
    if (key !== this.#sized) {
      this.#sized = key;
      this.#parts = null;
      this.note.textContent = state.region ? "Being read…" : "";
      if (this.#latest) this.#receive(...this.#latest);
      if (this.visible && !this.#parts) this.ask();
    }
    this.#draw();
  }
  // Scans and states come from different threads: a scan may arrive before its region's state.
  #receive(message, buffers) {
    const { region, size, source, read, error } = message;
    this.#latest = [message, buffers];
    const shown = this.view.state.source === "both" ? "dpu" : this.view.state.source;
    if (region !== this.view.state.region?.id || (source ?? shown) !== shown) return;
    this.element.dataset.scan = Number(this.element.dataset.scan ?? 0) + 1;
    if (error) {
      this.note.textContent = `Not read: ${error}`;
      return;
    }
    const [value, entropy, changed] = buffers.map(bytesOf);
    this.#parts = { size, source, read, value, entropy, changed };
    this.#draw();
  }
  #bounds(part) {
    const { size, value } = this.#parts;
    return [part, part + 1].map((at) => Math.floor((size * at) / value.length));
  }
  #draw() {
    const parts = this.#parts;
    const kind = this.view.state.overview_of;
    let bars = "";
    let changes = "";
    if (parts) {
      const heights = parts[kind];
      const n = heights.length;
      this.drawing.setAttribute("viewBox", `0 0 ${n} 255`);
      for (let i = 0; i < n; i++) {
        if (heights[i]) bars += `M${i} 255V${255 - heights[i]}H${i + 1}V255Z`;
        if (parts.changed[i]) changes += `M${i} 0H${i + 1}V255H${i}Z`;
      }
      this.note.textContent = this.#text();
    }
    this.bars.setAttribute("d", bars);
    this.changes.setAttribute("d", changes);
    this.drawWindow();
  }
  // What the strip shows, how much of the region was read for it, and how.
  #text() {
    const { size, source, read, value, changed } = this.#parts;
    const count = changed.reduce((sum, one) => sum + one, 0);
    const how = source === "dpu" ? "by DMA" : "directly from the host's memory";
    const each = shortSize(Math.ceil(size / value.length));
    const what = `${plural(value.length, "part")} of ${each}`;
    const amount =
      read === size
        ? `all ${shortSize(size)} read ${how}`
        : `a sample: ${shortSize(read)} of ${shortSize(size)} read ${how}, the middle ${shortSize(read / value.length)} of each part`;
    return `${what}; ${amount}${count ? `; ${plural(count, "part")} changed` : ""}. Click to go there.`;
  }
  #partText(part) {
    const [start, stop] = this.#bounds(part);
    const { value, entropy, changed } = this.#parts;
    return (
      `${hexOffset(start)} to ${hexOffset(stop - 1)}: mean ${value[part]}, ` +
      `entropy ${((entropy[part] * 8) / 255).toFixed(1)} bits per byte${changed[part] ? ", changed" : ""}`
    );
  }
  // Draws the bytes in view and the cursor.
  drawWindow() {
    const size = this.grid.size();
    if (!size || !this.grid.layout) return;
    const [start, stop] = this.grid.window;
    const percent = (at) => `${((100 * at) / size).toFixed(3)}%`;
    Object.assign(this.frame.style, { left: percent(start), width: percent(stop - start) });
    this.cursor.style.left = percent(this.grid.cursor.at);
    this.strip.setAttribute("aria-valuemax", size - 1);
    this.strip.setAttribute("aria-valuenow", start);
    this.strip.setAttribute("aria-valuetext", `${hexOffset(start)} to ${hexOffset(stop - 1)} in view`);
  }
  #offsetUnder({ clientX }) {
    const { left, width } = this.strip.getBoundingClientRect();
    const size = this.grid.size();
    return Math.max(0, Math.min(size - 1, Math.floor(((clientX - left) / width) * size)));
  }
  #partAt(at) {
    const count = this.#parts.value.length; // the inverse of #bounds
    return Math.min(count - 1, Math.floor(((at + 1) * count - 1) / this.#parts.size));
  }
  #goUnder(event) {
    this.#go(this.#offsetUnder(event));
  }
  #go(at) {
    const start = this.#parts ? this.#bounds(this.#partAt(at))[0] : at;
    this.grid.show(start, true);
    this.grid.cursor.move(start);
  }
  #listen() {
    const { strip } = this;
    strip.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      strip.setPointerCapture(event.pointerId);
      this.#dragging = true;
      this.grid.leave();
      this.#goUnder(event);
    });
    strip.addEventListener("pointermove", (event) => {
      if (this.#dragging) this.#goUnder(event);
      if (this.#parts) strip.title = this.#partText(this.#partAt(this.#offsetUnder(event)));
    });
    for (const kind of ["pointerup", "pointercancel"]) strip.addEventListener(kind, () => (this.#dragging = false));
    strip.addEventListener("keydown", (event) => {
      const step = OVERVIEW_KEYS[event.key];
      if (!step || !this.#parts || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const last = this.#parts.value.length - 1;
      const now = this.#partAt(this.grid.cursor.at);
      this.#go(this.#bounds(Math.max(0, Math.min(last, now + step)))[0]);
    });
  }
}
