// The sweep of a LatencyPlot: the switch between both modes, the controls, the table.

import { button, field, h } from "../base/elements.js";
import { micros, plural } from "../base/units.js";
import { nameFigures } from "./parts.js";

const MODES = [
  ["live", "Live"],
  ["sweep", "Size sweep"],
];

// The buttons that switch the mode of the plot, in all its views.
export function modeSwitch(call) {
  const buttons = MODES.map(([mode, text]) => button(text, () => call("show", { mode }), { "data-mode": mode }));
  const group = h("span", { class: "dg-modes", role: "group", "aria-label": "Mode" }, ...buttons);
  const update = ({ mode }) =>
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.mode === mode)));
  return { group, update };
}

// The row of actions of a sweep, with its settings and its progress.
// `compare` is called when published figures are to be shown, or no longer.
export function sweepActions(call, python, compare) {
  const inputs = {
    sizes: h("input", { size: 34, spellcheck: "false" }),
    rounds: h("input", { type: "number", min: 1, max: 100, step: 1 }),
    samples: h("input", { type: "number", min: 1, max: 100000, step: 1 }),
  };
  const fields = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
  const go = button(
    "Start sweep",
    () => (go.dataset.action === "stop" ? call("stop_sweep") : call("start_sweep", fields(), inputs)),
    { class: "dg-button dg-main" },
  );
  const keep = button("Keep for comparison", () => call("keep_sweep"));
  const drop = button("Remove comparison", () => call("drop_sweep"));
  const published = button(
    "Published figures",
    () => {
      const pressed = published.getAttribute("aria-pressed") !== "true";
      published.setAttribute("aria-pressed", String(pressed));
      compare(pressed);
    },
    { "aria-pressed": "false", title: "Show what others have measured on hardware, with its sources" },
  );
  const bar = h("progress", { "aria-label": "Progress of the sweep" });
  const row = h(
    "div",
    { class: "dg-row" },
    go,
    keep,
    drop,
    published,
    python,
    field("Bytes (8, 64, 4K)", inputs.sizes),
    field("Rounds", inputs.rounds),
    field("Samples a round", inputs.samples),
    bar,
  );
  let shown = "";
  const update = ({ sweep, sweep_kept: kept, sweep_setting: setting }) => {
    const running = sweep?.status === "running";
    go.textContent = running ? "Stop sweep" : "Start sweep";
    go.dataset.action = running ? "stop" : "start";
    keep.disabled = running || !sweep?.done;
    drop.hidden = !kept;
    bar.hidden = !running;
    if (running) Object.assign(bar, { max: sweep.total, value: sweep.done });
    if (JSON.stringify(setting) === shown) return; // typed values stay until a sweep is started
    shown = JSON.stringify(setting);
    for (const [name, input] of Object.entries(inputs)) input.value = setting[name];
  };
  return { row, update };
}

// The status of a sweep as a sentence.
export function sweepStatus({ sweep, running }) {
  if (!sweep) return "No sweep yet.";
  const count = `${sweep.done.toLocaleString("en-US")} of ${plural(sweep.total, "measurement")}`;
  const live = running ? " The live measurement runs." : "";
  if (sweep.status === "running") return `Sweeping: ${count}.`;
  if (sweep.status === "failed") return `Failed after ${count}: ${sweep.error.text}`;
  return `${sweep.status === "done" ? "Done" : "Stopped"}: ${count}.${live}`;
}

// The caption above the figure, on the page and in the picture.
export function sweepCaption({ sweep, sweep_before: before }, compared = false) {
  if (!sweep?.rows.length) return ["Latency over sizes, with the floor of each. Press Start sweep."];
  const lines = [
    `${sweep.label} (provider ${sweep.provider}), ${sweep.words}; ${sweep.where}; ${sweep.machine}`,
    `floor: ${sweep.floor}; the band is the least to the greatest p50 of the rounds`,
  ];
  if (before) lines.push(`before: ${before.label} (provider ${before.provider}), ${before.words}; ${before.where}`);
  if (compared) {
    lines.push("published by others, on hardware; no prediction for this machine:");
    const series = new Map();
    for (const { what, source, us, size } of sweep.published) {
      const text = `${what}: ${source}`;
      series.set(text, [...(series.get(text) ?? []), `${us} µs at ${size} B`]);
    }
    for (const [text, points] of series) lines.push(`${text}; ${points.join(", ")}`);
  }
  return lines;
}

// The figures as a table, also for readers who cannot see the plot.
export function sweepTable() {
  const names = ["p50", "least", "greatest", "p99", "floor", "p50 / floor", "GB/s"];
  const compared = ["before: p50", "after / before"];
  const number = (text) => h("th", { scope: "col", class: "dg-number" }, text);
  const extra = compared.map(number);
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "bytes"),
    h("th", { scope: "col" }, "path"),
    number("samples"),
    ...names.map(number),
    ...extra,
  );
  const body = h("tbody");
  const micro = (ns) => (ns == null ? "–" : micros(ns));
  const toFloor = ({ ratio, moved }) =>
    ratio == null ? (moved ? "unsteady" : "–") : `${ratio.toFixed(2)}${moved ? " *" : ""}`;
  const update = ({ sweep, sweep_before: before }) => {
    const rows = sweep?.rows ?? [];
    const earlier = new Map((before?.rows ?? []).map((row) => [row.size, row]));
    extra.forEach((cell) => (cell.hidden = !before));
    body.replaceChildren(
      ...rows.map((row) => {
        const old = earlier.get(row.size);
        const cells = [
          row.samples.toLocaleString("en-US"),
          ...[row.p50, row.low, row.high, row.p99, row.floor].map(micro),
          toFloor(row),
          row.gb_per_s.toPrecision(3),
        ];
        if (before) cells.push(micro(old?.p50), old ? (row.p50 / old.p50).toFixed(2) : "–");
        return h(
          "tr",
          {},
          h("th", { scope: "row" }, row.text),
          h("td", {}, row.path),
          ...cells.map((text) => h("td", { class: "dg-number" }, text)),
        );
      }),
    );
    table.hidden = !rows.length;
    moved.hidden = !rows.some((row) => row.moved);
    nameFigures(table.firstChild);
  };
  const moved = h("span", {}, " * without the rounds whose floor moved by more than half, or was above the p50.");
  const caption = h(
    "caption",
    { class: "dg-help" },
    "Times in µs, the median of the rounds; GB/s with one operation at a time.",
    moved,
  );
  const table = h(
    "div",
    { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": "Sweep" },
    h("table", { class: "dg-runs" }, caption, h("thead", {}, head), body),
  );
  return { table, update };
}
