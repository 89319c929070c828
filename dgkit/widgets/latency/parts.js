// The parts of a LatencyPlot's view that are no figures: controls, the table, the caption, files.

const LATENCY_RANGES = [[30, "30 s"], [120, "2 min"], [600, "10 min"], [3600, "1 h"]];

// The row of what is done: `did(name, fields)` asks the kernel.
function latencyActions(did, { pause, range }) {
  const start = button("Start", () => did(start.dataset.does), { class: "dg-button dg-main" });
  const hold = button("Pause drawing", () => pause(hold), { "aria-pressed": "false" });
  const span = choice(LATENCY_RANGES, { onchange: () => range(Number(span.value)) });
  const keep = button("Keep as before", () => did("keep"));
  const drop = button("Forget before", () => did("drop"), { hidden: true });
  const row = h("div", { class: "dg-row" }, start, hold, button("Clear", () => did("clear")), keep, drop,
    field("Time shown", span));
  const update = (state) => {
    start.textContent = state.running ? "Stop" : "Start";
    start.dataset.does = state.running ? "stop" : "start";
    drop.hidden = !state.before;
    keep.disabled = !state.run?.samples && !state.running;
  };
  return { row, update };
}

// The row of what is measured. A control that holds the focus is not changed under the person.
function latencySettings(did) {
  const controls = {
    region: choice([], {}), op: choice(["write", "read"]), size: h("input", { size: 8 }),
    path: choice([["auto", "auto"], ["inline", "inline"], ["worker", "worker"]]),
    count: h("input", { type: "number", min: 1, max: 4096, step: 1 }),
  };
  const labels = {
    region: "Memory", op: "Operation", size: "Size (64, 4 KiB)", path: "Path", count: "Samples per block",
  };
  const show = (name, setting) => {
    if (document.activeElement !== controls[name]) controls[name].value = setting[name];
  };
  for (const [name, control] of Object.entries(controls))
    control.addEventListener("change", () => did("change", { [name]: control.value }, control));
  const update = ({ setting, regions }) => {
    refill(controls.region, regionChoices(regions, setting.region), String(setting.region));
    for (const name of ["op", "size", "path", "count"]) show(name, setting);
  };
  const row = h("div", { class: "dg-row" },
    ...Object.entries(controls).map(([name, control]) => field(labels[name], control)));
  return { row, update };
}

function regionChoices(regions, chosen) {
  const all = [["0", "the plot's own"], ...(regions ?? []).map(({ id, name, text }) => [String(id), `${name}, ${text}`])];
  if (!all.some(([id]) => Number(id) === chosen)) all.push([String(chosen), `region ${chosen} (freed)`]);
  return all;
}

// A nanosecond is the least that the clock tells.
const latencyMicros = (ns) =>
  (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 });

// The figures as a table: for who cannot see the plots, and for who wants the numbers.
function latencyTable() {
  const names = ["min", "p50", "p90", "p99", "p99.9", "max"];
  const head = h("tr", {}, h("th", { scope: "col" }, "run"), h("th", { scope: "col", class: "dg-number" }, "samples"),
    ...names.map((name) => h("th", { scope: "col", class: "dg-number" }, name)));
  const body = h("tbody");
  const line = (title, run) => h("tr", {}, h("th", { scope: "row" }, title),
    ...[run.samples.toLocaleString("en-US"), ...names.map((name) => name in run.figures ? latencyMicros(run.figures[name]) : "–")]
      .map((text) => h("td", { class: "dg-number" }, text)));
  const update = ({ run, before }) => {
    const rows = [];
    if (before) rows.push(line(`before: ${before.words}`, before));
    if (run) rows.push(line(before ? `after: ${run.words}` : run.words, run));
    body.replaceChildren(...rows);
    table.hidden = !rows.length;
  };
  const caption = h("caption", { class: "dg-help" }, "Times in us; percentiles by nearest rank, within 0.6 %. " +
    "Over time: p50 and max of a block, p99 of the last second or 1,000 samples.");
  const table = h("div", { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": "Percentiles" },
    h("table", {}, caption, h("thead", {}, head), body));
  return { table, update };
}

// The lines under the title, on the page and on a picture.
function latencyCaption({ run, before }) {
  if (!run) return ["Nothing was measured yet. Start takes samples at the DPU until it is stopped."];
  const lost = run.lost ? `; ${run.lost.toLocaleString("en-US")} blocks lost, shown as gaps` : "";
  const rate = run.rate ? `, measured ${Math.round(run.rate).toLocaleString("en-US")} a second` : "";
  const lines = [
    `${run.label} (provider ${run.provider}), ${run.words}; ${run.taken}${rate}${lost}`,
    `${run.where}; ${run.machine}`,
  ];
  if (before) lines.push(`before: ${before.label} (provider ${before.provider}), ${before.words}; ${before.where}`);
  return lines;
}

// One picture: the caption, then the figures as they stand on the page, on its background.
function latencyPicture(canvases, elements, lines, root) {
  const style = getComputedStyle(root), scale = devicePixelRatio || 1, pad = 12 * scale, row = 17 * scale;
  const boxes = elements.map((element) => element.getBoundingClientRect());
  const grid = elements[0].parentElement.getBoundingClientRect();
  const made = h("canvas"), pen = made.getContext("2d");
  const font = `${12 * scale}px sans-serif`;
  made.width = grid.width * scale + 2 * pad;
  pen.font = font;
  const wrapped = lines.flatMap((line) => wrapText(pen, line, made.width - 2 * pad));
  const top = row * (wrapped.length + 1);
  made.height = top + grid.height * scale + pad;
  pen.fillStyle = style.backgroundColor;
  pen.fillRect(0, 0, made.width, made.height);
  Object.assign(pen, { font, fillStyle: style.color });
  wrapped.forEach((line, at) => pen.fillText(line, pad, row * (at + 1)));
  canvases.forEach((canvas, at) => pen.drawImage(
    canvas, pad + (boxes[at].left - grid.left) * scale, top + (boxes[at].top - grid.top) * scale));
  return new Promise((resolve) => made.toBlob(resolve, "image/png"));
}

function wrapText(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (pen.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// The row of files: `save(kind)`.
function latencyFiles(save) {
  const kinds = [
    ["png", "PNG"], ["time", "CSV"], ["histogram", "Histogram CSV"], ["html", "Report"], ["json", "Report JSON"],
  ];
  const buttons = kinds.map(([kind, text]) => button(text, () => save(kind)));
  return h("div", { class: "dg-row", role: "group", "aria-label": "Save as a file" },
    h("span", { class: "dg-help" }, "Save as:"), ...buttons);
}
