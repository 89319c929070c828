// NICs of each GPU, experiments as buttons that say what they do, and the comparison with a snapshot.

import { field, h } from "../base/elements.js";
import { tableOf } from "../base/forms.js";
import { plural } from "../base/units.js";
import { focusable, verdictOf } from "./findings.js";

// A table of texts.
function textTable(caption, header, rows) {
  const { box, body } = tableOf(caption, header);
  body.replaceChildren(...rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell)))));
  return box;
}

const fold = (title, ...children) => h("details", { hidden: true }, h("summary", {}, title), ...children);

export function makeNics() {
  const answer = h("p", { class: "dg-why" });
  const table = h("div");
  const part = fold("Which NIC for which GPU", answer, table);
  const draw = (nics) => {
    part.hidden = !nics;
    if (!nics) return;
    answer.textContent = nics.answer;
    table.replaceChildren(textTable("NICs of each GPU", nics.header, nics.rows));
  };
  return { part, draw };
}

// `run(name)` starts the experiments of a kind.
export function makeExperiments(run) {
  const list = h("ul", { class: "dg-trials" });
  const help = h("p", { class: "dg-help" }, "Each runs in a process of its own and changes no setting.");
  const part = fold("Try it: a result overrules an inference", help, list);
  const item = ({ name, title, does, verdict, text }) =>
    h(
      "li",
      { class: "dg-trial" },
      focusable(title, () => run(name), { "data-again": "", "aria-label": `${title}: ${does}` }),
      h("span", { class: "dg-help" }, ` ${does} `),
      verdict ? verdictOf(verdict) : null,
      text ? h("span", {}, ` ${text}`) : null,
    );
  const draw = (experiments) => {
    part.hidden = !experiments.length;
    list.replaceChildren(...experiments.map(item));
  };
  return { part, draw };
}

// `compare(path)` compares with a snapshot, or with none.
export function makeComparison(compare) {
  const line = h("p");
  const table = h("div");
  const path = h("input", { class: "dg-path", type: "text", spellcheck: false });
  const button = focusable("Compare", () => compare(path.value), { "data-again": "" });
  const row = h("div", { class: "dg-row" }, field("Snapshot, on the kernel's machine", path), button);
  const part = fold("Compare with a snapshot", row, line, table);
  part.hidden = false;
  const draw = (compared) => {
    line.hidden = table.hidden = !compared;
    if (!compared) return;
    const { names, verdicts, rows, same } = compared;
    line.textContent = `${names[0]}: ${verdicts[0]}. ${names[1]}: ${verdicts[1]}. ${plural(same, "check")} the same.`;
    const cells = rows.map(({ check, verdicts: words, found, decides }) => [
      `${check}${decides ? " (decides)" : ""}`,
      `${words[0]}: ${found[0]}`,
      `${words[1]}: ${found[1]}`,
    ]);
    table.replaceChildren(textTable("What differs", ["check", ...names], cells));
  };
  return { part, draw };
}
