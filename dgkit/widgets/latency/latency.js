// The panel of a LatencyPlot: state, frames and commands.

// Removes a figure's tools from the tab order: they have no accessible names, and the controls, the
// table and the files of the panel replace them.
function removeFromTabOrder(element) {
  for (const inner of element.querySelectorAll("*")) {
    if (inner.tabIndex >= 0) inner.tabIndex = -1;
    if (inner.shadowRoot) removeFromTabOrder(inner.shadowRoot);
  }
}

const LATENCY_TYPES = { html: "text/html", json: "application/json" };

class LatencyView {
  #view; #data = new LatencyData(); #draw = null; #figures = null;
  #paused = false; #seconds = 30; #framesWaiting = null; #due = { time: false, distribution: false }; #visible = true;
  #id = dgId();
  constructor(view) {
    this.#view = view;
    this.status = h("p", { role: "status", class: "dg-help" });
    this.caption = h("div", { class: "dg-caption" });
    this.figures = ["time", "spread", "curve"].map((name) =>
      h("div", { class: `dg-figure dg-${name}`, "aria-hidden": "true" }));
    this.actions = latencyActions((...args) => this.#call(...args), {
      pause: (control) => this.#pause(control),
      range: (seconds) => { this.#seconds = seconds; this.#redraw(); },
    }, pythonButton(view, (text) => (this.status.textContent = text), undefined,
      { title: "The lines that measure this for five seconds" }));
    this.settings = latencySettings((...args) => this.#call(...args));
    this.table = latencyTable();
    view.body.append(this.actions.row, this.settings.row, this.status, this.caption,
      h("div", { class: "dg-figures" }, ...this.figures), this.table.table,
      latencyFiles((kind) => this.#save(kind)));
  }
  begin() {
    const view = this.#view;
    this.#setState(view.state, view.buffers);
    view.on("full_state", (state, buffers) => this.#setState(state, buffers));
    view.on("frame", (message, buffers) => this.#addFrame(message, buffers));
    view.on("waiting", ({ text }) => this.#setStatus({ ...this.state, waiting: text }));
    view.on("session", ({ change, session }) => change !== "written" && this.#sessionChanged(session));
    this.#trackVisibility();
    return renderFigures(view, () => this.figures, (figures) => {
      this.#figures = figures;
      this.#draw = new LatencyDraw(figures, this.#data);
      this.#redraw();
      this.figures.forEach(removeFromTabOrder);
      setTimeout(() => this.figures.forEach(removeFromTabOrder), 1000); // elements created later
      view.root.dataset.drawn = "";
    });
  }
  // Only a visible view is sent frames; when it becomes visible again it requests what it missed.
  #trackVisibility() {
    const { root, live: signal } = this.#view;
    let intersects = true, pending = 0;
    const report = () => {
      pending += 1;
      const visible = intersects && !document.hidden;
      const returned = visible && !this.#visible;
      this.#visible = visible;
      this.#view.call("watch", { view: this.#id, on: visible }).then(({ n }) => {
        if (returned && n !== this.#data.number) this.#requestState();
      }).catch(this.#view.fail).finally(() => (pending -= 1));
    };
    onVisible(root, (on) => { intersects = on; report(); }, signal);
    document.addEventListener("visibilitychange", report, { signal });
    const keepalive = setInterval(() => this.#visible && !pending && report(), 5000);
    signal.addEventListener("abort", () => {
      clearInterval(keepalive);
      this.#view.call("watch", { view: this.#id, on: false }).catch(() => {});
    });
  }
  async #call(name, fields = {}, control = null) {
    const done = await this.#view.attempt(name, fields);
    if (control) control.toggleAttribute("aria-invalid", false);
    if (control && !done) control.setAttribute("aria-invalid", "true");
  }
  #pause(control) {
    this.#paused = !this.#paused;
    control.setAttribute("aria-pressed", String(this.#paused));
    this.#setStatus(this.state);
    if (!this.#paused) this.#redraw();
  }
  #setState({ kind: _kind, ...state }, buffers) {
    const first = !this.state;
    this.state = state;
    this.#data.setState(state, buffers);
    this.#framesWaiting = null;
    if (state.label) this.#view.titled(state);
    this.actions.update(state);
    this.settings.update(state);
    if (state.error) this.#view.fail(state.error);
    else if (!first) this.#view.clear();
    this.#setStatus(state);
    this.#redraw();
  }
  #addFrame(message, buffers) {
    if (this.#framesWaiting) {
      this.#framesWaiting.push([message, buffers]);
      return;
    }
    const changed = this.#data.addFrame(message, buffers);
    if (changed === null) this.#requestState();
    else this.#scheduleDraw(changed);
  }
  // Requests the full state after a missing frame, then adds the frames that arrived meanwhile.
  async #requestState() {
    if (this.#framesWaiting) return;
    const waiting = (this.#framesWaiting = []);
    const reply = await this.#view.attempt("full_state");
    if (!reply) { this.#framesWaiting = null; return; }
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
      if (this.#paused || !this.#draw) { this.#due.time = false; return; }
      const all = this.#due.distribution;
      this.#due = { time: false, distribution: false };
      this.#draw.time(this.#seconds);
      if (!all) return;
      this.#draw.distribution();
      this.#updateText();
    });
  }
  #redraw() {
    this.#updateText();
    if (this.#draw) this.#draw.all(this.#seconds);
  }
  #updateText() {
    this.table.update(this.#data);
    const lines = latencyCaption(this.#data);
    const shown = lines.join("\n");
    if (shown !== this.caption.dataset.shown)
      this.caption.replaceChildren(...lines.map((line) => h("div", {}, line)));
    this.caption.dataset.shown = shown;
  }
  #setStatus({ running, waiting, run, error }) {
    const paused = this.#paused ? " Drawing is paused; measuring continues." : "";
    const state = waiting || (running ? "Running." : error ? `Stopped: ${error.text}` : run ? "Stopped." : "Not started.");
    this.state.waiting = waiting;
    this.status.textContent = state + paused;
    this.#view.root.dataset.running = String(Boolean(running));
  }
  async #save(kind) {
    if (kind === "png") return this.#picture();
    const file = await this.#view.attempt("export", { kind });
    if (file) download(file.name, LATENCY_TYPES[kind] ?? "text/csv", bytesOf(file.buffers[0]));
  }
  async #picture() {
    if (!this.#draw) return;
    const lines = latencyCaption(this.#data);
    const picture = latencyPicture(this.#draw.canvases(), this.figures, lines, this.#view.root);
    download("latency.png", "image/png", await picture);
  }
}

export default panel({
  name: "latency",
  draw(view) {
    new LatencyView(view).begin();
  },
});
