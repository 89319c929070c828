// Findings and data paths: each problem, what it blocks, and the commands that fix it.

import { button, focusedElement, h } from "../base/elements.js";
import { tableOf } from "../base/forms.js";
import { plural } from "../base/units.js";

const verdictClass = { fail: "dg-fail", warn: "dg-warn", unknown: "dg-unknown", ok: "dg-ok", "n.a.": "dg-na" };
const WRONG = ["fail", "warn", "unknown"];

export const verdictOf = (word) => h("span", { class: `dg-verdict ${verdictClass[word] ?? "dg-na"}` }, word);

// A button that keeps the focus while it is disabled.
export function focusable(text, onclick, attributes = {}) {
  const made = button(text, (event) => made.getAttribute("aria-disabled") || onclick(event), attributes);
  return made;
}

export function setEnabled(control, enabled) {
  if (enabled) control.removeAttribute("aria-disabled");
  else control.setAttribute("aria-disabled", "true");
}

const isComment = (line) => line.trimStart().startsWith("#");

// The number of consecutive commands that end at a line; a comment between commands separates them.
export function rowOf(lines, at) {
  if (isComment(lines[at]) || (lines[at + 1] && !isComment(lines[at + 1]))) return 0;
  return at - lines.slice(0, at).findLastIndex(isComment);
}

// `&&`: the first failure stops the row, and no command becomes input of the previous one.
export const inARow = (lines) => lines.join(lines.some((line) => line.includes(" #")) ? "\n" : " && ");

// Commands in order, with a button for each and for a row; `copied(text)` copies to the clipboard.
function remedyOf(finding, copied) {
  const about = finding.subject ? `${finding.title}, ${finding.subject}` : finding.title;
  const lines = finding.remedy;
  const row = (at) => {
    const count = rowOf(lines, at);
    const text = inARow(lines.slice(at + 1 - count, at + 1));
    return count < 2
      ? null
      : button(`Copy these ${count}`, () => copied(text), {
          "aria-label": `Copy these ${count} of: ${about}`,
          "data-key": `row:${finding.key}:${at}`,
        });
  };
  const items = lines.map((line, at) =>
    isComment(line)
      ? h("li", { class: "dg-said" }, line.replace(/^[\s#]+/, ""))
      : h(
          "li",
          {},
          h("code", { class: "dg-mono" }, line),
          button("Copy", () => copied(line), {
            "aria-label": `Copy: ${line}`,
            "data-key": `copy:${finding.key}:${at}`,
          }),
          row(at),
        ),
  );
  return h("div", { class: "dg-remedy" }, h("ol", {}, ...items));
}

function sourcesOf({ sources }) {
  const link = ({ text, url }) =>
    /^https?:/.test(url) ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, text) : text;
  const items = sources.map((source) => h("li", {}, link(source)));
  return h("div", { class: "dg-help" }, items.length === 1 ? "Source:" : "Sources:", h("ul", {}, ...items));
}

function detailsOf(finding, opened, acts) {
  const { remedy, sources, disagree } = finding;
  const counted = remedy.filter((line) => !isComment(line)).length;
  const what = [
    remedy.length && (counted ? `What to do (${plural(counted, "command")})` : "What to do"),
    disagree && "where documents disagree",
    sources.length && plural(sources.length, "source"),
  ]
    .filter(Boolean)
    .join(", ");
  const again = focusable("Check this again", () => acts.again(finding.check), {
    "aria-label": `Check this again: ${finding.check}`,
    class: "dg-button dg-quiet",
    "data-again": "",
    "data-key": `again:${finding.key}`,
  });
  const open = opened.get(finding.key) ?? (finding.verdict === "fail" && remedy.length > 0);
  const made = h(
    "details",
    { open, ontoggle: () => opened.set(finding.key, made.open) },
    h("summary", { "data-key": `open:${finding.key}` }, what ? what[0].toUpperCase() + what.slice(1) : "More"),
    remedy.length ? remedyOf(finding, acts.copied) : null,
    disagree ? h("p", {}, h("strong", {}, "Documents disagree. "), disagree) : null,
    sources.length ? sourcesOf(finding) : null,
    h("p", { class: "dg-bar" }, again, h("span", { class: "dg-help dg-mono" }, finding.check)),
  );
  return made;
}

function findingOf(finding, opened, acts, sides) {
  const { verdict, title, subject, found, needed, why, side } = finding;
  const where = sides ? { host: "on the host", dpu: "on the DPU" }[side] : "";
  return h(
    "li",
    { class: `dg-finding ${verdictClass[verdict] ?? ""}` },
    h(
      "div",
      { class: "dg-line" },
      verdictOf(verdict),
      h("strong", {}, title),
      subject ? h("span", { class: "dg-subject" }, subject) : null,
      where ? h("span", { class: "dg-help" }, where) : null,
    ),
    h(
      "div",
      { class: "dg-what" },
      h("span", {}, found),
      needed ? h("span", { class: "dg-help" }, `${verdict === "n.a." ? "try" : "needed"}: ${needed}`) : null,
    ),
    why ? h("p", { class: "dg-why" }, why) : null,
    detailsOf(finding, opened, acts),
  );
}

// The data paths, each with its description below its name.
export function makePaths() {
  const { body, box: part } = tableOf("Data paths, best first", ["Data path", "Verdict", "Why"]);
  const verdict = (path) => h("span", { class: `dg-verdict ${verdictClass[path.verdict] ?? "dg-na"}` }, path.word);
  const row = (path) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: "dg-wrap" }, path.title, h("div", { class: "dg-help" }, path.what)),
      h("td", {}, verdict(path)),
      h("td", { class: "dg-wrap" }, path.why, path.checks ? h("div", { class: "dg-help dg-mono" }, path.checks) : null),
    );
  const draw = (paths) => {
    part.hidden = !paths.length;
    body.replaceChildren(...paths.map(row));
  };
  return { part, draw };
}

// The problems as a list; below it, collapsed, the checks that are ok or not applicable.
export function makeFindings(acts) {
  const opened = new Map();
  const wrong = h("ul", { class: "dg-findings", "aria-label": "Problems, the worst first" });
  const none = h("p", { class: "dg-help" });
  const folds = ["ok", "n.a."].map((verdict) => {
    const list = h("ul", {
      class: "dg-findings",
      "aria-label": verdict === "ok" ? "Checks that are ok" : "Checks that do not apply",
    });
    const text = h("summary", { "data-key": `fold:${verdict}` });
    return { verdict, list, text, box: h("details", {}, text, list) };
  });
  const part = h("div", {}, wrong, none, ...folds.map(({ box }) => box));
  let result = null;
  let onlyWrong = false;
  const fold = ({ verdict, list, text, box }, items) => {
    const matching = result.findings.filter((finding) => finding.verdict === verdict);
    box.hidden = onlyWrong || !matching.length;
    text.textContent = `${result.numbers[verdict] ?? 0} ${verdict === "ok" ? "ok" : "not applicable"}`;
    list.replaceChildren(...matching.map(items));
  };
  const fill = () => {
    const sides = ["host", "dpu"].every((name) => result.findings.some(({ side }) => side === name));
    const items = (finding) => findingOf(finding, opened, acts, sides);
    const bad = result.findings.filter((finding) => WRONG.includes(finding.verdict));
    wrong.hidden = !bad.length;
    wrong.replaceChildren(...bad.map(items));
    const left = result.left_out ? `${plural(result.left_out, "more finding")}: dgkit doctor --json lists all.` : "";
    none.textContent = [bad.length ? "" : "No problems found.", left].filter(Boolean).join(" ");
    folds.forEach((group) => fold(group, items));
  };
  const draw = (rest) => {
    if (!result) return;
    const key = part.contains(document.activeElement) ? focusedElement().dataset.key : null;
    fill();
    if (!key) return;
    const same = part.querySelector(`[data-key="${CSS.escape(key)}"]`);
    (same ?? rest).focus();
  };
  return {
    part,
    show: (latest, rest) => {
      result = latest;
      draw(rest);
    },
    only: (on) => {
      onlyWrong = on;
      draw(null);
    },
  };
}
