// TransferPanel: the form, the progress of a run, and the completions.

import { button, h, statusLine } from "../base/elements.js";
import { replaceRows, tableOf } from "../base/forms.js";
import { panel, pythonButton } from "../base/panel.js";
import { micros, plural, sizeText } from "../base/units.js";
import { makeForm } from "./form.js";
import { Timeline } from "./timeline.js";

function makeProgress(view, status, setRunning) {
  const bar = h("progress", { max: 1, "aria-label": "Transfers" });
  const text = h("span");
  const cancel = button("Cancel", () => view.attempt("cancel"));
  const part = h("div", { class: "dg-bar", hidden: true }, bar, text, cancel);
  const draw = (run, ended) => {
    setRunning(Boolean(run));
    if (!run && part.contains(document.activeElement)) view.form.start.focus();
    if (run && part.hidden) status.textContent = ""; // of the run before
    part.hidden = !run;
    if (ended) status.textContent = ended;
    if (!run) return;
    bar.value = run.fraction;
    cancel.disabled = run.stopping;
    const many = run.repeat > 1 ? `, ${run.done.toLocaleString("en-US")} of ${run.repeat.toLocaleString("en-US")}` : "";
    const stalled = run.silent_s >= 2 ? `, no progress for ${Math.round(run.silent_s)} s` : "";
    text.textContent = `${run.what}${many}, ${Math.floor(100 * run.fraction)} %${run.stopping ? ", cancelling" : ""}${stalled}`;
  };
  return { part, draw };
}

// Submit to post and post to complete of one DMA as two boxes, to scale.
function timelineOf(record) {
  if (record.complete_ns === undefined) return record.error ?? "";
  const { post_ns: post, complete_ns: complete } = record;
  const text = `0 → ${micros(post, 2)} → ${micros(complete, 2)}`;
  const box = (name, ns) => h("span", { class: `dg-span ${name}`, style: `flex:${Math.max(ns, 0)} 1 0` });
  return h(
    "div",
    { class: "dg-times" },
    h("div", { class: "dg-line", "aria-hidden": "true" }, box("dg-posting", post), box("dg-moving", complete - post)),
    h("span", { title: `submitted at ${record.submit_ns} ns` }, text),
  );
}

function makeCompletions(view, status) {
  const headers = [
    ">No.",
    "Transfer",
    "Status",
    ">Size",
    "Last DMA: submit → post → complete, µs",
    "All DMAs, µs",
    "Actions",
  ];
  const { table, body, box } = tableOf("Completions, newest first", headers);
  const clock = h("span");
  const newest = h("span");
  const key =
    ". Each bar has its own scale: orange is submit to post, blue is post to complete. Transfers to or from this process " +
    "take two DMAs per chunk: a READ from one side and a WRITE to the other. The arrow keys go from row to row.";
  const part = h("div", { hidden: true }, box, h("p", { class: "dg-help" }, "Clock: ", clock, newest, key));
  const python = ({ number }) =>
    pythonButton(
      view,
      (text) => (status.textContent = text),
      () => ({ number }),
      {
        text: "Python",
        title: "Copy as Python",
        "aria-label": `Copy as Python: No. ${number}`,
        "data-key": `python:${number}`,
        tabindex: -1,
      },
    );
  const show = async (number) => {
    const reply = await view.attempt("show_bytes", { number });
    if (reply) status.textContent = reply.text;
  };
  const bytes = ({ number }) =>
    button("Bytes", () => show(number), {
      title: "Show these bytes in the hex view",
      "aria-label": `Show the bytes: No. ${number}`,
      "data-key": `bytes:${number}`,
      tabindex: -1,
    });
  const all = ({ read_ns: read, write_ns: write, chunks = 0 }) =>
    [read && `READ ${micros(read, 2)}`, write && `WRITE ${micros(write, 2)}`, chunks > 1 && plural(chunks, "chunk")]
      .filter(Boolean)
      .map((text) => h("div", {}, text));
  const line = (record) =>
    h(
      "tr",
      { "data-row": record.number, class: record.status === "OK" ? false : "dg-bad" },
      h("td", { class: "dg-number" }, String(record.number)),
      h("th", { scope: "row" }, `${record.what} +${record.offset.toLocaleString("en-US")}`),
      h("td", { title: record.error ?? null }, record.path ? `${record.status}, ${record.path}` : record.status),
      h("td", { class: "dg-number" }, record.size.toLocaleString("en-US")),
      h("td", {}, record.dma ? h("span", { class: "dg-dma" }, record.dma) : null, timelineOf(record)),
      h("td", {}, ...all(record)),
      h("td", {}, python(record), bytes(record)),
    );
  const draw = ({ completions }) => {
    part.hidden = completions.length === 0;
    replaceRows(body, completions.map(line).reverse(), table);
    const { submit_ns: at } = completions.findLast((record) => record.submit_ns) ?? {};
    newest.textContent = at ? `; the newest DMA was submitted at ${(Number(at) / 1e9).toFixed(6)} s` : "";
  };
  table.classList.add("dg-completions");
  // Tab stops at the table once; the arrow keys go to the buttons of its rows.
  const buttonsOf = (row) => [...(row?.querySelectorAll("button") ?? [])];
  box.addEventListener("keydown", (event) => {
    const row = event.target.closest("tbody tr");
    const at = buttonsOf(row).indexOf(event.target);
    const next = {
      ArrowDown: () => buttonsOf(row ? row.nextElementSibling : body.rows[0])[Math.max(at, 0)],
      ArrowUp: () => buttonsOf(row?.previousElementSibling)[at],
      ArrowRight: () => buttonsOf(row)[at + 1],
      ArrowLeft: () => buttonsOf(row)[at - 1],
    }[event.key]?.();
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  const choose = (number) => {
    const row = [...body.rows].find((one) => one.dataset.row === String(number));
    row?.scrollIntoView({ block: "nearest" });
    row?.querySelector("button")?.focus();
    show(number);
  };
  return { part, draw, choose, clock };
}

function makeSummary() {
  const { table, body, box } = tableOf("", ["µs, from the completions' timestamps", ">min", ">median", ">max"]);
  box.hidden = true;
  box.classList.add("dg-summary");
  const draw = (summary) => {
    box.hidden = !summary;
    if (!summary) return;
    table.caption.textContent = `${summary.what}: ${summary.count.toLocaleString("en-US")} transfers, ${sizeText(summary.bytes)}`;
    body.replaceChildren(
      ...summary.rows.map(([what, ...ns]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, what),
          ...ns.map((value) => h("td", { class: "dg-number" }, micros(value, 2))),
        ),
      ),
    );
  };
  return { part: box, draw };
}

// A line of 16 bytes (html_cards.hex_lines) as one or two lines of 8, for a narrow panel.
export function halves(line) {
  const [, offset, bytes, text] = /^(\w+) {2}(.{48}) {2}(.*)$/.exec(line) ?? [];
  if (!offset) return [line];
  const half = (at) =>
    `${(parseInt(offset, 16) + at).toString(16).padStart(offset.length, "0")}  ${bytes.slice(at && 25, at ? 48 : 23)}  ${text.slice(at, at + 8)}`;
  return text.length > 8 ? [half(0), half(8)] : [half(0)];
}

function makeReadResult() {
  const title = h("strong");
  const lines = h("pre", { class: "dg-mono dg-bytes", tabindex: 0, "aria-label": "First bytes of the last read" });
  const part = h("div", { hidden: true }, title, lines);
  const draw = (result) => {
    part.hidden = !result;
    if (!result) return;
    if (part.dataset.number === String(result.number)) return;
    part.dataset.number = result.number;
    const shown = result.size > 16 * result.lines.length ? `, the first ${16 * result.lines.length} shown` : "";
    title.textContent = `No. ${result.number}, ${result.what}: ${sizeText(result.size)}${shown}`;
    lines.replaceChildren(
      h("span", { class: "dg-lines16" }, result.lines.join("\n")),
      h("span", { class: "dg-lines8" }, result.lines.flatMap(halves).join("\n")),
    );
  };
  return { part, draw };
}

function draw(view) {
  view.session = view.state;
  const status = statusLine();
  const form = (view.form = makeForm(view));
  const setRunning = (running) => {
    view.running = running;
    form.start.disabled = running || !view.session.regions.length;
  };
  const progress = makeProgress(view, status, setRunning);
  const summary = makeSummary();
  const readResult = makeReadResult();
  const completions = makeCompletions(view, status);
  const timeline = new Timeline(completions.choose);
  const fields = h("fieldset", {}, form.form);
  view.body.append(fields, progress.part, status, summary.part, readResult.part, timeline.part, completions.part);
  const showSession = (state, select) => {
    view.session = state;
    fields.disabled = state.closed;
    if (state.closed) status.textContent = "The session is closed: run the cell that opens it again.";
    form.showRegions(state, select);
    view.titled({ title: view.state.title, ...state });
  };
  // The kernel makes the time line when a view asks for it, after the rows of a run. One call at a
  // time, or a page that draws more slowly than rows come would have ever more replies to draw.
  let asking = false;
  let outdated = false;
  const showTimeline = async () => {
    outdated = true;
    if (asking) return;
    asking = true;
    try {
      while (outdated) {
        outdated = false;
        const reply = await view.call("timeline");
        timeline.draw(reply.timeline);
        completions.clock.textContent = reply.clock;
      }
    } finally {
      asking = false;
    }
  };
  const results = (message) => {
    completions.draw(message);
    summary.draw(message.summary);
    readResult.draw(message.read_result);
    if (message.completions.length) showTimeline().catch(view.fail);
  };
  showSession(view.state, true);
  progress.draw(view.state.run, "");
  results(view.state);
  view.on("session", ({ change, session }) => change !== "written" && showSession(session, change === "select"));
  view.on("run", (message) => progress.draw(message.run, message.ended));
  view.on("results", results);
}

export const transfer = panel({ name: "transfer", draw });
export default transfer;
