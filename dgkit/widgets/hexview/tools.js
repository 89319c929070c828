// Controls of the hex view: region and type, search, copy, and the inspector.

import { button, choice, field, h, newId, setOptions } from "../base/elements.js";
import { plural } from "../base/units.js";
import { DTYPE_NAMES, DTYPES, hexOffset, valueAt } from "./values.js";

const SOURCE_NAMES = { dpu: "as the DPU reads it", host: "as the host sees it", both: "both, side by side" };
const FORM_NAMES = [
  ["hex", "hex"],
  ["text", "text"],
  ["python", "Python bytes"],
  ["c", "C array"],
  ["numpy", "NumPy expression"],
  ["sha256", "SHA-256"],
  ["md5", "MD5"],
  ["edits", "edits as Python"],
];

const toggleButton = (text, change) =>
  button(
    text,
    (event) => {
      const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
      change(on);
    },
    { "aria-pressed": "false" },
  );

// Region, source, value type, byte order, and the offset to go to.
export function makeChoices(commands) {
  const region = choice([], { onchange: () => commands.choose(Number(region.value)) });
  const source = choice(Object.entries(SOURCE_NAMES), { onchange: () => commands.show({ source: source.value }) });
  const dtype = choice(Object.entries(DTYPE_NAMES), { onchange: () => commands.show({ dtype: dtype.value }) });
  const endian = choice(
    [
      ["little", "little-endian"],
      ["big", "big-endian"],
    ],
    { onchange: () => commands.show({ endian: endian.value }) },
  );
  const offset = h("input", {
    size: 12,
    spellcheck: "false",
    autocomplete: "off",
    placeholder: "0x40, 4K, +16, end",
    onkeydown: (event) => event.key === "Enter" && commands.goto(offset),
  });
  const go = button("Go", () => commands.goto(offset), { "aria-label": "Go to offset" });
  const row = h(
    "div",
    { class: "dg-hex-group" },
    field("Region", region),
    h("div", { class: "dg-join" }, field("Go to offset", offset), go),
  );
  const more = h(
    "div",
    { class: "dg-hex-group" },
    field("Source", source),
    field("Values", dtype),
    field("Byte order", endian),
  );
  const note = h("p", { class: "dg-help" });
  const apply = (state) => {
    const about = state.region;
    const listed = state.regions.some(({ id }) => id === about?.id);
    setOptions(
      region,
      [
        ...(listed ? [] : [["", state.closed ? "closed" : about ? about.name : "none"]]),
        ...state.regions.map(({ id, name, text }) => [id, `${name}, ${text}`]),
      ],
      about?.id ?? "",
    );
    region.disabled = !state.regions.length;
    for (const option of source.options)
      option.disabled = Boolean(
        about && ((option.value !== "dpu" && about.no_host) || (option.value !== "host" && about.no_dpu)),
      );
    [source.value, dtype.value, endian.value] = [state.source, state.dtype, state.endian];
    for (const control of [source, dtype, endian, offset, go]) control.disabled = !about;
    note.textContent = about ? [about.no_host, about.no_dpu, about.no_write].filter(Boolean).join(" ") : "";
    note.hidden = !note.textContent;
  };
  return { row, more, note, offset, apply };
}

// Find, compare, and the progress of the search.
export function makeSearch(commands, python) {
  const text = h("input", {
    size: 18,
    spellcheck: "false",
    autocomplete: "off",
    onkeydown: (event) => {
      if (event.key === "Enter") commands.find(event.shiftKey);
      if (event.key === "Escape") commands.stop();
    },
  });
  const kind = choice([
    ["text", "text (UTF-8)"],
    ["hex", "hex bytes (? is any digit)"],
    ["regex", "regular expression"],
    ["value", "value or range (1..9)"],
  ]);
  const next = button("↓", () => commands.find(false), { "aria-label": "Find next", title: "Find next: Enter" });
  const previous = button("↑", () => commands.find(true), {
    "aria-label": "Find previous",
    title: "Find previous: Shift+Enter",
  });
  const differences = h(
    "div",
    { class: "dg-join", role: "group", "aria-label": "Differences between DPU and host" },
    button("Next difference", () => commands.compare({})),
    button("Previous difference", () => commands.compare({ backward: true })),
    button("Count differences", () => commands.compare({ count: true })),
  );
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Search progress" });
  const cancel = button("Cancel", () => commands.stop(), { "aria-label": "Cancel the search" });
  const running = h("div", { class: "dg-join" }, bar, cancel);
  const row = h("div", { class: "dg-join" }, field("Find", text), previous, next);
  const more = h("div", { class: "dg-join" }, field("Find as", kind), python);
  const below = h("div", { class: "dg-row" }, differences, running);
  const apply = (state) => {
    const { search } = state;
    differences.hidden =
      !state.region || Boolean(state.region.no_host || state.region.no_dpu) || state.source !== "both";
    running.hidden = search.status !== "running";
    below.hidden = differences.hidden && running.hidden;
    python.hidden = !search.status;
    bar.value = search.size ? search.done / search.size : 0;
    for (const control of [text, kind, next, previous]) control.disabled = !state.region;
  };
  return { row, more, below, text, kind, apply };
}

// The state of a search as text.
export function searchText(search) {
  const match = search.mode === "find" ? "Found" : "Difference found";
  switch (search.status) {
    case "running":
      return `Searching: ${Math.floor((100 * search.done) / search.size)} %`;
    case "cancelled":
      return "The search was cancelled.";
    case "failed":
      return "The search ended with an error.";
    case "freed":
      return "The search ended: the region was freed.";
    case "counted":
      return search.bytes
        ? `${plural(search.bytes, "byte")} in ${plural(search.runs, "place")} differ between DPU and host.`
        : "DPU and host see the same bytes.";
    case "none":
      return search.mode === "find" ? "Not found." : "DPU and host see the same bytes.";
    case "found":
      return `${match} at ${hexOffset(search.at)}${search.wrapped ? " (the search wrapped around)" : ""}.`;
  }
  return "";
}

// Refresh, watch, mark, undo, redo, copy.
export function makeActions(commands) {
  const live = toggleButton("Watch live", (on) => commands.watch(on));
  const form = choice(FORM_NAMES);
  const columns = choice([[0, "auto"], 8, 16, 32, 64], {
    onchange: () => commands.show({ columns: Number(columns.value) }),
  });
  const undo = button("Undo", () => commands.undo(), { title: "Ctrl+Z" });
  const redo = button("Redo", () => commands.redo(), { title: "Ctrl+Y, Ctrl+Shift+Z" });
  const mark = button("Mark as seen", () => commands.mark(), { title: "Clear the marks of changed bytes" });
  const refresh = button("↻", () => commands.refresh(), { "aria-label": "Refresh", title: "Refresh" });
  const copy = button("Copy", () => commands.copy(), { "aria-label": "Copy the selection" });
  const row = h("div", { class: "dg-join" }, refresh, live);
  const more = h(
    "div",
    { class: "dg-hex-group" },
    field("Bytes per row", columns),
    h("div", { class: "dg-join" }, field("Copy as", form), copy),
    h("div", { class: "dg-join" }, mark, undo, redo),
  );
  const apply = (state) => {
    live.setAttribute("aria-pressed", String(state.live));
    undo.disabled = !state.undoable || !state.region;
    redo.disabled = !state.redoable || !state.region;
    columns.value = state.columns;
    for (const control of [live, mark, refresh, copy, form, columns]) control.disabled = !state.region;
  };
  return { row, more, form, apply };
}

// The toolbar: a row of controls needed at all times, a second row that "More" opens, and a third
// row while there is a comparison or a search to control.
export function makeBar({ choices, search, actions }) {
  const second = h(
    "div",
    { class: "dg-row", id: newId(), hidden: true, role: "group", "aria-label": "More controls" },
    choices.more,
    search.more,
    actions.more,
  );
  const more = button(
    "More",
    () => {
      second.hidden = !second.hidden;
      more.setAttribute("aria-expanded", String(!second.hidden));
    },
    {
      "aria-expanded": "false",
      "aria-controls": second.id,
      title: "Source, values, byte order, bytes per row, copy, marks",
    },
  );
  const first = h("div", { class: "dg-row dg-hex-bar" }, choices.row, search.row, actions.row, more);
  return h("div", {}, first, second, search.below);
}

// The bytes at the cursor as each value type.
export function makeInspector() {
  const names = Object.keys(DTYPES);
  const cells = names.map(() => [h("td"), h("td")]);
  const title = h("summary", {}, "At the cursor");
  const table = h(
    "table",
    { "aria-label": "The bytes at the cursor as numbers" },
    h(
      "thead",
      {},
      h("tr", {}, ...["type", "little-endian", "big-endian"].map((name) => h("th", { scope: "col" }, name))),
    ),
    h("tbody", {}, ...names.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), ...cells[i]))),
  );
  const box = h("details", { class: "dg-hex-inspector" }, title, table);
  let shownKey = "";
  const set = (cell, text) => cell.textContent !== text && (cell.textContent = text);
  const show = (at, bytes) => {
    const key = `${at} ${bytes}`;
    if (key === shownKey) return;
    shownKey = key;
    table.hidden = !bytes;
    set(title, bytes ? `At ${hexOffset(at)} (${at.toLocaleString("en-US")})` : "At the cursor: not in view");
    const view = bytes && new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    names.forEach((name, i) =>
      [true, false].forEach((little, k) => set(cells[i][k], view ? valueAt(view, 0, name, little) : "")),
    );
  };
  return { box, show };
}
