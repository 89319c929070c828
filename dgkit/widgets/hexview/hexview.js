// The hex view: its commands, its state, and messages of the kernel.

import { h } from "../base/elements.js";
import { onVisible, toClipboard } from "../base/page.js";
import { panel, pythonButton } from "../base/panel.js";
import { plural } from "../base/units.js";
import { HexBox } from "./box.js";
import { EditList } from "./edits.js";
import { RegionImage } from "./image.js";
import { Jumps } from "./jumps.js";
import { OverviewStrip } from "./overview.js";
import { StructureTable } from "./structure.js";
import { TimeMachine } from "./time_machine.js";
import { makeActions, makeBar, makeChoices, makeSearch, searchText } from "./tools.js";
import { hexOffset, parseOffset } from "./values.js";

const KEEPALIVE_MS = 20000; // how often a view reports that it is still visible

// The commands of the controls and of the keyboard.
function makeCommands(view, grid, tools, rescan) {
  const call = (name, fields) => view.attempt(name, fields);
  const step = async (name) => {
    const edit = await call(name);
    if (edit) grid.cursor.move(edit.at);
  };
  const commands = {
    choose: (number) => call("choose", { number }),
    show: (options) => call("show", options),
    watch: (on) => call("watch", { on }),
    mark: () => call("mark"),
    stop: () => call("stop"),
    refresh() {
      grid.refresh();
      rescan();
    },
    undo: () => step("undo"),
    redo: () => step("redo"),
    goto(input) {
      const at = parseOffset(input.value, grid.cursor.at, grid.size());
      const invalid = !(at >= 0 && at < grid.size());
      input.setAttribute("aria-invalid", String(invalid));
      if (invalid)
        return grid.setStatus(
          Number.isNaN(at)
            ? "An offset is written as 64, 0x40, 4K, +16 or end."
            : `The region has ${plural(grid.size(), "byte")}: ${hexOffset(grid.size() - 1)} is the last offset.`,
        );
      grid.leave();
      grid.show(at, true);
      grid.cursor.move(at);
    },
    find(backward) {
      const [start] = grid.cursor.span;
      const isNew = tools.search.text.value !== commands.lastPattern;
      commands.lastPattern = tools.search.text.value;
      call("search", {
        text: commands.lastPattern,
        kind: tools.search.kind.value,
        dtype: view.state.dtype,
        endian: view.state.endian,
        backward,
        start: start + (backward || isNew ? 0 : 1),
      });
    },
    compare: ({ backward = false, count = false }) =>
      call("compare", { backward, count, start: grid.cursor.span[0] + (backward ? 0 : 1) }),
    async copy() {
      const [start, stop] = grid.cursor.span;
      const reply = await call("copy", { start, stop, form: tools.actions.form.value });
      if (!reply) return;
      try {
        await toClipboard(reply.text);
        if (reply.edits) return grid.setStatus(`${plural(reply.edits, "edit")} copied.`);
        grid.setStatus(
          reply.copied < reply.asked
            ? `The first ${plural(reply.copied, "byte")} of ${plural(reply.asked, "byte")} copied: the limit is 1 MiB.`
            : `${plural(reply.copied, "byte")} copied.`,
        );
      } catch (error) {
        view.fail(error);
      }
    },
    all: () => grid.cursor.select(0, grid.size()),
    explainColumn: () =>
      grid.setStatus(grid.cursor.inText ? "Typed characters are written as text." : "Typed characters are hex digits."),
    explainDigits: () => grid.setStatus("Type two hex digits, or press F2 to type text."),
  };
  return commands;
}

function draw(view) {
  const grid = new HexBox(view);
  const tools = {};
  const overview = new OverviewStrip(view, grid);
  const image = new RegionImage(view, grid);
  const commands = makeCommands(view, grid, tools, () => {
    overview.ask();
    image.ask();
  });
  const structure = new StructureTable(view, grid);
  tools.edits = new EditList(view, grid);
  const jumps = new Jumps(grid);
  const past = new TimeMachine(view, grid);
  grid.onMove = () => {
    overview.drawWindow();
    image.drawWindow();
    structure.cursorChanged();
  };
  grid.onDraw = () => {
    structure.refresh();
  };
  grid.side.append(structure.element, tools.edits.element, image.element);
  overview.row.append(jumps.back);
  tools.choices = makeChoices(commands);
  tools.search = makeSearch(
    commands,
    pythonButton(view, (text) => grid.setStatus(text), undefined, {
      title: "The lines that do what the last search did",
    }),
  );
  tools.actions = makeActions(commands);
  const shortcuts = { goto: () => tools.choices.offset.focus(), find: () => tools.search.text.focus() };
  grid.run = (command) => (shortcuts[command] ?? commands[command])();
  const empty = h("p", { class: "dg-hex-empty" });
  const bytes = grid.main;
  const differs = h("span", {}, h("b", { class: "dg-differs" }, "differs"), " between DPU and host; ");
  const legend = h(
    "p",
    { class: "dg-help dg-hex-legend" },
    h("b", { class: "dg-changed" }, "changed"),
    " since it was first shown or marked as seen; ",
    differs,
    "type hex digits to write a byte; F2: type text; Ctrl+Z: undo, Ctrl+Y: redo",
  );
  view.body.append(
    makeBar(tools),
    tools.choices.note,
    empty,
    overview.element,
    past.element,
    bytes,
    grid.status,
    legend,
  );
  const apply = () =>
    applyState(view, grid, tools, {
      empty,
      parts: [overview, structure, image, jumps, past],
      bytes,
      legend,
      differs,
    });
  subscribe(view, grid, tools, apply);
  trackVisibility(view, grid, [overview, image]);
  apply();
  const [start, stop] = view.state.selection;
  if (view.state.region) grid.cursor.select(start, Math.min(stop, grid.size()));
}

// Fits the rows to the box, and reports to the kernel whether the view is visible.
function trackVisibility(view, grid, scans) {
  const { signal } = view;
  const size = new ResizeObserver(() => grid.arrange());
  let visible = false;
  let reporting = false;
  const report = (on) => {
    reporting = true;
    view
      .call("visible", { view: grid.id, on })
      .catch(() => {})
      .finally(() => (reporting = false));
  };
  const update = (on) => {
    const before = visible;
    visible = on;
    for (const scan of scans) scan.visible = visible;
    if (visible) {
      grid.refresh();
      for (const scan of scans) scan.ask();
    } else if (before) report(false);
  };
  for (const element of [grid.box, grid.main]) size.observe(element);
  onVisible(grid.main, update, signal);
  const keepalive = setInterval(() => visible && !reporting && report(true), KEEPALIVE_MS);
  signal.addEventListener("abort", () => {
    size.disconnect();
    clearInterval(keepalive);
    report(false);
  });
}

function applyState(view, grid, tools, { empty, parts, bytes, legend, differs }) {
  const { state } = view;
  view.titled({ ...state, title: state.region ? `${view.title}: ${state.region.name}` : view.title });
  if (state.region?.no_write) view.head.append(h("span", { class: "dg-badge" }, "read only"));
  for (const tool of Object.values(tools)) tool.apply(state);
  empty.hidden = Boolean(state.region);
  differs.hidden = state.source !== "both";
  grid.notice = "";
  bytes.hidden = legend.hidden = grid.status.hidden = !state.region;
  empty.textContent = state.empty_reason;
  if (state.region?.id !== grid.region) {
    Object.assign(grid, { region: state.region?.id, key: "", layout: null, page: null });
    grid.writing.clear();
    Object.assign(grid.cursor, { at: 0, anchor: 0, digit: "" });
  }
  for (const part of parts) part.apply(state);
  grid.arrange();
  if (grid.page) grid.cursorChanged();
}

// Messages of the kernel.
function subscribe(view, grid, tools, apply) {
  view.title = view.state.title;
  view.on("state", ({ kind, ...state }) => {
    view.state = { ...view.state, ...state };
    apply();
    if (grid.failed) grid.refresh();
  });
  view.on("session", ({ change, id }) => change === "written" && id === view.state.region?.id && grid.refresh());
  view.on("refresh", () => grid.refresh());
  view.on("bytes", (message, buffers) => grid.receivePage(message, buffers));
  view.on("edited", ({ region, at, size, ok, undoable, redoable }) => {
    Object.assign(view.state, { undoable, redoable });
    tools.actions.apply(view.state);
    tools.edits.apply(view.state);
    if (region === view.state.region?.id) grid.written(at, size, ok);
  });
  view.on("search", ({ kind, ...search }) => {
    view.state.search = search;
    tools.search.apply(view.state);
    grid.notice = search.status === "running" ? "" : searchText(search);
    grid.setStatus(searchText(search));
  });
  view.on("scroll", ({ at }) => {
    view.state.at = at;
    grid.scrollTo(at);
  });
  view.on("goto", ({ start, stop }) => {
    view.state.at = start; // for a view that has no rows yet
    grid.leave();
    grid.show(start, true);
    grid.moved = false;
    grid.cursor.select(start, stop);
  });
}

export const hexview = panel({ name: "hexview", draw });
export default hexview;
