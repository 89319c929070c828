// DoctorPanel: machines and goal, headline, findings, PCIe tree.

import { choice, field, h, newId, statusLine } from "../base/elements.js";
import { toClipboard } from "../base/page.js";
import { panel } from "../base/panel.js";
import { plural } from "../base/units.js";
import { makeExperiments, makeNics } from "./extras.js";
import { focusable, makeFindings, makePaths, setEnabled, verdictOf } from "./findings.js";
import { makeTree } from "./tree.js";

function makeHead() {
  const machines = h("div", { class: "dg-machines" });
  const headline = h("div", { class: "dg-headline" });
  const machine = ({ name, kind, source, side }) =>
    h(
      "div",
      {},
      h("strong", {}, name),
      side ? ` (${side === "dpu" ? "DPU" : "host"}) ` : " ",
      kind ? h("span", { class: kind === "synthetic" ? "dg-badge dg-soft" : "dg-badge" }, `snapshot, ${kind}`) : null,
      source ? h("span", { class: "dg-help" }, ` ${source}`) : null,
    );
  const showMachines = (all) => machines.replaceChildren(...all.map(machine));
  const draw = (result) => {
    if (!result) return;
    const { counts, summary, goal, goal_text: text, chosen, verdict } = result;
    headline.replaceChildren(
      h(
        "p",
        { class: "dg-line" },
        verdictOf(verdict),
        h("strong", {}, goal),
        h("span", {}, text),
        chosen ? h("span", { class: "dg-help" }, `chosen because ${chosen}`) : null,
      ),
      h("p", {}, h("strong", {}, summary)),
      h("p", { class: "dg-help" }, `${counts}; took ${result.took_s} s`),
    );
  };
  return { parts: [machines, headline], showMachines, draw };
}

function makeControls(view, findings) {
  const goal = choice(view.state.goals, { onchange: () => view.attempt("aim", { goal: goal.value }) });
  const again = focusable("Check again", () => view.attempt("check"), { class: "dg-button dg-main" });
  const only = h("input", { type: "checkbox", onchange: () => findings.only(only.checked) });
  const bar = h("progress", { "aria-label": "Checks done" });
  const text = h("span");
  const status = statusLine();
  only.id = newId();
  const box = h("div", { class: "dg-bar", hidden: true }, bar, text);
  const row = h(
    "div",
    { class: "dg-row" },
    field("Goal", goal),
    again,
    h("div", { class: "dg-tick" }, only, h("label", { for: only.id }, "Problems only")),
  );
  const progress = ([done, of]) => {
    if (of) Object.assign(bar, { max: of, value: done });
    else bar.removeAttribute("value");
    text.textContent = of ? `${done} of ${plural(of, "check")}` : "Reading the machine…";
  };
  const draw = ({ run, goal: current, result, failed }) => {
    goal.value = current;
    box.hidden = !run;
    setEnabled(again, !run);
    for (const control of view.body.querySelectorAll("[data-again]")) setEnabled(control, !run);
    view.root.dataset.running = Boolean(run);
    if (run) progress(run.at);
    const done = failed ? "The check failed." : result ? `Checked: ${result.verdict}.` : "";
    status.textContent = run ? (run.check ? `Checking ${run.check}.` : "Checking.") : done;
  };
  return { row, box, status, again, draw, progress };
}

export function draw(view) {
  const copied = async (text) => {
    try {
      await toClipboard(text);
      view.clear();
      controls.status.textContent = `Copied: ${text.split("\n").length > 1 ? plural(text.split("\n").length, "line") : text}`;
    } catch (error) {
      view.fail({ text: error.message, hint: "Select the command and copy it with the keyboard." });
    }
  };
  const findings = makeFindings({ copied, again: (check) => view.attempt("check", { check }) });
  const controls = makeControls(view, findings);
  const head = makeHead();
  const paths = makePaths();
  const tree = makeTree(view);
  const nics = makeNics();
  const experiments = makeExperiments((kind) => view.attempt("experiment", { kind }));
  const { row, box, status } = controls;
  const parts = [paths.part, findings.part, experiments.part, nics.part, tree.part];
  view.body.append(...head.parts, row, box, status, ...parts);
  const all = (state) => {
    head.draw(state.result);
    if (state.result) {
      findings.show(state.result, controls.again);
      paths.draw(state.result.data_paths);
    }
    experiments.draw(state.experiments);
    nics.draw(state.nics);
    tree.draw(state.topology);
    controls.draw(state);
  };
  head.showMachines(view.state.machines);
  all(view.state);
  if (view.state.failed) view.fail(view.state.failed);
  view.on("state", all);
  view.on("progress", ({ at }) => controls.progress(at));
  view.on("topology", ({ topology }) => tree.draw(topology));
}

export default panel({ name: "doctor", draw });
