// The panel of a LatencyPlot: state, frames and commands.

import { bytesOf, h, newId } from "../base/elements.js";
import { download, reportVisibility } from "../base/page.js";
import { panel, pythonButton } from "../base/panel.js";
import { renderFigures } from "../figure/bokehjs.js";
import { LatencyData } from "./data.js";
import { LatencyDraw } from "./draw.js";
import {
  filesRow,
  largeNumber,
  liveActions,
  liveCaption,
  liveTable,
  pastRow,
  pictureOf,
  settingsRow,
} from "./parts.js";
import { modeSwitch, sweepActions, sweepCaption, sweepStatus, sweepTable } from "./sweep.js";

// Removes a figure's tools from the tab order: they have no accessible names, and the controls, the
// table and the files of the panel replace them.
function removeFromTabOrder(element) {
  for (const inner of element.querySelectorAll("*")) {
    if (inner.tabIndex >= 0) inner.tabIndex = -1;
    if (inner.shadowRoot) removeFromTabOrder(inner.shadowRoot);
  }
}

const FIGURES = ["time", "load", "traffic", "brush", "spread", "curve", "sizes"]; // as in figures.py

const FILE_TYPES = { html: "text/html", json: "application/json", "sweep-json": "application/json" };

class LatencyView {
  /** @type {any} */
  state = null; // as the kernel sent it
  #view;
  #data = new LatencyData();
  #draw = null;
  #figures = null;
  #paused = false;
  #large = false;
  #compared = false; // with published figures
  #seconds = 30;
  #framesWaiting = null;
  #due = { time: false, distribution: false };
  #pacing = 0;
  #report = () => {};
  #id = newId();
  constructor(view) {
    this.#view = view;
    this.status = h("p", { role: "status", class: "dg-help" });
    this.caption = h("div", { class: "dg-caption" });
    this.large = largeNumber();
    this.figures = FIGURES.map((name) => h("div", { class: `dg-figure dg-${name}`, "aria-hidden": "true" }));
    this.past = pastRow(this.figures[3], (way) => this.#draw?.look(way));
    const say = (text) => (this.status.textContent = text);
    const call = (...args) => this.#call(...args);
    this.modes = modeSwitch(call);
    this.sweep = sweepActions(
      (...args) => this.#callFields(...args),
      pythonButton(view, say, undefined, { title: "The lines that measure this sweep" }),
      (compared) => {
        this.#compared = compared;
        this.#redraw();
      },
    );
    this.sweepTable = sweepTable();
    this.actions = liveActions(
      (...args) => this.#callFields(...args),
      {
        pause: (control) => this.#pause(control),
        enlarge: (control) => this.#enlarge(control),
        range: (seconds) => {
          this.#seconds = seconds;
          this.#redraw();
        },
      },
      pythonButton(view, say, undefined, { title: "The lines that measure this for five seconds" }),
    );
    this.settings = settingsRow(call);
    this.table = liveTable();
    this.files = filesRow(
      (kind) => this.#save(kind),
      (what, kind) => this.#saveFigure(what, kind),
    );
    view.body.append(
      h("div", { class: "dg-row" }, this.modes.group, this.actions.row, this.sweep.row),
      this.settings.row,
      this.status,
      this.caption,
      this.large.element,
      h("div", { class: "dg-figures" }, this.#overTime(), ...this.figures.slice(4)),
      this.table.table,
      this.sweepTable.table,
      this.files.row,
    );
  }
  #overTime() {
    const [time, load, traffic] = this.figures;
    return h("div", { class: "dg-over" }, time, this.past.row, load, traffic);
  }
  begin() {
    const view = this.#view;
    this.#setState(view.state, view.buffers);
    view.on("full_state", (state, buffers) => this.#setState(state, buffers));
    view.on("frame", (message, buffers) => this.#addFrame(message, buffers));
    view.on("sweep", ({ sweep }) => {
      this.state.sweep = sweep;
      this.#redrawSweep();
    });
    view.on("waiting", ({ text }) => this.#setStatus({ ...this.state, waiting: text }));
    view.on("session", ({ change, session }) => change !== "written" && this.#sessionChanged(session));
    // Only a visible view is sent frames; when it becomes visible again it requests what it missed.
    // While nothing is measured it does not report, so that an idle page keeps no kernel busy.
    this.#report = reportVisibility(
      view,
      this.#id,
      5000,
      ({ n }) => n !== this.#data.number && this.#requestState(),
      () => this.state.running,
    );
    return renderFigures(
      view,
      () => this.figures,
      (figures) => {
        this.#figures = figures;
        this.#draw = new LatencyDraw(figures, this.#data, this.past.show);
        this.#redraw();
        this.figures.forEach(removeFromTabOrder);
        setTimeout(() => this.figures.forEach(removeFromTabOrder), 1000); // elements created later
        view.root.dataset.drawn = "";
      },
    );
  }
  async #call(name, fields = {}, control = null) {
    const done = await this.#view.attempt(name, fields);
    if (control) control.toggleAttribute("aria-invalid", false);
    if (control && !done) control.setAttribute("aria-invalid", "true");
  }
  // Like #call, with several fields: marks and focuses the control at fault if there is an error.
  async #callFields(name, fields = {}, controls = {}) {
    this.#view.clear();
    for (const control of Object.values(controls)) control.removeAttribute("aria-invalid");
    try {
      await this.#view.call(name, fields);
    } catch (error) {
      this.#view.fail(error);
      controls[error.field]?.setAttribute("aria-invalid", "true");
      controls[error.field]?.focus();
    }
  }
  get #sweeps() {
    return this.state.mode === "sweep";
  }
  #pause(control) {
    this.#paused = !this.#paused;
    control.setAttribute("aria-pressed", String(this.#paused));
    this.#setStatus(this.state);
    if (!this.#paused) this.#redraw();
  }
  #enlarge(control) {
    this.#large = !this.#large;
    control.setAttribute("aria-pressed", String(this.#large));
    this.#view.root.toggleAttribute("data-large", this.#large);
    this.#redraw();
  }
  #setState(state, buffers) {
    const first = !this.state;
    const starts = !first && state.running && !this.state.running;
    this.state = state;
    if (starts) this.#report();
    this.#data.setState(state, buffers);
    this.#framesWaiting = null;
    if (state.label) this.#view.titled(state);
    this.actions.update(state);
    this.settings.update(state);
    this.#showMode(state);
    const error = state.error ?? (this.#sweeps ? state.sweep?.error : null);
    if (error) this.#view.fail(error);
    else if (!first) this.#view.clear();
    this.#setStatus(state);
    this.#redraw();
  }
  #showMode(state) {
    const sweeps = this.#sweeps;
    this.modes.update(state);
    this.sweep.update(state);
    this.actions.row.hidden = sweeps;
    this.sweep.row.hidden = !sweeps;
    this.figures.forEach((figure, at) => (figure.hidden = (FIGURES[at] === "sizes") !== sweeps));
    this.past.row.hidden = sweeps;
    this.#showLoad();
    this.settings.show(sweeps);
    this.files.show(sweeps);
    this.#view.root.dataset.mode = state.mode;
  }
  // Load and traffic have a figure each once there are readings.
  #showLoad() {
    const has = this.#draw?.loads() ?? { load: false, traffic: false };
    const [, load, traffic] = this.figures;
    load.hidden = this.#sweeps || !has.load;
    traffic.hidden = this.#sweeps || !has.traffic;
  }
  #addFrame(message, buffers) {
    if (this.#framesWaiting) {
      this.#framesWaiting.push([message, buffers]);
      return;
    }
    const changed = this.#data.addFrame(message, buffers);
    if (changed === null) this.#requestState();
    else this.#scheduleDraw(changed);
    this.#pace();
  }
  // Shows the remaining points of a frame one by one, at the intervals at which the DPU took them.
  #pace() {
    clearTimeout(this.#pacing);
    const wait = this.#data.fine.nextMs;
    if (wait === null || this.#view.live.aborted) return;
    this.#pacing = setTimeout(() => {
      this.#data.fine.show(1);
      this.#scheduleDraw(false);
      this.#pace();
    }, wait);
  }
  // Requests the full state after a missing frame, then adds the frames that arrived meanwhile.
  async #requestState() {
    if (this.#framesWaiting) return;
    const waiting = (this.#framesWaiting = []);
    const reply = await this.#view.attempt("full_state");
    if (!reply) {
      this.#framesWaiting = null;
      return;
    }
    const { buffers, ...state } = reply;
    this.#setState(state, buffers);
    waiting.forEach((frame) => this.#addFrame(...frame));
  }
  #sessionChanged(session) {
    const { label, ...rest } = session; // the label shown is that of the measurement
    Object.assign(this.state, rest, session.closed ? { label, own_label: false } : {});
    this.#view.titled(this.state);
    this.settings.update(this.state);
  }
  #scheduleDraw(distribution) {
    this.#due.distribution ||= distribution;
    if (this.#due.time) return;
    this.#due.time = true;
    requestAnimationFrame(() => {
      if (this.#paused || this.#sweeps || !this.#draw) {
        this.#due.time = false;
        return;
      }
      const all = this.#due.distribution;
      this.#due = { time: false, distribution: false };
      this.#draw.time(this.#seconds, this.#large);
      if (!all) return;
      this.#draw.distribution();
      this.#showLoad();
      this.#updateText();
    });
  }
  #redraw() {
    this.#updateText();
    if (!this.#draw) return;
    this.#showLoad();
    if (this.#sweeps) this.#draw.sizes(this.state, this.#compared);
    else this.#draw.all(this.#seconds, this.#large);
  }
  #redrawSweep() {
    this.sweep.update(this.state);
    if (!this.#sweeps) return;
    this.#setStatus(this.state);
    this.#redraw();
  }
  get #lines() {
    return this.#sweeps ? sweepCaption(this.state, this.#compared) : liveCaption(this.#data);
  }
  #updateText() {
    this.sweepTable.update(this.state);
    this.table.update(this.#data);
    this.large.update(this.#data);
    if (this.#sweeps) this.table.table.hidden = true;
    else this.sweepTable.table.hidden = true;
    const lines = this.#lines;
    const shown = lines.join("\n");
    if (shown !== this.caption.dataset.shown) this.caption.replaceChildren(...lines.map((line) => h("div", {}, line)));
    this.caption.dataset.shown = shown;
  }
  #setStatus({ running, waiting, run, error }) {
    const paused = this.#paused ? " Drawing is paused; measuring continues." : "";
    const state =
      waiting || (running ? "Running." : error ? `Stopped: ${error.text}` : run ? "Stopped." : "Not started.");
    this.state.waiting = waiting;
    this.status.textContent = this.#sweeps ? sweepStatus(this.state) : state + paused;
    this.#view.root.dataset.running = String(Boolean(running));
  }
  async #save(kind) {
    if (kind === "png") return this.#picture();
    const file = await this.#view.attempt("export", { kind });
    if (file) download(file.name, FILE_TYPES[kind] ?? "text/csv", bytesOf(file.buffers[0]));
  }
  async #saveFigure(what, kind) {
    const file = await this.#view.attempt("export_figure", { what, kind });
    if (!file) return;
    download(file.name, kind === "svg" ? "image/svg+xml" : "application/pdf", bytesOf(file.buffers[0]));
    this.status.textContent = `Saved ${file.name}. Its caption: ${file.caption}`;
  }
  async #picture() {
    if (!this.#draw) return;
    const drawn = (_, at) => !this.figures[at].hidden && FIGURES[at] !== "brush";
    const canvases = this.#draw.canvases(drawn);
    const picture = pictureOf(canvases, this.figures.filter(drawn), this.#lines, this.#view.root);
    download("latency.png", "image/png", await picture);
  }
}

export const latency = panel({
  name: "latency",
  draw(view) {
    new LatencyView(view).begin();
  },
});
export default latency;
