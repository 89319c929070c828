// The dashboard: a status line, and the views of the four panels, in rows or in tabs.

import { allocate } from "../allocate/allocate.js";
import { button, h, keepFocus, newId } from "../base/elements.js";
import { reportVisibility } from "../base/page.js";
import { panel } from "../base/panel.js";
import { hexview } from "../hexview/hexview.js";
import { latency } from "../latency/latency.js";
import { transfer } from "../transfer/transfer.js";

const PANELS = { hex: hexview, plot: latency, allocate, transfer };
const TITLES = { hex: "Memory", plot: "Latency", allocate: "Allocate memory", transfer: "Transfer" }; // in tab order
const FOLDED = ["allocate", "transfer"]; // in rows, one line each until they are wanted
const ARRANGEMENTS = [
  ["rows", "Rows"],
  ["tabs", "Tabs"],
];
const REPORT_MS = 20000; // between reports of a visible view
const RECENT_S = 10; // a cell that asked for the dashboard so recently shows it

function pairs(list) {
  return list.flatMap(([name, text]) => [h("div", {}, h("dt", {}, name), h("dd", {}, text))]);
}

function reasons(why) {
  const items = why.map(([provider, text]) => h("li", {}, h("strong", {}, provider), `: ${text}`));
  return h(
    "details",
    { class: "dgd-why", hidden: !why.length },
    h("summary", {}, "Why no other provider?"),
    h("ul", {}, ...items),
  );
}

// The choice of rows or tabs. It is part of the kernel's state, so that all views show the same.
function makeArrangement(view, slots) {
  const buttons = ARRANGEMENTS.map(([name, text]) =>
    button(text, () => choose({ arrangement: name }), { "data-name": name }),
  );
  const element = h("div", { class: "dg-row", role: "group", "aria-label": "Arrangement of the panels" }, ...buttons);
  let calls = 0; // while a call of this view is in progress, messages may be about an earlier choice:
  let latest = null; // the last of them is shown afterwards
  const show = (arranged) => {
    view.state.arranged = { ...view.state.arranged, ...arranged };
    for (const one of buttons)
      one.setAttribute("aria-pressed", String(one.dataset.name === view.state.arranged.arrangement));
    slots.arrange(view.state.arranged);
  };
  const choose = async (change) => {
    const { arrangement, tab } = { ...view.state.arranged, ...change };
    show({ arrangement, tab });
    calls++;
    await view.attempt("arrange", { arrangement, tab });
    calls--;
    if (calls || !latest) return;
    show(latest);
    latest = null;
  };
  slots.onTab = (tab) => choose({ tab });
  view.on("arranged", ({ arranged }) => {
    if (calls) latest = arranged;
    else show(arranged);
  });
  return { element, show };
}

// The median as one large number, and what it is of.
function makeHeadline() {
  const value = h("strong", { class: "dgd-value" });
  const text = h("span");
  const element = h("p", { class: "dgd-headline" }, value, text);
  const show = (latency) => {
    element.hidden = !latency;
    if (!latency) return;
    value.textContent = latency.value;
    text.textContent = latency.text;
  };
  return { element, show };
}

// Facts about both sides and the load of this machine, behind a button.
function makeMachine(...parts) {
  const content = h("div", { class: "dgd-machine", hidden: true }, ...parts);
  const toggle = button(
    "i",
    () => {
      content.hidden = !content.hidden;
      toggle.setAttribute("aria-expanded", String(!content.hidden));
    },
    {
      class: "dg-button dgd-info",
      "aria-label": "Machine",
      title: "The two sides, their counters, and the load of this machine",
      "aria-expanded": "false",
    },
  );
  return { toggle, content };
}

function makeStatus(view, arrangement, gauges, sample) {
  const sides = h("dl", { class: "dgd-facts", "aria-label": "Sides" });
  const counters = h("dl", { class: "dgd-facts", "aria-label": "Counters" });
  const why = h("div");
  const monitor = button("Start monitor", () => toggle());
  const restart = button("Start the DPU again", () => view.attempt("restart"), {
    class: "dg-button dg-main",
    hidden: true,
  });
  const buttons = h("div", { class: "dg-row", role: "group", "aria-label": "Session" }, restart, sample, monitor);
  const headline = makeHeadline();
  const machine = makeMachine(sides, counters, gauges, why);
  const line = h("div", { class: "dgd-line" }, buttons, headline.element, arrangement, machine.toggle);
  const element = h("div", { class: "dgd-status" }, line, machine.content);
  let running = false;
  let shownError = "";
  const toggle = () => view.attempt(running ? "stop" : "start");
  const show = (status) => keepFocus(() => update(status), restart, monitor, view.root);
  const update = (status) => {
    running = status.running;
    monitor.textContent = running ? "Stop monitor" : "Start monitor";
    monitor.disabled = Boolean(status.lost);
    counters.replaceChildren(...pairs(status.counters));
    headline.show(status.latency);
    element.classList.toggle("dgd-lost", Boolean(status.lost));
    restart.hidden = !status.lost?.restart;
    const error = status.lost ? status.lost.text : "";
    if (error && error !== shownError) view.fail(status.lost);
    if (shownError && !error) view.clear();
    shownError = error;
  };
  const draw = (state) => {
    sides.replaceChildren(...pairs(state.sides));
    why.replaceChildren(reasons(state.why));
    show(state);
  };
  return { element, draw, show, headline: headline.show };
}

// Shows the top of a dashboard whose cell has just run: JupyterLab scrolls to the next cell.
function showTop(view) {
  const cell = view.root.closest(".jp-Notebook .jp-Cell");
  const active = cell?.parentElement.querySelector(":scope > .jp-mod-active");
  if (view.state.requested_s > RECENT_S || !active || ![cell, cell.nextElementSibling].includes(active)) return;
  const scroll = () => view.root.scrollIntoView({ block: "start" });
  const watch = new ResizeObserver(scroll); // the panels are drawn one after the other
  watch.observe(view.root);
  const end = () => watch.disconnect();
  setTimeout(end, 1000);
  for (const kind of ["wheel", "pointerdown", "keydown"])
    view.root.ownerDocument.addEventListener(kind, end, { once: true, passive: true, signal: view.signal });
}

// The load of the kernel's machine. A gauge without a fraction has no bar.
function makeGauges() {
  const element = h("dl", { class: "dgd-facts dgd-gauges", "aria-label": "Load of this machine" });
  const bar = ({ name, text, fraction }) =>
    fraction === null
      ? null
      : h(
          "span",
          {
            class: "dgd-gauge",
            role: "meter",
            "aria-label": name,
            "aria-valuemin": 0,
            "aria-valuemax": 100,
            "aria-valuenow": Math.round(100 * fraction),
            "aria-valuetext": text,
          },
          h("span", { style: `width:${100 * fraction}%` }),
        );
  const line = (gauge) =>
    h("div", { title: gauge.title }, h("dt", {}, gauge.name), h("dd", {}, bar(gauge), gauge.text));
  const show = (gauges) => element.replaceChildren(...gauges.map(line));
  return { element, show };
}

// The button "Show me", its steps, and what they found.
function makeSample(view) {
  const start = button("Show me", () => view.attempt("show_me"), { class: "dg-button dg-main" });
  const list = h("ol", { "aria-label": "Steps" });
  const said = h("strong", { class: "dgd-said" });
  const hide = button("Hide the steps", () => keepFocus(() => view.attempt("hide_sample"), start, view.root));
  const code = h("details", {}, h("summary", {}, "The steps, in Python"), list);
  const steps = h("div", { class: "dgd-sample" }, said, code, hide);
  const element = h("div", { role: "status" }, steps);
  const line = ({ title, python, state }) =>
    h(
      "li",
      { class: `dgd-${state}`, "aria-current": state === "running" ? "step" : false },
      h("span", {}, title),
      " ",
      h("span", { class: "dg-help" }, state === "waiting" ? "" : state),
      h("code", { class: "dg-mono" }, python),
    );
  const draw = ({ steps: sample, said: text }) => {
    steps.hidden = !sample.length && !text;
    code.hidden = hide.hidden = !sample.length;
    const at = sample.findIndex(({ state }) => state === "running");
    start.disabled = at >= 0;
    said.textContent = at < 0 ? text : `${at + 1} of ${sample.length}: ${sample[at].title}`;
    list.replaceChildren(...sample.map(line));
  };
  return { start, element, draw };
}

// The views of the four panels. In tabs, one of them is shown. This module draws them itself, because
// of a widget manager's methods every host of anywidget has `get_model` only.
class Slots {
  #manager;
  #fail;
  #slots = {};
  #tabs = {};
  #ended = false;
  constructor(view) {
    this.#manager = view.model.widget_manager;
    this.#fail = view.fail;
    this.onTab = (_name) => {};
    const id = newId();
    const slot = (name) => (this.#slots[name] = h("div", { class: "dgd-slot", id: `${id}-${name}` }));
    const fold = (name) => h("details", { class: "dgd-fold" }, h("summary", {}, TITLES[name]), slot(name));
    const column = (name) => h("div", { class: "dgd-column" }, FOLDED.includes(name) ? fold(name) : slot(name));
    this.grid = h("div", { class: "dgd-grid" }, ...Object.keys(TITLES).map(column));
    const tab = ([name, title]) =>
      (this.#tabs[name] = button(title, () => this.onTab(name), {
        role: "tab",
        id: `${id}-${name}-tab`,
        "aria-controls": `${id}-${name}`,
      }));
    this.list = h(
      "div",
      {
        class: "dgd-tabs",
        role: "tablist",
        "aria-label": "Panels",
        hidden: true,
        onkeydown: (event) => this.#moveTab(event),
      },
      ...Object.entries(TITLES).map(tab),
    );
    this.element = h("div", {}, this.list, this.grid);
  }
  arrange({ arrangement, tab }) {
    const tabs = arrangement === "tabs";
    this.list.hidden = !tabs;
    if (this.grid.dataset.arrangement !== arrangement)
      for (const fold of this.grid.querySelectorAll(".dgd-fold")) fold.open = tabs;
    this.grid.dataset.arrangement = arrangement;
    for (const [name, slot] of Object.entries(this.#slots)) {
      const label = this.#tabs[name];
      const chosen = name === tab;
      label.setAttribute("aria-selected", String(chosen));
      label.tabIndex = chosen ? 0 : -1;
      slot.hidden = tabs && !chosen;
      for (const [key, value] of [
        ["role", "tabpanel"],
        ["aria-labelledby", label.id],
      ])
        if (tabs) slot.setAttribute(key, value);
        else slot.removeAttribute(key);
    }
  }
  // Arrow keys, Home and End select a tab, as in the tabs of the ARIA Authoring Practices Guide.
  #moveTab(event) {
    const names = Object.keys(this.#tabs);
    const at = names.findIndex((name) => this.#tabs[name] === event.target);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: -1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const name = names.at(to % names.length);
    this.onTab(name);
    this.#tabs[name].focus();
  }
  fill(models) {
    for (const [name, slot] of Object.entries(this.#slots)) {
      if (slot.model === models[name]) continue; // unchanged
      slot.model = models[name];
      slot.end?.();
      slot.end = null;
      this.#host(slot, name, models[name]);
    }
  }
  async #host(slot, name, id) {
    try {
      const model = await this.#manager.get_model(id);
      if (this.#ended || slot.model !== id) return;
      const el = h("div");
      slot.replaceChildren(el);
      const end = await PANELS[name].render({ model, el });
      const closed = () => slot.replaceChildren(`${TITLES[name]}: this panel was closed.`);
      model.on("change:_esm", closed); // a closed panel replaces its module
      slot.end = () => {
        model.off("change:_esm", closed);
        end();
      };
      if (this.#ended || slot.model !== id) slot.end();
    } catch (error) {
      this.#fail(error);
    }
  }
  end() {
    this.#ended = true;
    for (const slot of Object.values(this.#slots)) slot.end?.();
  }
}

function drawDashboard(view) {
  const slots = new Slots(view);
  const arrangement = makeArrangement(view, slots);
  const gauges = makeGauges();
  const sample = makeSample(view);
  const status = makeStatus(view, arrangement.element, gauges.element, sample.start);
  view.body.replaceChildren(status.element, sample.element, slots.element);
  const draw = (state) => {
    view.state = state;
    view.titled(state);
    status.draw(state);
    sample.draw(state.sample);
    arrangement.show(state.arranged);
    gauges.show(state.gauges);
    slots.fill(state.panels);
  };
  view.on("status", status.show);
  view.on("sample", (message) => {
    sample.draw(message.sample);
    status.headline(message.latency);
  });
  view.on("gauges", (message) => gauges.show(message.gauges));
  view.on("restarted", ({ state }) => draw(state));
  draw(view.state);
  showTop(view);
  reportVisibility(view, newId(), REPORT_MS); // counters are queried for visible views only
  return () => slots.end();
}

// The first number, measured before the kernel has imported what panels need.
function drawFrame(view) {
  const headline = makeHeadline();
  headline.show(null);
  view.body.append(headline.element);
  view.on("first", ({ latency }) => headline.show(latency));
}

export default panel({ name: "dashboard", title: "dgkit dashboard", frame: drawFrame, draw: drawDashboard });
