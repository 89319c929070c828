// The form of TransferPanel: what to move, where to, how often; and files in pieces.

const payloadKinds = [["text", "text"], ["hex", "hex digits"], ["pattern", "pattern"],
  ["file", "file"], ["expression", "NumPy expression"]];
const payloadHelp = {
  hex: "as 00 ff 1a, or 0x00ff1a",
  expression: "of the notebook's variables; it is evaluated once, on the click",
};

// One control a kind of payload; only that of the kind chosen is shown.
function makePayloads(view) {
  const area = (value) => h("textarea", { rows: 2, spellcheck: "false", ".value": value });
  const c = {
    text: area("hello from the DPU"), hex: area("de ad be ef"),
    pattern: choice(view.state.fills, { ".value": "counter" }),
    file: h("input", { type: "file" }),
    expression: h("input", { spellcheck: "false", autocomplete: "off", placeholder: "np.arange(64)" }),
  };
  const labels = { text: "Text", hex: "Hex digits", pattern: "Pattern", file: "File", expression: "Expression" };
  const boxes = Object.fromEntries(Object.entries(c).map(([kind, control]) =>
    [kind, field(labels[kind], control, payloadHelp[kind])]));
  const value = h("input", { autocomplete: "off" });
  const valueBox = field("Seed", value);
  const needs = () => view.state.fills.find(([kind]) => kind === c.pattern.value)[2];
  const chosen = () => {
    valueBox.querySelector("label").textContent = valueNames[needs()] ?? "Value";
    value.value = valueStarts[needs()] ?? "";
  };
  c.pattern.value = "counter";
  c.pattern.addEventListener("change", chosen);
  const show = (kind) => {
    for (const [each, box] of Object.entries(boxes)) box.hidden = each !== kind;
    valueBox.hidden = kind !== "pattern" || !needs();
  };
  const sent = (kind, key) => kind === "file" ? key
    : kind === "pattern" && needs() ? `${c.pattern.value}:${value.value}` : c[kind].value;
  const control = (kind) => kind === "pattern" && needs() ? value : c[kind];
  const wrong = (kind) => kind === "pattern" ? wrongValue(needs(), value.value) : wrongPayload(kind, c[kind]);
  return { boxes: [...Object.values(boxes), valueBox], all: [...Object.values(c), value], show, sent, control, wrong, file: c.file };
}

const hexDigits = (text) => text.replace(/0x|[\s,:_]+/gi, "");

function wrongPayload(kind, control) {
  if (kind === "file") return control.files.length ? "" : "choose a file";
  if (!control.value) return "it is empty";
  if (kind !== "hex") return "";
  const digits = hexDigits(control.value);
  const other = /[^0-9a-f]/i.exec(digits);
  if (other) return `${other[0]} is no hex digit`;
  return digits.length % 2 ? `${digits.length} digits: each byte takes two` : "";
}

// How many bytes the payload has, if that is known before it is sent.
function payloadSize(kind, control) {
  if (kind === "text") return new TextEncoder().encode(control.value).length;
  if (kind === "hex") return hexDigits(control.value).length / 2;
  return kind === "file" && control.files.length ? control.files[0].size : NaN;
}

async function sendFile(view, key, file, told) {
  const { chunk, upload } = view.state.limits;
  if (!file.size || file.size > upload)
    throw Object.assign(new Error(`${file.name} has ${sizeText(file.size)}; 1 byte to ${sizeText(upload)} can be sent`), { field: "payload" });
  for (let at = 0; at < file.size; at += chunk) {
    const piece = await file.slice(at, at + chunk).arrayBuffer();
    await view.call("upload", { key, name: file.name, size: file.size, at }, [piece]);
    told(`Sending ${file.name}: ${Math.round((100 * Math.min(at + chunk, file.size)) / file.size)} %`);
  }
  told("");
}

function makeControls(view) {
  const limits = view.state.limits;
  return {
    op: choice([["write", "write to region"], ["read", "read from region"]]),
    region: h("select"),
    offset: h("input", { value: "0", autocomplete: "off" }),
    size: h("input", { value: "64", autocomplete: "off" }),
    kind: choice(payloadKinds),
    repeat: h("input", { type: "number", min: 1, max: limits.repeat, value: 1 }),
    depth: h("input", { type: "number", min: 1, max: limits.depth, value: 1 }),
  };
}

// What is wrong with where it goes, by field.
function wrongSpan(view, c, size) {
  const region = view.session.regions.find((one) => one.id === Number(c.region.value));
  const offset = parseSize(c.offset.value);
  const access = { read: "r", write: "w" }[c.op.value];
  const wrong = { region: "", op: "", offset: "", size: "" };
  if (region && !region.access.includes(access)) wrong.op = `this region is for ${region.access_text} only`;
  if (!(offset >= 0)) wrong.offset = "bytes, as 0, 4096, 0x100, 64K";
  else if (region && offset >= region.size) wrong.offset = `the region ends at ${region.size.toLocaleString("en-US")}`;
  else if (region && offset + size > region.size)
    wrong.size = `${sizeText(offset + size - region.size)} more than the region has`;
  return wrong;
}

// What is filled in: which fields count, how many bytes they make, and as the kernel takes it.
class Filled {
  #file = null; #key = dgId();
  constructor(view) {
    this.view = view;
    this.c = makeControls(view);
    this.payload = makePayloads(view);
  }
  get isRead() { return this.c.op.value === "read"; }
  get kind() { return this.c.kind.value; }
  get given() { return this.payload.control(this.kind); }
  get hasSize() { return this.isRead || this.kind === "pattern"; }
  get size() { return this.hasSize ? parseSize(this.c.size.value) : payloadSize(this.kind, this.given); }
  get controls() { return { ...this.c, payload: this.given }; }
  fields() {
    const { op, region, offset, size, repeat, depth } = this.c;
    return { op: op.value, region: Number(region.value), offset: offset.value, size: size.value, kind: this.kind,
      payload: this.isRead ? "" : this.payload.sent(this.kind, this.#key), repeat: repeat.value, depth: depth.value };
  }
  // Marks each field that is wrong.
  check() {
    const { c, payload, size } = this, { repeat, depth } = this.view.state.limits;
    const wrong = wrongSpan(this.view, c, size);
    payload.all.forEach((control) => mark(control));
    for (const name of ["region", "op", "offset"]) mark(c[name], wrong[name]);
    mark(c.size, this.hasSize && !(size > 0) ? "bytes, as 64, 4096, 1M" : this.hasSize ? wrong.size : "");
    if (!this.isRead) mark(this.given, payload.wrong(this.kind) || (this.hasSize ? "" : wrong.size));
    mark(c.repeat, within(c.repeat.value, repeat));
    mark(c.depth, within(c.depth.value, depth));
  }
  // Sends the file, if it is another one, and then asks `name`.
  async send(name, told) {
    try {
      const file = this.payload.file.files[0];
      if (!this.isRead && this.kind === "file" && this.#file !== file) {
        await sendFile(this.view, this.#key, file, told);
        this.#file = file;
      }
      await this.view.call(name, { form: this.fields() });
      this.view.clear();
    } catch (error) {
      if (error.field === "payload") this.#file = null;
      showFieldError(this.view, this.controls, error);
    }
  }
}

// Shows the boxes that count, what is wrong in them, and how many bytes it would be.
function showFilled(filled, { kind, size, output }) {
  kind.hidden = filled.isRead;
  filled.payload.show(filled.isRead ? "" : filled.kind);
  size.hidden = !filled.hasSize;
  filled.check();
  const { repeat } = filled.c, bytes = filled.size;
  output.textContent = bytes > 0 ? `= ${sizeText(bytes)}${repeat.value > 1 ? ` × ${repeat.value}` : ""}` : "";
}

function makeTransferForm(view, told) {
  const filled = new Filled(view), { c, payload } = filled;
  const output = h("output", { class: "dg-size", "aria-live": "polite" });
  const kind = field("Payload", c.kind), size = field("Size, bytes", c.size);
  const check = () => showFilled(filled, { kind, size, output });
  const send = (name) => {
    check();
    const wrong = [...form.querySelectorAll('[aria-invalid="true"]')].find((one) => one.offsetParent);
    if (wrong) wrong.focus();
    else filled.send(name, told);
  };
  const start = button("Start", null, { class: "dg-button dg-main", type: "submit" });
  const add = button("Add to the list", () => send("append"));
  const form = h("form", { class: "dg-form", novalidate: true, oninput: check, onchange: check,
    onsubmit: (event) => { event.preventDefault(); send("start"); } },
    field("Operation", c.op), field("Region", c.region), field("Offset, bytes", c.offset), kind, ...payload.boxes,
    size, field("Repeat", c.repeat), field("Depth, at once", c.depth),
    h("div", { class: "dg-wide dg-bar" }, start, add, output));
  const regions = (desk, select) => {
    start.disabled = view.running || !desk.regions.length;
    add.disabled = !desk.regions.length;
    setOptions(c.region, regionOptions(desk.regions));
    if (select && desk.selected) c.region.value = desk.selected;
    check();
  };
  return { form, start, add, regions };
}

const regionOptions = (regions) => regions.length
  ? regions.map((one) => [one.id, `${one.name}, ${one.text}, ${one.where}`]) : [["", "no region yet"]];

const within = (text, most) =>
  /^\d+$/.test(text) && text >= 1 && text <= most ? "" : `1 to ${most.toLocaleString("en-US")}`;
