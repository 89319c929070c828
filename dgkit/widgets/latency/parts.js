// Parts of a LatencyPlot's view other than figures: controls, table, caption, files.

import { button, choice, field, h, setOptions } from "../base/elements.js";
import { micros } from "../base/units.js";

const RANGES = [
  [30, "30 s"],
  [120, "2 min"],
  [600, "10 min"],
  [3600, "1 h"],
];

// The row of actions; `call(name, fields)` calls the kernel.
export function liveActions(call, { pause, enlarge, range }, python) {
  const start = button("Start", () => call(start.dataset.action), { class: "dg-button dg-main" });
  const pauseButton = button("Pause drawing", () => pause(pauseButton), { "aria-pressed": "false" });
  const large = button("Large", () => enlarge(large), {
    "aria-pressed": "false",
    title: "One large number and one line, for a lecture",
  });
  const span = choice(RANGES, { onchange: () => range(Number(span.value)) });
  const name = h("input", { size: 10, maxlength: 40, placeholder: "before", spellcheck: "false" });
  const keep = button("Keep for comparison", () => keepRun());
  const keepRun = () => call("keep", { name: name.value.trim() || name.placeholder }, { name });
  name.addEventListener("keydown", ({ key }) => key === "Enter" && keepRun());
  const kept = choice([], { onchange: () => call("compare_with", { name: kept.value }) });
  const drop = button("Remove comparison", () => call("drop", { name: kept.value }));
  const compared = h("span", { class: "dg-row", hidden: true }, field("Compared with", kept), drop);
  const row = h(
    "div",
    { class: "dg-row" },
    start,
    pauseButton,
    button("Clear", () => call("clear")),
    python,
    large,
    field("Time shown", span),
    field("Name", name),
    keep,
    compared,
  );
  const update = (state) => {
    start.textContent = state.running ? "Stop" : "Start";
    start.dataset.action = state.running ? "stop" : "start";
    const names = state.kept;
    setOptions(
      kept,
      names.map((each) => [each, each]),
      state.before_name,
    );
    compared.hidden = !names.length;
    keep.disabled = !state.run?.samples && !state.running;
  };
  return { row, update };
}

// The strip that chooses the time shown, between buttons that do the same; look(-1, 1 or 0) moves it.
export function pastRow(strip, look) {
  const step = (text, label, way) => button(text, () => look(way), { "aria-label": label, title: label });
  const now = button("Now", () => look(0), { hidden: true, title: "Show all of it, up to the last sample" });
  const row = h(
    "div",
    { class: "dg-past-row", role: "group", "aria-label": "Time shown in the figures" },
    step("◀", "Earlier", -1),
    strip,
    step("▶", "Later", 1),
    now,
  );
  return { row, show: (back) => (now.hidden = !back) };
}

// The median as one large number, and what it is of.
export function largeNumber() {
  const value = h("strong");
  const text = h("span");
  const element = h("p", { class: "dg-large" }, value, text);
  const update = ({ run }) => {
    const { p50, p99 } = run?.figures ?? {};
    value.textContent = p50 ? `${micros(p50, 2)} µs` : "–";
    text.textContent = p50 ? `p50 of ${run.words}${p99 ? `; p99 ${micros(p99, 2)} µs` : ""}` : "no samples yet";
  };
  return { element, update };
}

// The row of settings. A control that has the focus is not updated.
export function settingsRow(call) {
  const controls = {
    region: choice([], {}),
    op: choice(["write", "read"]),
    size: h("input", { size: 8 }),
    path: choice([
      ["auto", "auto"],
      ["inline", "inline"],
      ["worker", "worker"],
      ["GPU-initiated", "GPU-initiated"],
    ]),
    count: h("input", { type: "number", min: 1, max: 4096, step: 1 }),
  };
  const labels = {
    region: "Memory",
    op: "Operation",
    size: "Size (64, 4 KiB)",
    path: "Path",
    count: "Samples per block",
  };
  const show = (name, setting) => {
    if (document.activeElement !== controls[name]) controls[name].value = setting[name];
  };
  for (const [name, control] of Object.entries(controls))
    control.addEventListener("change", () => call("change", { [name]: control.value }, control));
  const update = ({ setting, regions }) => {
    setOptions(controls.region, regionChoices(regions, setting.region), String(setting.region));
    for (const name of ["op", "size", "path", "count"]) show(name, setting);
  };
  const fields = Object.entries(controls).map(([name, control]) => [name, field(labels[name], control)]);
  const row = h("div", { class: "dg-row dg-settings" }, ...fields.map(([, box]) => box));
  const live = fields.filter(([name]) => name === "size" || name === "count");
  return { row, update, show: (sweeps) => live.forEach(([, box]) => (box.hidden = sweeps)) };
}

function regionChoices(regions, chosen) {
  const all = [
    ["0", "the plot's own memory"],
    ...(regions ?? []).map(({ id, name, text }) => [String(id), `${name}, ${text}`]),
  ];
  if (!all.some(([id]) => Number(id) === chosen)) all.push([String(chosen), `region ${chosen} (freed)`]);
  return all;
}

// Labels each figure of a table of runs with its column's header, for narrow panels.
export function nameFigures(table) {
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  for (const row of table.querySelectorAll("tbody tr, tfoot tr"))
    for (const cell of row.cells)
      if (cell.tagName === "TD" && cell.textContent) cell.dataset.head = names[cell.cellIndex];
}

// The percentiles as a table, also for readers who cannot see the plots.
export function liveTable() {
  const names = ["min", "p50", "p90", "p99", "p99.9", "max"];
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "run"),
    h("th", { scope: "col", class: "dg-number" }, "samples"),
    ...names.map((name) => h("th", { scope: "col", class: "dg-number" }, name)),
  );
  const body = h("tbody");
  const foot = h("tfoot");
  const rowOf = (title, run) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, title),
      ...[
        run.samples.toLocaleString("en-US"),
        ...names.map((name) => (name in run.figures ? micros(run.figures[name]) : "–")),
      ].map((text) => h("td", { class: "dg-number" }, text)),
    );
  const ratioRow = (title, now, old) =>
    h(
      "tr",
      { class: "dg-ratio" },
      h("th", { scope: "row" }, title),
      h("td"),
      ...names.map((name) =>
        h("td", { class: "dg-number" }, old[name] && now[name] ? (now[name] / old[name]).toFixed(2) : "–"),
      ),
    );
  const update = ({ run, before, nowName, beforeName }) => {
    const rows = [];
    if (before) rows.push(rowOf(`${beforeName}: ${before.words}`, before));
    if (run) rows.push(rowOf(before ? `${nowName}: ${run.words}` : run.words, run));
    body.replaceChildren(...rows);
    const ratios = run?.samples && before;
    foot.replaceChildren(...(ratios ? [ratioRow(`${nowName} / ${beforeName}`, run.figures, before.figures)] : []));
    table.hidden = !rows.length;
    nameFigures(table.firstChild);
  };
  const caption = h(
    "caption",
    { class: "dg-help" },
    "Latency in µs; percentiles by nearest rank, accurate to 0.6 %. " +
      "Over time: p50 and max of each block, p99 of the last second or 1,000 samples.",
  );
  const table = h(
    "div",
    { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": "Percentiles" },
    h("table", { class: "dg-runs" }, caption, h("thead", {}, head), body, foot),
  );
  return { table, update };
}

// The caption under the title, on the page and in the picture.
export function liveCaption({ run, before, beforeName }) {
  if (!run) return ["No samples yet. Press Start to measure at the DPU until Stop is pressed."];
  const lost = run.lost ? `; ${run.lost.toLocaleString("en-US")} blocks lost, shown as gaps` : "";
  const rate = run.rate ? `, measured ${Math.round(run.rate).toLocaleString("en-US")} samples/s` : "";
  const lines = [
    `${run.label} (provider ${run.provider}), ${run.words}; ${run.taken}${rate}${lost}`,
    `${run.where}; ${run.machine}`,
  ];
  if (before)
    lines.push(
      `${beforeName}: ${before.label} (provider ${before.provider}), ${before.words}; ${before.where}; kept ${before.kept}`,
    );
  return lines;
}

// One picture: the caption above the figures, in the layout and on the background of the page.
export function pictureOf(canvases, elements, lines, root) {
  const style = getComputedStyle(root);
  const scale = devicePixelRatio || 1;
  const pad = 12 * scale;
  const row = 17 * scale;
  const boxes = elements.map((element) => element.getBoundingClientRect());
  const grid = elements[0].parentElement.getBoundingClientRect();
  const canvas = h("canvas");
  const context = canvas.getContext("2d");
  const font = `${12 * scale}px sans-serif`;
  canvas.width = grid.width * scale + 2 * pad;
  context.font = font;
  const wrapped = lines.flatMap((line) => wrapText(context, line, canvas.width - 2 * pad));
  const top = row * (wrapped.length + 1);
  canvas.height = top + grid.height * scale + pad;
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  Object.assign(context, { font, fillStyle: style.color });
  wrapped.forEach((line, at) => context.fillText(line, pad, row * (at + 1)));
  canvases.forEach((figure, at) =>
    context.drawImage(figure, pad + (boxes[at].left - grid.left) * scale, top + (boxes[at].top - grid.top) * scale),
  );
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function wrapText(context, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (context.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

const PAPER_FIGURES = [
  ["time", "over time"],
  ["histogram", "histogram"],
  ["percentiles", "percentiles"],
  ["cdf", "CDF"],
  ["ccdf", "CCDF"],
];
const PAPER_SWEEPS = [
  ["sweep", "over sizes"],
  ["rate", "rate over sizes"],
];

// The rows of files, of the live mode or of a sweep; save(kind) saves one, saveFigure(what, kind) a
// figure for a paper.
export function filesRow(save, saveFigure) {
  const kinds = [
    ["png", "PNG"],
    ["time", "CSV"],
    ["histogram", "Histogram CSV"],
    ["html", "Report"],
    ["json", "Report JSON"],
    ["sweep", "CSV"],
    ["sweep-json", "Report JSON"],
  ];
  const buttons = kinds.map(([kind, text]) => [kind, button(text, () => save(kind))]);
  const figure = choice([], { "aria-label": "Figure for a paper" });
  const paper = ["svg", "pdf"].map((kind) =>
    button(kind.toUpperCase(), () => saveFigure(figure.value, kind), {
      title: "One column wide (3.3 in), for a paper",
    }),
  );
  const row = h(
    "div",
    { class: "dg-row", role: "group", "aria-label": "Save as a file" },
    h("span", { class: "dg-help" }, "Save as:"),
    ...buttons.map(([, one]) => one),
    h("span", { class: "dg-help" }, "For a paper:"),
    figure,
    ...paper,
  );
  const show = (sweeps) => {
    for (const [kind, one] of buttons) one.hidden = kind !== "png" && kind.startsWith("sweep") !== sweeps;
    setOptions(figure, sweeps ? PAPER_SWEEPS : PAPER_FIGURES);
  };
  return { row, show };
}
