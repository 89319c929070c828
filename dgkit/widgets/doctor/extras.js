// NICs of each GPU, and experiments as buttons that say what they do.

import { h } from "../base/elements.js";
import { tableOf } from "../base/forms.js";
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
