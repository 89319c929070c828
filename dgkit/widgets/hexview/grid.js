// The rows of the hex view: cells that are made once for a layout, and then only change their text.

const ROW_PX = 20;
const TALLEST_PX = 8_000_000; // Chromium clamps heights near 33.5 million: the bar is scaled
const CHANGED = [1, 2], DIFFERS = 4, SELECTED = 8, CURSOR = 16, WRITING = 32;

// The classes of a cell by its marks, and how they are read out; each is made once.
const markClass = new Map(), markWords = (marks, side) => [
  marks & CHANGED[side] ? "changed" : "", marks & DIFFERS ? "differs" : "",
  marks & WRITING ? "being written" : ""].filter(Boolean).join(", ");
function classOf(marks, side) {
  const key = marks * 2 + side;
  if (!markClass.has(key)) {
    const names = [[CHANGED[side], "dg-changed"], [DIFFERS, "dg-differs"], [SELECTED, "dg-selected"],
      [CURSOR, "dg-cursor"], [WRITING, "dg-writing"]];
    markClass.set(key, names.filter(([bit]) => marks & bit).map(([, name]) => name).join(" "));
  }
  return markClass.get(key);
}

// One byte or one value: an element whose text node and class are set only if they change.
class Cell {
  #text; #said = ""; #key = 0; #role;
  constructor(attributes) {
    this.element = h("span", attributes);
    this.#role = attributes.role === "gridcell";
    this.#text = document.createTextNode("");
    this.element.append(this.#text);
  }
  say(text) {
    if (text !== this.#said) this.#text.data = this.#said = text;
  }
  mark(marks, side) {
    const key = marks * 2 + side;
    if (key === this.#key) return;
    this.#key = key;
    this.element.className = classOf(marks, side);
    if (!this.#role) return;
    this.element.ariaSelected = marks & SELECTED ? "true" : null;
    const words = markWords(marks, side);
    if (words) this.element.setAttribute("aria-description", words);
    else this.element.removeAttribute("aria-description");
  }
}

// What is beside what in `room` characters: bytes a row, hex, values, panes, and the `chars` it takes.
function layoutFor(room, { dtype, sources, size }) {
  const digits = Math.max(8, (size - 1).toString(16).length);
  const valueWidth = (per) => (per / DTYPES[dtype][0]) * (DTYPES[dtype][1] + 1);
  const make = (per, hex, values) => {
    const pane = (hex ? per * 4 + per / 8 - 1 + 3 : 0) + (values ? valueWidth(per) : 0);
    return { per, digits, hex, values, sources, dtype, chars: digits + sources * (pane + 2.5) };
  };
  const all = dtype === "hex" ? [make(16, true, false), make(8, true, false)]
    : [make(16, true, true), make(8, true, true), make(16, false, true), make(8, false, true)];
  return all.find(({ chars }) => chars <= room) ?? all.at(-1);
}

// The elements of one row of a layout.
class Row {
  constructor(layout, id, row) {
    this.layout = layout;
    this.hex = []; this.text = []; this.values = [];
    this.offset = new Cell({ role: "rowheader", class: "dg-hex-offset", "aria-colindex": 1 });
    this.element = h("div", { role: "row", class: "dg-hex-row" }, this.offset.element);
    let column = 2;
    for (let side = 0; side < layout.sources; side++) column = this.#pane(side, id, row, column);
  }
  #pane(side, id, row, column) {
    const { per, hex, values, dtype } = this.layout;
    const pane = h("span", { class: "dg-hex-pane", role: "presentation" });
    const add = (list, count, step, kind, own = {}) => {
      const cells = Array.from({ length: count }, (_, k) => new Cell({
        role: "gridcell", "aria-colindex": column++, "data-k": row * per + k * step,
        "data-n": step, "data-side": side, id: `${id}-${kind}${side}-${row * per + k * step}`, ...own }));
      pane.append(h("span", { class: `dg-hex-${kind}`, role: "presentation" }, ...cells.map((one) => one.element)));
      list.push(cells);
    };
    if (hex) {
      add(this.hex, per, 1, "bytes");
      const plain = { role: null, "aria-colindex": null };
      add(this.text, per, 1, "text", plain);
      const group = pane.lastChild;
      column -= per; // the cells of the text count as one
      group.setAttribute("role", "gridcell");
      group.setAttribute("aria-colindex", column++);
    }
    if (values) add(this.values, per / DTYPES[dtype][0], DTYPES[dtype][0], "values");
    this.element.append(pane);
    return column;
  }
}

// The head of the columns.
function headRow(layout, names) {
  const { per, hex, values, dtype, sources, digits } = layout;
  let column = 2;
  const cells = (texts, kind, name) => h("span", { class: `dg-hex-${kind}`, role: "presentation" },
    ...texts.map((text) => h("span", { role: "columnheader", "aria-colindex": column++,
      "aria-label": sources === 2 ? `${text.trim()}, ${name}` : null }, text)));
  const numbers = (count, step) => Array.from({ length: count }, (_, k) => HEX[k * step]);
  const heads = () => numbers(per / DTYPES[dtype][0], DTYPES[dtype][0]).map((text) => text.padStart(DTYPES[dtype][1]));
  const panes = Array.from({ length: sources }, (_, side) => h("span", { class: "dg-hex-pane", role: "presentation" },
    sources === 2 ? h("span", { class: "dg-hex-name", "aria-hidden": "true" }, names[side]) : null,
    ...(hex ? [cells(numbers(per, 1), "bytes", names[side]), cells(["text".padEnd(per)], "text", names[side])] : []),
    ...(values ? [cells(heads(), "values", names[side])] : [])));
  const first = h("span", { role: "columnheader", class: "dg-hex-offset", "aria-colindex": 1 }, "offset".padEnd(digits));
  const named = sources === 2 ? " dg-named" : "";
  return h("div", { role: "row", "aria-rowindex": 1, class: `dg-hex-row dg-hex-headrow${named}` }, first, ...panes);
}

// Scrolls over any number of rows: the bar is as tall as they are, or as tall as it may be.
class Scroller {
  #own = -1; #rest = 0;
  constructor(box, spacer, moved) {
    Object.assign(this, { box, spacer, rows: 1, shown: 1, top: 0 });
    box.addEventListener("scroll", () => {
      if (Math.abs(box.scrollTop - this.#own) < 1) return;
      this.#own = -1;
      const room = this.#room();
      this.top = this.#clamp(room ? Math.round((box.scrollTop / room) * (this.rows - this.shown)) : 0);
      moved();
    });
    box.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.shiftKey || !event.deltaY) return;
      const lines = event.deltaMode ? event.deltaY * (event.deltaMode === 2 ? this.shown : 1) : event.deltaY / ROW_PX;
      this.#rest += lines; // a touchpad sends less than a row at a time
      const step = Math.trunc(this.#rest), before = this.top;
      this.#rest -= step;
      this.go(this.top + step);
      if (step && this.top === before) return void (this.#rest = 0); // at the end the page scrolls on
      event.preventDefault();
      if (step) moved();
    }, { passive: false });
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
    this.#own = this.box.scrollTop;
  }
}
