// The rows of the hex view: cells are created once per layout; later only text and marks change.

import { h } from "../base/elements.js";
import { DTYPES, HEX } from "./values.js";

export const ROW_PX = 20;
const TALLEST_PX = 8_000_000; // Chromium clamps heights near 33.5 million px: beyond this the scroll bar is scaled

// Marks of a byte: flag bits, and above them the colour of the structure's field it belongs to.
const CHANGED = [1, 2]; // by side
export const DIFFERS = 4;
export const SELECTED = 8;
export const CURSOR = 16;
export const WRITING = 32;
export const HUES = 6;
export const HUE_SHIFT = 6;
export const NO_HUE = (1 << HUE_SHIFT) - 1;

// The CSS classes of a cell by its marks (cached), and the marks as text for a screen reader.
const markClass = new Map();
const markText = (marks, side) =>
  [marks & CHANGED[side] ? "changed" : "", marks & DIFFERS ? "differs" : "", marks & WRITING ? "being written" : ""]
    .filter(Boolean)
    .join(", ");
function classOf(marks, side) {
  const key = marks * 2 + side;
  if (!markClass.has(key)) {
    const names = [
      [CHANGED[side], "dg-changed"],
      [DIFFERS, "dg-differs"],
      [SELECTED, "dg-selected"],
      [CURSOR, "dg-cursor"],
      [WRITING, "dg-writing"],
    ];
    const hue = marks >> HUE_SHIFT;
    if (hue) names.push([marks, `dg-hue${hue}`]);
    markClass.set(
      key,
      names
        .filter(([bit]) => marks & Number(bit))
        .map(([, name]) => name)
        .join(" "),
    );
  }
  return markClass.get(key);
}

// One byte or one value: an element whose text and classes are set only if they change.
class Cell {
  #node;
  #text = "";
  #key = 0;
  #isGridCell;
  constructor(attributes) {
    this.element = h("span", attributes);
    this.#isGridCell = attributes.role === "gridcell";
    this.#node = document.createTextNode("");
    this.element.append(this.#node);
  }
  setText(text) {
    if (text !== this.#text) this.#node.data = this.#text = text;
  }
  setMarks(marks, side) {
    const key = marks * 2 + side;
    if (key === this.#key) return;
    this.#key = key;
    this.element.className = classOf(marks, side);
    if (!this.#isGridCell) return;
    this.element.ariaSelected = marks & SELECTED ? "true" : null;
    const text = markText(marks, side);
    if (text) this.element.setAttribute("aria-description", text);
    else this.element.removeAttribute("aria-description");
  }
}

// The widest layout that fits in `room` characters: bytes per row, whether hex and values are shown,
// the number of sources, and its width in characters (`chars`). `columns`: bytes per row, 0 for 16, 8 or 4.
export function layoutFor(room, { dtype, sources, size, columns }) {
  const digits = Math.max(8, (size - 1).toString(16).length);
  const valueWidth = (per) => (per / DTYPES[dtype][0]) * (DTYPES[dtype][1] + 1);
  const make = (per, hex, values) => {
    const pane = (hex ? per * 4 + Math.ceil(per / 8) - 1 + 3 : 0) + (values ? valueWidth(per) : 0);
    return { per, digits, hex, values, sources, dtype, chars: digits + sources * (pane + 2.5) };
  };
  const widths = columns ? [columns] : [16, 8, 4].filter((per) => dtype === "hex" || per >= DTYPES[dtype][0]);
  const rows = (hex, values) => widths.map((per) => make(per, hex, values));
  const all = dtype === "hex" ? rows(true, false) : [...rows(true, true), ...rows(false, true)];
  return all.find(({ chars }) => chars <= room) ?? all.at(-1);
}

// The elements of one row of a layout.
export class Row {
  constructor(layout, id, row) {
    this.layout = layout;
    this.hex = [];
    this.text = [];
    this.values = [];
    this.offset = new Cell({ role: "rowheader", class: "dg-hex-offset", "aria-colindex": 1 });
    this.element = h("div", { role: "row", class: "dg-hex-row" }, this.offset.element);
    let column = 2;
    for (let side = 0; side < layout.sources; side++) column = this.#pane(side, id, row, column);
  }
  #pane(side, id, row, column) {
    const { per, hex, values, dtype } = this.layout;
    const pane = h("span", { class: "dg-hex-pane", role: "presentation" });
    const add = (list, count, step, kind, own = {}) => {
      const cells = Array.from(
        { length: count },
        (_, k) =>
          new Cell({
            role: "gridcell",
            "aria-colindex": column++,
            "data-k": row * per + k * step,
            "data-n": step,
            "data-side": side,
            id: `${id}-${kind}${side}-${row * per + k * step}`,
            ...own,
          }),
      );
      pane.append(h("span", { class: `dg-hex-${kind}`, role: "presentation" }, ...cells.map((cell) => cell.element)));
      list.push(cells);
    };
    if (hex) {
      add(this.hex, per, 1, "bytes");
      const plain = { role: null, "aria-colindex": null };
      add(this.text, per, 1, "text", plain);
      const group = pane.lastChild;
      column -= per; // the text is one grid cell
      group.setAttribute("role", "gridcell");
      group.setAttribute("aria-colindex", column++);
    }
    if (values) add(this.values, per / DTYPES[dtype][0], DTYPES[dtype][0], "values");
    this.element.append(pane);
    return column;
  }
}

// The header row.
export function headRow(layout, names) {
  const { per, hex, values, dtype, sources, digits } = layout;
  let column = 2;
  const cells = (texts, kind, name) =>
    h(
      "span",
      { class: `dg-hex-${kind}`, role: "presentation" },
      ...texts.map((text) =>
        h(
          "span",
          {
            role: "columnheader",
            "aria-colindex": column++,
            "aria-label": sources === 2 ? `${text.trim()}, ${name}` : null,
          },
          text,
        ),
      ),
    );
  const numbers = (count, step) => Array.from({ length: count }, (_, k) => HEX[k * step]);
  const heads = () => numbers(per / DTYPES[dtype][0], DTYPES[dtype][0]).map((text) => text.padStart(DTYPES[dtype][1]));
  const panes = Array.from({ length: sources }, (_, side) =>
    h(
      "span",
      { class: "dg-hex-pane", role: "presentation" },
      sources === 2 ? h("span", { class: "dg-hex-name", "aria-hidden": "true" }, names[side]) : null,
      ...(hex ? [cells(numbers(per, 1), "bytes", names[side]), cells(["text".padEnd(per)], "text", names[side])] : []),
      ...(values ? [cells(heads(), "values", names[side])] : []),
    ),
  );
  const first = h(
    "span",
    { role: "columnheader", class: "dg-hex-offset", "aria-colindex": 1 },
    "offset".padEnd(digits),
  );
  const named = sources === 2 ? " dg-named" : "";
  return h("div", { role: "row", "aria-rowindex": 1, class: `dg-hex-row dg-hex-headrow${named}` }, first, ...panes);
}

// Scrolls over any number of rows: the spacer is as tall as the rows, up to TALLEST_PX.
export class Scroller {
  rows = 1;
  shown = 1;
  top = 0;
  #ownScrollTop = -1;
  #wheelRest = 0;
  constructor(box, spacer, onScroll) {
    this.box = box;
    this.spacer = spacer;
    box.addEventListener("scroll", () => {
      if (Math.abs(box.scrollTop - this.#ownScrollTop) < 1) return;
      this.#ownScrollTop = -1;
      const room = this.#room();
      this.top = this.#clamp(room ? Math.round((box.scrollTop / room) * (this.rows - this.shown)) : 0);
      onScroll();
    });
    box.addEventListener(
      "wheel",
      (event) => {
        if (event.ctrlKey || event.shiftKey || !event.deltaY) return;
        const lines = event.deltaMode ? event.deltaY * (event.deltaMode === 2 ? this.shown : 1) : event.deltaY / ROW_PX;
        this.#wheelRest += lines; // a touchpad scrolls by less than a row per event
        const step = Math.trunc(this.#wheelRest);
        const before = this.top;
        this.#wheelRest -= step;
        this.go(this.top + step);
        if (step && this.top === before) return void (this.#wheelRest = 0); // at an end the page scrolls instead
        event.preventDefault();
        if (step) onScroll();
      },
      { passive: false },
    );
  }
  #clamp(row) {
    return Math.max(0, Math.min(this.rows - this.shown, Math.round(row)));
  }
  #room() {
    return this.box.scrollHeight - this.box.clientHeight;
  }
  resize(rows, shown) {
    Object.assign(this, { rows, shown: Math.min(rows, shown) });
    const more = Math.max(0, rows - shown) * ROW_PX;
    this.spacer.style.height = `${Math.min(TALLEST_PX, more)}px`;
    this.go(this.top);
  }
  go(row) {
    this.top = this.#clamp(row);
    const hidden = this.rows - this.shown;
    const wanted = hidden ? (this.top / hidden) * this.#room() : 0;
    if (Math.abs(this.box.scrollTop - wanted) < 1) return;
    this.box.scrollTop = wanted;
    this.#ownScrollTop = this.box.scrollTop;
  }
}
