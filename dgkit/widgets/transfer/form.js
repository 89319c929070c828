// The form of TransferPanel: operation, region, payload, repetitions.

import { button, choice, field, h, MAX_TEXT, setOptions } from "../base/elements.js";
import { mark, patternFields, showFieldError } from "../base/forms.js";
import { parseSize, sizeText } from "../base/units.js";

const payloadKinds = [
  ["text", "text"],
  ["hex", "hex digits"],
  ["pattern", "pattern"],
  ["expression", "NumPy expression"],
];
const payloadHelp = {
  hex: "such as 00 ff 1a or 0x00ff1a",
  expression: "uses the notebook's variables; evaluated once, on the click",
};

// A control for each kind of payload; only that of the selected kind is shown.
function makePayloads(view) {
  const pattern = patternFields(view.state.fills, "counter");
  const area = (value) => h("textarea", { rows: 2, spellcheck: "false", ".value": value });
  const c = {
    text: area("hello from the DPU"),
    hex: area("de ad be ef"),
    pattern: pattern.kind,
    expression: h("input", { spellcheck: "false", autocomplete: "off", placeholder: "np.arange(64)" }),
  };
  const labels = { text: "Text", hex: "Hex digits", pattern: "Pattern", expression: "Expression" };
  const boxes = Object.fromEntries(
    Object.entries(c).map(([kind, control]) => [kind, field(labels[kind], control, payloadHelp[kind])]),
  );
  const show = (kind) => {
    for (const [name, box] of Object.entries(boxes)) box.hidden = name !== kind;
    pattern.valueBox.hidden = kind !== "pattern" || !pattern.hasValue();
  };
  return {
    boxes: [...Object.values(boxes), pattern.valueBox],
    all: [...Object.values(c), pattern.value],
    show,
    wireValue: (kind) => (kind === "pattern" ? pattern.text() : c[kind].value),
    control: (kind) => (kind === "pattern" ? pattern.control() : c[kind]),
    error: (kind) => (kind === "pattern" ? pattern.error() : payloadError(kind, c[kind])),
  };
}

// Bytes of hex digits, such as "00 ff 1a" or "0x00ff1a", or an error.
function parseHex(text) {
  const bytes = new Uint8Array(text.length / 2);
  let count = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    const lower = code | 0x20;
    const next = code === 48 ? text.charCodeAt(at + 1) | 0x20 : 0;
    if (next === 120)
      at++; // 0x
    else if (code >= 48 && code <= 57) bytes[count >> 1] |= (code - 48) << (4 * (~count++ & 1));
    else if (lower >= 97 && lower <= 102) bytes[count >> 1] |= (lower - 87) << (4 * (~count++ & 1));
    else if (!/[\s,:_]/.test(text[at])) return { error: `${text[at]} is not a hex digit` };
  }
  return count % 2
    ? { error: `${count} digits: each byte needs two` }
    : { error: "", bytes: bytes.subarray(0, count / 2) };
}

export function payloadError(kind, control) {
  if (!control.value) return "empty";
  return kind === "hex" ? parseHex(control.value).error : "";
}

// The payload's size in bytes, or NaN if it is not known before the payload is sent.
function payloadSize(kind, control) {
  if (kind === "text") return new TextEncoder().encode(control.value).length;
  return kind === "hex" ? (parseHex(control.value).bytes?.length ?? NaN) : NaN;
}

// Refuses pasted or dropped text that its field would cut off.
function refuseLongText(event) {
  const { length } = (event.clipboardData ?? event.dataTransfer)?.getData("text/plain") ?? "";
  const { maxLength, value, selectionStart, selectionEnd } = event.target;
  const total = value.length - (selectionEnd - selectionStart) + length;
  if (total <= MAX_TEXT || maxLength !== MAX_TEXT) return;
  event.preventDefault();
  const [given, limit] = [total, MAX_TEXT].map((number) => number.toLocaleString("en-US"));
  mark(event.target, `${given} characters with what is pasted; the limit is ${limit}: use a NumPy expression`);
}

function makeControls(view) {
  const limits = view.state.limits;
  return {
    op: choice([
      ["write", "write to region"],
      ["read", "read from region"],
    ]),
    region: h("select"),
    offset: h("input", { value: "0", autocomplete: "off" }),
    size: h("input", { value: "64", autocomplete: "off" }),
    kind: choice(payloadKinds),
    repeat: h("input", { type: "number", min: 1, max: limits.repeat, value: 1 }),
    depth: h("input", { type: "number", min: 1, max: limits.depth, value: 1 }),
  };
}

// Errors of access and range, by field.
function rangeErrors(view, c, size) {
  const region = view.session.regions.find(({ id }) => id === Number(c.region.value));
  const offset = parseSize(c.offset.value);
  const access = { read: "r", write: "w" }[c.op.value];
  const errors = { region: "", op: "", offset: "", size: "" };
  if (region && !region.access.includes(access)) errors.op = `the region's access is ${region.access_text} only`;
  if (!(offset >= 0)) errors.offset = "bytes, such as 0, 4096, 0x100 or 64K";
  else if (region && offset >= region.size) errors.offset = `the region ends at ${region.size.toLocaleString("en-US")}`;
  else if (region && offset + size > region.size)
    errors.size = `${sizeText(offset + size - region.size)} past the end of the region`;
  return errors;
}

// The state of the form: which fields apply, the size in bytes, and the values for the kernel.
class TransferForm {
  constructor(view) {
    this.view = view;
    this.c = makeControls(view);
    this.payload = makePayloads(view);
  }
  get isRead() {
    return this.c.op.value === "read";
  }
  get kind() {
    return this.c.kind.value;
  }
  get payloadControl() {
    return this.payload.control(this.kind);
  }
  get hasSize() {
    return this.isRead || this.kind === "pattern";
  }
  get size() {
    return this.hasSize ? parseSize(this.c.size.value) : payloadSize(this.kind, this.payloadControl);
  }
  get controls() {
    return { ...this.c, payload: this.payloadControl };
  }
  fields() {
    const { op, region, offset, size, repeat, depth } = this.c;
    return {
      op: op.value,
      region: Number(region.value),
      offset: offset.value,
      size: size.value,
      kind: this.kind,
      payload: this.isRead ? "" : this.payload.wireValue(this.kind),
      repeat: repeat.value,
      depth: depth.value,
    };
  }
  // Marks each invalid field.
  check() {
    const { c, payload, size } = this;
    const { repeat, depth } = this.view.state.limits;
    const errors = rangeErrors(this.view, c, size);
    payload.all.forEach((control) => mark(control));
    for (const name of ["region", "op", "offset"]) mark(c[name], errors[name]);
    mark(c.size, this.hasSize && !(size > 0) ? "bytes, such as 64, 4096 or 1M" : this.hasSize ? errors.size : "");
    if (!this.isRead) mark(this.payloadControl, payload.error(this.kind) || (this.hasSize ? "" : errors.size));
    mark(c.repeat, countError(c.repeat.value, repeat));
    mark(c.depth, countError(c.depth.value, depth));
  }
  async send() {
    try {
      await this.view.call("start", { form: this.fields() });
      this.view.clear();
    } catch (error) {
      showFieldError(this.view, this.controls, error);
    }
  }
}

// Shows the fields that apply, their errors, and the size in bytes.
function showFields(state, { kind, size, output }) {
  kind.hidden = state.isRead;
  state.payload.show(state.isRead ? "" : state.kind);
  size.hidden = !state.hasSize;
  state.check();
  const { repeat } = state.c;
  const bytes = state.size;
  output.textContent =
    bytes > 0
      ? `= ${sizeText(bytes)}${repeat.value > 1 ? ` × ${Number(repeat.value).toLocaleString("en-US")}` : ""}`
      : "";
}

export function makeForm(view) {
  const state = new TransferForm(view);
  const { c } = state;
  const output = h("output", { class: "dg-size", "aria-live": "polite" });
  const kind = field("Payload", c.kind);
  const size = field("Size, bytes", c.size);
  const check = () => showFields(state, { kind, size, output });
  const send = () => {
    check();
    const invalid = [...form.querySelectorAll('[aria-invalid="true"]')].find((control) => control.offsetParent);
    if (invalid) invalid.focus();
    else state.send();
  };
  const start = button("Start", null, { class: "dg-button dg-main", type: "submit" });
  const form = h(
    "form",
    {
      class: "dg-form",
      novalidate: true,
      oninput: check,
      onchange: check,
      onpaste: refuseLongText,
      ondrop: refuseLongText,
      onsubmit: (event) => {
        event.preventDefault();
        send();
      },
    },
    field("Operation", c.op),
    field("Region", c.region),
    field("Offset, bytes", c.offset),
    kind,
    ...state.payload.boxes,
    size,
    field("Repeat", c.repeat),
    field("Depth, in flight", c.depth),
    h("div", { class: "dg-wide dg-bar" }, start, output),
  );
  const showRegions = (session, select) => {
    start.disabled = view.running || !session.regions.length;
    setOptions(c.region, regionOptions(session.regions));
    if (select && session.selected) c.region.value = session.selected;
    check();
  };
  return { form, start, showRegions };
}

const regionOptions = (regions) =>
  regions.length
    ? regions.map(({ id, name, text, where }) => [id, `${name}, ${text}, ${where}`])
    : [["", "no region yet"]];

const countError = (text, maximum) =>
  /^\d+$/.test(text) && text >= 1 && text <= maximum ? "" : `1 to ${maximum.toLocaleString("en-US")}`;
