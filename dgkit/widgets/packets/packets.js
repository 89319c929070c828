// The panel of a capture: packets as rows, the chosen one by layers and bytes, the rates of queues.

import { button, bytesOf, field, focusedElement, h, newId, statusLine } from "../base/elements.js";
import { download, reportVisibility } from "../base/page.js";
import { panel } from "../base/panel.js";

const KEEPALIVE_MS = 5000; // how often a view reports that it is still visible
const WAIT_MS = 200; // after a key in the filter
const ROW = 16; // bytes of a line
const NUMBERS = new Set(["number", "time", "queue", "bytes", "packets", "dropped", "packets/s", "Mbit/s"]);

const classOf = (column) => (NUMBERS.has(column) ? "dg-number" : null);
const hex = (value, digits) => value.toString(16).padStart(digits, "0");

function makeTable(title, columns, attributes = {}) {
  const rows = h("tbody");
  const heads = columns.map((column) => h("th", { scope: "col", class: classOf(column) }, column));
  const root = h(
    "div",
    { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": title, ...attributes },
    h("table", {}, h("thead", {}, h("tr", {}, ...heads)), rows),
  );
  const cells = (values) => values.map((value, at) => h("td", { class: classOf(columns[at]) }, value));
  return { root, rows, cells };
}

// The bytes of a packet, each an element, so that a layer can mark its own.
function makeBytes(data, choose) {
  const all = [...data].map((value, at) => h("span", { class: "dg-byte", onclick: () => choose(at) }, hex(value, 2)));
  const lines = [];
  for (let at = 0; at < data.length; at += ROW) {
    const part = data.subarray(at, at + ROW);
    const text = [...part].map((value) => (value >= 32 && value < 127 ? String.fromCharCode(value) : ".")).join("");
    const spaced = all.slice(at, at + ROW).flatMap((byte) => [byte, " "]);
    lines.push(h("div", {}, `${hex(at, 4)}  `, ...spaced, " ".repeat(3 * (ROW - part.length)), ` ${text}`));
  }
  const root = h(
    "div",
    { class: "dg-mono dg-packet-bytes", tabindex: 0, role: "region", "aria-label": "Bytes" },
    ...lines,
  );
  const mark = (start, stop) => all.forEach((byte, at) => byte.classList.toggle("dg-marked", at >= start && at < stop));
  return { root, mark };
}

class PacketView {
  #view;
  #chosen = 0; // number of the packet that is shown
  constructor(view) {
    this.#view = view;
    this.line = h("p", { role: "status", class: "dg-help" });
    this.input = h("input", { type: "search", placeholder: "icmp 10.0.0.1 sent", ".value": view.state.filter });
    this.packets = makeTable("Packets, oldest first", view.state.columns, { class: "dg-scroll dg-packet-rows" });
    this.rates = makeTable("Rates of the queues", view.state.rate_columns);
    this.detail = h("div", { class: "dg-packet-detail", hidden: true });
    this.said = statusLine();
    const save = button("Save as pcap", () => this.#save());
    view.body.append(
      h("div", { class: "dg-row" }, field("Filter: words of a row", this.input), save, this.said),
      this.line,
      this.packets.root,
      this.detail,
      h("h3", { class: "dg-packet-title" }, "Queues; rates of the last 2 s"),
      this.rates.root,
    );
  }
  begin() {
    const view = this.#view;
    this.#draw(view.state);
    view.on("frame", (message) => this.#draw(message));
    reportVisibility(view, newId(), KEEPALIVE_MS, (state) => this.#draw(state));
    let timer;
    this.input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => view.attempt("filter", { text: this.input.value }), WAIT_MS);
    });
    view.signal.addEventListener("abort", () => clearTimeout(timer));
  }
  #draw({ line, rows, rates, filter }) {
    if (!rows) return; // the view is hidden
    if (this.line.textContent !== line) this.line.textContent = line;
    if (document.activeElement !== this.input && this.input.value !== filter) this.input.value = filter;
    const box = this.packets.root;
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    const focused = this.packets.rows.contains(focusedElement()) && focusedElement().dataset.number;
    this.packets.rows.replaceChildren(...rows.map((row) => this.#row(row)));
    if (focused) this.packets.rows.querySelector(`[data-number="${focused}"]`)?.focus({ preventScroll: true });
    if (atEnd) box.scrollTop = box.scrollHeight;
    this.rates.rows.replaceChildren(...rates.map((row) => h("tr", {}, ...this.rates.cells(row))));
    this.#view.root.dataset.packets = rows.length;
  }
  #row(cells) {
    const number = Number(cells[0]);
    const show = button(cells[0], () => this.#show(number), {
      class: "dg-button dg-quiet dg-packet-number",
      "data-number": number,
      "aria-label": `Packet ${number}`,
    });
    const [, ...rest] = this.packets.cells(cells);
    const rule = cells[this.#view.state.columns.indexOf("rule")];
    const kind = [rule.includes("dropped") && "dg-dropped", number === this.#chosen && "dg-row-chosen"];
    const attributes = { class: kind.filter(Boolean).join(" ") || null, onclick: () => this.#show(number) };
    return h("tr", attributes, h("td", { class: "dg-number" }, show), ...rest);
  }
  async #show(number) {
    const reply = await this.#view.attempt("show", { number });
    if (!reply) return;
    this.#chosen = number;
    for (const row of this.packets.rows.children)
      row.classList.toggle("dg-row-chosen", Boolean(row.querySelector(`[data-number="${number}"]`)));
    this.#detail(number, reply.layers, bytesOf(reply.buffers[0]));
  }
  #detail(number, layers, data) {
    const mark = (chosen) => {
      bytes.mark(chosen.start, chosen.stop);
      parts.forEach((part, at) => part.classList.toggle("dg-row-chosen", layers[at] === chosen));
    };
    const at = (offset) => layers.find(({ start, stop }) => start <= offset && offset < stop);
    const bytes = makeBytes(data, (offset) => mark(at(offset)));
    const parts = layers.map((layer) => {
      const fields = layer.fields.map(([name, value]) => `${name} ${value}`).join(", ");
      const title = button(layer.name, () => mark(layer), { class: "dg-button dg-quiet" });
      const range = `bytes ${layer.start} to ${layer.stop - 1}`;
      return h("li", {}, title, h("span", { class: "dg-help" }, range), h("div", {}, fields));
    });
    this.detail.hidden = false;
    this.detail.replaceChildren(
      h("h3", { class: "dg-packet-title" }, `Packet ${number}`),
      h("div", { class: "dg-packet-parts" }, h("ul", { "aria-label": "Layers" }, ...parts), bytes.root),
    );
    if (layers.length) mark(layers.at(-1));
  }
  async #save() {
    const file = await this.#view.attempt("pcap");
    if (!file) return;
    download(file.name, "application/vnd.tcpdump.pcap", bytesOf(file.buffers[0]));
    this.said.textContent = `Saved as ${file.name}.`;
  }
}

export default panel({
  name: "packets",
  draw: (view) => new PacketView(view).begin(),
});
