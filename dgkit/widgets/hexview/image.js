// The region as an image: a pixel per item. A click goes to the bytes of the pixel.

import { button, bytesOf, choice, field, h, newId } from "../base/elements.js";
import { plural } from "../base/units.js";
import { DTYPES, hexOffset, numberText, small } from "./values.js";

const IMAGE_HEIGHT = 420;
const IMAGE_SCALE = 16; // px: maximum height of the image, and of a pixel
const IMAGE_ODD = [255, 0, 255]; // colour of values that are not finite
const IMAGE_KEYS = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
  PageDown: [0, 16],
  PageUp: [0, -16],
};

export class RegionImage {
  #shown = null;
  #key = "";
  #early = null;
  #on = false;
  #clicked = false; // the fold, whose toggle event has not come yet
  constructor(view, grid) {
    this.view = view;
    this.grid = grid;
    const change = (fields) => view.attempt("show_image", { on: true, ...fields });
    this.dtype = choice([["", "as the array"], ...Object.keys(DTYPES).map((name) => [name, name])], {
      onchange: () => change({ dtype: this.dtype.value }),
    });
    this.width = h("input", {
      type: "number",
      min: 0,
      max: 4096,
      step: 1,
      placeholder: "auto",
      onchange: () => this.#setWidth(change),
    });
    this.palette = choice(["viridis", "inferno", "grey"], { onchange: () => change({ palette: this.palette.value }) });
    const step = (by) => change({ offset: Math.max(0, this.#shown.at + by * this.#shown.rows * this.#stride) });
    this.previous = button("Previous", () => step(-1), { "aria-label": "Previous rows" });
    this.next = button("Next", () => step(1), { "aria-label": "Next rows" });
    this.canvas = h("canvas");
    this.frame = h("span", { class: "dg-image-window" });
    this.cursor = h("span", { class: "dg-image-cursor" });
    this.note = h("p", { class: "dg-help", id: newId() });
    this.plot = h(
      "div",
      {
        class: "dg-image-plot",
        tabindex: "0",
        role: "application",
        "aria-label": "Pixels",
        "aria-describedby": this.note.id,
      },
      this.canvas,
      this.frame,
      this.cursor,
    );
    this.room = h("div", { class: "dg-image-room" }, this.plot);
    this.element = h(
      "details",
      { class: "dg-hex-aside dg-image", hidden: true, ontoggle: () => this.#toggled() },
      h("summary", { onclick: () => (this.#clicked = true) }, "Image"),
      h(
        "div",
        { class: "dg-row" },
        field("Pixel type", this.dtype),
        field("Pixels per row", this.width),
        field("Palette", this.palette),
        this.previous,
        this.next,
      ),
      this.room,
      this.note,
    );
    this.#listen();
    view.on("image", (message, buffers) => this.#receive(message, buffers));
  }
  get #stride() {
    return this.#shown.width * this.#shown.item;
  }
  #toggled() {
    this.#clicked = false;
    if (this.element.open !== this.#on) this.view.attempt("show_image", { on: this.element.open });
  }
  #setWidth(change) {
    const text = this.width.value.trim();
    change({ width: text === "" ? 0 : Number(text) });
  }
  ask() {
    if (this.#on && this.view.state.region) this.view.call("draw_image", { view: this.grid.id }).catch(() => {});
  }
  apply({ region, image, source, endian }) {
    this.element.hidden = !region;
    this.#on = Boolean(image);
    if (!this.#clicked) this.element.open = this.#on;
    if (image) {
      this.dtype.value = image.dtype;
      this.palette.value = image.palette;
      if (document.activeElement !== this.width) this.width.value = image.width || "";
    }
    const key = image && region ? JSON.stringify([region.id, source, endian, image]) : "";
    if (key === this.#key) return;
    const other = this.#shown?.region !== region?.id;
    this.#key = key;
    if (other || !key) {
      this.#shown = null;
      this.room.hidden = true;
      this.note.textContent = key ? "Being read…" : "";
    }
    if (this.#early && this.#early[0].region === region?.id) this.#receive(...this.#early);
    this.#buttons();
    this.ask();
  }
  // Images and states come from different threads: an image may arrive before its region's state.
  #receive(message, buffers) {
    this.#early = this.#on && message.region === this.view.state.region?.id ? null : [message, buffers];
    if (this.#early) return;
    this.element.dataset.scan = Number(this.element.dataset.scan ?? 0) + 1;
    this.room.hidden = Boolean(message.error);
    this.#shown = message.error ? null : message;
    this.note.textContent = message.error ? `Not read: ${message.error}` : this.#text();
    if (!message.error) this.#draw(...buffers.map(bytesOf));
    this.#buttons();
    this.drawWindow();
  }
  #draw(levels, palette, odd) {
    const { width, rows } = this.#shown;
    const { canvas } = this;
    Object.assign(canvas, { width, height: rows });
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = new Uint32Array(256);
    const packed = (r, g, b) => new Uint32Array(new Uint8Array([r, g, b, 255]).buffer)[0];
    for (let i = 0; i < 256; i += 1) colours[i] = packed(...palette.subarray(3 * i, 3 * i + 3));
    for (let i = 0; i < levels.length; i += 1) pixels[i] = colours[levels[i]];
    for (let i = 0; i < odd.length; i += 1) if (odd[i]) pixels[i] = packed(...IMAGE_ODD);
    context.putImageData(image, 0, 0);
    this.fit();
  }
  // Scales the image to the available width.
  fit() {
    if (!this.#shown || !this.room.clientWidth) return;
    const { width, rows } = this.#shown;
    const scale = Math.min(IMAGE_SCALE, this.room.clientWidth / width, IMAGE_HEIGHT / rows);
    const whole = scale > 1 ? Math.floor(scale) : scale;
    Object.assign(this.plot.style, { width: `${whole * width}px`, height: `${whole * rows}px` });
    this.canvas.classList.toggle("dg-image-small", whole < 1);
  }
  #buttons() {
    const shown = this.#shown;
    this.previous.disabled = !shown || shown.at === 0;
    this.next.disabled = !shown || shown.at + (shown.pixels + 1) * shown.item > shown.size;
  }
  // What the image shows, and how its values are coloured.
  #text() {
    const { dtype, width, rows, at, pixels, item, size, low, high, source } = this.#shown;
    const how = source === "dpu" ? "read by DMA" : "read directly from the host's memory";
    const stop = at + pixels * item;
    const part = pixels * item === size ? "all bytes" : `${hexOffset(at)} to ${hexOffset(stop - 1)}`;
    const number = (value) => (Number.isInteger(value) ? numberText(value) : small(value));
    return (
      `${plural(rows, "row")} of ${plural(width, "item")} of ${dtype}, ${part}, ${how}; ` +
      `colours from ${number(low)} to ${number(high)}. Click a pixel to go to its bytes.`
    );
  }
  // Draws the rows that have the bytes in view, and the pixel at the cursor.
  drawWindow() {
    const shown = this.#shown;
    if (!shown || !this.grid.layout) return;
    const [start, stop] = this.grid.window;
    const row = (at) => Math.max(0, Math.min(shown.rows, (at - shown.at) / this.#stride));
    const top = Math.floor(row(start));
    const bottom = Math.ceil(row(stop));
    const share = (value, of) => `${((100 * value) / of).toFixed(3)}%`;
    this.frame.hidden = bottom <= top;
    Object.assign(this.frame.style, { top: share(top, shown.rows), height: share(bottom - top, shown.rows) });
    const pixel = this.#pixelOf(this.grid.cursor.at);
    this.cursor.hidden = pixel === null;
    if (pixel === null) return;
    Object.assign(this.cursor.style, {
      left: share(pixel % shown.width, shown.width),
      width: share(1, shown.width),
      top: share(Math.floor(pixel / shown.width), shown.rows),
      height: share(1, shown.rows),
    });
  }
  // The number of the pixel that a byte belongs to, or null.
  #pixelOf(at) {
    const pixel = Math.floor((at - this.#shown.at) / this.#shown.item);
    return pixel >= 0 && pixel < this.#shown.pixels ? pixel : null;
  }
  #pixelUnder({ clientX, clientY }) {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const shown = this.#shown;
    const x = Math.max(0, Math.min(shown.width - 1, Math.floor(((clientX - left) / width) * shown.width)));
    const y = Math.max(0, Math.min(shown.rows - 1, Math.floor(((clientY - top) / height) * shown.rows)));
    return Math.min(shown.pixels - 1, y * shown.width + x);
  }
  #go(pixel) {
    const { at, item } = this.#shown;
    const start = at + pixel * item;
    this.grid.show(start, true);
    this.grid.cursor.select(start, start + item);
  }
  #listen() {
    const { plot } = this;
    plot.addEventListener("click", (event) => {
      if (!this.#shown) return;
      this.grid.leave();
      this.#go(this.#pixelUnder(event));
    });
    plot.addEventListener("pointermove", (event) => {
      if (!this.#shown) return;
      const { at, item, width } = this.#shown;
      const pixel = this.#pixelUnder(event);
      plot.title = `${hexOffset(at + pixel * item)}: row ${Math.floor(pixel / width).toLocaleString("en-US")}, item ${(pixel % width).toLocaleString("en-US")}`;
    });
    plot.addEventListener("keydown", (event) => {
      const step = IMAGE_KEYS[event.key];
      if (!step || !this.#shown || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const now = this.#pixelOf(this.grid.cursor.at) ?? 0;
      const next = now + step[0] + step[1] * this.#shown.width;
      this.#go(Math.max(0, Math.min(this.#shown.pixels - 1, next)));
    });
    const size = new ResizeObserver(() => this.fit());
    size.observe(this.room);
    this.view.signal.addEventListener("abort", () => size.disconnect());
  }
}
