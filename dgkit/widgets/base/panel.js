// The frame of each panel: title, error strip, and the connection to the kernel. The module of a
// panel ends in `export default panel({name, draw})`.

import { Channel, greeting } from "./channel.js";
import { button, h, keepFocus } from "./elements.js";
import { followFontSize, keepKeys, toClipboard } from "./page.js";
import { plural } from "./units.js";

// The strip that shows an error and its remedy until it is dismissed. The focus then returns to
// where it was in the panel, or to the panel itself.
function makeStrip(root, onRestart) {
  const text = h("span");
  let last = null;
  let lost = false; // the error is the loss of the DPU
  root.addEventListener("focusin", ({ target }) => {
    if (!strip.contains(target)) last = target;
  });
  const hide = () => keepFocus(() => (strip.hidden = true), last, root);
  const close = button("Dismiss", hide, { class: "dg-button dg-quiet" });
  const restart = button("Start the DPU again", onRestart, { hidden: true });
  const live = h("div", { role: "alert" }, text);
  const strip = h("div", { class: "dg-strip", hidden: true }, live, restart, close);
  const show = (error) => {
    const board = root.closest(".dgkit-dashboard");
    if (error.restart && board && board !== root) return; // it says so, once, and has the button
    const message = error.message ?? error.text;
    text.replaceChildren(h("strong", {}, /[.!?:]$/.test(message) ? message : `${message}.`), " ", error.hint ?? "");
    restart.hidden = !error.restart || Boolean(board);
    lost = Boolean(error.restart);
    strip.hidden = false;
  };
  const clearLoss = () => lost && hide(); // the DPU was started again
  return { strip, show, clear: hide, clearLoss };
}

const badgeOf = (label, provider) =>
  h("span", { class: label === "hardware" ? "dg-badge" : "dg-badge dg-soft", title: provider }, label);

/**
 * The default export of a panel. draw(view) fills view.body and may return a clean-up function;
 * frame(view) fills it before that, while the kernel starts what the panel shows.
 * view: root, body, head, call, on, fail, attempt, state (the reply to `hello`), buffers; `signal` is
 * aborted when the view ends, `live` also when the kernel has ended.
 * @returns {{ render: import("@anywidget/types").Render<any> }}
 */
export function panel({ name, title = "", frame = (_view) => {}, draw }) {
  return {
    async render({ model, el }) {
      const ending = new AbortController();
      const view = { model, ...makeView(name, model, ending.signal) };
      el.replaceChildren(view.root);
      if (title) view.titled({ title });
      frame(view);
      const slow = () =>
        (view.note.textContent =
          "The kernel has not replied yet: a cell may be running. If this message persists, run the cell again.");
      let cleanUp;
      greeting(view, slow)
        .then(({ buffers, ...state }) => {
          if (ending.signal.aborted) return;
          Object.assign(view, { state, buffers });
          view.note.remove();
          view.root.setAttribute("aria-label", state.title);
          view.titled(state);
          if (!el.parentElement?.closest(".dgkit")) followFontSize(el, view.root, ending.signal);
          cleanUp = draw(view);
          view.root.dataset.ready = "";
        })
        .catch(view.fail);
      return () => {
        ending.abort();
        cleanUp?.();
      };
    },
  };
}

function makeView(name, model, signal) {
  const root = h("section", { class: `dgkit dgkit-${name}` });
  const { strip, show, clear, clearLoss } = makeStrip(root, () => attempt("restart"));
  // The end of the kernel, which also ends the calls of nested panels, is shown by the outermost panel alone.
  const fail = (error) => {
    if (error.kind !== "KernelGone" || !root.parentElement?.closest(".dgkit")) show(error);
  };
  const living = new AbortController();
  signal.addEventListener("abort", () => living.abort());
  const channel = new Channel(model, signal, (error) => {
    living.abort();
    fail(error);
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
  channel.on("restarted", clearLoss);
  channel.on("session", ({ change }) => change === "regions" && clearLoss());
  channel.on("failed", (message) => show(message.error));
  const attempt = async (name, fields, buffers) => {
    clear(); // first: the work that the call starts may report an error before the reply
    try {
      return await channel.call(name, fields, buffers);
    } catch (error) {
      fail(error);
      return null;
    }
  };
  const on = (kind, listener) =>
    channel.on(kind, (...args) => {
      try {
        listener(...args);
      } catch (error) {
        show(error);
      }
    });
  const call = (...args) => channel.call(...args);
  return { root, head, body, note, titled, signal, live: living.signal, call, attempt, on, fail, clear };
}

/**
 * A button that copies Python code that does what the panel did. `fields()` returns the fields for
 * the kernel's handler, `say(text)` reports the copy.
 * @param {Record<string, any>} [attributes] attributes of the button, and its `text`
 */
export const pythonButton = (view, say, fields = () => ({}), attributes = {}) => {
  const { text = "Copy as Python", ...others } = attributes;
  return button(
    text,
    async () => {
      const reply = await view.attempt("as_python", fields());
      if (!reply) return;
      try {
        await toClipboard(reply.text);
        say(`Copied ${plural(reply.text.trimEnd().split("\n").length, "line")} of Python.`);
      } catch (error) {
        view.fail(error);
      }
    },
    others,
  );
};
