// Start of the module of each panel: elements, calls to the kernel, the frame around a panel.
// The panel's own code follows in the same module and ends in `export default panel({name, draw})`.

// Creates an element. Attributes starting with "on" are event handlers, with "." properties.
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
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const dgId = () => `dgkit-${++dgSerial}-${Math.random().toString(36).slice(2, 8)}`;

// A control with its visible label, which is also its accessible name.
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

// Sets the options of a select element and keeps the selection if it is still offered.
// Unchanged options are left alone, so that an open list stays open.
function setOptions(select, options, value = select.value) {
  const items = [...choice(options).children];
  const same = items.length === select.length && items.every((item, at) => item.isEqualNode(select[at]));
  if (!same) select.replaceChildren(...items);
  if (select.value !== String(value)) select.value = value;
  if (select.selectedIndex < 0 && select.options.length) select.selectedIndex = 0;
}

const button = (text, onclick, attributes = {}) =>
  h("button", { type: "button", class: "dg-button", onclick, ...attributes }, text);

const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

const micros = (ns) =>
  (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

// "4096", "0x1000", "4K", "1.5 MiB" as a number of bytes, or NaN. Accepts what units.parse_size does.
function parseSize(text) {
  const trimmed = text.trim();
  if (/^0x[0-9a-f]+$/i.test(trimmed)) return boundedBytes(BigInt(trimmed));
  const match = /^(\d+)(?:\.(\d+))?[ \t\n\r\f\v]*(?:([kmgt])(?:i?b)?|b)?$/i.exec(trimmed);
  if (!match) return NaN;
  const [, integer, fraction = "", unit = " "] = match;
  const scaled = BigInt(integer + fraction) << BigInt(10 * " kmgt".indexOf(unit.toLowerCase()));
  const divisor = 10n ** BigInt(fraction.length);
  return scaled % divisor ? NaN : boundedBytes(scaled / divisor);
}

const boundedBytes = (bytes) => (bytes < 1n << 63n ? Number(bytes) : NaN);

// A size in the largest binary unit of which there is at least one, as units.size_text writes it.
function shortSize(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = size;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${Number.isInteger(value) ? value : value.toFixed(2)} ${units[unit]}`;
}

// Copies text to the clipboard, also where the page has no Clipboard API (plain http).
async function toClipboard(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch { /* missing or not permitted */ }
  const area = h("textarea", { ".value": text, style: "position:fixed;opacity:0", "aria-hidden": "true" });
  document.body.append(area);
  const before = document.activeElement;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  if (!done) throw new Error("the browser denied access to the clipboard");
}

// A button that copies the lines of Python that do what the panel did; `fields()` are those of the
// kernel's handler, `say(text)` reports it.
const pythonButton = (view, say, fields = () => ({}), { text = "Copy as Python", ...attributes } = {}) =>
  button(text, async () => {
    const reply = await view.attempt("as_python", fields());
    if (!reply) return;
    try {
      await toClipboard(reply.text);
      say(`Copied ${plural(reply.text.trimEnd().split("\n").length, "line")} of Python.`);
    } catch (error) {
      view.fail(error);
    }
  }, attributes);

const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;

function download(name, type, data) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const isDark = () => {
  const light = document.body.dataset.jpThemeLight;
  return light ? light === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// Calls `change(dark)` after each change of the page's theme, until the signal is aborted.
function onTheme(change, signal) {
  const watch = new MutationObserver(() => change(isDark()));
  watch.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  signal.addEventListener("abort", () => watch.disconnect());
}

// Calls `change(visible)` when the element enters or leaves the viewport, until the signal is aborted.
function onVisible(element, change, signal) {
  const watch = new IntersectionObserver((entries) => change(entries.at(-1).isIntersecting));
  watch.observe(element);
  signal.addEventListener("abort", () => watch.disconnect());
}

// An exception raised by a handler in the kernel.
class KernelError extends Error {
  constructor({ kind, text, hint, field }) {
    super(text);
    Object.assign(this, { kind, hint, field });
  }
}

const KERNEL_GONE = {
  kind: "KernelGone", text: "The kernel of this view has ended or was restarted.",
  hint: "Run the cell again.",
};

// Connection of one view to its panel in the kernel: call() invokes a handler, on() subscribes to
// messages. When the kernel ends, pending calls are rejected and `onGone` is called.
class Channel {
  #model; #pending = new Map(); #listeners = new Map(); #newest = new Map(); #id = dgId(); #last = 0;
  constructor(model, signal, onGone) {
    this.#model = model;
    const receive = (message, buffers) => this.#receive(message, buffers);
    const end = () => {
      for (const { reject } of this.#pending.values()) reject(new KernelError(KERNEL_GONE));
      this.#pending.clear();
      onGone(KERNEL_GONE);
    };
    const handlers = { "msg:custom": receive, comm_live_update: end };
    for (const [event, handler] of Object.entries(handlers)) model.on(event, handler);
    signal.addEventListener("abort", () => {
      for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
    });
  }
  #receive(message, buffers) {
    if (message.kind !== "reply") {
      const { kind, snapshot = Infinity } = message; // older states than the shown one are ignored
      if (snapshot < this.#newest.get(kind)) return;
      if (Number.isFinite(snapshot)) this.#newest.set(kind, snapshot);
      this.#listeners.get(message.kind)?.forEach((listener) => listener(message, buffers));
      return;
    }
    const pending = this.#pending.get(message.id);
    if (!pending) return; // the reply to another view
    this.#pending.delete(message.id);
    if (message.error) pending.reject(new KernelError(message.error));
    else pending.resolve({ ...message.value, buffers });
  }
  call(name, fields = {}, buffers = []) {
    const id = `${this.#id}-${++this.#last}`;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      try {
        this.#model.send({ id, call: name, fields }, undefined, buffers);
      } catch {
        this.#pending.delete(id);
        reject(new KernelError(KERNEL_GONE));
      }
    });
  }
  on(kind, listener) {
    const all = this.#listeners.get(kind) ?? [];
    this.#listeners.set(kind, [...all, listener]);
  }
}

// Runs `change`. If it hides, disables or removes the focused element, the focus moves to the first
// of `others` that can take it.
function keepFocus(change, ...others) {
  const focused = document.activeElement;
  const usable = (element) => element?.isConnected && !element.matches(":disabled") && element.getClientRects().length;
  const wasUsable = usable(focused);
  change();
  const next = wasUsable && !usable(focused) && others.find(usable);
  if (!next) return;
  if (next.tabIndex < 0 && !next.hasAttribute("tabindex")) { // only for now: clicks must not focus it
    next.tabIndex = -1;
    next.addEventListener("blur", () => next.removeAttribute("tabindex"), { once: true });
  }
  next.focus();
}

// The strip that shows an error and its remedy until it is dismissed. The focus then returns to
// where it was in the panel, or to the panel itself.
function makeStrip(root) {
  const text = h("span");
  let last = null;
  root.addEventListener("focusin", ({ target }) => { if (!strip.contains(target)) last = target; });
  const hide = () => keepFocus(() => (strip.hidden = true), last, root);
  const close = button("Dismiss", hide, { class: "dg-button dg-quiet" });
  const live = h("div", { role: "alert" }, text);
  const strip = h("div", { class: "dg-strip", hidden: true }, live, close);
  const show = (error) => {
    const message = error.message ?? error.text;
    text.replaceChildren(h("strong", {}, /[.!?:]$/.test(message) ? message : `${message}.`), " ", error.hint ?? "");
    strip.hidden = false;
  };
  return { strip, show, clear: hide };
}

const badgeOf = (label, provider) =>
  h("span", { class: label === "hardware" ? "dg-badge" : "dg-badge dg-soft", title: provider }, label);

const REPLY_MS = 2000;

// anywidget drops all messages of the kernel to a model whose script took more than two seconds to
// load, as in a page with much to do. Models of this class then get their messages from the comm itself.
async function listenToComms(model) {
  const listen = (one) => {
    if (!one.comm || one.get("_anywidget_id") !== model.get("_anywidget_id")) return;
    const handlers = [];
    for (let at = one; at; at = Object.getPrototypeOf(at))
      if (Object.hasOwn(at, "_handle_comm_msg")) handlers.push(at._handle_comm_msg);
    if (handlers.length > 1) one.comm.on_msg(handlers[1].bind(one)); // the first one is anywidget's
  };
  for (const one of Object.values(model.widget_manager?._models ?? {})) one.then(listen, () => {});
  await sleep(0); // all models that are there have been handled
}

// The reply to `hello`. If it does not come, `slow` is called, and the view asks once more.
function greeting(view, slow) {
  return new Promise((resolve, reject) => {
    const ask = () => view.call("hello").then(resolve, reject).finally(() => clearTimeout(timer));
    const timer = setTimeout(async () => {
      slow();
      await listenToComms(view.model);
      if (!view.signal.aborted) ask();
    }, REPLY_MS);
    view.signal.addEventListener("abort", () => clearTimeout(timer));
    ask();
  });
}

// The default export of a panel. draw(view) fills view.body and may return a clean-up function.
// view: root, body, head, call, on, fail, attempt, state (the reply to `hello`), buffers; `signal` is
// aborted when the view ends, `live` also when the kernel has ended.
function panel({ name, draw }) {
  return {
    async render({ model, el }) {
      const ending = new AbortController();
      const view = { model, ...makeView(name, model, ending.signal) };
      el.replaceChildren(view.root);
      const slow = () => (view.note.textContent =
        "The kernel has not replied yet: a cell may be running. If this message persists, run the cell again.");
      let cleanUp;
      greeting(view, slow).then(({ buffers, ...state }) => {
        if (ending.signal.aborted) return;
        Object.assign(view, { state, buffers });
        view.note.remove();
        view.root.setAttribute("aria-label", state.title);
        view.titled(state);
        cleanUp = draw(view);
        view.root.dataset.ready = "";
      }).catch(view.fail);
      return () => {
        ending.abort();
        cleanUp?.();
      };
    },
  };
}

// Keeps keys from JupyterLab: all of them in elements that take text or handle keys themselves,
// elsewhere those without Ctrl, Alt or Meta. JupyterLab binds commands to single letters and may
// handle the event first, so its own attribute suppresses them.
const TAKES_KEYS = "input, textarea, select, [contenteditable], [role=grid]";
function keepKeys(root, signal) {
  const own = (event) => event.composedPath().includes(root) &&
    (event.target.closest(TAKES_KEYS) || !(event.ctrlKey || event.metaKey || event.altKey));
  const suppress = (event) => root.toggleAttribute("data-lm-suppress-shortcuts", Boolean(own(event)));
  window.addEventListener("keydown", suppress, { capture: true, signal });
  for (const kind of ["keydown", "keyup", "keypress", "paste", "copy", "cut"])
    root.addEventListener(kind, (event) => own(event) && event.stopPropagation());
}

function makeView(name, model, signal) {
  const root = h("section", { class: `dgkit dgkit-${name}` });
  const { strip, show, clear } = makeStrip(root);
  const outermost = () => !root.parentElement?.closest(".dgkit"); // shows the error for nested panels, too
  const living = new AbortController();
  signal.addEventListener("abort", () => living.abort());
  const channel = new Channel(model, signal, (error) => {
    living.abort();
    if (outermost()) show(error);
  });
  const note = h("p", { role: "status", class: "dg-help" }, "Waiting for the kernel…");
  const head = h("div", { class: "dg-head" });
  const body = h("div", { class: "dg-body" });
  root.append(head, strip, note, body);
  keepKeys(root, signal);
  const titled = (state) => {
    const badge = state.label ? badgeOf(state.label, state.provider) : null;
    if (badge && !state.own_label) badge.classList.add("dg-same"); // as its session; see dashboard.css
    head.replaceChildren(...[h("h2", { class: "dg-title" }, state.title), badge].filter(Boolean));
  };
  channel.on("failed", (message) => show(message.error));
  const attempt = async (name, fields, buffers) => {
    clear(); // before: what the call starts may fail, and say so, before the reply
    try {
      return await channel.call(name, fields, buffers);
    } catch (error) {
      show(error);
      return null;
    }
  };
  const on = (kind, listener) => channel.on(kind, (...args) => {
    try { listener(...args); } catch (error) { show(error); }
  });
  const call = (...args) => channel.call(...args);
  return { root, head, body, note, titled, signal, live: living.signal, call, attempt, on, fail: show, clear };
}
