import assert from "node:assert/strict";
import { test } from "node:test";
import { Channel } from "../../../dgkit/widgets/base/channel.js";
import { valueError } from "../../../dgkit/widgets/base/forms.js";
import { micros, parseShape, parseSize, plural, shortSize, sizeText } from "../../../dgkit/widgets/base/units.js";

test("a size is a number of bytes with a binary unit; tests/widgets/test_forms.py has all its forms", () => {
  for (const [text, size] of /** @type {[string, number][]} */ ([
    ["4096", 4096],
    ["0x1000", 4096],
    ["1.5 MiB", 1572864],
    ["8388608T", NaN],
  ]))
    assert.equal(parseSize(text), size);
});

test("a shape is one length or more, each a size", () => {
  assert.deepEqual(parseShape("(64, 2K)"), [64, 2048]);
  assert.deepEqual(parseShape("1M"), [1 << 20]);
  for (const text of ["", "0", "64, x", "-1"]) assert.equal(parseShape(text), null);
});

test("sizes, counts and times are written as the kernel writes them", () => {
  assert.equal(shortSize(1023), "1023 B");
  assert.equal(shortSize(1536), "1.50 KiB");
  assert.equal(sizeText(1), "1 byte");
  assert.equal(sizeText(1 << 20), "1 MiB (1,048,576 bytes)");
  assert.equal(plural(2, "entry", "entries"), "2 entries");
  assert.equal(micros(1234567), "1,234.567");
  assert.equal(micros(1234567, 2), "1,234.57");
});

test("the value of a fill pattern is checked by its kind", () => {
  for (const [kind, text] of [
    ["seed", "0"],
    ["byte", "0xff"],
    ["text", "a"],
    ["", ""],
  ])
    assert.equal(valueError(kind, text), "");
  for (const [kind, text] of [
    ["seed", "-1"],
    ["byte", "256"],
    ["text", ""],
  ])
    assert.notEqual(valueError(kind, text), "");
});

function connected() {
  const handlers = {};
  const model = { sent: [], on: (event, handler) => (handlers[event] = handler), off: () => {} };
  model.send = (message) => model.sent.push(message);
  const gone = [];
  const channel = new Channel(model, new AbortController().signal, (error) => gone.push(error.kind));
  return { channel, model, gone, receive: (message) => handlers["msg:custom"](message, []), handlers };
}

test("a call resolves with the reply of its own number, or is rejected with the kernel's error", async () => {
  const { channel, model, receive } = connected();
  const [first, second] = [channel.call("one"), channel.call("two")];
  const [one, two] = model.sent.map(({ id }) => id);
  receive({ kind: "reply", id: "of another view", value: {} });
  receive({ kind: "reply", id: two, error: { kind: "BoundsError", text: "out of range", hint: "", field: "size" } });
  receive({ kind: "reply", id: one, value: { at: 3 } });
  assert.equal((await first).at, 3);
  await assert.rejects(second, { message: "out of range", field: "size" });
});

test("a state older than the one shown is ignored", () => {
  const { channel, receive } = connected();
  const seen = [];
  channel.on("session", ({ snapshot }) => seen.push(snapshot));
  for (const snapshot of [4, 3, 5]) receive({ kind: "session", snapshot });
  assert.deepEqual(seen, [4, 5]);
});

test("calls are rejected when the kernel ends", async () => {
  const { channel, gone, handlers } = connected();
  const call = channel.call("hello");
  handlers.comm_live_update();
  await assert.rejects(call, { kind: "KernelGone" });
  assert.deepEqual(gone, ["KernelGone"]);
});
