// What the module of each panel begins with: elements, calls to the kernel, the frame of a panel.
// A panel's own module follows in the same text, and ends in `export default panel({name, draw})`.

// An element: attributes, `on...` handlers, properties by a leading dot, then children.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith(".")) element[key.slice(1)] = value;
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

let dgSerial = 0;
const dgId = () => `dgkit-${++dgSerial}-${Math.random().toString(36).slice(2, 8)}`;

// A control under its visible name, which is also its accessible one.
function field(label, control, help) {
  control.id ||= dgId();
  const parts = [h("label", { for: control.id }, label), control];
  if (help) {
    const note = h("span", { class: "dg-help", id: dgId() }, help);
    control.setAttribute("aria-describedby", note.id);
    parts.push(note);
  }
  return h("div", { class: "dg-field" }, ...parts);
}

function choice(options, attributes = {}) {
  const items = options.map((item) => {
    const [value, text] = Array.isArray(item) ? item : [item, item];
    return h("option", { value }, text);
  });
  return h("select", attributes, ...items);
}

// Sets the options of a select anew and keeps what was chosen, if it is still there.
// What is the same already is left alone: a list that is open stays open.
function setOptions(select, options, value = select.value) {
  const made = [...choice(options).children];
  const same = made.length === select.length && made.every((one, at) => one.isEqualNode(select[at]));
  if (!same) select.replaceChildren(...made);
  if (select.value !== String(value)) select.value = value;
  if (select.selectedIndex < 0 && select.options.length) select.selectedIndex = 0;
}

const button = (text, onclick, attributes = {}) =>
  h("button", { type: "button", class: "dg-button", onclick, ...attributes }, text);

const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

const micros = (ns) =>
  (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

// "4096", "0x1000", "4K", "1.5 MiB" as a number of bytes; NaN if it is none. As cards.parse_size.
function parseSize(text) {
  const words = text.trim();
  if (/^0x[0-9a-f]+$/i.test(words)) return bytesWithin(BigInt(words));
  const found = /^(\d+)(?:\.(\d+))?[ \t\n\r\f\v]*(?:([kmgt])(?:i?b)?|b)?$/i.exec(words);
  if (!found) return NaN;
  const [, whole, part = "", unit = " "] = found;
  const scaled = BigInt(whole + part) << BigInt(10 * " kmgt".indexOf(unit.toLowerCase()));
  const parts = 10n ** BigInt(part.length);
  return scaled % parts ? NaN : bytesWithin(scaled / parts);
}

const bytesWithin = (bytes) => (bytes < 1n << 63n ? Number(bytes) : NaN);

// Puts text on the clipboard, also where the page may not use the newer way (plain http).
async function toClipboard(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch { /* it is not there, or not allowed */ }
  const area = h("textarea", { ".value": text, style: "position:fixed;opacity:0", "aria-hidden": "true" });
  document.body.append(area);
  const before = document.activeElement;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  if (!done) throw new Error("the browser did not let the page use the clipboard");
}

function download(name, type, data) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const isDark = () => {
  const light = document.body.dataset.jpThemeLight;
  return light ? light === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// Calls `change` after each change of the page's theme, until the signal.
function onTheme(change, signal) {
  const watch = new MutationObserver(() => change(isDark()));
  watch.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  signal.addEventListener("abort", () => watch.disconnect());
}

// Calls `change(visible)` when the element comes into view or leaves it, until the signal.
function onVisible(element, change, signal) {
  const watch = new IntersectionObserver((entries) => change(entries.at(-1).isIntersecting));
  watch.observe(element);
  signal.addEventListener("abort", () => watch.disconnect());
}

// What a kernel's method raised.
class KernelError extends Error {
  constructor({ kind, text, hint, field }) {
    super(text);
    Object.assign(this, { kind, hint, field });
  }
}

const GONE = {
  kind: "KernelGone", text: "The kernel of this view has ended or was restarted.",
  hint: "Run the cell again.",
};

// One view's line to its panel in the kernel: call() asks, on() hears what the panel tells.
// What still waits when the kernel ends fails; `onGone` is called.
class Line {
  #model; #waiting = new Map(); #hearing = new Map(); #id = dgId(); #last = 0;
  constructor(model, signal, onGone) {
    this.#model = model;
    const take = (message, buffers) => this.#take(message, buffers);
    const end = () => {
      for (const { reject } of this.#waiting.values()) reject(new KernelError(GONE));
      this.#waiting.clear();
      onGone(GONE);
    };
    const heard = { "msg:custom": take, comm_live_update: end };
    for (const [event, hear] of Object.entries(heard)) model.on(event, hear);
    signal.addEventListener("abort", () => {
      for (const [event, hear] of Object.entries(heard)) model.off(event, hear);
    });
  }
  #take(message, buffers) {
    if (message.kind !== "reply") {
      this.#hearing.get(message.kind)?.forEach((hear) => hear(message, buffers));
      return;
    }
    const waiting = this.#waiting.get(message.id);
    if (!waiting) return; // another view asked
    this.#waiting.delete(message.id);
    if (message.error) waiting.reject(new KernelError(message.error));
    else waiting.resolve({ ...message.value, buffers });
  }
  call(name, fields = {}, buffers = []) {
    const id = `${this.#id}-${++this.#last}`;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      try {
        this.#model.send({ id, call: name, fields }, undefined, buffers);
      } catch {
        this.#waiting.delete(id);
        reject(new KernelError(GONE));
      }
    });
  }
  on(kind, hear) {
    const all = this.#hearing.get(kind) ?? [];
    this.#hearing.set(kind, [...all, hear]);
  }
}

// Runs `change`, which may hide, disable or remove what has the focus: then the first of `others`
// that can take it has it.
function keepFocus(change, ...others) {
  const had = document.activeElement;
  const usable = (one) => one?.isConnected && !one.matches(":disabled") && one.getClientRects().length;
  const could = usable(had);
  change();
  const next = could && !usable(had) && others.find(usable);
  if (!next) return;
  if (next.tabIndex < 0 && !next.hasAttribute("tabindex")) { // for this once: no click goes there
    next.tabIndex = -1;
    next.addEventListener("blur", () => next.removeAttribute("tabindex"), { once: true });
  }
  next.focus();
}

// The strip where errors are said, in words, with what to do. It stays until it is dismissed: then
// the focus is where it was in the panel, or on the panel.
function makeStrip(root) {
  const text = h("span");
  let last = null;
  root.addEventListener("focusin", ({ target }) => { if (!strip.contains(target)) last = target; });
  const hide = () => keepFocus(() => (strip.hidden = true), last, root);
  const close = button("Dismiss", hide, { class: "dg-button dg-quiet" });
  const live = h("div", { role: "alert" }, text);
  const strip = h("div", { class: "dg-strip", hidden: true }, live, close);
  const show = (error) => {
    const said = error.message ?? error.text;
    text.replaceChildren(h("strong", {}, /[.!?:]$/.test(said) ? said : `${said}.`), " ", error.hint ?? "");
    strip.hidden = false;
  };
  return { strip, show, clear: hide };
}

const badgeOf = (label, provider) =>
  h("span", { class: label === "hardware" ? "dg-badge" : "dg-badge dg-soft", title: provider }, label);

// The default export of a panel. draw(view) fills view.body; it may return a clean-up function.
// view: root, body, head, call, on, fail, attempt, state (what `hello` returned), buffers; signal,
// which is aborted when the view ends, and live, which is when the kernel has ended, too.
function panel({ name, draw }) {
  return {
    async render({ model, el }) {
      const ending = new AbortController();
      const view = { model, ...makeView(name, model, ending.signal) };
      el.replaceChildren(view.root);
      const late = setTimeout(() => (view.note.textContent =
        "The kernel has not answered yet: a cell may be running. If this stays, run the cell again."), 2000);
      let cleanUp;
      view.call("hello").then(({ buffers, ...state }) => {
        if (ending.signal.aborted) return;
        Object.assign(view, { state, buffers });
        view.note.remove();
        view.root.setAttribute("aria-label", state.title);
        view.titled(state);
        cleanUp = draw(view);
        view.root.dataset.ready = "";
      }).catch(view.fail).finally(() => clearTimeout(late));
      return () => {
        clearTimeout(late);
        ending.abort();
        cleanUp?.();
      };
    },
  };
}

// Which keys JupyterLab does not get: in what takes text or handles keys itself all of them, and
// elsewhere those without Ctrl, Alt or Meta. It has commands on single letters, and may look for
// them before the event is here: so it is told by its own attribute.
const TAKES_KEYS = "input, textarea, select, [contenteditable], [role=grid]";
function keepKeys(root, signal) {
  const own = (event) => event.composedPath().includes(root) &&
    (event.target.closest(TAKES_KEYS) || !(event.ctrlKey || event.metaKey || event.altKey));
  const tell = (event) => root.toggleAttribute("data-lm-suppress-shortcuts", Boolean(own(event)));
  window.addEventListener("keydown", tell, { capture: true, signal });
  for (const kind of ["keydown", "keyup", "keypress", "paste", "copy", "cut"])
    root.addEventListener(kind, (event) => own(event) && event.stopPropagation());
}

function makeView(name, model, signal) {
  const root = h("section", { class: `dgkit dgkit-${name}` });
  const { strip, show, clear } = makeStrip(root);
  const outermost = () => !root.parentElement?.closest(".dgkit"); // one strip says it for all
  const living = new AbortController();
  signal.addEventListener("abort", () => living.abort());
  const line = new Line(model, signal, (gone) => {
    living.abort();
    if (outermost()) show(gone);
  });
  const note = h("p", { role: "status", class: "dg-help" }, "Waiting for the kernel…");
  const head = h("div", { class: "dg-head" });
  const body = h("div", { class: "dg-body" });
  root.append(head, strip, note, body);
  keepKeys(root, signal);
  const titled = (state) => {
    const badge = state.label ? badgeOf(state.label, state.provider) : null;
    head.replaceChildren(...[h("h2", { class: "dg-title" }, state.title), badge].filter(Boolean));
  };
  line.on("failed", (message) => show(message.error));
  const attempt = async (name, fields, buffers) => {
    try {
      const reply = await line.call(name, fields, buffers);
      clear();
      return reply;
    } catch (error) {
      show(error);
      return null;
    }
  };
  const on = (kind, hear) => line.on(kind, (...args) => {
    try { hear(...args); } catch (error) { show(error); }
  });
  const call = (...args) => line.call(...args);
  return { root, head, body, note, titled, signal, live: living.signal, call, attempt, on, fail: show, clear };
}
