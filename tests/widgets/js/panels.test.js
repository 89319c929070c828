import assert from "node:assert/strict";
import { test } from "node:test";
import { inARow, rowOf } from "../../../dgkit/widgets/doctor/findings.js";
import { layoutFor } from "../../../dgkit/widgets/hexview/grid.js";
import { searchText } from "../../../dgkit/widgets/hexview/tools.js";
import { numberText, parseOffset, valueAt } from "../../../dgkit/widgets/hexview/values.js";
import { histogramOf, Points, percentText } from "../../../dgkit/widgets/latency/data.js";
import { logRange, logTicks, scaleLimit, timeSpan } from "../../../dgkit/widgets/latency/draw.js";
import { payloadError } from "../../../dgkit/widgets/transfer/form.js";
import { ticksOf, timeText } from "../../../dgkit/widgets/transfer/timeline.js";
import { halves } from "../../../dgkit/widgets/transfer/transfer.js";

const view = (...bytes) => new DataView(new Uint8Array(bytes).buffer);

test("a value is read in its byte order, and written as the shortest decimal that is the same float", () => {
  assert.equal(valueAt(view(1, 2), 0, "u16", true), "513");
  assert.equal(valueAt(view(1, 2), 0, "u16", false), "258");
  assert.equal(valueAt(view(255, 255, 255, 255, 255, 255, 255, 255), 0, "u64", true), "18446744073709551615");
  assert.equal(valueAt(view(255, 255, 255, 255, 255, 255, 255, 255), 0, "i64", true), "-1");
  assert.equal(valueAt(view(0xcd, 0xcc, 0xcc, 0x3d), 0, "f32", true), "0.1");
  assert.equal(valueAt(view(0, 0, 0, 0x80), 0, "f32", true), "-0");
  assert.equal(valueAt(view(0x3c, 0x00), 0, "f16", false), "1");
  assert.equal(valueAt(view(0x7c, 0x01), 0, "f16", false), "NaN");
  assert.equal(valueAt(view(0x00, 0x01), 0, "f16", false), "5.96e-8"); // the least subnormal
  assert.equal(valueAt(view(0x3f, 0x80), 0, "bf16", false), "1");
  assert.equal(valueAt(view(1, 2, 3), 0, "u32", true), ""); // too few bytes
  assert.equal(numberText(1e9), "1e+9");
});

test("an offset is absolute, relative to the cursor, or the end", () => {
  const offset = (text) => parseOffset(text, 100, 4096);
  assert.deepEqual(["64", "0x40", "4K", "+16", "-0x10", " END "].map(offset), [64, 64, 4096, 116, 84, 4095]);
  assert.ok(Number.isNaN(offset("x")));
});

test("a layout is the widest that fits, with all bytes of a value in a row", () => {
  const layout = (room, more = {}) => layoutFor(room, { dtype: "hex", sources: 1, size: 4096, columns: 0, ...more });
  assert.deepEqual(
    [200, 60, 40].map((room) => layout(room).per),
    [16, 8, 4],
  );
  assert.equal(layout(10).per, 4); // none fits: the narrowest
  assert.equal(layout(10, { columns: 32 }).per, 32);
  assert.ok(layout(200, { sources: 2 }).chars > layout(200).chars);
  const doubles = layout(10, { dtype: "f64" });
  assert.deepEqual([doubles.per, doubles.hex, doubles.values], [8, false, true]);
  assert.ok(layout(200, { dtype: "u32" }).hex);
  assert.equal(layout(200, { size: 2 ** 40 }).digits, 10);
});

test("a search says how far it is, and how it ended", () => {
  assert.equal(searchText({ mode: "find", status: "running", done: 1, size: 3 }), "Searching: 33 %");
  assert.equal(
    searchText({ mode: "find", status: "found", at: 64, wrapped: true }),
    "Found at 0x40 (the search wrapped around).",
  );
  assert.equal(
    searchText({ mode: "compare", status: "counted", bytes: 2, runs: 1 }),
    "2 bytes in 1 place differ between DPU and host.",
  );
  assert.equal(searchText({ mode: "find", status: "" }), "");
});

test("points that a view has are ignored, and the oldest make room", () => {
  const points = new Points(2);
  const row = (at) => [at, 1000, 2000, 3000, 50];
  points.add(Float64Array.from([0, 1, 1, 2, 3].flatMap(row)));
  points.show();
  assert.deepEqual([...points.window(0, 3, 1).ago], [3, 2, 1, 0]);
  points.add(Float64Array.from(row(4)));
  points.show();
  assert.deepEqual([...points.window(0, 4, 1).ago], [2, 1, 0]);
  assert.deepEqual([...points.window(3, 4, 2).x], [-0.5, -0]);
  assert.deepEqual([...points.window(4, 4, 1).p99], [2]);
});

test("a point has the reading of the load that covers it, or the last one", () => {
  const points = new Points(4);
  points.add(Float64Array.from([0, 1, 2, 3, 30].flatMap((at) => [at, 1000, 2000, 3000, 50])));
  points.show();
  const load = [2, 3].map((second) => [second, 10 * second, NaN, 0, 0, 0, 0]);
  assert.deepEqual([...points.window(0, 30, 1, load).cpu], [20, 20, 20, 30, NaN]);
  assert.deepEqual([...points.window(0, 30, 1).cpu], [NaN, NaN, NaN, NaN, NaN]);
});

test("a histogram is in µs and percent", () => {
  const { bins, outline } = histogramOf([1000, 2000, 1, 2000, 4000, 0, 4000, 8000, 3], 4);
  assert.deepEqual(bins, { left: [1, 4], right: [2, 8], top: [25, 75], count: [1, 3] });
  assert.deepEqual(outline.y, [25, 25, 0, 0, 75, 75]);
});

test("a percentile has a digit for each nine", () => {
  assert.deepEqual([1, 10, 100, 1000, 10000].map(percentText), ["0", "90", "99", "99.9", "99.99"]);
});

test("a logarithmic axis spans whole half decades around its values, with round ticks", () => {
  assert.deepEqual(logRange([2, 5, NaN]), [1, 10]);
  assert.equal(logRange([]), null);
  assert.deepEqual(logTicks([1, 10]), [1, 1.5, 2, 3, 5, 7, 10]);
  assert.deepEqual(logTicks([1, 100]), [1, 3, 10, 30, 100]);
  assert.equal(logTicks([1e-3, 1e9]).length, 7);
});

test("the time axis fits the points, in whole seconds", () => {
  assert.deepEqual(
    [0, 0.4, 7.2, 31].map((oldest) => timeSpan(oldest, 30)),
    [1, 1, 8, 30],
  );
  assert.equal(timeSpan(undefined, 30), 1);
});

test("ticks of a time line are round, and times have their unit", () => {
  assert.deepEqual(ticksOf(0, 100, 5), [0, 20, 40, 60, 80, 100]);
  assert.deepEqual(ticksOf(-3, 3, 3), [-2, 0, 2]);
  assert.deepEqual(
    [0.5, 999, 1000, 1.5e6, 2e9].map((ns) => timeText(ns)),
    ["0.5 ns", "999 ns", "1 µs", "1.5 ms", "2 s"],
  );
});

test("a payload is checked before it is sent", () => {
  assert.equal(payloadError("hex", { value: "0x00 ff,1a" }), "");
  assert.equal(payloadError("hex", { value: "0" }), "1 digits: each byte needs two");
  assert.equal(payloadError("hex", { value: "0g" }), "g is not a hex digit");
  assert.equal(payloadError("text", { value: "" }), "empty");
});

test("a line of 16 bytes is one of 8 bytes or two", () => {
  const bytes = (from, count) =>
    Array.from({ length: count }, (_, k) => (from + k).toString(16).padStart(2, "0")).join(" ");
  const line = `00000010  ${bytes(0x41, 8)}  ${bytes(0x49, 8)}  ABCDEFGHIJKLMNOP`;
  assert.deepEqual(halves(line), [`00000010  ${bytes(0x41, 8)}  ABCDEFGH`, `00000018  ${bytes(0x49, 8)}  IJKLMNOP`]);
  assert.deepEqual(halves("…"), ["…"]);
});

test("commands between comments are copied as one row", () => {
  const lines = ["# first", "modprobe a", "modprobe b", "# then", "reboot"];
  assert.deepEqual(
    lines.map((_, at) => rowOf(lines, at)),
    [0, 0, 2, 0, 1],
  );
  assert.equal(inARow(["a", "b"]), "a && b");
  assert.equal(inARow(["a # why", "b"]), "a # why\nb");
});

test("the scale of latencies has a limit only if a few values are far above the others", () => {
  const usual = Float64Array.from({ length: 99 }, (_, at) => 1 + at / 100);
  assert.equal(scaleLimit(usual), Infinity);
  assert.equal(scaleLimit([]), Infinity);
  const limit = scaleLimit(Float64Array.from([...usual, 500, NaN]));
  assert.ok(limit > 2 && limit < 20, limit);
});
