// The connection of a view to its panel in the kernel.

import { newId } from "./elements.js";
import { sleep } from "./page.js";

// An exception raised by a handler in the kernel.
class KernelError extends Error {
  constructor({ kind, text, hint, field, restart }) {
    super(text);
    Object.assign(this, { kind, hint, field, restart });
  }
}

const KERNEL_GONE = {
  kind: "KernelGone",
  text: "The kernel of this view has ended or was restarted.",
  hint: "Run the cell again.",
  field: "",
  restart: "",
};

// Connection of one view to its panel in the kernel: call() invokes a handler, on() subscribes to
// messages. When the kernel ends, pending calls are rejected and `onGone` is called.
export class Channel {
  #model;
  #pending = new Map();
  #listeners = new Map();
  #newest = new Map();
  #id = newId();
  #last = 0;
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
      const { kind, snapshot = Infinity } = message; // states older than the shown one are ignored
      if (snapshot < this.#newest.get(kind)) return;
      if (Number.isFinite(snapshot)) this.#newest.set(kind, snapshot);
      this.#listeners.get(message.kind)?.forEach((listener) => listener(message, buffers));
      return;
    }
    const pending = this.#pending.get(message.id);
    if (!pending) return; // this is the reply to another view
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

const REPLY_MS = 2000;

// anywidget drops all kernel messages to a model whose script took more than two seconds to load,
// as can happen on a busy page. This connects the models of this class to their comms directly.
async function listenToComms(model) {
  const listen = (one) => {
    if (!one.comm || one.get("_anywidget_id") !== model.get("_anywidget_id")) return;
    const handlers = [];
    for (let at = one; at; at = Object.getPrototypeOf(at))
      if (Object.hasOwn(at, "_handle_comm_msg")) handlers.push(at._handle_comm_msg);
    if (handlers.length > 1) one.comm.on_msg(handlers[1].bind(one)); // the first is anywidget's own
  };
  for (const one of Object.values(model.widget_manager?._models ?? {})) one.then(listen, () => {});
  await sleep(0); // all existing models have been handled
}

// Resolves to the reply to `hello`. If none comes, calls `slow` and sends the request once more.
export function greeting(view, slow) {
  return new Promise((resolve, reject) => {
    const ask = () =>
      view
        .call("hello")
        .then(resolve, reject)
        .finally(() => clearTimeout(timer));
    const timer = setTimeout(async () => {
      slow();
      await listenToComms(view.model);
      if (!view.signal.aborted) ask();
    }, REPLY_MS);
    view.signal.addEventListener("abort", () => clearTimeout(timer));
    ask();
  });
}
