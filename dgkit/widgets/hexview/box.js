// The scroll box with the rows: fetches the bytes in view from the kernel, draws them, and describes
// the cursor in a status line.

import { bytesOf, h, newId } from "../base/elements.js";
import { plural } from "../base/units.js";
import {
  CURSOR,
  DIFFERS,
  HUE_SHIFT,
  headRow,
  layoutFor,
  NO_HUE,
  ROW_PX,
  Row,
  Scroller,
  SELECTED,
  WRITING,
} from "./grid.js";
import { Cursor } from "./keys.js";
import { WRITERS } from "./time_machine.js";
import { makeInspector } from "./tools.js";
import { ASCII, DTYPES, HEX, hexOffset, valueAt } from "./values.js";

const INITIAL_ROWS = 24;
const TAIL = 8; // TAIL: bytes after the page that the inspector may need
const SLOW_MS = 1000;
const STATUS_MS = 150;
const EDGE_PX = 32;
const WIDE_PX = 1000;

export class HexBox {
  id = newId();
  page = null; // the bytes drawn, with their marks
  layout = null; // null until the box has a width
  count = INITIAL_ROWS;
  moved = false; // whether the user scrolled since the last request
  writing = new Map(); // bytes typed whose write has not ended, by offset
  notice = ""; // status text shown before the cursor's
  hues = null; // colours of a structure's bytes, from StructureTable
  region;
  key = "";
  rows = [];
  fetching = false;
  fetchAgain = false;
  failed = false;
  requestedAt;
  selectionTimer = 0;
  statusTimer = 0;
  run = (_command) => {};
  onMove = () => {};
  onDraw = () => {};
  leave = () => {};
  constructor(view) {
    this.view = view;
    this.block = h("div", { class: "dg-hex-rows", role: "presentation" });
    const spacer = h("div", { class: "dg-hex-spacer", role: "presentation" });
    this.box = h(
      "div",
      { class: "dg-hex-box", role: "grid", tabindex: "0", "aria-multiselectable": "true", "aria-label": "Bytes" },
      this.block,
      spacer,
    );
    this.ruler = h("span", { class: "dg-hex-ruler", "aria-hidden": "true" }, "0".repeat(100));
    this.status = h("p", { class: "dg-hex-status", role: "status" });
    this.scroller = new Scroller(this.box, spacer, () => {
      this.moved = true;
      this.refresh();
    });
    this.cursor = new Cursor(this);
    this.inspector = makeInspector();
    this.side = h("div", { class: "dg-hex-side" }, this.inspector.box);
    this.main = h("div", { class: "dg-hex-main" }, this.ruler, this.box, this.side);
  }
  size() {
    return this.view.state.region?.size ?? 0;
  }
  // Rebuilds the rows if the width, the type or the region changed. Without a width, as in a hidden
  // tab, there are no rows.
  arrange() {
    const { state } = this.view;
    const size = this.size();
    const room = this.main.clientWidth;
    if (!size || !room) return;
    if (this.inspector.box.dataset.set === undefined) {
      // initially open if there is room
      this.inspector.box.dataset.set = "";
      this.inspector.box.open = this.view.body.clientWidth >= WIDE_PX;
    }
    const char = this.ruler.offsetWidth / 100;
    const sources = state.source === "both" ? 2 : 1;
    const layout = layoutFor((room - EDGE_PX) / char, { dtype: state.dtype, sources, size, columns: state.columns });
    this.box.style.width = `${Math.ceil(layout.chars * char) + EDGE_PX}px`;
    const count = Math.max(4, Math.min(64, Math.floor(this.box.clientHeight / ROW_PX) - sources));
    const key = JSON.stringify([layout, count, size, state.source]);
    if (key === this.key) return;
    const cursorVisible = this.layout && this.isVisible(this.cursor.at);
    const first = this.layout ? this.scroller.top * this.layout.per : state.at;
    const { span } = this.cursor;
    Object.assign(this, { key, layout, count, page: null });
    this.cursor.select(...span);
    this.#build();
    this.scroller.resize(Math.ceil(size / layout.per), count);
    this.scroller.go(Math.floor(first / layout.per));
    if (cursorVisible) this.show(this.cursor.at);
    this.refresh();
  }
  #build() {
    const { layout, count } = this;
    const names = ["as the DPU reads it", "as the host sees it"];
    this.rows = Array.from({ length: count }, (_, row) => new Row(layout, this.id, row));
    this.block.style.setProperty("--dg-chars", layout.chars);
    this.block.replaceChildren(headRow(layout, names), ...this.rows.map((row) => row.element));
    this.box.setAttribute("aria-rowcount", Math.ceil(this.size() / layout.per) + 1);
    const perPane = (layout.hex ? layout.per + 1 : 0) + (layout.values ? layout.per / DTYPES[layout.dtype][0] : 0);
    this.box.setAttribute("aria-colcount", 1 + layout.sources * perPane);
  }
  // Fetches the bytes in view. One request is in flight at a time; calls meanwhile cause one more.
  async refresh() {
    this.onMove();
    this.requestedAt ??= performance.now();
    if (this.fetching) return void (this.fetchAgain = true);
    this.fetching = true;
    const slow = setTimeout(
      () => this.setStatus("The kernel is busy. The bytes will be shown when it answers."),
      SLOW_MS,
    );
    try {
      do {
        this.fetchAgain = false;
        await this.#fetch();
      } while (this.fetchAgain && !this.view.signal.aborted);
    } catch (error) {
      this.failed = true;
      this.box.dataset.stale = "";
      if (this.page) this.#paint();
      this.view.fail(error);
      this.setStatus("The bytes shown were read before the error above.");
    } finally {
      clearTimeout(slow);
      this.fetching = this.fetchAgain = false;
      this.requestedAt = undefined;
    }
  }
  async #fetch() {
    if (!this.layout || !this.size()) return;
    const { per } = this.layout;
    const fields = { view: this.id, at: this.scroller.top * per, n: this.count * per + TAIL, scrolled: this.moved };
    this.moved = false; // reported to the kernel in this request
    const reply = await this.view.call("fetch", fields);
    if (!reply.region) return this.setStatus("The region is being freed.");
    if (this.fetchAgain || reply.region !== this.view.state.region?.id || reply.sources !== this.layout.sources) return;
    if (this.failed) this.view.clear();
    this.failed = false;
    delete this.box.dataset.stale;
    this.draw(reply);
    this.#measure();
  }
  #measure() {
    const start = this.requestedAt;
    performance.measure("dgkit-hex-jump", { start, detail: { at: this.page.at } });
    requestAnimationFrame(() => {
      performance.measure("dgkit-hex-frame", { start, detail: { at: this.page?.at } });
      if (performance.getEntriesByName("dgkit-hex-jump").length < 1000) return;
      performance.clearMeasures("dgkit-hex-jump");
      performance.clearMeasures("dgkit-hex-frame");
    });
  }
  // Draws a changed page that the kernel sent.
  receivePage(message, buffers) {
    if (message.view !== this.id) return;
    this.view.call("ack", { view: this.id }).catch(this.view.fail);
    if (!this.fetching && message.at === this.page?.at && message.sources === this.layout.sources)
      this.draw({ ...message, buffers });
  }
  draw({ at, size, sources, flags, hues, buffers }) {
    const parts = buffers.slice(0, sources).map(bytesOf);
    this.page = {
      at,
      size,
      parts,
      flags: flags ? bytesOf(buffers[sources]) : null,
      hues: hues ? bytesOf(buffers.at(-1)) : null,
      views: parts.map((part) => new DataView(part.buffer, part.byteOffset, part.byteLength)),
    };
    this.#paint();
    this.onDraw();
  }
  // Redraws the cells after a change of their marks.
  repaint() {
    if (this.page) this.#paint();
  }
  // Whether the history has these bytes of the page.
  #isKnown(k, count = 1) {
    return !this.page.hues?.subarray(k, k + count).includes(WRITERS.length - 1);
  }
  #marksOf(k, span) {
    const at = this.page.at + k;
    const selected = at >= span[0] && at < span[1] ? SELECTED : 0;
    const hue = this.page.hues?.[k] || (this.hues?.map[at - this.hues.at] ?? 0); // undefined outside of the structure
    return (
      (this.page.flags?.[k] ?? 0) |
      selected |
      (hue << HUE_SHIFT) |
      (at === this.cursor.at ? CURSOR : 0) |
      (this.writing.has(at) ? WRITING : 0)
    );
  }
  #paint() {
    const { at } = this.page;
    const { per } = this.layout;
    const span = this.cursor.span;
    const size = this.size();
    this.rows.forEach((row, r) => {
      const first = at + r * per;
      row.element.hidden = first >= size;
      if (first >= size) return;
      row.offset.setText(first.toString(16).padStart(this.layout.digits, "0"));
      row.element.ariaRowIndex = String(first / per + 2);
      for (let side = 0; side < this.page.parts.length; side++) this.#paintRow(row, r * per, side, span);
    });
    this.#paintCursor();
  }
  #paintRow(row, k, side, span) {
    const part = this.page.parts[side];
    const { hex, values, per, dtype } = this.layout;
    if (hex) {
      for (let i = 0; i < per; i++) {
        const byte = part[k + i];
        const exists = byte !== undefined;
        const at = this.page.at + k + i;
        const marks = exists ? this.#marksOf(k + i, span) : 0;
        const typed = this.writing.get(at);
        const digit = at === this.cursor.at && this.cursor.digit;
        const shown = this.#isKnown(k + i) ? HEX[byte] : "··";
        row.hex[side][i].setText(!exists ? "  " : digit ? `${digit}_` : typed !== undefined ? HEX[typed] : shown);
        row.text[side][i].setText(exists ? ASCII[typed ?? byte] : " ");
        row.hex[side][i].setMarks(marks, side);
        row.text[side][i].setMarks(marks, side);
      }
    }
    if (!values) return;
    const little = this.view.state.endian === "little";
    const [step, width] = DTYPES[dtype];
    row.values[side].forEach((cell, j) => {
      const from = k + j * step;
      let marks = 0;
      for (let i = from; i < from + step && i < part.length; i++)
        marks |= i > from ? this.#marksOf(i, span) & NO_HUE : this.#marksOf(i, span);
      const text = this.#isKnown(from, step) ? valueAt(this.page.views[side], from, dtype, little) : "··";
      cell.setText(text.padStart(width));
      cell.setMarks(marks, side);
    });
  }
  // The cursor or the selection changed. If its bytes are being fetched, they are painted on arrival.
  cursorChanged() {
    this.onMove();
    const k = this.cursor.at - this.page?.at;
    if (this.page && !(this.fetching && !(k >= 0 && k < this.page.size))) this.#paint();
    clearTimeout(this.selectionTimer);
    const [start, stop] = this.cursor.span;
    this.selectionTimer = setTimeout(
      () => this.size() && this.view.call("set_selection", { start, stop }).catch(() => {}),
      300,
    );
  }
  #paintCursor() {
    const { at, unit } = this.cursor;
    const k = at - this.page.at;
    const { per, hex } = this.layout;
    const visible = k >= 0 && k < this.count * per;
    const id = `${this.id}-${hex ? "bytes" : "values"}0-${k - (k % unit)}`;
    if (visible) this.box.setAttribute("aria-activedescendant", id);
    else this.box.removeAttribute("aria-activedescendant");
    this.inspector.show(at, visible && this.#isKnown(k, 8) ? this.page.parts[0].subarray(k, k + 8) : null);
    clearTimeout(this.statusTimer);
    this.statusTimer = setTimeout(() => this.setStatus(this.#statusText()), STATUS_MS);
  }
  #statusText() {
    if (!this.page || !this.size()) return "";
    const [start, stop] = this.cursor.span;
    const { flags, parts, at } = this.page;
    const shown = this.count * this.layout.per;
    const byte = this.#isKnown(this.cursor.at - at) ? parts[0][this.cursor.at - at] : undefined;
    const count = (bits) =>
      flags ? flags.subarray(0, shown).reduce((sum, flag) => sum + (flag & bits ? 1 : 0), 0) : 0;
    const phrases = [
      stop - start > this.cursor.unit
        ? `${plural(stop - start, "byte")} selected, ${hexOffset(start)} to ${hexOffset(stop - 1)}`
        : `Byte ${hexOffset(this.cursor.at)}${byte === undefined ? "" : `: ${HEX[byte]}`}`,
    ];
    const writer = WRITERS[this.page.hues?.[this.cursor.at - at] ?? 0];
    if (writer) phrases.push({ outside: "changed outside", "··": "not kept" }[writer] ?? `written by the ${writer}`);
    const changed = count(3);
    const differs = count(DIFFERS);
    if (changed) phrases.push(`${plural(changed, "byte")} in view changed`);
    if (parts.length === 2)
      phrases.push(differs ? `${plural(differs, "byte")} in view differ` : "no difference in view");
    return `${this.notice} ${phrases.join("; ")}.`.trim();
  }
  setStatus(text) {
    clearTimeout(this.statusTimer);
    if (this.status.textContent !== text) this.status.textContent = text;
  }
  isVisible(at) {
    const row = Math.floor(at / this.layout.per) - this.scroller.top;
    return row >= 0 && row < this.count;
  }
  // The bytes in view, as [start, stop).
  get window() {
    if (!this.layout) return [0, 0];
    const start = this.scroller.top * this.layout.per;
    return [start, Math.min(this.size(), start + this.count * this.layout.per)];
  }
  // Scrolls to a byte; with `middle` some rows are left above it.
  show(at, middle = false) {
    if (!this.layout || this.isVisible(at)) return;
    const row = Math.floor(at / this.layout.per);
    const { top } = this.scroller;
    this.scroller.go(middle ? row - (this.count >> 2) : row < top ? row : row - this.count + 1);
    if (this.scroller.top === top) return;
    this.moved = true;
    this.refresh();
  }
  // Goes to bytes and selects them; the place that is left can be returned to.
  choose(start, stop) {
    this.leave();
    this.show(start, true);
    this.cursor.select(start, stop);
  }
  // Scrolls, on a message from the kernel, so that the row of a byte becomes the first.
  scrollTo(at) {
    if (!this.layout) return;
    this.scroller.go(Math.floor(at / this.layout.per));
    this.moved = false;
    this.refresh();
  }
  mayWrite() {
    const why =
      this.view.state.region?.no_write ||
      (this.view.state.history?.at != null ? "These are bytes of the past: press Now to write." : "") ||
      (this.layout.hex ? "" : "Values cannot be edited: set Values to bytes (hex).");
    if (why) this.setStatus(why);
    return !why;
  }
  async write(at, bytes) {
    bytes.forEach((byte, i) => at + i < this.size() && this.writing.set(at + i, byte));
    const started = await this.view.attempt("put", { at }, [bytes]);
    if (!started) this.written(at, bytes.length, false);
  }
  // Handles the end of a write: the page shows the new bytes if it succeeded.
  written(at, size, ok) {
    for (let i = at; i < at + size; i++) {
      const k = i - (this.page?.at ?? i + 1);
      const typed = this.writing.get(i);
      if (ok && k >= 0 && typed !== undefined) this.page.parts.forEach((part) => k < part.length && (part[k] = typed));
      this.writing.delete(i);
    }
    if (this.page) this.#paint();
  }
}
