// The hex view: its controls, and what the kernel tells it.

const STILL_MS = 5000; // how often a view says that it is still seen

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
  const bytes = grid.main;
  const unlike = h("span", {}, h("b", { class: "dg-differs" }, "differs"), " between DPU and host; ");
  const legend = h("p", { class: "dg-help dg-hex-legend" }, h("b", { class: "dg-changed" }, "changed"),
    " since it was marked as seen; ", unlike, "type hex digits to write a byte; F2: type text; Ctrl+Z: undo");
  const bar = h("div", { class: "dg-row" }, tools.choices.row, tools.search.row, tools.actions.row);
  view.body.append(bar, tools.choices.note, nothing, bytes, grid.status, legend);
  const apply = () => applyState(view, grid, tools, { nothing, bytes, legend, unlike });
  hearing(view, grid, tools, apply);
  watched(view, grid);
  apply();
  const [start, stop] = view.state.selection;
  if (view.state.region) grid.cursor.select(start, Math.min(stop, grid.size()));
}

// Rows as the box has room, and bytes for who sees it: it says that it does, still, or no more.
function watched(view, grid) {
  const { signal } = view, size = new ResizeObserver(() => grid.arrange());
  let inSight = false, seen = false, waiting = false;
  const tell = (on) => {
    waiting = true;
    view.call("seen", { view: grid.id, on }).catch(() => {}).finally(() => (waiting = false));
  };
  const look = () => {
    const before = seen;
    seen = inSight && !document.hidden;
    if (seen) grid.look();
    else if (before) tell(false);
  };
  for (const element of [grid.box, grid.main]) size.observe(element);
  onVisible(grid.box, (visible) => { inSight = visible; look(); }, signal);
  document.addEventListener("visibilitychange", look, { signal });
  const still = setInterval(() => seen && view.state.live && !waiting && tell(true), STILL_MS);
  signal.addEventListener("abort", () => {
    size.disconnect();
    clearInterval(still);
    tell(false);
  });
}

function applyState(view, grid, tools, { nothing, bytes, legend, unlike }) {
  const { state } = view;
  view.titled({ ...state, title: state.region ? `${view.title}: ${state.region.name}` : view.title });
  if (state.region?.no_write) view.head.append(h("span", { class: "dg-badge" }, "read only"));
  for (const tool of Object.values(tools)) tool.apply(state);
  nothing.hidden = Boolean(state.region);
  unlike.hidden = state.source !== "both";
  grid.news = "";
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
  view.on("edited", ({ region, at, size, ok, undoable }) => {
    view.state.undoable = undoable;
    tools.actions.apply(view.state);
    if (region === view.state.region?.id) grid.written(at, size, ok);
  });
  view.on("hunt", ({ kind, ...hunt }) => {
    view.state.hunt = hunt;
    tools.search.apply(view.state);
    grid.news = hunt.now === "running" ? "" : huntWords(hunt);
    grid.say(huntWords(hunt));
  });
  view.on("go", ({ start, stop }) => {
    view.state.at = start; // for one that has no rows yet
    grid.show(start, true);
    grid.cursor.select(start, stop);
  });
}

export default panel({ name: "hexview", draw });
