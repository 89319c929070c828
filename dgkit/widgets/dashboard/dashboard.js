// The dashboard: a status line, and the views of the four panels in a grid.

const COLUMNS = [["allocate", "transfer"], ["hex"], ["plot"]]; // in tab order; the last is as wide as all
const REPORT_MS = 20000; // between reports of a visible view

function pairs(list) {
  return list.flatMap(([name, text]) => [h("div", {}, h("dt", {}, name), h("dd", {}, text))]);
}

function reasons(why) {
  const items = why.map(([provider, text]) => h("li", {}, h("strong", {}, provider), `: ${text}`));
  return h("details", { class: "dgd-why", hidden: !why.length },
    h("summary", {}, "Why no other provider?"), h("ul", {}, ...items));
}

function makeStatus(view) {
  const sides = h("dl", { class: "dgd-facts", "aria-label": "Sides" });
  const counters = h("dl", { class: "dgd-facts", "aria-label": "Counters" });
  const why = h("div");
  const monitor = button("Start monitor", () => toggle());
  const restart = button("Start the DPU again", () => view.attempt("restart"), {
    class: "dg-button dg-main", hidden: true,
  });
  const buttons = h("div", { class: "dg-row", role: "group", "aria-label": "Session" }, monitor, restart);
  const element = h("div", { class: "dgd-status" }, buttons, sides, counters, why);
  let running = false, shownError = "";
  const toggle = () => view.attempt(running ? "stop" : "start");
  const show = (status) => keepFocus(() => update(status), restart, monitor, view.root);
  const update = (status) => {
    running = status.running;
    monitor.textContent = running ? "Stop monitor" : "Start monitor";
    monitor.disabled = Boolean(status.lost);
    counters.replaceChildren(...pairs(status.counters));
    element.classList.toggle("dgd-lost", Boolean(status.lost));
    restart.hidden = !(status.lost && view.state.owned);
    const error = status.lost ? status.lost.text : "";
    if (error && error !== shownError) view.fail(lostError(status.lost, view.state.owned));
    if (shownError && !error) view.clear();
    shownError = error;
  };
  const draw = (state) => {
    sides.replaceChildren(...pairs(state.sides));
    why.replaceChildren(reasons(state.why));
    show(state);
  };
  return { element, draw, show };
}

// The steps of "Show me", and its button while the session has no region.
function makeSample(view) {
  const start = button("Show me", () => view.attempt("show_me"), { class: "dg-button dg-main" });
  const offer = h("div", { class: "dgd-sample" }, start,
    h("span", {}, "No memory yet. This allocates some, writes to it by DMA, looks at the bytes and measures the latency."));
  const list = h("ol", { "aria-label": "Steps" });
  const hide = button("Hide the steps", () => keepFocus(() => view.attempt("hide_sample"), start, view.root));
  const steps = h("div", { class: "dgd-sample dgd-steps" }, list, hide);
  const element = h("div", { role: "status" }, offer, steps);
  const line = ({ title, python, state }) => h("li", { class: `dgd-${state}`, "aria-current": state === "running" ? "step" : false },
    h("span", {}, title), " ", h("span", { class: "dg-help" }, state === "waiting" ? "" : state), h("code", { class: "dg-mono" }, python));
  const draw = (sample, empty) => {
    offer.hidden = !empty || sample.length > 0;
    steps.hidden = !sample.length;
    list.replaceChildren(...sample.map(line));
  };
  return { element, draw };
}

// The remedy for a lost DPU depends on whether the dashboard started it.
function lostError(lost, owned) {
  const hint = owned
    ? "“Start the DPU again” starts a new one. Regions of the host keep their bytes and names; memory of the lost DPU is gone."
    : "Run the cell that connects to it again.";
  return { text: lost.text, hint };
}

// The views of the four panels, created by the page's widget manager.
class Slots {
  #manager; #fail; #slots = {}; #ended = false;
  constructor(view) {
    this.#manager = view.model.widget_manager;
    this.#fail = view.fail;
    const slot = (name) => (this.#slots[name] = h("div", { class: "dgd-slot" }));
    const column = (names) => h("div", { class: "dgd-column" }, ...names.map(slot));
    this.element = h("div", { class: "dgd-grid" }, ...COLUMNS.map(column));
  }
  fill(models) {
    for (const [name, slot] of Object.entries(this.#slots)) {
      if (slot.model === models[name]) continue; // unchanged
      slot.model = models[name];
      slot.view?.remove();
      this.#host(slot, models[name]);
    }
  }
  async #host(slot, id) {
    try {
      const view = await this.#manager.create_view(await this.#manager.get_model(id));
      if (this.#ended || slot.model !== id) return view.remove();
      slot.view = view;
      slot.replaceChildren(view.el);
    } catch (error) {
      this.#fail(error);
    }
  }
  end() {
    this.#ended = true;
    for (const slot of Object.values(this.#slots)) slot.view?.remove();
  }
}

// Reports to the kernel whether this view is visible: counters are queried for visible views only.
function reportVisibility(view) {
  const id = dgId();
  let timer = 0;
  const report = (visible) => view.call("set_visible", { view: id, visible }).catch(view.fail);
  const change = (visible) => {
    clearInterval(timer);
    timer = visible ? setInterval(() => report(true), REPORT_MS) : 0;
    report(visible);
  };
  onVisible(view.root, change, view.live);
  view.live.addEventListener("abort", () => {
    clearInterval(timer);
    view.call("set_visible", { view: id, visible: false }).catch(() => {}); // the kernel may have ended
  });
}

function drawDashboard(view) {
  const status = makeStatus(view), sample = makeSample(view), slots = new Slots(view);
  view.body.append(status.element, sample.element, slots.element);
  const draw = (state) => {
    view.state = state;
    view.titled(state);
    status.draw(state);
    sample.draw(state.sample, state.empty);
    slots.fill(state.panels);
  };
  view.on("status", (message) => {
    status.show(message);
    view.state.empty = message.empty;
    sample.draw(view.state.sample, message.empty);
  });
  view.on("sample", (message) => {
    view.state.sample = message.sample;
    sample.draw(message.sample, view.state.empty);
  });
  view.on("restarted", ({ state }) => draw(state));
  draw(view.state);
  reportVisibility(view);
  return () => slots.end();
}

export default panel({ name: "dashboard", draw: drawDashboard });
