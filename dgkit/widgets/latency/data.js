// The data of a view of a LatencyPlot: points over time, load, histogram and percentiles. Times arrive
// in ns and are drawn in µs.

const COLUMNS = 5; // seconds, p50, p99, max, samples
export const LOAD = ["cpu", "gpu", "pcie_in", "pcie_out", "nvlink_in", "nvlink_out"]; // after seconds
const LOAD_ROWS = 1800;
const READING_S = 5; // the time that a reading covers at most

// A buffer of float64 from the kernel, at any byte offset.
function floats(view) {
  const { buffer, byteOffset, byteLength } = view;
  return new Float64Array(buffer.slice(byteOffset, byteOffset + byteLength));
}

const PACED = 4; // up to this many points of a frame are shown one by one; more are shown at once
const MOST_MS = 100; // between two of them

// The newest points, at least `capacity` once that many have arrived; rows that are not newer than
// the last one are ignored. Points are drawn once they are shown.
export class Points {
  #rows;
  #capacity;
  #length = 0;
  #shown = 0;
  constructor(capacity) {
    this.#capacity = capacity;
    this.#rows = new Float64Array(2 * capacity * COLUMNS);
  }
  #time(at) {
    return at < 0 ? -Infinity : this.#rows[at * COLUMNS];
  }
  get last() {
    return this.#time(this.#length - 1);
  }
  get lastShown() {
    return this.#time(this.#shown - 1);
  }
  get hidden() {
    return this.#length - this.#shown;
  }
  // The time from the last point that is shown to the next one, or null if all are.
  get nextMs() {
    const ms = 1000 * (this.#time(this.#shown) - this.lastShown);
    return this.hidden ? Math.min(ms, MOST_MS) : null;
  }
  show(count = Infinity) {
    this.#shown = Math.min(this.#length, this.#shown + count);
  }
  clear() {
    this.#length = this.#shown = 0;
  }
  add(rows) {
    for (let at = 0; at < rows.length; at += COLUMNS) {
      if (!(rows[at] > this.last)) continue; // already in a full state received meanwhile
      if (this.#length === 2 * this.#capacity) this.#dropOldest();
      this.#rows.set(rows.subarray(at, at + COLUMNS), this.#length * COLUMNS);
      this.#length += 1;
    }
  }
  #dropOldest() {
    this.#rows.copyWithin(0, this.#capacity * COLUMNS);
    this.#length = this.#capacity;
    this.#shown = Math.max(0, this.#shown - this.#capacity);
  }
  // The columns of the shown points from time `from` (s) on, in µs; `x` is the time before `now` in
  // units of `unit` s, negative.
  // Of the load, each point has the reading that covers it, or the last one.
  window(from, now, unit, load = []) {
    let first = this.#shown;
    while (first > 0 && this.#time(first - 1) >= from) first -= 1;
    const count = this.#shown - first;
    const columns = {};
    for (const name of ["x", "ago", "p50", "p99", "max", "samples", ...LOAD]) columns[name] = new Float64Array(count);
    let reading = Math.max(
      0,
      load.findIndex(([second]) => second >= this.#time(first)),
    );
    for (let i = 0; i < count; i += 1) {
      const at = (first + i) * COLUMNS;
      columns.ago[i] = now - this.#rows[at];
      columns.x[i] = -columns.ago[i] / unit;
      columns.p50[i] = this.#rows[at + 1] / 1000;
      columns.p99[i] = this.#rows[at + 2] / 1000;
      columns.max[i] = this.#rows[at + 3] / 1000;
      columns.samples[i] = this.#rows[at + 4];
      while (reading + 1 < load.length && load[reading][0] < this.#rows[at]) reading += 1;
      const row = load[reading];
      const covers = row && Math.abs(row[0] - this.#rows[at]) < READING_S;
      for (const [k, name] of LOAD.entries()) columns[name][i] = covers ? row[k + 1] : NaN;
    }
    return columns;
  }
}

// Rows of (from, to, count) as bars in µs and %, and their outline.
export function histogramOf(rows, samples) {
  const bins = { left: [], right: [], top: [], count: [] };
  const outline = { x: [], y: [] };
  for (let at = 0; at < rows.length; at += 3) {
    const [left, right, count] = [rows[at] / 1000, rows[at + 1] / 1000, rows[at + 2]];
    const share = (100 * count) / samples;
    if (count) {
      bins.left.push(left);
      bins.right.push(right);
      bins.top.push(share);
      bins.count.push(count);
    }
    outline.x.push(left, right);
    outline.y.push(share, share);
  }
  return { bins, outline };
}

// Rows of (1/(1-p), ns) as a curve in µs.
function curveOf(rows) {
  const curve = { x: [], us: [], percentile: [] };
  for (let at = 0; at < rows.length; at += 2) {
    curve.x.push(rows[at]);
    curve.us.push(rows[at + 1] / 1000);
    curve.percentile.push(percentText(rows[at]));
  }
  return curve;
}

// 1/(1-p) as a percentage, with one digit per nine: 1000 is 99.9.
export function percentText(x) {
  const digits = Math.max(1, Math.ceil(Math.log10(x)));
  return (100 - 100 / x).toFixed(Math.min(digits, 9)).replace(/\.?0+$/, "") || "0";
}

// The runs of a view; setState() and addFrame() take the kernel's messages. `before` is the kept run
// that `run` is compared with; `distribution` and `distributionBefore` have bins, outline, curve and
// figures.
export class LatencyData {
  constructor() {
    this.fine = new Points(2400);
    this.coarse = new Points(3600);
    this.load = []; // rows of seconds and LOAD
    this.run = this.before = null;
    this.nowName = this.beforeName = "";
    this.number = -1;
  }
  setState(state, buffers) {
    const [fine, coarse, load, ...parts] = buffers.map(floats);
    Object.assign(this, { run: state.run, before: state.before, number: state.n });
    Object.assign(this, { nowName: state.now_name, beforeName: state.before_name });
    this.fine.clear();
    this.coarse.clear();
    this.load = [];
    this.#add(fine, coarse, load);
    this.fine.show();
    this.distribution = this.run && this.#distribution(parts[0], parts[1], this.run);
    this.distributionBefore = this.before && this.#distribution(parts[2], parts[3], this.before);
  }
  #add(fine, coarse, load) {
    const width = 1 + LOAD.length;
    for (let at = 0; at < load.length; at += width) this.load.push(load.subarray(at, at + width));
    this.load.splice(0, this.load.length - LOAD_ROWS);
    this.fine.add(fine);
    this.coarse.add(coarse);
    this.coarse.show();
  }
  #distribution(bins, curve, { samples, figures }) {
    return { ...histogramOf(bins, Math.max(samples, 1)), curve: curveOf(curve), figures };
  }
  // Shows the points of the previous frame and the first of this one; fine.show(1) shows the next.
  // Returns whether the distribution changed, or null if a frame is missing and the full state must
  // be requested.
  addFrame(message, buffers) {
    if (message.n <= this.number) return false;
    if (message.n !== this.number + 1 || message.run !== this.run?.number) return null;
    this.number = message.n;
    const [fine, coarse, load, ...parts] = buffers.map(floats);
    const earlier = this.fine.hidden;
    this.#add(fine, coarse, load);
    this.fine.show(this.fine.hidden - earlier > PACED ? Infinity : earlier + 1);
    Object.assign(this.run, { samples: message.samples, lost: message.lost, rate: message.rate });
    if (!parts.length) return false;
    this.run.figures = message.figures;
    this.distribution = this.#distribution(...parts, this.run);
    return true;
  }
}
