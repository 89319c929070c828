
// A figure's tools have no names to tell; the range, the table and the files do what they do.
function mouseOnly(element) {
  for (const inner of element.querySelectorAll("*")) {
    if (inner.tabIndex >= 0) inner.tabIndex = -1;
    if (inner.shadowRoot) mouseOnly(inner.shadowRoot);
  }
}

const LATENCY_TYPES = { html: "text/html", json: "application/json" };

class LatencyView {
  #view; #data = new LatencyData(); #draw = null; #figures = null;
  #paused = false; #seconds = 30; #asked = null; #due = { time: false, spread: false }; #seen = true;
  #id = dgId();
  constructor(view) {
    this.#view = view;
    this.status = h("p", { role: "status", class: "dg-help" });
    this.caption = h("div", { class: "dg-caption" });
    this.figures = ["time", "spread", "curve"].map((name) =>
      h("div", { class: `dg-figure dg-${name}`, "aria-hidden": "true" }));
    this.actions = latencyActions((...asked) => this.#do(...asked), {
      pause: (control) => this.#pause(control),
      range: (seconds) => { this.#seconds = seconds; this.#redraw(); },
    });
    this.settings = latencySettings((...asked) => this.#do(...asked));
    this.table = latencyTable();
    view.body.append(this.actions.row, this.settings.row, this.status, this.caption,
      h("div", { class: "dg-figures" }, ...this.figures), this.table.table,
      latencyFiles((kind) => this.#save(kind)));
  }
  begin() {
    const view = this.#view;
    this.#whole(view.state, view.buffers);
    view.on("whole", (state, buffers) => this.#whole(state, buffers));
    view.on("frame", (message, buffers) => this.#frame(message, buffers));
    view.on("waiting", ({ text }) => this.#say({ ...this.state, waiting: text }));
    view.on("desk", ({ what, desk }) => what !== "written" && this.#desk(desk));
    this.#watch();
    return keepFigures(view, () => this.figures, (figures) => {
      this.#figures = figures;
      this.#draw = new LatencyDraw(figures, this.#data);
      this.#redraw();
      this.figures.forEach(mouseOnly);
      setTimeout(() => this.figures.forEach(mouseOnly), 1000); // what was made anew since
      view.root.dataset.drawn = "";
    });
  }
  // Only who is in sight, on a page in sight, gets frames; who comes back asks for what it missed.
  #watch() {
    const { root, live: signal } = this.#view;
    let inSight = true, waiting = 0;
    const tell = () => {
      waiting += 1;
      const seen = inSight && !document.hidden;
      const back = seen && !this.#seen;
      this.#seen = seen;
      this.#view.call("watch", { view: this.#id, on: seen }).then(({ n }) => {
        if (back && n !== this.#data.number) this.#ask();
      }).catch(this.#view.fail).finally(() => (waiting -= 1));
    };
    onVisible(root, (visible) => { inSight = visible; tell(); }, signal);
    document.addEventListener("visibilitychange", tell, { signal });
    const still = setInterval(() => this.#seen && !waiting && tell(), 5000);
    signal.addEventListener("abort", () => {
      clearInterval(still);
      this.#view.call("watch", { view: this.#id, on: false }).catch(() => {});
    });
  }
  async #do(name, fields = {}, control = null) {
    const done = await this.#view.attempt(name, fields);
    if (control) control.toggleAttribute("aria-invalid", false);
    if (control && !done) control.setAttribute("aria-invalid", "true");
  }
  #pause(control) {
    this.#paused = !this.#paused;
    control.setAttribute("aria-pressed", String(this.#paused));
    this.#say(this.state);
    if (!this.#paused) this.#redraw();
  }
  #whole({ kind: _kind, ...state }, buffers) {
    const first = !this.state;
    this.state = state;
    this.#data.whole(state, buffers);
    this.#asked = null;
    if (state.label) this.#view.titled(state);
    this.actions.update(state);
    this.settings.update(state);
    if (state.error) this.#view.fail(state.error);
    else if (!first) this.#view.clear();
    this.#say(state);
    this.#redraw();
  }
  #frame(message, buffers) {
    if (this.#asked) {
      this.#asked.push([message, buffers]);
      return;
    }
    const changed = this.#data.frame(message, buffers);
    if (changed === null) this.#ask();
    else this.#later(changed);
  }
  // A frame is missing: the whole, and then what came while it was asked for.
  async #ask() {
    if (this.#asked) return;
    const waiting = (this.#asked = []);
    const whole = await this.#view.attempt("whole");
    if (!whole) { this.#asked = null; return; }
    const { buffers, ...state } = whole;
    this.#whole(state, buffers);
    waiting.forEach((frame) => this.#frame(...frame));
  }
  #desk(desk) {
    const { label, ...rest } = desk; // the badge is of what is measured here
    Object.assign(this.state, rest, desk.closed ? { label } : {});
    this.#view.titled(this.state);
    this.settings.update(this.state);
  }
  #later(spread) {
    this.#due.spread ||= spread;
    if (this.#due.time) return;
    this.#due.time = true;
    requestAnimationFrame(() => {
      if (this.#paused || !this.#draw) { this.#due.time = false; return; }
      const all = this.#due.spread;
      this.#due = { time: false, spread: false };
      this.#draw.time(this.#seconds);
      if (!all) return;
      this.#draw.spread();
      this.#texts();
    });
  }
  #redraw() {
    this.#texts();
    if (this.#draw) this.#draw.all(this.#seconds);
  }
  #texts() {
    this.table.update(this.#data);
    const lines = latencyCaption(this.#data);
    const shown = lines.join("\n");
    if (shown !== this.caption.dataset.shown)
      this.caption.replaceChildren(...lines.map((line) => h("div", {}, line)));
    this.caption.dataset.shown = shown;
  }
  #say({ running, waiting, run, error }) {
    const paused = this.#paused ? " Drawing is paused; samples are still taken." : "";
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
    const made = latencyPicture(this.#draw.canvases(), this.figures, lines, this.#view.root);
    download("latency.png", "image/png", await made);
  }
}

export default panel({
  name: "latency",
  draw(view) {
    new LatencyView(view).begin();
  },
});
