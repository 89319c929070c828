// The hex view: asks the kernel for the bytes in view, draws them, and says what is going on.

const LINES = 24, TAIL = 8; // rows at first; bytes past the page that the inspector may need
const SLOW_MS = 1000, SAID_MS = 150;

class HexBox {
  constructor(view) {
    Object.assign(this, { view, id: dgId(), page: null, count: LINES, layout: null, writing: new Map() });
    this.block = h("div", { class: "dg-hex-rows", role: "presentation" });
    const spacer = h("div", { class: "dg-hex-spacer", role: "presentation" });
    this.box = h("div", { class: "dg-hex-box", role: "grid", tabindex: "0", "aria-multiselectable": "true",
      "aria-label": "Bytes" }, this.block, spacer);
    this.ruler = h("span", { class: "dg-hex-ruler", "aria-hidden": "true" }, "0".repeat(100));
    this.status = h("p", { class: "dg-hex-status", role: "status" });
    this.scroller = new Scroller(this.box, spacer, () => this.look());
    this.cursor = new Cursor(this);
    this.inspector = makeInspector();
  }
  size() {
    return this.view.state.region?.size ?? 0;
  }
  // Makes the rows anew if the width, the type or the region asks for other ones.
  arrange() {
    const { state } = this.view, size = this.size();
    if (!size || !this.box.clientWidth) return;
    const chars = Math.floor((this.box.clientWidth - 16) / (this.ruler.offsetWidth / 100));
    const sources = state.source === "both" ? 2 : 1;
    const layout = layoutFor(chars, { dtype: state.dtype, sources, size });
    const count = Math.max(4, Math.min(64, Math.floor(this.box.clientHeight / ROW_PX) - 1));
    const key = JSON.stringify([layout, count, size, state.source]);
    if (key === this.key) return;
    const first = this.layout ? this.scroller.top * this.layout.per : state.at;
    Object.assign(this, { key, layout, count, page: null });
    this.#build(state);
    this.scroller.resize(Math.ceil(size / layout.per), count);
    this.scroller.go(Math.floor(first / layout.per));
    this.look();
  }
  #build(state) {
    const { layout, count } = this, names = state.source === "host" ? ["host"] : ["DPU", "host"];
    this.rows = Array.from({ length: count }, (_, row) => new Row(layout, this.id, row));
    this.block.style.setProperty("--dg-digits", layout.digits);
    this.block.style.setProperty("--dg-value", layout.values ? DTYPES[layout.dtype][1] : 0);
    this.block.replaceChildren(headRow(layout, names), ...this.rows.map((row) => row.element));
    this.box.setAttribute("aria-rowcount", Math.ceil(this.size() / layout.per) + 1);
    const perPane = (layout.hex ? layout.per + 1 : 0) + (layout.values ? layout.per / DTYPES[layout.dtype][0] : 0);
    this.box.setAttribute("aria-colcount", 1 + layout.sources * perPane);
  }
  // One request at a time: what is wanted meanwhile, the newest of it, comes after.
  async look() {
    this.began ??= performance.now();
    if (this.asking) return void (this.again = true);
    this.asking = true;
    const slow = setTimeout(() => this.say("The kernel is busy; the bytes follow."), SLOW_MS);
    try {
      do {
        this.again = false;
        await this.#ask();
      } while (this.again && !this.view.signal.aborted);
    } catch (error) {
      this.failed = true;
      this.box.dataset.stale = "";
      this.view.fail(error);
    } finally {
      clearTimeout(slow);
      this.asking = this.again = false;
      this.began = undefined;
    }
  }
  async #ask() {
    if (!this.layout || !this.size()) return;
    const { per } = this.layout;
    const fields = { view: this.id, at: this.scroller.top * per, n: this.count * per + TAIL };
    const reply = await this.view.call("look", fields);
    if (this.again || reply.region !== this.view.state.region?.id || reply.sources !== this.layout.sources) return;
    if (this.failed) this.view.clear();
    this.failed = false;
    delete this.box.dataset.stale;
    this.draw(reply);
    this.#measure();
  }
  #measure() {
    const start = this.began;
    performance.measure("dgkit-hex-jump", { start, detail: { at: this.page.at } });
    requestAnimationFrame(() => {
      performance.measure("dgkit-hex-frame", { start, detail: { at: this.page?.at } });
      if (performance.getEntriesByName("dgkit-hex-jump").length < 1000) return;
      performance.clearMeasures("dgkit-hex-jump");
      performance.clearMeasures("dgkit-hex-frame");
    });
  }
  // The kernel tells what changed in view.
  told(message, buffers) {
    if (message.view !== this.id) return;
    this.view.call("got", { view: this.id }).catch(this.view.fail);
    if (!this.asking && message.at === this.page?.at && message.sources === this.layout.sources)
      this.draw({ ...message, buffers });
  }
  draw({ at, size, sources, flags, buffers }) {
    const parts = buffers.slice(0, sources).map(bytesOf);
    this.page = { at, size, parts, flags: flags ? bytesOf(buffers[sources]) : null,
      views: parts.map((part) => new DataView(part.buffer, part.byteOffset, part.byteLength)) };
    this.#paint();
  }
  #marksOf(k, span) {
    const at = this.page.at + k;
    const own = at >= span[0] && at < span[1] ? SELECTED : 0;
    return (this.page.flags?.[k] ?? 0) | own | (at === this.cursor.at ? CURSOR : 0) | (this.writing.has(at) ? WRITING : 0);
  }
  #paint() {
    const { at } = this.page, { per } = this.layout, span = this.cursor.span, size = this.size();
    this.rows.forEach((row, r) => {
      const first = at + r * per;
      row.element.hidden = first >= size;
      if (first >= size) return;
      row.offset.say(first.toString(16).padStart(this.layout.digits, "0"));
      row.element.ariaRowIndex = String(first / per + 2);
      for (let side = 0; side < this.page.parts.length; side++) this.#paintRow(row, r * per, side, span);
    });
    this.#after();
  }
  #paintRow(row, k, side, span) {
    const part = this.page.parts[side], { hex, values, per, dtype } = this.layout;
    if (hex) {
      for (let i = 0; i < per; i++) {
        const byte = part[k + i], there = byte !== undefined, at = this.page.at + k + i;
        const marks = there ? this.#marksOf(k + i, span) : 0, typed = this.writing.get(at);
        const digit = at === this.cursor.at && this.cursor.digit;
        row.hex[side][i].say(!there ? "" : digit ? `${digit}_` : typed !== undefined ? HEX[typed] : HEX[byte]);
        row.text[side][i].say(there ? ASCII[typed ?? byte] : "");
        row.hex[side][i].mark(marks, side);
        row.text[side][i].mark(marks, side);
      }
    }
    if (!values) return;
    const little = this.view.state.endian === "little", step = DTYPES[dtype][0];
    row.values[side].forEach((cell, j) => {
      const from = k + j * step;
      let marks = 0;
      for (let i = from; i < from + step && i < part.length; i++) marks |= this.#marksOf(i, span);
      cell.say(valueAt(this.page.views[side], from, dtype, little));
      cell.mark(marks, side);
    });
  }
  // The cursor or the selection is another one.
  marked() {
    if (this.page) this.#paint();
    clearTimeout(this.telling);
    const [start, stop] = this.cursor.span;
    this.telling = setTimeout(() => this.size() && this.view.call("selected", { start, stop }).catch(() => {}), 300);
  }
  #after() {
    const { at, unit } = this.cursor, k = at - this.page.at, { per, hex } = this.layout;
    const seen = k >= 0 && k < this.count * per;
    const id = `${this.id}-${hex ? "bytes" : "values"}0-${k - (k % unit)}`;
    if (seen) this.box.setAttribute("aria-activedescendant", id);
    else this.box.removeAttribute("aria-activedescendant");
    this.inspector.show(at, seen ? this.page.parts[0].subarray(k, k + 8) : null);
    clearTimeout(this.saying);
    this.saying = setTimeout(() => this.say(this.#where()), SAID_MS);
  }
  #where() {
    if (!this.page || !this.size()) return "";
    const [start, stop] = this.cursor.span, { flags, parts, at } = this.page, shown = this.count * this.layout.per;
    const byte = parts[0][this.cursor.at - at];
    const count = (bits) => flags ? flags.subarray(0, shown).reduce((sum, flag) => sum + (flag & bits ? 1 : 0), 0) : 0;
    const words = [stop - start > this.cursor.unit
      ? `${plural(stop - start, "byte")} selected, ${hexOffset(start)} to ${hexOffset(stop - 1)}`
      : `Byte ${hexOffset(this.cursor.at)}${byte === undefined ? "" : `: ${HEX[byte]}`}`];
    const changed = count(3), differs = count(DIFFERS);
    if (changed) words.push(`${plural(changed, "byte")} in view changed`);
    if (parts.length === 2) words.push(differs ? `${plural(differs, "byte")} in view differ` : "no difference in view");
    return `${words.join("; ")}.`;
  }
  say(text) {
    clearTimeout(this.saying);
    if (this.status.textContent !== text) this.status.textContent = text;
  }
  // Brings a byte into view, with `middle` some rows from the top.
  show(at, middle = false) {
    if (!this.layout) return;
    const row = Math.floor(at / this.layout.per), { top } = this.scroller;
    if (row >= top && row < top + this.count) return;
    this.scroller.go(middle ? row - (this.count >> 2) : row < top ? row : row - this.count + 1);
    if (this.scroller.top !== top) this.look();
  }
  mayWrite() {
    const why = this.view.state.region?.no_write || (this.layout.hex ? "" : "Values are not edited: choose bytes (hex).");
    if (why) this.say(why);
    return !why;
  }
  async write(at, bytes) {
    bytes.forEach((byte, i) => at + i < this.size() && this.writing.set(at + i, byte));
    const whole = await this.view.attempt("put", { at }, [bytes]);
    if (!whole) this.written(at, bytes.length);
  }
  written(at, size) {
    for (let i = at; i < at + size; i++) this.writing.delete(i);
    if (this.page) this.#paint();
  }
}

// What the controls and the keys of the grid do.
function makeDoes(view, grid, tools) {
  const ask = (name, fields) => view.attempt(name, fields);
  const does = {
    choose: (number) => ask("choose", { number }),
    show: (options) => ask("show", options),
    watch: (on) => ask("watch", { on }),
    mark: () => ask("mark"),
    stop: () => ask("stop"),
    refresh: () => grid.look(),
    async undo() {
      const undone = await ask("undo");
      if (undone) grid.cursor.move(undone.at);
    },
    goto(input) {
      const at = parseOffset(input.value, grid.cursor.at, grid.size());
      const wrong = !(at >= 0 && at < grid.size());
      input.setAttribute("aria-invalid", String(wrong));
      if (wrong) return grid.say(Number.isNaN(at) ? "Write an offset as 64, 0x40, 4K, +16 or end."
        : `The region has ${plural(grid.size(), "byte")}: ${hexOffset(grid.size() - 1)} is the last.`);
      grid.show(at, true);
      grid.cursor.move(at);
    },
    find(backward) {
      const [start] = grid.cursor.span;
      const first = tools.search.text.value !== does.last;
      does.last = tools.search.text.value;
      ask("search", { text: does.last, kind: tools.search.kind.value, backward, start: start + (backward || first ? 0 : 1) });
    },
    compare: ({ backward = false, count = false }) =>
      ask("compare", { backward, count, start: grid.cursor.span[0] + (backward ? 0 : 1) }),
    async copy() {
      const [start, stop] = grid.cursor.span;
      const reply = await ask("copy", { start, stop, form: tools.actions.form.value });
      if (!reply) return;
      try {
        await toClipboard(reply.text);
        grid.say(reply.copied < reply.asked
          ? `The first ${plural(reply.copied, "byte")} of ${plural(reply.asked, "byte")} were copied: 1 MiB is the most.`
          : `${plural(reply.copied, "byte")} copied.`);
      } catch (error) {
        view.fail(error);
      }
    },
    all: () => grid.cursor.select(0, grid.size()),
    column: () => grid.say(grid.cursor.inText ? "What is typed goes in as text." : "What is typed goes in as hex digits."),
    nodigit: () => grid.say("Type two hex digits, or F2 for the column of text."),
  };
  return does;
}

function draw(view) {
  const grid = new HexBox(view), tools = {};
  const does = makeDoes(view, grid, tools);
  tools.choices = makeChoices(does);
  tools.search = makeSearch(does);
  tools.actions = makeActions(does);
  const special = { goto: () => tools.choices.offset.focus(), find: () => tools.search.text.focus() };
  grid.does = (what) => (special[what] ?? does[what])();
  const nothing = h("p", { class: "dg-hex-nothing" });
  const bytes = h("div", { class: "dg-hex-main" }, grid.ruler, grid.box, grid.inspector.table);
  const legend = h("p", { class: "dg-help dg-hex-legend" }, h("span", { class: "dg-changed" }, "changed"),
    " since it was marked as seen; ", h("span", { class: "dg-differs" }, "differs"),
    " between DPU and host. Type hex digits to write a byte; F2: type text; Ctrl+Z: undo.");
  view.body.append(tools.choices.row, tools.choices.note, tools.search.row, tools.actions.row, nothing, bytes, grid.status, legend);
  const apply = () => applyState(view, grid, tools, { nothing, bytes, legend });
  hearing(view, grid, tools, apply);
  const watch = new ResizeObserver(() => grid.arrange());
  watch.observe(grid.box);
  onVisible(grid.box, (visible) => visible ? grid.look() : view.call("leave", { view: grid.id }).catch(() => {}), view.signal);
  apply();
  const [start, stop] = view.state.selection;
  if (view.state.region) grid.cursor.select(start, Math.min(stop, grid.size()));
  return () => {
    watch.disconnect();
    view.call("leave", { view: grid.id }).catch(() => {});
  };
}

function applyState(view, grid, tools, { nothing, bytes, legend }) {
  const { state } = view;
  view.titled({ ...state, title: state.region ? `${view.title}: ${state.region.name}` : view.title });
  if (state.region?.no_write) view.head.append(h("span", { class: "dg-badge" }, "read only"));
  for (const tool of Object.values(tools)) tool.apply(state);
  nothing.hidden = Boolean(state.region);
  bytes.hidden = legend.hidden = grid.status.hidden = !state.region;
  nothing.textContent = state.nothing;
  if (state.region?.id !== grid.region) {
    Object.assign(grid, { region: state.region?.id, key: "", layout: null, page: null });
    grid.writing.clear();
    Object.assign(grid.cursor, { at: 0, anchor: 0, digit: "" });
  }
  grid.arrange();
  if (grid.page) grid.marked();
}

// What the kernel tells.
function hearing(view, grid, tools, apply) {
  view.title = view.state.title;
  view.on("state", ({ kind, ...state }) => {
    view.state = { ...view.state, ...state };
    apply();
  });
  view.on("desk", (news) => news.what === "written" && news.id === view.state.region?.id && grid.look());
  view.on("again", () => grid.look());
  view.on("bytes", (message, buffers) => grid.told(message, buffers));
  view.on("edited", ({ region, at, size, undoable }) => {
    view.state.undoable = undoable;
    tools.actions.apply(view.state);
    if (region === view.state.region?.id) grid.written(at, size);
  });
  view.on("hunt", ({ kind, ...hunt }) => {
    view.state.hunt = hunt;
    tools.search.apply(view.state);
    grid.say(huntWords(hunt));
  });
  view.on("go", ({ start, stop }) => {
    grid.show(start, true);
    grid.cursor.select(start, stop);
    grid.view.root.dataset.went = start;
  });
}

export default panel({ name: "hexview", draw });
