// Fills the Bokeh figures of figures.py, whose models are found by name.

import { micros } from "../base/units.js";
import { LOAD } from "./data.js";

// A range of whole half decades around the values, so that it seldom changes.
export function logRange(values, room = 0.95) {
  let low = Infinity;
  let high = 0;
  for (const value of values) {
    if (!(value > 0)) continue; // NaN: a gap
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!high) return null;
  const step = (value, round) => 10 ** (round(2 * Math.log10(value)) / 2);
  const start = step(low * room, Math.floor);
  const end = step(high * 1.2, Math.ceil);
  return end > start ? [start, end] : [start, start * 10 ** 0.5];
}

// A limit for the scale, so that a few outliers do not flatten what is below; Infinity: none is far above.
export function scaleLimit(values) {
  const known = Float64Array.from(values.filter((value) => value > 0)).sort();
  if (!known.length) return Infinity;
  const limit = 10 * known[Math.floor(0.9 * (known.length - 1))];
  return known.at(-1) > limit ? limit : Infinity;
}

// The seconds of the time axis for points since `oldest` seconds: whole ones, so that it seldom changes.
export function timeSpan(oldest = 0, most = Infinity) {
  return Math.min(most, Math.max(1, Math.ceil(oldest)));
}

// Tick values of a logarithmic axis: two to nine round numbers.
export function logTicks([start, end]) {
  const span = Math.log10(end / start);
  const steps = span < 1.2 ? [1, 1.5, 2, 3, 5, 7] : span < 3.5 ? [1, 3] : [1];
  const every = span > 8 ? 2 : 1;
  const ticks = [];
  for (let power = Math.floor(Math.log10(start)); power <= Math.log10(end) + 1e-9; power += every)
    for (const factor of steps) {
      const tick = Number((factor * 10 ** power).toPrecision(3));
      if (tick >= start * 0.999 && tick <= end * 1.001) ticks.push(tick);
    }
  return ticks;
}

const LETTER_PX = 7.5; // of a title, in bold type of 12 px
const AXIS_PX = 80; // beside it

const LEAST_S = 0.2; // of the past that is shown

const TITLES = { time: "Latency over time", spread: "Distribution", curve: "Percentiles" };

// What a title says of maxima above the scale.
function above(values, range) {
  let most = 0;
  for (const value of values) if (value > most) most = value; // NaN: a gap
  return range && most > range[1] ? `max ${micros(1000 * most)} µs is above the scale` : "";
}

function* chained(...lists) {
  for (const list of lists) if (list) yield* list;
}

export class LatencyDraw {
  #figures;
  #data;
  #byName = new Map();
  #levels = "";
  #shown = null; // the ends of the time shown, in seconds of the run; null: all, up to the last sample
  #now = 0;
  #unit = 1;
  #span = 1;
  #own = false; // whether the range is being set by this class
  #tips = "";
  // `onWindow(back)` is called with whether the past is shown.
  constructor(figures, data, onWindow = (_back) => {}) {
    this.#figures = figures;
    this.#data = data;
    this.onWindow = onWindow;
    this.#freezeGlyphElements();
    const range = this.#model("time").x_range;
    for (const end of ["start", "end"]) range.properties[end].change.connect(() => this.#brushed(range));
  }
  // The user brushed, dragged or zoomed the time shown: it stays where it is while samples arrive.
  #brushed({ start, end }) {
    if (this.#own) return;
    this.#show([this.#now + start * this.#unit, this.#now + end * this.#unit]);
  }
  #show(shown) {
    const most = this.#span * this.#unit;
    const all = !shown || (shown[1] >= this.#now && shown[1] - shown[0] >= 0.98 * most);
    this.#shown = all ? null : shown;
    this.onWindow(!all);
  }
  // Shows an earlier (-1) or later (1) part of the time kept; 0: all.
  look(way) {
    if (way > 0 && !this.#shown) return; // it is now already
    const most = this.#span * this.#unit;
    const [start, end] = this.#shown ?? [this.#now - most / 3, this.#now];
    const step = (way * (end - start)) / 2;
    const stop = Math.min(this.#now, Math.max(this.#now - most + (end - start), end + step));
    this.#show(way && [stop - (end - start), stop]);
    this.#setWindow();
  }
  // BokehJS keeps an empty element at the position of each glyph; moving it per frame makes the
  // browser recompute the page's styles and layout.
  #freezeGlyphElements() {
    for (const root of this.#figures.document.roots())
      for (const [model, view] of this.#figures.views.get(root)?.renderer_views ?? [])
        if (model.type === "GlyphRenderer") view.update_position = () => {};
  }
  #model(name) {
    if (!this.#byName.has(name)) this.#byName.set(name, this.#figures.document.get_model_by_name(name));
    return this.#byName.get(name);
  }
  #fill(name, columns) {
    this.#model(name).data = columns;
  }
  #setRange(range, wanted) {
    if (!wanted || (range.reset_start === wanted[0] && range.reset_end === wanted[1])) return;
    range.setv({ start: wanted[0], end: wanted[1], reset_start: wanted[0], reset_end: wanted[1] });
  }
  // Sets the range and the ticks of a logarithmic axis.
  #setLog(name, axis, wanted) {
    if (!wanted) return;
    const ticker = this.#model(`${name}_${axis}`);
    const ticks = logTicks(wanted);
    if (ticks.join() !== ticker.ticks.join()) ticker.ticks = ticks;
    this.#setRange(this.#model(name)[`${axis}_range`], wanted);
  }
  // The range of the figures over time, which the strip below them shows and changes.
  #setWindow() {
    const all = [-this.#span, this.#span / 100];
    const { x_range: range } = this.#model("time");
    this.#own = true;
    this.#setRange(this.#model("brush").x_range, all);
    const [{ overlay }] = this.#model("brush").toolbar.tools;
    overlay.editable = Boolean(this.#shown); // else dragging marks another time
    if (this.#shown) {
      const [start, end] = this.#shown.map((second) => (second - this.#now) / this.#unit);
      range.setv({ start, end, reset_start: all[0], reset_end: all[1] });
    } else this.#setRange(range, all);
    if (!this.#shown && (range.start !== all[0] || range.end !== all[1])) range.setv({ start: all[0], end: all[1] });
    this.#own = false;
  }
  // The tips, and the figures of load and traffic, of what has values; whether each has.
  loads() {
    const has = LOAD.map((_, at) => this.#data.load.some((row) => !Number.isNaN(row[at + 1])));
    const key = has.join();
    if (key !== this.#tips) {
      for (const name of ["time", "load", "traffic"]) {
        const tip = this.#model(`${name}_tip`);
        tip.dgkitTips ??= tip.tooltips;
        tip.tooltips = tip.dgkitTips.filter(([, text]) =>
          LOAD.every((one, at) => has[at] || !text.includes(`@${one}{`)),
        );
      }
      for (const [name, from] of Object.entries({ load: 0, traffic: 2 })) {
        const legend = this.#model(`${name}_legend`);
        legend.items.forEach((item, at) => (item.visible = has[from + at]));
        legend.change.emit();
      }
    }
    this.#tips = key;
    return { load: has[0] || has[1], traffic: has.slice(2).some(Boolean) };
  }
  // Draws the last `seconds`, or fewer while there are fewer: a point per block up to two minutes,
  // beyond that a point per second.
  time(seconds, large = false) {
    const { fine, coarse, distributionBefore: before } = this.#data;
    const points = seconds <= 120 ? fine : coarse;
    const now = Math.max(fine.lastShown, 0);
    const unit = seconds <= 120 ? 1 : 60;
    const columns = points.window(now - seconds, now, unit, this.#data.load);
    const span = timeSpan(columns.ago[0], seconds) / unit;
    if (this.#shown && unit === this.#unit) this.#model("crosshair").location -= (now - this.#now) / unit; // as its point
    if (this.#shown && now < this.#now) this.#show(null); // a new run, whose time begins again
    [this.#now, this.#unit, this.#span] = [now, unit, span];
    const oldest = now - span * unit; // what was before is not kept
    if (this.#shown && this.#shown[0] < oldest)
      this.#show(this.#shown[1] - oldest > LEAST_S ? [oldest, this.#shown[1]] : null);
    if (large) for (const name of ["p99", "max"]) columns[name].fill(NaN);
    const limit = scaleLimit(large ? columns.p50 : columns.max);
    const inside = (values) => values.filter((value) => value <= limit);
    const level = (name) => (before?.figures[name] ? [before.figures[name] / 1000, before.figures[name] / 1000] : []);
    const levels = { x: before ? [-span, 0] : [], p50: level("p50"), p99: level("p99") };
    for (const name of ["p50", "p99"]) if (levels[name].length < levels.x.length) levels[name] = [NaN, NaN];
    if (JSON.stringify(levels) !== this.#levels) this.#fill("levels", levels);
    this.#levels = JSON.stringify(levels);
    this.#setWindow();
    this.#model("time_axis").axis_label = `${unit === 1 ? "seconds" : "minutes"} before the last sample`;
    const { p50, p99, max } = columns;
    const range = logRange(chained(inside(p50), inside(p99), inside(max), levels.p50, levels.p99));
    const top = range ? range[1] / 1.04 : Infinity; // where maxima above the scale are drawn
    this.#fill("points", { ...columns, drawn: max.map((value) => Math.min(value, top)) });
    this.#setLog("time", "y", range);
    this.#title("time", above(max, range));
  }
  distribution() {
    const { distribution: now, distributionBefore: before } = this.#data;
    this.#histogram(now, before);
    this.#curve(now, before);
    for (const name of ["spread", "curve"]) this.#title(name); // the figure's width may have changed
  }
  #histogram(now, before) {
    const bins = now?.bins ?? { left: [], right: [], top: [], count: [] };
    const outline = before?.outline ?? { x: [], y: [] };
    const shares = logRange(chained(bins.top, outline.y), 0.4);
    const bottom = shares?.[0] ?? 0.001;
    this.#fill("bins", { ...bins, bottom: bins.left.map(() => bottom) });
    this.#fill("bins_before", { x: outline.x, y: outline.y.map((share) => Math.max(share, bottom)) });
    this.#setLog("spread", "x", logRange(chained(bins.left, bins.right, outline.x)));
    this.#setLog("spread", "y", shares);
  }
  #curve(now, before) {
    const none = { x: [], us: [], percentile: [] };
    const [current, earlier] = [now?.curve ?? none, before?.curve ?? none];
    this.#fill("percentiles", current);
    this.#fill("percentiles_before", earlier);
    const most = Math.max(10, ...current.x, ...earlier.x);
    this.#setRange(this.#model("curve").x_range, [1, 10 ** (Math.ceil(2 * Math.log10(most)) / 2)]);
    this.#setLog("curve", "y", logRange(chained(current.us, earlier.us)));
  }
  // Sets the titles and legends of the figures.
  labels(large) {
    for (const name of Object.keys(TITLES)) {
      this.#title(name);
      this.#legend(name, large);
    }
  }
  #title(name, more = "") {
    const { run } = this.#data;
    if (!run) return this.#setTitle(name, TITLES[name]);
    const title = `${TITLES[name]}: ${run.label}`;
    this.#setTitle(
      name,
      `${title}, ${more || run.words}`,
      ...(more ? [`${run.label}, ${more}`] : []),
      title,
      run.label,
    );
  }
  // Sets the first of the titles that fits, or the last.
  #setTitle(name, ...titles) {
    const figure = this.#model(name);
    const width = this.#figures.views.get(figure)?.el.clientWidth || Infinity; // 0: hidden
    const text = titles.find(({ length }) => length * LETTER_PX <= width - AXIS_PX) ?? titles.at(-1);
    if (figure.title.text !== text) figure.title.text = text;
  }
  #legend(name, large) {
    const { run, before, nowName, beforeName } = this.#data;
    const legend = this.#model(`${name}_legend`);
    const levels = ["p50", "p99"]; // of the kept run, in the figure over time
    for (const item of legend.items) {
      const isBefore = item.name === "before";
      item.visible = isBefore ? Boolean(before) : name === "time" || Boolean(run);
      if (large) item.visible &&= item.name === "p50";
      if (name === "time") {
        if (isBefore) item.label = { value: `${beforeName} ${levels.shift()}` };
        continue;
      }
      const prefix = !before ? "" : `${isBefore ? beforeName : nowName}: `;
      item.label = { value: prefix + ((isBefore ? before : run)?.words ?? "") };
    }
    legend.change.emit(); // otherwise the legend shows no glyphs until it is rendered again
  }
  all(seconds, large) {
    this.labels(large);
    this.time(seconds, large);
    this.distribution();
  }
  // Draws a sweep over the previous one, with the points that others have published if `compared`.
  sizes({ sweep, sweep_before: before }, compared = false) {
    const rows = sweep?.rows ?? [];
    const others = compared && rows.length ? sweep.published : [];
    const earlier = before?.rows ?? [];
    const us = (from, name) => from.map((row) => (row[name] == null ? NaN : row[name] / 1000));
    const x = (from) => from.map((row) => row.size);
    const text = (from) => from.map((row) => row.text);
    this.#fill("sizes_rows", {
      x: x(rows),
      text: text(rows),
      path: rows.map((row) => row.path),
      ...Object.fromEntries(["low", "high", "p50", "p99", "floor"].map((name) => [name, us(rows, name)])),
      ratio: rows.map((row) => row.ratio ?? NaN),
    });
    this.#fill("sizes_before", { x: x(earlier), text: text(earlier), p50: us(earlier, "p50") });
    const columns = ["us", "what", "source"].map((name) => [name, others.map((point) => point[name])]);
    this.#fill("sizes_published", { x: x(others), ...Object.fromEntries(columns) });
    this.#sizeAxis([...rows, ...earlier], others);
    const times = ["low", "high", "p99", "floor"].map((name) => us(rows, name));
    this.#setLog(
      "sizes",
      "y",
      logRange(
        chained(
          ...times,
          us(earlier, "p50"),
          others.map((point) => point.us),
        ),
      ),
    );
    const title = "Latency over sizes";
    const { label, words } = sweep ?? {};
    this.#setTitle("sizes", ...(sweep ? [`${title}: ${label}, ${words}`, `${title}: ${label}`, label] : [title]));
    const legend = this.#model("sizes_legend");
    for (const item of legend.items)
      item.visible =
        item.name === "before:"
          ? Boolean(before)
          : item.name === "published"
            ? others.length > 0
            : rows.some((row) => item.name !== "floor" || row.floor);
    legend.change.emit();
  }
  // The ticks are sizes that were measured, twelve at most.
  #sizeAxis(rows, others) {
    if (!rows.length) return;
    const names = new Map(rows.map((row) => [row.size, row.text]));
    const sizes = [...names.keys()].sort((a, b) => a - b);
    const ticks = sizes.filter((_, at) => at % Math.ceil(sizes.length / 12) === 0);
    this.#model("sizes_x").ticks = ticks;
    this.#model("sizes_axis").major_label_overrides = new Map(ticks.map((tick) => [tick, names.get(tick)]));
    const ends = [...sizes, ...others.map((point) => point.size)];
    this.#setRange(this.#model("sizes").x_range, [Math.min(...ends) / 1.3, Math.max(...ends) * 1.3]);
  }
  // Each figure that `wanted(root, at)` accepts, as a canvas.
  canvases(wanted) {
    const { document, views } = this.#figures;
    return document
      .roots()
      .filter(wanted)
      .map((root) => views.get(root).export("png", true).canvas);
  }
}
