// The dashboard: a status line, and the views of the four panels in a grid.

const COLUMNS = [["allocate", "transfer"], ["hex", "plot"]]; // in the order of the Tab key
const SEEN_MS = 20000; // how often a view that is in sight says so

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
  const again = button("Start the DPU again", () => view.attempt("restart"), {
    class: "dg-button dg-main", hidden: true,
  });
  const buttons = h("div", { class: "dg-row", role: "group", "aria-label": "Session" }, monitor, again);
  const element = h("div", { class: "dgd-status" }, buttons, sides, counters, why);
  let running = false, told = "";
  const toggle = () => { // a `status` tells how it went, or `failed`, perhaps before the reply
    view.clear();
    view.call(running ? "stop" : "start").catch(view.fail);
  };
  const show = (status) => keepFocus(() => update(status), again, monitor, view.root);
  const update = (status) => {
    running = status.running;
    monitor.textContent = running ? "Stop monitor" : "Start monitor";
    monitor.disabled = Boolean(status.lost);
    counters.replaceChildren(...pairs(status.counters));
    element.classList.toggle("dgd-lost", Boolean(status.lost));
    again.hidden = !(status.lost && view.state.owned);
    const words = status.lost ? status.lost.text : "";
    if (words && words !== told) view.fail(advice(status.lost, view.state.owned));
    if (told && !words) view.clear();
    told = words;
  };
  const draw = (state) => {
    sides.replaceChildren(...pairs(state.sides));
    why.replaceChildren(reasons(state.why));
    show(state);
  };
  return { element, draw, show };
}

// What to do about a lost DPU depends on who started it.
function advice(lost, owned) {
  const way = owned
    ? "“Start the DPU again” starts another; the regions of this one are gone."
    : "Run the cell that connects to it again.";
  return { text: lost.text, hint: way };
}

// The views of other panels, through the manager of widgets that this page has.
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
      if (slot.model === models[name]) continue; // the same panel stays as it is
      slot.model = models[name];
      slot.made?.remove();
      this.#host(slot, models[name]);
    }
  }
  async #host(slot, id) {
    try {
      const made = await this.#manager.create_view(await this.#manager.get_model(id));
      if (this.#ended || slot.model !== id) return made.remove();
      slot.made = made;
      slot.replaceChildren(made.el);
    } catch (error) {
      this.#fail(error);
    }
  }
  end() {
    this.#ended = true;
    for (const slot of Object.values(this.#slots)) slot.made?.remove();
  }
}

// Tells the kernel while the dashboard is in sight: it counts for nobody else.
function tellSight(view) {
  const id = dgId();
  let timer = 0;
  const say = (now) => view.call("seen", { view: id, now }).catch(view.fail);
  const change = (visible) => {
    clearInterval(timer);
    timer = visible ? setInterval(() => say(true), SEEN_MS) : 0;
    say(visible);
  };
  onVisible(view.root, change, view.live);
  view.live.addEventListener("abort", () => {
    clearInterval(timer);
    view.call("seen", { view: id, now: false }).catch(() => {}); // the kernel may have ended
  });
}

function drawDashboard(view) {
  const status = makeStatus(view), slots = new Slots(view);
  view.body.append(status.element, slots.element);
  const draw = (state) => {
    view.state = state;
    view.titled(state);
    status.draw(state);
    slots.fill(state.panels);
  };
  view.on("status", status.show);
  view.on("renewed", ({ state }) => draw(state));
  draw(view.state);
  tellSight(view);
  return () => slots.end();
}

export default panel({ name: "dashboard", draw: drawDashboard });
