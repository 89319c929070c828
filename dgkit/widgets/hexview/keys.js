// Cursor and selection of the hex view, by mouse and keyboard, and typed input.

import { DTYPES } from "./values.js";

const SHORTCUTS = { KeyC: "copy", KeyA: "all", KeyG: "goto", KeyF: "find", KeyZ: "undo", KeyY: "redo" };

export class Cursor {
  at = 0;
  anchor = 0;
  digit = "";
  inText = false;
  dragging = false;
  // grid: a HexBox; keyboard shortcuts call its run(command).
  constructor(grid) {
    this.grid = grid;
    const { box } = grid;
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("pointerdown", (event) => this.#press(event));
    box.addEventListener("pointermove", (event) => event.buttons & 1 && this.dragging && this.#drag(event));
    box.addEventListener("pointerup", () => (this.dragging = false));
    box.addEventListener("blur", () => this.#discardDigit());
  }
  // The step of the cursor in bytes: the value size where only values are shown.
  get unit() {
    const { layout } = this.grid; // null until the box has a width
    return !layout || layout.hex ? 1 : DTYPES[layout.dtype][0];
  }
  get span() {
    const low = Math.min(this.at, this.anchor);
    const high = Math.max(this.at, this.anchor) + this.unit;
    return [low, Math.min(high, this.grid.size())];
  }
  select(start, stop) {
    const { unit } = this;
    const last = Math.max(start, stop - 1);
    this.digit = "";
    this.anchor = start - (start % unit);
    this.at = last - (last % unit);
    this.grid.cursorChanged();
  }
  // Moves to a byte and scrolls to it; with `extend` the selection grows to it.
  move(target, extend = false) {
    const last = this.grid.size() - 1;
    if (last < 0) return;
    this.digit = this.grid.notice = "";
    const at = Math.max(0, Math.min(last, target));
    this.at = at - (at % this.unit);
    if (!extend) this.anchor = this.at;
    this.grid.show(this.at);
    this.grid.cursorChanged();
  }
  #byteUnder(event) {
    const cell = event.target.closest?.("[data-k]");
    if (!cell || !this.grid.page) return null;
    const { k, n, side } = cell.dataset;
    const at = this.grid.page.at + Number(k);
    if (at >= this.grid.size()) return null;
    return { at, n: Number(n), side: Number(side), text: cell.parentElement.className.includes("text") };
  }
  #press(event) {
    const hit = event.button === 0 && this.#byteUnder(event);
    if (!hit) return;
    this.#discardDigit();
    this.grid.notice = "";
    this.inText = hit.text;
    this.dragging = true;
    if (event.shiftKey) this.at = hit.at;
    else [this.anchor, this.at] = [hit.at, hit.at + hit.n - this.unit];
    this.grid.cursorChanged();
  }
  #drag(event) {
    const hit = this.#byteUnder(event);
    if (!hit) return;
    this.at = hit.at >= this.anchor ? hit.at + hit.n - this.unit : hit.at;
    this.grid.cursorChanged();
  }
  #discardDigit() {
    if (!this.digit) return false;
    this.digit = "";
    this.grid.cursorChanged();
    return true;
  }
  #target({ key, ctrlKey, metaKey }) {
    const { per } = this.grid.layout;
    const modified = ctrlKey || metaKey;
    const page = per * Math.max(1, this.grid.count - 1);
    const row = this.at - (this.at % per);
    const end = this.grid.size() - 1;
    switch (key) {
      case "ArrowRight":
        return this.at + this.unit;
      case "ArrowLeft":
        return this.at - this.unit;
      case "ArrowDown":
        return this.at + per > end ? this.at : this.at + per;
      case "ArrowUp":
        return this.at < per ? this.at : this.at - per;
      case "PageDown":
        return Math.min(this.at + page, end);
      case "PageUp":
        return Math.max(this.at % per, this.at - page);
      case "Home":
        return modified ? 0 : row;
      case "End":
        return modified ? end : Math.min(end, row + per - 1);
    }
    return null;
  }
  #key(event) {
    if (!this.grid.layout) return;
    const target = this.#target(event);
    if (target !== null) {
      event.preventDefault();
      this.move(target, event.shiftKey);
    } else if ((event.ctrlKey || event.metaKey) && !event.altKey && SHORTCUTS[event.code]) {
      event.preventDefault();
      this.grid.run(event.shiftKey && event.code === "KeyZ" ? "redo" : SHORTCUTS[event.code]);
    } else if (event.key === "Escape") {
      if (!this.#discardDigit() && this.at !== this.anchor) this.move(this.at);
    } else if (event.key === "F2") {
      event.preventDefault();
      this.inText = !this.inText;
      this.grid.run("explainColumn");
    } else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      this.#type(event.key);
    }
  }
  // In the hex column two digits are one byte; in the text column a character is its UTF-8 bytes.
  #type(key) {
    if (!this.grid.mayWrite()) return;
    let bytes;
    if (this.inText) bytes = new TextEncoder().encode(key);
    else if (!/^[0-9a-f]$/i.test(key)) return this.grid.run("explainDigits");
    else if (!this.digit) {
      [this.anchor, this.digit] = [this.at, key.toLowerCase()];
      this.grid.show(this.at);
      this.grid.cursorChanged();
      return;
    } else bytes = Uint8Array.of(parseInt(this.digit + key, 16));
    this.digit = "";
    this.grid.write(this.at, bytes);
    this.move(this.at + bytes.length);
  }
}
