// The time line: the first and the last DMA of each listed transfer on the DPU's clock, by operation
// and path, with zoom by buttons, wheel and keys.

import { button, h } from "../base/elements.js";
import { plural, shortSize } from "../base/units.js";

const LANE_ROW_PX = 12;
const LANE_GAP_PX = 8;
const AXIS_PX = 18;
const LEAST_NS = 100;
const DIGIT_PX = 7;
/** @type {[number, string][]} */
const TIME_UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

// A time in the largest unit that does not exceed it, with `digits` significant digits.
export function timeText(ns, digits = 4) {
  const [scale, unit] = TIME_UNITS.find(([size]) => Math.abs(ns) >= size) ?? TIME_UNITS.at(-1);
  return `${(ns / scale).toLocaleString("en-US", { maximumSignificantDigits: digits })} ${unit}`;
}

// Round times within a range, about `count` of them.
export function ticksOf(from, to, count) {
  const raw = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10);
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, i) => first + i * step);
}

export class Timeline {
  #data = null;
  #range = null;
  #preset = "latest";
  #origin = 0; // time at which the axis has 0
  // `choose` is called with the number of a transfer that is clicked.
  constructor(choose) {
    this.choose = choose;
    const preset = (name, text) =>
      button(text, () => this.#choose(name), { "aria-pressed": "false", "data-preset": name });
    this.presets = [preset("latest", "Latest"), preset("all", "All")];
    const zoom = (text, label, factor) => button(text, () => this.#zoom(factor, 0.5), { "aria-label": label });
    this.text = h("p", { class: "dg-help dg-tl-text" });
    this.lanes = h("div", { class: "dg-tl-lanes" });
    this.plot = h("div", { class: "dg-tl-plot", tabindex: "0", role: "group", "aria-label": "Time line of transfers" });
    this.part = h(
      "details",
      { class: "dg-tl", open: true, hidden: true },
      h("summary", {}, "Time line of transfers"),
      h("div", { class: "dg-bar" }, ...this.presets, zoom("+", "Zoom in", 0.5), zoom("−", "Zoom out", 2), this.text),
      h("div", { class: "dg-tl-main" }, this.lanes, this.plot),
      h(
        "p",
        { class: "dg-help dg-tl-key" },
        ...[
          ["dg-posting", "submit to post"],
          ["dg-moving dg-read", "READ"],
          ["dg-moving", "WRITE, to complete"],
        ].map(([name, text]) => h("span", {}, h("i", { class: `dg-span ${name}` }), text)),
        h("span", {}, "A line joins the first and the last DMA of a transfer. Click one: its bytes in the hex view."),
      ),
    );
    this.#listen();
    new ResizeObserver(() => this.#data && this.#paint()).observe(this.plot); // labels that fit depend on the width
  }
  draw(data) {
    this.part.hidden = !data;
    this.#data = data;
    if (!data) return;
    if (this.#preset) this.#choose(this.#preset);
    else this.#paint();
  }
  #choose(preset) {
    const { from, to } = this.#data[preset];
    const margin = Math.max(LEAST_NS, (to - from) * 0.02);
    this.#preset = preset;
    this.#origin = from;
    this.#range = [from - margin, to + margin];
    this.#paint();
  }
  // Zooms by a factor around a place, given as a share of the width.
  #zoom(factor, at) {
    const [from, to] = this.#range;
    const whole = this.#data.all.to - this.#data.all.from;
    const width = Math.max(LEAST_NS, Math.min((to - from) * factor, 4 * whole + LEAST_NS));
    const fixed = from + (to - from) * at;
    this.#preset = "";
    this.#range = [fixed - width * at, fixed + width * (1 - at)];
    this.#paint();
  }
  #move(share) {
    const [from, to] = this.#range;
    const by = (to - from) * share;
    this.#preset = "";
    this.#range = [from + by, to + by];
    this.#paint();
  }
  #listen() {
    const { plot } = this;
    plot.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.shiftKey) return; // plain wheels scroll the page
        event.preventDefault();
        const { left, width } = plot.getBoundingClientRect();
        if (event.shiftKey) this.#move(Math.sign(event.deltaY || event.deltaX) * 0.1);
        else this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - left) / width);
      },
      { passive: false },
    );
    const keys = {
      ArrowLeft: () => this.#move(-0.1),
      ArrowRight: () => this.#move(0.1),
      "+": () => this.#zoom(0.5, 0.5),
      "-": () => this.#zoom(2, 0.5),
      0: () => this.#choose("latest"),
    };
    plot.addEventListener("keydown", (event) => {
      if (event.target !== plot || event.ctrlKey || event.altKey || event.metaKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }
  #paint() {
    const { lanes, bars } = this.#data;
    const [from, to] = this.#range;
    const tops = [];
    let height = 0;
    for (const [, rows] of lanes) {
      tops.push(height);
      height += rows * LANE_ROW_PX + LANE_GAP_PX;
    }
    const x = (ns) => (100 * (ns - from)) / (to - from);
    const plotPx = this.plot.clientWidth;
    const room = (at, text) => ((100 - at) * plotPx) / 100 > text.length * DIGIT_PX;
    const ticks = ticksOf(from - this.#origin, to - this.#origin, 5).map((ns) => {
      const at = x(ns + this.#origin);
      const text = ns ? timeText(ns, 9) : "0";
      return h("span", { class: "dg-tl-tick", style: `left:${at}%` }, room(at, text) ? h("span", {}, text) : null);
    });
    const shown = bars.filter(([, , , dmas]) => dmas.at(-1)[3] >= from && dmas[0][1] <= to);
    const drawn = shown.map(([number, lane, row, dmas]) => {
      const inside = (ns) => Math.max(-1, Math.min(101, x(ns)));
      const left = inside(dmas[0][1]);
      const width = inside(dmas.at(-1)[3]) - left;
      const text = `No. ${number}: ${dmas.map((dma) => this.#said(...dma)).join("; ")}`;
      const part = (name, start, stop) =>
        h("span", {
          class: `dg-span ${name}`,
          style: `left:${width && (100 * (inside(start) - left)) / width}%;width:${width ? (100 * (inside(stop) - inside(start))) / width : 100}%`,
        });
      return h(
        "button",
        {
          type: "button",
          class: "dg-tl-bar",
          title: text,
          "aria-label": text,
          tabindex: "-1",
          onclick: () => this.choose(number),
          style: `left:${left}%;width:${width}%;top:${tops[lane] + row * LANE_ROW_PX}px`,
        },
        ...dmas.flatMap(([op, submit, post, complete]) => [
          part(op === "READ" ? "dg-moving dg-read" : "dg-moving", post, complete),
          part("dg-posting", submit, post),
        ]),
      );
    });
    this.plot.style.height = `${height + AXIS_PX}px`;
    this.plot.replaceChildren(...ticks, ...drawn);
    this.lanes.replaceChildren(
      ...lanes.map(([name, rows]) => h("div", { style: `height:${rows * LANE_ROW_PX + LANE_GAP_PX}px` }, name)),
    );
    for (const one of this.presets) one.setAttribute("aria-pressed", String(one.dataset.preset === this.#preset));
    this.text.textContent = this.#preset
      ? this.#summary(this.#data[this.#preset])
      : `${timeText(to - from)} in view, ${shown.length} of ${plural(bars.length, "transfer")}`;
  }
  #said(op, submit, post, complete) {
    return `${op} submit ${timeText(submit - this.#origin)}, post +${timeText(post - submit)}, complete +${timeText(complete - submit)}`;
  }
  // Spans with pauses have no throughput.
  #summary({ from, to, count, bytes, rate }) {
    const speed =
      rate === null || this.#preset === "all"
        ? ""
        : `; ${rate >= 1e9 ? `${(rate / 1e9).toFixed(2)} GB/s` : `${(rate / 1e6).toFixed(1)} MB/s`}`;
    return `${plural(count, "transfer")}, ${shortSize(bytes)} in ${timeText(to - from)}${speed}`;
  }
}
