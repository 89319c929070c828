// What stands around the rows of the hex view: choices, search, copy, and the inspector.

const SOURCE_NAMES = { dpu: "as the DPU reads it", host: "as the host sees it", both: "both, side by side" };
const FORM_NAMES = [["hex", "hex"], ["text", "text"], ["python", "Python bytes"], ["c", "C array"],
  ["numpy", "NumPy expression"]];

const toggle = (text, change) => button(text, (event) => {
  const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
  change(on);
}, { "aria-pressed": "false" });

// Region, whose view, how it is read, and the offset to go to.
function makeChoices(does) {
  const region = choice([], { onchange: () => does.choose(Number(region.value)) });
  const source = choice(Object.entries(SOURCE_NAMES), { onchange: () => does.show({ source: source.value }) });
  const dtype = choice(Object.entries(DTYPE_NAMES), { onchange: () => does.show({ dtype: dtype.value }) });
  const endian = choice([["little", "little-endian"], ["big", "big-endian"]],
    { onchange: () => does.show({ endian: endian.value }) });
  const offset = h("input", { size: 12, spellcheck: "false", autocomplete: "off", placeholder: "0x40, 4K, +16, end",
    onkeydown: (event) => event.key === "Enter" && does.goto(offset) });
  const go = button("Go", () => does.goto(offset), { "aria-label": "Go to offset" });
  const row = h("div", { class: "dg-hex-group" }, field("Region", region), field("Shown", source),
    field("Values", dtype), field("Byte order", endian),
    h("div", { class: "dg-join" }, field("Go to offset", offset), go));
  const note = h("p", { class: "dg-help" });
  const apply = (state) => {
    const about = state.region, own = state.regions.some((one) => one.id === about?.id);
    refill(region, [...(own ? [] : [["", state.closed ? "closed" : about ? about.name : "none"]]),
      ...state.regions.map((one) => [one.id, `${one.name}, ${one.text}`])], about?.id ?? "");
    region.disabled = !state.regions.length;
    for (const option of source.options)
      option.disabled = Boolean(about && (option.value !== "dpu" && about.no_host || option.value !== "host" && about.no_dpu));
    [source.value, dtype.value, endian.value] = [state.source, state.dtype, state.endian];
    for (const control of [source, dtype, endian, offset, go]) control.disabled = !about;
    note.textContent = about ? [about.no_host, about.no_dpu, about.no_write].filter(Boolean).join(" ") : "";
    note.hidden = !note.textContent;
  };
  return { row, note, offset, apply };
}

// Find, compare, and how far that is.
function makeSearch(does) {
  const text = h("input", { size: 18, spellcheck: "false", autocomplete: "off", onkeydown: (event) => {
    if (event.key === "Enter") does.find(event.shiftKey);
    if (event.key === "Escape") does.stop();
  } });
  const kind = choice([["text", "text (UTF-8)"], ["hex", "hex bytes"]]);
  const next = button("Next", () => does.find(false), { "aria-label": "Find next" });
  const previous = button("Previous", () => does.find(true), { "aria-label": "Find previous" });
  const unlike = h("div", { class: "dg-join", role: "group", "aria-label": "Differences between DPU and host" },
    button("Next difference", () => does.compare({})),
    button("Previous difference", () => does.compare({ backward: true })),
    button("Count differences", () => does.compare({ count: true })));
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Searched" });
  const cancel = button("Cancel", () => does.stop(), { "aria-label": "Cancel the search" });
  const running = h("div", { class: "dg-join" }, bar, cancel);
  const row = h("div", { class: "dg-hex-group" },
    h("div", { class: "dg-join" }, field("Find", text), field("as", kind), previous, next), unlike, running);
  const apply = (state) => {
    const hunt = state.hunt;
    unlike.hidden = !state.region || Boolean(state.region.no_host || state.region.no_dpu) || state.source !== "both";
    running.hidden = hunt.now !== "running";
    bar.value = hunt.size ? hunt.done / hunt.size : 0;
    for (const control of [text, kind, next, previous]) control.disabled = !state.region;
  };
  return { row, text, kind, apply };
}

// In words, what became of a search.
function huntWords(hunt) {
  const what = hunt.what === "find" ? "Found" : "They differ";
  switch (hunt.now) {
    case "running": return `Searching: ${Math.floor((100 * hunt.done) / hunt.size)} %`;
    case "cancelled": return "The search was cancelled.";
    case "failed": return "The search ended by an error.";
    case "freed": return "The search ended: the region was freed.";
    case "counted": return hunt.bytes
      ? `${plural(hunt.bytes, "byte")} in ${plural(hunt.runs, "place")} differ between DPU and host.`
      : "DPU and host see the same bytes.";
    case "none": return hunt.what === "find" ? "Not found." : "DPU and host see the same bytes.";
    case "found": return `${what} at ${hexOffset(hunt.at)}${hunt.wrapped ? ", after going on at the other end" : ""}.`;
  }
  return "";
}

// Look again, watch, mark, copy, undo.
function makeActions(does) {
  const live = toggle("Watch live", (on) => does.watch(on));
  const form = choice(FORM_NAMES);
  const undo = button("Undo edit", () => does.undo());
  const mark = button("Mark as seen", () => does.mark(), { title: "Forget which bytes have changed" });
  const again = button("Refresh", () => does.refresh());
  const copy = button("Copy", () => does.copy(), { "aria-label": "Copy the selection" });
  const row = h("div", { class: "dg-hex-group" },
    h("div", { class: "dg-join" }, again, live, mark, undo),
    h("div", { class: "dg-join" }, field("Copy as", form), copy));
  const apply = (state) => {
    live.setAttribute("aria-pressed", String(state.live));
    undo.disabled = !state.undoable || !state.region;
    for (const control of [live, mark, again, copy, form]) control.disabled = !state.region;
  };
  return { row, form, apply };
}

// All readings of the bytes at the cursor.
function makeInspector() {
  const names = Object.keys(DTYPES);
  const cells = names.map(() => [h("td"), h("td")]);
  const title = h("summary", {}, "At the cursor");
  const table = h("table", { "aria-label": "The bytes at the cursor as numbers" },
    h("thead", {}, h("tr", {}, ...["type", "little-endian", "big-endian"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...names.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), ...cells[i]))));
  const box = h("details", { class: "dg-hex-inspector" }, title, table);
  let last = "";
  const set = (cell, text) => cell.textContent !== text && (cell.textContent = text);
  const show = (at, bytes) => {
    const key = `${at} ${bytes}`;
    if (key === last) return;
    last = key;
    table.hidden = !bytes;
    set(title, bytes ? `At ${hexOffset(at)} (${at.toLocaleString("en-US")})` : "At the cursor: out of view");
    const view = bytes && new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    names.forEach((name, i) => [true, false].forEach((little, k) =>
      set(cells[i][k], view ? valueAt(view, 0, name, little) : "")));
  };
  return { box, show };
}
