// What a view of a LatencyPlot knows: points over time, histogram and percentiles. Times are ns as
// they come, and us as they are drawn.

const LATENCY_COLUMNS = 5; // seconds, p50, p99, max, samples

// A buffer of the kernel's float64; it may lie at any offset.
function floats(view) {
  const { buffer, byteOffset, byteLength } = view;
  return new Float64Array(buffer.slice(byteOffset, byteOffset + byteLength));
}

// The newest points, at most `capacity`: rows that are added must be newer than what is there.
class Points {
  #rows; #capacity; #length = 0;
  constructor(capacity) {
    this.#capacity = capacity;
    this.#rows = new Float64Array(2 * capacity * LATENCY_COLUMNS);
  }
  get last() {
    return this.#length ? this.#rows[(this.#length - 1) * LATENCY_COLUMNS] : -Infinity;
  }
  clear() {
    this.#length = 0;
  }
  add(rows) {
    for (let at = 0; at < rows.length; at += LATENCY_COLUMNS) {
      if (!(rows[at] > this.last)) continue; // a whole that came meanwhile had it
      if (this.#length === 2 * this.#capacity) this.#drop();
      this.#rows.set(rows.subarray(at, at + LATENCY_COLUMNS), this.#length * LATENCY_COLUMNS);
      this.#length += 1;
    }
  }
  #drop() {
    this.#rows.copyWithin(0, this.#capacity * LATENCY_COLUMNS);
    this.#length = this.#capacity;
  }
  // The columns from `from` seconds on, in us; `x` counts back from `now` in units of so many s.
  window(from, now, unit) {
    let first = this.#length;
    while (first > 0 && this.#rows[(first - 1) * LATENCY_COLUMNS] >= from) first -= 1;
    const count = this.#length - first;
    const made = {};
    for (const name of ["x", "ago", "p50", "p99", "max", "samples"]) made[name] = new Float64Array(count);
    for (let i = 0; i < count; i += 1) {
      const at = (first + i) * LATENCY_COLUMNS;
      made.ago[i] = now - this.#rows[at];
      made.x[i] = -made.ago[i] / unit;
      made.p50[i] = this.#rows[at + 1] / 1000;
      made.p99[i] = this.#rows[at + 2] / 1000;
      made.max[i] = this.#rows[at + 3] / 1000;
      made.samples[i] = this.#rows[at + 4];
    }
    return made;
  }
}

// Rows of (from, to, count) as bars in us and %, and their outline.
function spreadOf(rows, samples) {
  const bins = { left: [], right: [], top: [], count: [] };
  const outline = { x: [], y: [] };
  for (let at = 0; at < rows.length; at += 3) {
    const [left, right, count] = [rows[at] / 1000, rows[at + 1] / 1000, rows[at + 2]];
    const share = (100 * count) / samples;
    if (count) {
      bins.left.push(left); bins.right.push(right); bins.top.push(share); bins.count.push(count);
    }
    outline.x.push(left, right);
    outline.y.push(share, share);
  }
  return { bins, outline };
}

// Rows of (1/(1-p), ns) as a curve in us.
function curveOf(rows) {
  const made = { x: [], us: [], percentile: [] };
  for (let at = 0; at < rows.length; at += 2) {
    made.x.push(rows[at]);
    made.us.push(rows[at + 1] / 1000);
    made.percentile.push(percentText(rows[at]));
  }
  return made;
}

// 1/(1-p) as a percentage, with the digits that its nines need: 1000 is 99.9.
function percentText(x) {
  const digits = Math.max(1, Math.ceil(Math.log10(x)));
  return (100 - 100 / x).toFixed(Math.min(digits, 9)).replace(/\.?0+$/, "") || "0";
}

// What a view holds; `whole` and `frame` are what the kernel tells.
class LatencyData {
  constructor() {
    this.fine = new Points(2400);
    this.coarse = new Points(3600);
    this.run = this.before = null;
    this.number = -1;
  }
  whole(state, buffers) {
    const [fine, coarse, ...spreads] = buffers.map(floats);
    Object.assign(this, { run: state.run, before: state.before, number: state.n });
    this.fine.clear();
    this.coarse.clear();
    this.fine.add(fine);
    this.coarse.add(coarse);
    this.now = this.run && this.#spread(spreads[0], spreads[1], this.run);
    this.then = this.before && this.#spread(spreads[2], spreads[3], this.before);
  }
  #spread(bins, curve, { samples, figures }) {
    return { ...spreadOf(bins, Math.max(samples, 1)), curve: curveOf(curve), figures };
  }
  // Whether the spread changed; null when a frame is missing, and the whole must be asked for.
  frame(message, buffers) {
    if (message.n <= this.number) return false;
    if (message.n !== this.number + 1 || message.run !== this.run?.number) return null;
    this.number = message.n;
    const [fine, coarse, ...spread] = buffers.map(floats);
    this.fine.add(fine);
    this.coarse.add(coarse);
    Object.assign(this.run, { samples: message.samples, lost: message.lost, rate: message.rate });
    if (!spread.length) return false;
    this.run.figures = message.figures;
    this.now = this.#spread(...spread, this.run);
    return true;
  }
}
